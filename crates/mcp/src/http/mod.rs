//! MCP over streamable HTTP: one address, `/mcp`, for any number of clients.
//!
//! [`serve_http`] listens; the door looks at every request first; a session is a client of the revisions with a
//! handshake, and the newest revision goes without; a stream is what one of them is told, kept to be told again.

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
