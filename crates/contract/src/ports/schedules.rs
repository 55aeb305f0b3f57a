//! The `Schedules` port: prompts that run at set times, and their runs.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    leases::Lease,
    store::{NoStore, no_store_error},
};
use crate::Result;

/// Schedules and their runs. An occurrence is one schedule at one due time. A process claims it with a lease, so that
/// it never runs twice. Times come from the store's clock: `created`, `updated` and `finished` in the arguments are
/// ignored.
#[async_trait]
pub trait Schedules: Send + Sync {
    /// The time of the store's clock, which decides what is due.
    async fn time(&self) -> Result<Timestamp>;
    /// Stores a new schedule and returns the stored form.
    async fn add_schedule(&self, schedule: &Schedule) -> Result<Schedule>;
    /// One schedule.
    async fn schedule(&self, id: &str) -> Result<Option<Schedule>>;
    /// Replaces a schedule. `false` if it changed since `seen` (its `updated`).
    async fn update_schedule(&self, schedule: &Schedule, seen: Timestamp) -> Result<bool>;
    /// Removes a schedule and its runs. Returns whether it existed.
    async fn remove_schedule(&self, id: &str) -> Result<bool>;
    /// The matching schedules, newest first, and the total number of matches.
    async fn schedules(&self, which: &ScheduleFilter) -> Result<(Vec<Schedule>, u64)>;
    /// Active schedules that are due, the longest overdue first.
    async fn due_schedules(&self, most: usize) -> Result<Vec<Schedule>>;
    /// Active schedules whose last start lies more than `by` in the future, because a clock was wrong.
    async fn begun_ahead(&self, by: Duration) -> Result<Vec<Schedule>>;
    /// Claims one occurrence, and advances the schedule to `next`. `None`: another process has it, it was claimed
    /// before, or the previous run has not ended.
    async fn claim_run(&self, claim: &LeaseClaim) -> Result<Option<Claimed>>;
    /// Skips an occurrence: advances the schedule from `due` to `next` and counts it as skipped. `false`: the schedule
    /// has already advanced.
    async fn skip_occurrence(
        &self,
        schedule: &str,
        due: Timestamp,
        next: Option<Timestamp>,
        count: u64,
    ) -> Result<bool>;
    /// Renews the lease of a run from now.
    async fn renew_lease(&self, lease: &Lease, length: Duration) -> Result<Lease>;
    /// Releases an unfinished run; the next process takes it over.
    async fn release(&self, lease: &Lease) -> Result<()>;
    /// Takes over runs with an expired lease, for `length`. Each counts as another attempt. Oldest first.
    async fn take_over_expired(&self, owner: &str, length: Duration, most: usize) -> Result<Vec<Claimed>>;
    /// Ends a run and updates its schedule. Returns the stored run.
    async fn finish_run(&self, lease: &Lease, finish: &RunCompletion) -> Result<ScheduleRun>;
    /// The last runs of a schedule, newest first.
    async fn runs(&self, schedule: &str, most: usize) -> Result<Vec<ScheduleRun>>;
    /// One run.
    async fn run(&self, id: &str) -> Result<Option<ScheduleRun>>;
}

/// A prompt that runs at set times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// A UUID.
    pub id: String,
    /// The user that owns it.
    pub user: String,
    /// A short name.
    pub name: Option<String>,
    /// The complete prompt.
    pub goal: String,
    /// When it runs.
    pub cadence: Cadence,
    /// Which results the user is notified of.
    pub notification: Notification,
    /// Whether it is active.
    pub status: ScheduleStatus,
    /// The session that gets the prompt; `None` for a new one.
    pub session: Option<String>,
    /// The session that created it; results are delivered there.
    #[serde(default)]
    pub origin: Option<String>,
    /// The channel for notifications, as `channel:address`.
    pub channel: Option<String>,
    /// The directory it works in.
    pub workspace: Option<String>,
    /// The dialect of its tools.
    pub dialect: Option<String>,
    /// What happens to missed occurrences.
    pub missed: MissedRunPolicy,
    /// When it was made.
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
    /// When it is due next; none while it is paused or finished.
    pub next: Option<Timestamp>,
    /// When it last started.
    pub last_run: Option<Timestamp>,
    /// How the last run ended.
    pub last_status: Option<ScheduleRunStatus>,
    /// The number of failures since the last success.
    pub failures: u32,
    /// The number of skipped occurrences: missed, or due while the previous run was active.
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
        /// IANA name of the time zone of the expression.
        timezone: String,
    },
    /// At a fixed interval.
    Interval {
        /// Seconds between two starts.
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

/// What happens to missed occurrences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissedRunPolicy {
    /// They are skipped.
    Skip,
    /// One run replaces all of them.
    #[default]
    Once,
    /// Each runs later, within a window.
    All,
}

