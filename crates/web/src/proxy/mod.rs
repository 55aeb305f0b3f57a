//! The way out for commands that may reach some hosts: a proxy on a socket of this machine.
//!
//! A command in the sandbox has a network of its own with nothing in it. What it sends to the proxy comes here, where
//! the host is looked for on the operator's list, looked up once, judged by the guard, and dialled at the judged address.
//!
//! - `hosts`: the list.
//! - `hello`: the name that a TLS client asks for, which must be the one the proxy was told.
//! - `serve`: requests, one by one.
//! - `listen`: the socket.

mod hello;
mod hosts;
mod listen;
mod serve;

pub use hosts::HostAllowlist;
pub use listen::{ProxyListener, listen, listen_in_private_dir};
pub use serve::ProxyGateway;
