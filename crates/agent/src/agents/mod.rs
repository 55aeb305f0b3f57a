//! Sub-agents: definitions, permissions and supervision.
//!
//! A child has at most what its parent has: some of its tools and roots, its remaining budget, and a mode that is not
//! looser. It ends with its parent.

mod child;
mod kinds;
mod purse;
mod rights;
mod supervisor;
mod transcript;

pub use kinds::{AgentDefinition, AgentDefinitions, ToolAccess};
pub use supervisor::{AgentLimits, Inbox, MODEL_ALIASES, Registration, Supervisor, Wake};
