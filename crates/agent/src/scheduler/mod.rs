//! The scheduler: claims each due occurrence, runs it, and stores the result.
//!
//! Several processes may drive one store. One of them starts an occurrence; if it dies, another takes it over and
//! labels it as a further attempt.

mod agent;
mod conclude;
mod driver;
mod origin;
mod plan;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

pub use agent::{AgentRunner, SessionDelivery, run_prompt};
pub use conclude::NOTIFY_MARKER;
pub use driver::{Scheduler, TickSummary};
use helve_contract::{
    CancellationToken, async_trait,
    ports::{Schedule, ScheduleRun, ScheduleRunStatus},
};
pub use origin::ToOrigin;

/// Does what a schedule asks for.
#[async_trait]
pub trait ScheduleRunner: Send + Sync {
    /// Runs one occurrence. When `cancel` is set it stops soon, and its answer does not matter any more.
    async fn run(&self, schedule: &Schedule, run: &ScheduleRun, cancel: CancellationToken) -> RunOutcome;
}

/// How a run went.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// What it said.
    pub output: String,
    /// How it ended.
    pub status: ScheduleRunStatus,
    /// Turns of the model.
    pub turns: u32,
    /// US dollars.
    pub cost: f64,
}

impl RunOutcome {
    /// It did what was asked.
    #[must_use]
    pub fn success(output: impl Into<String>) -> Self {
        Self { output: output.into(), status: ScheduleRunStatus::Success, turns: 0, cost: 0.0 }
    }

    /// It did not; why, in words.
    #[must_use]
    pub fn failed(why: impl std::fmt::Display) -> Self {
        Self { output: format!("Error: {why}"), status: ScheduleRunStatus::Failed, turns: 0, cost: 0.0 }
    }
}

/// Tells people of results.
#[async_trait]
pub trait ScheduleNotifier: Send + Sync {
    /// Tells the owner of a schedule something. Whether somebody was reached.
    async fn notify(&self, schedule: &Schedule, text: &str) -> bool;
}

/// Tells nobody.
pub struct NoNotifier;

#[async_trait]
impl ScheduleNotifier for NoNotifier {
    async fn notify(&self, _: &Schedule, _: &str) -> bool {
        false
    }
}

/// The operator's settings.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    /// How often is looked for what is due.
    pub poll: Duration,
    /// How many runs go on at once in this process.
    pub max_concurrent: usize,
    /// How long a claim holds without being prolonged.
    pub lease: Duration,
    /// How late an occurrence may be before it counts as missed.
    pub grace: Duration,
    /// How far back missed occurrences are made up for, where each is.
    pub catch_up_window: Duration,
    /// How often a run is begun that a crash cut off.
    pub max_attempts: u32,
    /// How long a run may take.
    pub max_time: Duration,
    /// How many runs are kept a schedule.
    pub keep_runs: usize,
    /// After how many failures in a row the owner is told; 0 is never.
    pub notify_after_failures: u32,
    /// After how many failures in a row a schedule is disabled; 0 is never.
    pub disable_after_failures: u32,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(1),
            max_concurrent: 2,
            lease: Duration::from_secs(60),
            grace: Duration::from_secs(60),
            catch_up_window: Duration::from_secs(24 * 3600),
            max_attempts: 3,
            max_time: Duration::from_secs(30 * 60),
            keep_runs: 20,
            notify_after_failures: 3,
            disable_after_failures: 5,
        }
    }
}

/// Something that happened, for logs.
#[derive(Clone, Debug)]
pub enum SchedulerEvent {
    /// A run began.
    RunStarted(Box<Schedule>, Box<ScheduleRun>),
    /// A run ended.
    RunFinished(Box<Schedule>, Box<ScheduleRun>),
    /// Occurrences were left out: how many.
    Skipped(Box<Schedule>, u64),
    /// A run is somebody else's now.
    LeaseLost(Box<Schedule>, Box<ScheduleRun>),
    /// The store or the clock made trouble; in words.
    Error(String),
}

/// Hears what happens. It must not block.
pub type SchedulerListener = Arc<dyn Fn(&SchedulerEvent) + Send + Sync>;
