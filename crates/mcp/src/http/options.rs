//! What an operator decides about a server over HTTP, and where its sessions come from.

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;
use hyper::{Request, StatusCode, body::Incoming};

use super::body::HttpReply;
use crate::server::McpService;

/// What an operator decides about a server over HTTP.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Who may ask: each token is a caller of its own, and sees no session of another. Empty: anybody may.
    pub tokens: Vec<String>,
    /// Names that we answer to, beside the loopback names: `host` or `host:port`.
    pub hosts: Vec<String>,
    /// Web pages that may ask, beside our own: `https://host`.
    pub origins: Vec<String>,
    /// Bytes of one request.
    pub max_body_bytes: usize,
    /// Sessions at the same time.
    pub max_sessions: usize,
    /// How long a session that nobody uses lasts.
    pub idle_timeout: Duration,
    /// Requests under way at the same time, of all clients together.
    pub max_in_flight: usize,
    /// Connections at the same time. Three quarters of them may be from clients that have not authenticated, and half
    /// from one address of such clients; beyond that, the oldest of these is closed. Each connection takes a file descriptor.
    pub max_connections: usize,
    /// How long a client that has not authenticated may take for the head of a request.
    pub head_timeout: Duration,
    /// How long a call goes on whose client went away and may come back for the rest.
    pub reconnect_grace: Duration,
    /// How long requests under way may still take when the server is to end.
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

/// Where the sessions of a server over HTTP come from: each has tasks and grants of its own.
#[async_trait]
pub trait McpSessionFactory: Send + Sync {
    /// A server for a new session.
    async fn open(&self) -> io::Result<Arc<McpService>>;

    /// The session is over: what it still runs ends.
    async fn close(&self, server: Arc<McpService>);
}

/// Who stands at the door, as far as it can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestAccess {
    /// Somebody with a token in the header, or anybody where no token is asked for.
    Authenticated,
    /// Somebody without: by another sign, or for what is open to all.
    Anonymous,
    /// A name or a page that is not ours, or more than there is room for. Answered with this, and nothing else.
    Refused(StatusCode, String),
}

/// Further addresses on the same listener, beside `/mcp`.
#[async_trait]
pub trait ExtraRoutes: Send + Sync {
    /// Answers a request. Its extensions hold the [`McpConnection`](super::McpConnection): one that is let in by another sign
    /// than a token is reported with [`set_authenticated`](super::McpConnection::set_authenticated). Whether a stranger may have what it asks for is decided here.
    async fn handle(&self, request: Request<Incoming>, entrance: RequestAccess) -> HttpReply;
}
