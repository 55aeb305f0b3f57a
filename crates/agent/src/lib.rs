//! The agent: a loop that talks to a model and gives it hands through [`Engine`].
//!
//! [`Agent`] is one conversation. [`model`] speaks to any OpenAI-compatible endpoint. [`SessionFactory`] makes what a
//! conversation needs; the command line has one, and whoever embeds this writes his own.

mod agent;
mod agents;
mod attachments;
mod calls;
mod circles;
mod compact;
pub mod definitions;
mod event;
pub mod forge;
mod history;
pub mod model;
pub mod prompt;
pub mod scheduler;
mod turn;
mod workshop;

pub use agent::{Agent, AgentHandle, Budget, Charges, TurnOutcome, TurnStopReason};
pub use agents::{
    AgentDefinition, AgentDefinitions, AgentLimits, Inbox, MODEL_ALIASES, Registration, Supervisor, ToolAccess, Wake,
};
pub use attachments::ATTACHED;
pub use event::{AgentEvent, AgentListener};
pub use helve_engine::Engine;
pub use workshop::{SessionFactory, SessionSpec};
