//! Planned runs: a task graph, agents on branches, and refineries that merge them.
//!
//! A run consists of its artifacts and git; after a killed [`Executor`], the next one reads them and continues.

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
