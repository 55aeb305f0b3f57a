//! Planned runs: a graph of tasks, agents that work on branches, refineries that merge them.
//!
//! Everything that a run is lies in its artifacts and in git; an [`Executor`] that was killed is followed by another one
//! that reads them and goes on.

mod captain;
mod changes;
mod desk;
mod executor;
mod followups;
mod heard;
mod home;
mod lock;
mod merging;
mod prompts;
mod review;
mod working;

pub use captain::CaptainLog;
pub use executor::{Executor, ExecutorConfig, RunSummary};
pub use home::{ForgeDir, Run};
pub use lock::ExecutorLock;
