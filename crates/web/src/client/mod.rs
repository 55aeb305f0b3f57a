//! The guarded client: one request, one connection to a judged address, one bounded answer.
//!
//! - `message`: what is asked and what comes back.
//! - `wire`: the connection, straight or by the operator's proxy.
//! - `decode`: bodies, unpacked up to a limit.
//! - `send`: the way from hop to hop.

mod decode;
mod message;
mod send;
mod wire;

pub use message::{HttpLimits, HttpRequest, HttpResponse};
pub use send::GuardedClient;
pub use wire::{MaybeTlsStream, UpstreamProxy};
