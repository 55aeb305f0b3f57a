//! An MCP server and client for the tools of an engine.
//!
//! [`McpService`] is what is offered, [`Peer`] is one client with its requests, [`Outbox`] sends messages to it.
//! [`serve_stdio`] connects them over standard input and output. The protocol is implemented here to keep the cost of
//! a call low.

mod answer;
mod call;
pub mod client;
mod elicit;
mod fixtures;
mod flight;
mod http;
mod lane;
mod lines;
mod peer;
mod progress;
mod resources;
mod revision;
mod roots;
mod server;
mod stdio;
#[cfg(any(test, fuzzing))]
pub mod trials;
mod user;
mod wire;

pub use elicit::ElicitApprover;
pub use http::{
    Connection as HttpConnection, ExtraRoutes, HttpBody, HttpConfig, HttpReply, McpSessionFactory, RequestAccess,
    is_loopback, serve_http, serve_http_with_routes,
};
pub use peer::{MessageResponse, Outbox, Peer, PendingResponse};
pub use server::{McpServerConfig, McpService};
pub use stdio::{serve, serve_stdio};
pub use user::ElicitUser;
