//! MCP over streamable HTTP: one path, `/mcp`, for any number of clients.
//!
//! [`serve_http`] listens and checks access first. Revisions with a handshake use sessions; the newest is stateless.
//! A stream keeps its events, so that clients can resume it.

mod body;
mod connections;
mod door;
mod listen;
mod mirror;
mod options;
mod post;
mod session;
mod stream;

pub use body::{HttpBody, HttpReply};
pub use connections::Connection;
pub use door::is_loopback;
pub use listen::{serve_http, serve_http_with_routes};
pub use options::{ExtraRoutes, HttpConfig, McpSessionFactory, RequestAccess};
