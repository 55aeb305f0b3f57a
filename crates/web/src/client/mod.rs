//! The guarded client: one request over one connection to a checked address, with a bounded response.
//!
//! - `message`: requests and responses.
//! - `wire`: the connection, direct or through the operator's proxy.
//! - `decode`: decompression up to a limit.
//! - `send`: redirects, hop by hop.

mod decode;
mod message;
mod send;
mod wire;

pub use message::{HttpLimits, HttpRequest, HttpResponse};
pub use send::GuardedClient;
pub use wire::{MaybeTlsStream, UpstreamProxy};
