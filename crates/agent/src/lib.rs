//! The agent loop: connects a model with the tools of an [`Engine`].
//!
//! [`Agent`] is one session. [`model`] connects to any OpenAI-compatible endpoint. [`SessionFactory`] creates what a
//! session needs; the command line has one, and embedders write their own.

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
