//! What an agent does while nobody watches: schedules, and each of their runs.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    leases::Lease,
    store::{NoStore, no_store_error},
};
use crate::Result;

/// Schedules and their runs. An occurrence is one schedule at one due time; it is claimed with a lease, so that two
/// processes never run it twice. Times are those of the store's clock: `created`, `updated` and `finished` of what is
/// passed are ignored.
#[async_trait]
pub trait Schedules: Send + Sync {
    /// What time it is by the store's clock, by which everything here is due.
    async fn time(&self) -> Result<Timestamp>;
    /// Keeps a new schedule. Answers it as it is kept.
    async fn add_schedule(&self, schedule: &Schedule) -> Result<Schedule>;
    /// One schedule.
    async fn schedule(&self, id: &str) -> Result<Option<Schedule>>;
    /// Replaces a schedule, unless it changed since `seen` (its `updated`); then `false`.
    async fn update_schedule(&self, schedule: &Schedule, seen: Timestamp) -> Result<bool>;
    /// Removes a schedule and its runs. Whether there was one.
    async fn remove_schedule(&self, id: &str) -> Result<bool>;
    /// Schedules that fit, newest first, and how many fit in all.
    async fn schedules(&self, which: &ScheduleFilter) -> Result<(Vec<Schedule>, u64)>;
    /// Active schedules whose time has come, the longest overdue first.
    async fn due_schedules(&self, most: usize) -> Result<Vec<Schedule>>;
    /// Active schedules that last began more than this in the future, because a clock was wrong.
    async fn begun_ahead(&self, by: Duration) -> Result<Vec<Schedule>>;
    /// Claims one occurrence, and moves the schedule on to `next`. `None`: somebody else has it, it was
    /// claimed before, or the last run of the schedule is not over.
    async fn claim_run(&self, claim: &LeaseClaim) -> Result<Option<Claimed>>;
    /// Leaves out an occurrence: moves the schedule on from `due` to `next`, and counts what was left out. `false`: it
    /// has moved on already.
    async fn skip_occurrence(
        &self,
        schedule: &str,
        due: Timestamp,
        next: Option<Timestamp>,
        count: u64,
    ) -> Result<bool>;
    /// Renews the lease of a run from now on.
    async fn renew_lease(&self, lease: &Lease, length: Duration) -> Result<Lease>;
    /// Lets go of a run that has not ended: whoever looks next takes it over.
    async fn release(&self, lease: &Lease) -> Result<()>;
    /// Takes over runs whose lease has run out, for so long; each is labelled as another attempt. Oldest first.
    async fn take_over_expired(&self, owner: &str, length: Duration, most: usize) -> Result<Vec<Claimed>>;
    /// Ends a run, together with what follows for its schedule. Answers the run as it is kept.
    async fn finish_run(&self, lease: &Lease, finish: &RunCompletion) -> Result<ScheduleRun>;
    /// The last runs of a schedule, newest first.
    async fn runs(&self, schedule: &str, most: usize) -> Result<Vec<ScheduleRun>>;
    /// One run.
    async fn run(&self, id: &str) -> Result<Option<ScheduleRun>>;
}

/// A task that is done at set times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// A UUID.
    pub id: String,
    /// Whose it is.
    pub user: String,
    /// A short name.
    pub name: Option<String>,
    /// What to do, as a complete prompt.
    pub goal: String,
    /// When.
    pub cadence: Cadence,
    /// Who hears of it.
    pub notification: Notification,
    /// Whether it runs.
    pub status: ScheduleStatus,
    /// Where the prompt goes: into this conversation, or into one of its own.
    pub session: Option<String>,
    /// The conversation that made it; results are delivered there.
    #[serde(default)]
    pub origin: Option<String>,
    /// The channel that notices go to, as `channel:address`.
    pub channel: Option<String>,
    /// The folder it works in.
    pub workspace: Option<String>,
    /// The dialect that its tools speak.
    pub dialect: Option<String>,
    /// What becomes of occurrences that nobody was there for.
    pub missed: MissedRunPolicy,
    /// When it was made.
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
    /// When it is due next; none while it is paused or over.
    pub next: Option<Timestamp>,
    /// When it last began.
    pub last_run: Option<Timestamp>,
    /// How that ended.
    pub last_status: Option<ScheduleRunStatus>,
    /// Failures since the last success.
    pub failures: u32,
    /// Occurrences that were left out: nobody was there for them, or the run before was not over.
    #[serde(default)]
    pub skipped: u64,
}

/// When a schedule runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Cadence {
    /// Once.
    Once {
        /// When.
        at: Timestamp,
    },
    /// By a cron expression of five fields.
    Cron {
        /// The expression.
        expression: String,
        /// IANA name of the zone it is read in.
        timezone: String,
    },
    /// Again and again.
    Interval {
        /// Seconds between two beginnings.
        every_secs: u64,
    },
}

/// Who hears of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Notification {
    /// The channel hears every result.
    #[default]
    Always,
    /// The channel hears results that the agent marked.
    Conditional,
    /// Nobody.
    Never,
}

/// Whether a schedule runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleStatus {
    /// It runs when due.
    Active,
    /// The user stopped it for a while.
    Paused,
    /// A one-off that succeeded.
    Completed,
    /// A one-off that failed.
    Failed,
    /// Stopped after too many failures.
    Disabled,
}

/// What becomes of occurrences that nobody was there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissedRunPolicy {
    /// They are left out.
    Skip,
    /// One run makes up for all.
    #[default]
    Once,
    /// Each is made up for, within a window.
    All,
}