/// The operator's rules for schedules, and the defaults that a schedule takes from its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRules {
    /// IANA name of the default time zone.
    pub timezone: String,
    /// The minimum time between two runs of one schedule.
    pub min_interval: Duration,
    /// The maximum number of schedules of a user.
    pub max_per_user: u64,
    /// Where the user of this session is notified of results, as `channel:address`.
    pub channel: Option<String>,
    /// The dialect of this session.
    pub dialect: Option<String>,
    /// Whether this process runs due schedules.
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

/// A filter for schedules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleFilter {
    /// The owner.
    pub user: Option<String>,
    /// A part of the name, ignoring case.
    pub name: Option<String>,
    /// The state.
    pub status: Option<ScheduleStatus>,
    /// `once`, `cron` or `interval`.
    pub cadence: Option<String>,
    /// The notification setting.
    pub notification: Option<Notification>,
    /// The session that gets the prompt.
    pub session: Option<String>,
    /// The number of schedules to skip.
    pub offset: u64,
    /// The maximum number of schedules.
    pub limit: u64,
}

/// A claim of one occurrence.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseClaim {
    /// The schedule.
    pub schedule: String,
    /// The due time that the caller saw; the claim fails if the schedule has advanced.
    pub due: Timestamp,
    /// When it is due after this.
    pub next: Option<Timestamp>,
    /// The claiming process.
    pub owner: String,
    /// How long the lease lasts.
    pub length: Duration,
    /// The id of the run.
    pub run: String,
    /// The number of earlier occurrences that this one replaces or that are skipped.
    pub skipped: u64,
    /// What happens to this occurrence while another run of the schedule is active.
    pub overlap: OverlapPolicy,
}

/// What happens to an occurrence while another run of the schedule is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlapPolicy {
    /// It is skipped and counted.
    #[default]
    Skip,
    /// It stays due.
    Wait,
    /// A user requested it: the schedule need not be due, and its plan stays. It is refused while another run is
    /// active.
    Manual,
}

/// A run with the lease of its process.
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
    /// The due time of its occurrence.
    pub due: Timestamp,
    /// The number of the attempt, from 1; each takeover adds one.
    pub attempt: u32,
    /// The process that runs it.
    pub owner: String,
    /// When it started.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// Its status.
    pub status: ScheduleRunStatus,
    /// The beginning of the output.
    pub summary: String,
    /// The whole output; empty in lists.
    pub output: String,
    /// The number of model turns.
    pub turns: u32,
    /// The cost in US dollars.
    pub cost: f64,
    /// Whether somebody was notified.
    pub notified: bool,
}

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleRunStatus {
    /// It runs.
    Running,
    /// It succeeded.
    Success,
    /// It failed.
    Failed,
    /// It was stopped.
    Cancelled,
    /// It ended, but at least one of its calls was refused: the work may be incomplete.
    Refused,
}

/// The end of a run, and the update of its schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct RunCompletion {
    /// The run as it ended.
    pub run: ScheduleRun,
    /// The new state of the schedule, if it changes.
    pub status: Option<ScheduleStatus>,
    /// The new number of consecutive failures.
    pub failures: u32,
    /// The number of runs to keep.
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
