//! The settings of an HTTP server, and the source of its sessions.

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;
use hyper::{Request, StatusCode, body::Incoming};

use super::body::HttpReply;
use crate::server::McpService;

/// The operator's settings of an HTTP server.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// The accepted tokens: each is a separate caller that sees no session of another. Empty: no token is required.
    pub tokens: Vec<String>,
    /// Accepted host names besides the loopback names: `host` or `host:port`.
    pub hosts: Vec<String>,
    /// Accepted web origins besides the server's own: `https://host`.
    pub origins: Vec<String>,
    /// Bytes of one request.
    pub max_body_bytes: usize,
    /// Sessions at the same time.
    pub max_sessions: usize,
    /// How long an idle session lasts.
    pub idle_timeout: Duration,
    /// Requests under way at the same time, of all clients together.
    pub max_in_flight: usize,
    /// Connections at the same time. Three quarters of them may be from clients that have not authenticated, and half
    /// from one address of such clients; beyond that, the oldest of these is closed. Each connection takes a file descriptor.
    pub max_connections: usize,
    /// The timeout for the request head of an unauthenticated client.
    pub head_timeout: Duration,
    /// How long a call continues after its client disconnected and may resume.
    pub reconnect_grace: Duration,
    /// How long running requests may take at shutdown.
    pub drain_timeout: Duration,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            hosts: Vec::new(),
            origins: Vec::new(),
            max_body_bytes: 8 << 20,
            max_sessions: 1024,
            idle_timeout: Duration::from_secs(30 * 60),
            max_in_flight: 2048,
            max_connections: 2048,
            head_timeout: Duration::from_secs(10),
            reconnect_grace: Duration::from_secs(5),
            drain_timeout: Duration::ZERO,
        }
    }
}

/// Creates the sessions of an HTTP server: each has separate tasks and grants.
#[async_trait]
pub trait McpSessionFactory: Send + Sync {
    /// A server for a new session.
    async fn open(&self) -> io::Result<Arc<McpService>>;

    /// Ends a session and what it runs.
    async fn close(&self, server: Arc<McpService>);
}

/// The result of the access checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestAccess {
    /// The request has a valid token, or none is required.
    Authenticated,
    /// The request has no token: another check applies, or the content is public.
    Anonymous,
    /// The host or origin is not allowed, or a limit is exceeded. The server answers only with this.
    Refused(StatusCode, String),
}

/// Additional routes on the same listener, besides `/mcp`.
#[async_trait]
pub trait ExtraRoutes: Send + Sync {
    /// Answers a request. Its extensions contain the [`Connection`](super::Connection). A client that is authenticated
    /// without a token is reported with [`set_authenticated`](super::Connection::set_authenticated).
    /// The route decides what an unauthenticated client may access.
    async fn handle(&self, request: Request<Incoming>, entrance: RequestAccess) -> HttpReply;
}
