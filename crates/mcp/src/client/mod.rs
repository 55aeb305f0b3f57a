//! The other side: tools and resources of MCP servers, for an engine.
//!
//! [`Servers::start`] starts every configured server in the background and keeps it; [`Servers::entries`] are the tools
//! of those that answer. What a server says is a stranger's text: it is bounded, cleaned and pinned, and it never
//! lowers what the gate asks.

mod call;
mod connect;
mod definition;
mod http;
mod keeper;
mod ledger;
mod lines;
mod link;
mod name;
mod resources;
mod servers;
mod settings;
mod sse;
mod stdio;
mod text;

pub use servers::{Changed, LeftOut, Report, Servers, Status};
pub use settings::{Folders, Settings, Transport};
