//! The tools of an engine for any MCP client.
//!
//! [`Server`] is what is offered, [`PeerProcess`] is one client and what it has asked for, [`Outbox`] is the way back to it.
//! [`serve_stdio`] joins them over standard input and output. The protocol is written out here, small, because a call
//! must cost little more than the pipe it comes through.

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
