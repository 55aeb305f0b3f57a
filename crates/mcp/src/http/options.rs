//! What an operator decides about a server over HTTP, and where its sessions come from.

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::server::Server;

/// What an operator decides about a server over HTTP.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Who may ask: each token is a caller of its own, and sees no session of another. Empty: anybody may.
    pub tokens: Vec<String>,
    /// Names that we answer to, beside the loopback names: `host` or `host:port`.
    pub hosts: Vec<String>,
    /// Web pages that may ask, beside our own: `https://host`.
    pub origins: Vec<String>,
    /// Bytes of one request.
    pub body: usize,
    /// Sessions at the same time.
    pub sessions: usize,
    /// How long a session that nobody uses lasts.
    pub idle: Duration,
    /// Requests under way at the same time, of all clients together.
    pub in_flight: usize,
    /// Connections at the same time.
    pub connections: usize,
    /// How long a call goes on whose client went away and may come back for the rest.
    pub grace: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            hosts: Vec::new(),
            origins: Vec::new(),
            body: 8 << 20,
            sessions: 64,
            idle: Duration::from_secs(30 * 60),
            in_flight: 2048,
            connections: 2048,
            grace: Duration::from_secs(5),
        }
    }
}

/// Where the sessions of a server over HTTP come from: each has tasks and grants of its own.
#[async_trait]
pub trait Rooms: Send + Sync {
    /// A server for a new session.
    async fn open(&self) -> io::Result<Arc<Server>>;

    /// The session is over: what it still runs ends.
    async fn close(&self, server: Arc<Server>);
}
