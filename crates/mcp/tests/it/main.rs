//! A client at one end of a pipe, the server at the other, a tiny dialect behind it.
#![allow(clippy::unwrap_used, missing_docs)]

mod approvals;
mod bad_input;
mod calls;
mod client;
mod dialect;
mod fake_server;
mod handshake;
mod http;
mod outside_http;
mod outside_tools;
mod resources;
mod roots;
mod web;