/// The operator's rules for schedules, and what a schedule takes over from the conversation it is made in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRules {
    /// IANA name of the zone that times are read in where none is named.
    pub timezone: String,
    /// The least time between two runs of one schedule.
    pub min_interval: Duration,
    /// How many schedules a user may have.
    pub max_per_user: u64,
    /// Where the user of this conversation is told of results, as `channel:address`.
    pub channel: Option<String>,
    /// The dialect that is spoken here.
    pub dialect: Option<String>,
    /// Whether this process runs schedules when they are due.
    pub is_driven: bool,
}

impl Default for ScheduleRules {
    fn default() -> Self {
        Self {
            timezone: "UTC".into(),
            min_interval: Duration::from_secs(60),
            max_per_user: 50,
            channel: None,
            dialect: None,
            is_driven: false,
        }
    }
}

/// Which schedules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleFilter {
    /// Of this user.
    pub user: Option<String>,
    /// Whose name has this in it, without regard to case.
    pub name: Option<String>,
    /// In this state.
    pub status: Option<ScheduleStatus>,
    /// `once`, `cron` or `interval`.
    pub cadence: Option<String>,
    /// With this notification.
    pub notification: Option<Notification>,
    /// That go into this conversation.
    pub session: Option<String>,
    /// How many to skip.
    pub offset: u64,
    /// How many at most.
    pub limit: u64,
}

/// A claim to one occurrence.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseClaim {
    /// The schedule.
    pub schedule: String,
    /// The due time that was seen; the claim fails if the schedule has moved on.
    pub due: Timestamp,
    /// When it is due after this.
    pub next: Option<Timestamp>,
    /// Who claims.
    pub owner: String,
    /// How long the lease lasts.
    pub length: Duration,
    /// The id of the run.
    pub run: String,
    /// Occurrences before this one that it makes up for or that are left out; they are counted.
    pub skipped: u64,
    /// What becomes of this occurrence while another run of the schedule goes on.
    pub overlap: OverlapPolicy,
}

/// What becomes of an occurrence while another run of the schedule goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlapPolicy {
    /// It is left out, and counted.
    #[default]
    Skip,
    /// It stays due.
    Wait,
    /// It was asked for by hand: the schedule need not be due, and keeps its plan. It is refused while another runs.
    Manual,
}

/// A run, and the lease of whoever runs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The run.
    pub run: ScheduleRun,
    /// Its lease.
    pub lease: Lease,
}

/// One run of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRun {
    /// A UUID.
    pub id: String,
    /// The schedule.
    pub schedule: String,
    /// The due time it answers.
    pub due: Timestamp,
    /// 1, and one more each time it was taken over.
    pub attempt: u32,
    /// Who runs it.
    pub owner: String,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// How it stands.
    pub status: ScheduleRunStatus,
    /// The beginning of the output.
    pub summary: String,
    /// All of the output; empty in lists.
    pub output: String,
    /// Turns of the model.
    pub turns: u32,
    /// US dollars.
    pub cost: f64,
    /// Whether somebody was told.
    pub notified: bool,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleRunStatus {
    /// It runs.
    Running,
    /// It did what was asked.
    Success,
    /// It did not.
    Failed,
    /// It was stopped.
    Cancelled,
    /// It ended, and at least one of its calls was refused: the work may not be done.
    Refused,
}

/// The end of a run, and what follows for its schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct RunCompletion {
    /// The run as it ended.
    pub run: ScheduleRun,
    /// The schedule's state from now on, where it changes.
    pub status: Option<ScheduleStatus>,
    /// Failures in a row from now on.
    pub failures: u32,
    /// How many runs are kept.
    pub keep_runs: usize,
}

#[async_trait]
impl Schedules for NoStore {
    async fn time(&self) -> Result<Timestamp> {
        Ok(Timestamp::now())
    }
    async fn add_schedule(&self, _: &Schedule) -> Result<Schedule> {
        no_store_error()
    }
    async fn schedule(&self, _: &str) -> Result<Option<Schedule>> {
        Ok(None)
    }
    async fn update_schedule(&self, _: &Schedule, _: Timestamp) -> Result<bool> {
        no_store_error()
    }
    async fn remove_schedule(&self, _: &str) -> Result<bool> {
        Ok(false)
    }
    async fn schedules(&self, _: &ScheduleFilter) -> Result<(Vec<Schedule>, u64)> {
        Ok((Vec::new(), 0))
    }
    async fn due_schedules(&self, _: usize) -> Result<Vec<Schedule>> {
        Ok(Vec::new())
    }
    async fn begun_ahead(&self, _: Duration) -> Result<Vec<Schedule>> {
        Ok(Vec::new())
    }
    async fn claim_run(&self, _: &LeaseClaim) -> Result<Option<Claimed>> {
        Ok(None)
    }
    async fn skip_occurrence(&self, _: &str, _: Timestamp, _: Option<Timestamp>, _: u64) -> Result<bool> {
        Ok(false)
    }
    async fn renew_lease(&self, _: &Lease, _: Duration) -> Result<Lease> {
        no_store_error()
    }
    async fn release(&self, _: &Lease) -> Result<()> {
        no_store_error()
    }
    async fn take_over_expired(&self, _: &str, _: Duration, _: usize) -> Result<Vec<Claimed>> {
        Ok(Vec::new())
    }
    async fn finish_run(&self, _: &Lease, _: &RunCompletion) -> Result<ScheduleRun> {
        no_store_error()
    }
    async fn runs(&self, _: &str, _: usize) -> Result<Vec<ScheduleRun>> {
        Ok(Vec::new())
    }
    async fn run(&self, _: &str) -> Result<Option<ScheduleRun>> {
        Ok(None)
    }
}
