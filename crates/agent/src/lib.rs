//! The agent: a loop that talks to a model and gives it hands through [`Engine`].
//!
//! [`Agent`] is one conversation. [`model`] speaks to any OpenAI-compatible endpoint. [`Workshop`] makes what a
//! conversation needs; the command line has one, and whoever embeds this writes his own.

mod agent;
mod event;
pub mod model;
mod workshop;

pub use agent::{Agent, Budget, Ended, Handle, Outcome};
pub use event::{Event, Watcher};
pub use helve_engine::Engine;
pub use workshop::{Need, Workshop};
