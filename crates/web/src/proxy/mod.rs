//! The proxy for commands that may reach some hosts, on a local socket.
//!
//! A command in the sandbox has an empty network namespace. Its proxy requests arrive here: the host is matched
//! against the operator's list, resolved once, checked by the guard, and connected at the checked address.
//!
//! - `hosts`: the list.
//! - `hello`: the server name of a TLS client, which must match the tunnel's target.
//! - `serve`: requests, one by one.
//! - `listen`: the socket.

mod hello;
mod hosts;
mod listen;
mod serve;

pub use hosts::HostAllowlist;
pub use listen::{ProxyListener, listen, listen_in_private_dir};
pub use serve::ProxyGateway;
