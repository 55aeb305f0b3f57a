//! The tools of an engine for any MCP client.
//!
//! [`Server`] is what is offered, [`Peer`] is one client and what it has asked for, [`Outbox`] is the way back to it.
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
    Body as HttpBody, Connection as HttpConnection, Entrance, HttpOptions, Reply as HttpReply, Rooms, Routes,
    is_loopback, serve_http, serve_http_beside,
};
pub use peer::{Handled, Outbox, Peer, Work};
pub use server::{Options, Server};
pub use stdio::{serve, serve_stdio};
pub use user::ElicitUser;
