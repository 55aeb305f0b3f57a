//! Agents that a conversation starts: their kinds, their rights, and who looks after them.
//!
//! A child has no more than its parent: a part of its tools and roots, what is left of its budget, a mode that is never
//! looser. Whatever ends the parent ends it too.

mod child;
mod kinds;
mod purse;
mod rights;
mod supervisor;
mod transcript;

pub use kinds::{AgentDefinition, AgentDefinitions, ToolAccess};
pub use supervisor::{AgentLimits, Inbox, MODEL_ALIASES, Registration, Supervisor, Wake};
