//! The `Jobs` port: a queue of work that one worker at a time claims with a lease, with retries.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::leases::Lease;
use crate::{Error, Result, ids};

/// The maximum length of a job kind's name.
const MAX_KIND_NAME: usize = 32;
/// The maximum length of an idempotency key.
const MAX_KEY: usize = 256;

/// A queue of the jobs of one tenant.
///
/// A claim creates a lease, and every claim increases its epoch. [`hold`](Self::hold), [`finish`](Self::finish) and
/// [`hand_back`](Self::hand_back) take the lease; with a stale one they fail with [`Error::LeaseLost`] and write
/// nothing. An expired lease is valid until somebody claims the job. Callers pass durations; the clock of the queue
/// decides what is due and which lease has expired. Delivery is at least once: if a worker dies, the next one claims
/// the job, and each such claim counts as an attempt.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// Adds a job, unless the tenant has one with the same idempotency key.
    async fn enqueue(&self, job: &NewJob) -> Result<Enqueued>;
    /// Claims at most `limit` due jobs that the worker supports: highest priority first, then the longest due. Jobs
    /// with an expired lease are due. A cancelled job, or one without attempts left, ends instead.
    async fn claim(&self, worker: &Worker, length: Duration, limit: usize) -> Result<Vec<ClaimedJob>>;
    /// Renews a lease from now, and returns whether the job was cancelled meanwhile.
    async fn hold(&self, lease: &Lease, length: Duration) -> Result<HeldJob>;
    /// Ends an attempt. Returns the current job: ended, or queued for the next attempt.
    async fn finish(&self, lease: &Lease, result: JobResult) -> Result<Job>;
    /// Returns an unfinished job to the queue because the worker stops. It is due at once, and the claim does not count
    /// as an attempt. A cancelled job ends instead.
    async fn hand_back(&self, lease: &Lease) -> Result<Job>;
    /// Cancels a job and its descendants by `parent`. Queued jobs end at once; the worker of a running one learns it
    /// from its next [`hold`](Self::hold). Returns the current job. `None`: no such job.
    async fn cancel(&self, id: &JobId) -> Result<Option<Job>>;
    /// Queues a dead job again with all its attempts. Fails for a job in another state. `None`: no such job.
    async fn retry(&self, id: &JobId) -> Result<Option<Job>>;
    /// One job.
    async fn job(&self, id: &JobId) -> Result<Option<Job>>;
    /// The matching jobs, newest first and without payloads, and the total number of matches.
    async fn jobs(&self, filter: &JobFilter) -> Result<(Vec<Job>, u64)>;
    /// Removes jobs that ended longer ago than `age` and frees their idempotency keys. Returns the number removed.
    async fn remove_ended(&self, age: Duration) -> Result<u64>;
    /// Waits up to `timeout` until a job is added or changed since the call that returned `seen`. Returns the value for
    /// the next call. Start with 0, which returns at once. Changes by other processes may be missed: call
    /// [`claim`](Self::claim) after every return.
    async fn watch(&self, seen: u64, timeout: Duration) -> u64;
}

/// The id of a job: a UUID, version 7 for new ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(String);

impl JobId {
    /// A new id, which sorts after earlier ones.
    #[must_use]
    pub fn generate() -> Self {
        Self(ids::new_id())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JobId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if ids::is_id(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Error::failed(format!("`{}` is not the id of a job; write its UUID in full", text.escape_debug())))
        }
    }
}

impl TryFrom<String> for JobId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of a job and the version of its payload: `webhook/1`. A worker claims only kinds and versions that it
/// supports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobKind {
    name: Cow<'static, str>,
    version: u32,
}

impl JobKind {
    /// A request to an inbound webhook.
    pub const WEBHOOK: Self = Self { name: Cow::Borrowed("webhook"), version: 1 };

    /// A kind with this name: 1 to 32 lower-case letters, digits and `-`.
    ///
    /// ```
    /// use helve_contract::ports::JobKind;
    ///
    /// assert_eq!(JobKind::new("forge-task", 2)?.to_string(), "forge-task/2");
    /// assert!(JobKind::new("Forge task", 2).is_err());
    /// # Ok::<(), helve_contract::Error>(())
    /// ```
    pub fn new(name: &str, version: u32) -> Result<Self> {
        let is_plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
        if name.is_empty() || name.len() > MAX_KIND_NAME || !name.bytes().all(is_plain) {
            return Err(Error::failed(format!(
                "`{}` is not the name of a job kind; use 1 to {MAX_KIND_NAME} lower-case letters, digits and `-`",
                name.escape_debug()
            )));
        }
        Ok(Self { name: Cow::Owned(name.to_owned()), version })
    }

    /// The name of the kind.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of the payload.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.version)
    }
}

impl FromStr for JobKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.split_once('/').and_then(|(name, version)| Some((name, version.parse().ok()?)));
        let (name, version) = parsed.ok_or_else(|| {
            Error::failed(format!("`{}` is not a job kind; write NAME/VERSION, as webhook/1", text.escape_debug()))
        })?;
        Self::new(name, version)
    }
}

impl TryFrom<String> for JobKind {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<JobKind> for String {
    fn from(kind: JobKind) -> Self {
        kind.to_string()
    }
}

/// A worker that claims jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its unique name.
    pub owner: String,
    /// The kinds that it supports, in exactly these versions.
    pub kinds: Vec<JobKind>,
    /// The workspaces that it can work in. Every worker can claim jobs without a workspace.
    pub workspaces: Vec<String>,
}

impl Worker {
    /// A worker with a unique name for these kinds, without a workspace.
    #[must_use]
    pub fn new(kinds: impl Into<Vec<JobKind>>) -> Self {
        Self { owner: ids::new_id(), kinds: kinds.into(), workspaces: Vec::new() }
    }
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It waits for a worker, or for its next attempt.
    Queued,
    /// A worker has claimed it.
    Running,
    /// It finished its work.
    Done,
    /// It failed permanently: no attempt is left, or another one would not help. A person can retry it.
    Dead,
    /// Somebody cancelled it.
    Cancelled,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Queued, Self::Running, Self::Done, Self::Dead, Self::Cancelled];

    /// Its name in the store, the API and the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the state is final.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Done | Self::Dead | Self::Cancelled)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for JobState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|it| it.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::failed(format!("`{}` is not the state of a job; the states are {names}", text.escape_debug()))
        })
    }
}

/// A new job.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// The kind.
    pub kind: JobKind,
    /// The idempotency key, at most 256 bytes. The queue ignores a second job of the tenant with the same key.
    pub key: Option<String>,
    /// The user that owns it.
    pub user: String,
    /// The session it works in.
    pub session: Option<String>,
    /// The workspace it needs. Only workers with this workspace claim the job.
    pub workspace: Option<String>,
    /// The parent job; cancelling the parent cancels this job.
    pub parent: Option<JobId>,
    /// The data for the worker.
    pub payload: Value,
    /// Jobs with a higher priority are claimed first.
    pub priority: i32,
    /// The delay before it is due.
    pub delay: Duration,
    /// The maximum number of attempts, at least 1.
    pub max_attempts: u32,
    /// Refuse the job if the tenant has this many queued jobs of this kind, in any version.
    pub max_queued: Option<u64>,
}

impl NewJob {
    /// A job of this kind, due at once, with five attempts.
    #[must_use]
    pub fn new(kind: JobKind, user: impl Into<String>, payload: Value) -> Self {
        Self {
            kind,
            key: None,
            user: user.into(),
            session: None,
            workspace: None,
            parent: None,
            payload,
            priority: 0,
            delay: Duration::ZERO,
            max_attempts: 5,
            max_queued: None,
        }
    }

    /// Refuses a key that is empty or too long.
    pub fn check(&self) -> Result<()> {
        match self.key.as_deref().map(str::len) {
            Some(0) => Err(Error::failed("the idempotency key is empty; leave it out or send a unique text")),
            Some(length) if length > MAX_KEY => {
                Err(Error::failed(format!("the idempotency key has {length} bytes; it may have {MAX_KEY}")))
            }
            _ => Ok(()),
        }
    }
}

/// The result of adding a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// It was added.
    Added(JobId),
    /// The tenant already has this job with the same key, in any state.
    Existing(JobId),
    /// The queue is full: this many jobs of the kind are queued.
    QueueFull(u64),
}

/// A stored job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// The tenant.
    pub tenant: String,
    /// The kind.
    pub kind: JobKind,
    /// The idempotency key.
    pub key: Option<String>,
    /// The user that owns it.
    pub user: String,
    /// The session it works in.
    pub session: Option<String>,
    /// The workspace it needs.
    pub workspace: Option<String>,
    /// The parent job.
    pub parent: Option<JobId>,
    /// The data for the worker. Null once the job is done or cancelled.
    pub payload: Value,
    /// Jobs with a higher priority are claimed first.
    pub priority: i32,
    /// Its state.
    pub state: JobState,
    /// The number of claims that count as attempts, since it was added or retried.
    pub attempt: u32,
    /// The maximum number of attempts.
    pub max_attempts: u32,
    /// The number of claims. It never decreases.
    pub epoch: u64,
    /// The worker that holds it, while it runs.
    pub owner: Option<String>,
    /// When the lease expires.
    pub until: Option<Timestamp>,
    /// Whether it was cancelled while running, and its worker has not stopped yet.
    pub is_cancel_requested: bool,
    /// The result, once it is done.
    pub result: Option<Value>,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// When it was added.
    pub created: Timestamp,
    /// When it is or was due.
    pub run_at: Timestamp,
    /// When it was first claimed.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

/// A job with the lease of its worker.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedJob {
    /// The job.
    pub job: Job,
    /// The lease; its key is the id of the job.
    pub lease: Lease,
}

/// A renewed lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldJob {
    /// The lease.
    pub lease: Lease,
    /// Whether the job was cancelled: stop, and finish it as [`JobResult::Cancelled`].
    pub is_cancel_requested: bool,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum JobResult {
    /// The work is done, even if a cancellation came too late.
    Done(Value),
    /// It failed.
    Failed {
        /// The error message.
        error: String,
        /// The delay before the next attempt, if one is left. `None`: another attempt would not help.
        retry: Option<Duration>,
    },
    /// It stopped because it was cancelled.
    Cancelled,
}

/// A filter for jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// The state.
    pub state: Option<JobState>,
    /// The name of the kind, in any version.
    pub kind: Option<String>,
    /// The owners. Empty: every user.
    pub users: Vec<String>,
    /// The session.
    pub session: Option<String>,
    /// The parent job.
    pub parent: Option<JobId>,
    /// The number of jobs to skip.
    pub offset: u64,
    /// The maximum number of jobs.
    pub most: u64,
}

/// The delay after a failed attempt: 1 s, 4 s, 16 s, … up to 10 minutes.
#[must_use]
pub fn retry_delay(attempt: u32) -> Duration {
    const MAX: u64 = 600;
    Duration::from_secs(4_u64.checked_pow(attempt.saturating_sub(1)).map_or(MAX, |it| it.min(MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_ids_are_checked_where_they_are_read() {
        assert_eq!("webhook/1".parse::<JobKind>().unwrap(), JobKind::WEBHOOK);
        assert_eq!(serde_json::to_string(&JobKind::WEBHOOK).unwrap(), "\"webhook/1\"");
        for text in ["", "webhook", "webhook/", "webhook/x", "/1", "Web/1", "a b/1", "webhook/-1"] {
            assert!(text.parse::<JobKind>().is_err(), "{text}");
            assert!(serde_json::from_value::<JobKind>(text.into()).is_err(), "{text}");
        }
        let id = JobId::generate();
        assert_eq!(id.as_str().parse::<JobId>().unwrap(), id);
        assert_eq!(id.as_str().as_bytes()[14], b'7');
        assert!("job-1".parse::<JobId>().is_err() && serde_json::from_str::<JobId>("\"1\"").is_err());
    }

    #[test]
    fn states_have_one_name_everywhere() {
        for state in JobState::ALL {
            assert_eq!(state.name().parse::<JobState>().unwrap(), state);
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
        assert!("failed".parse::<JobState>().is_err());
    }

    #[test]
    fn keys_have_a_length() {
        let job = |key: &str| NewJob { key: Some(key.into()), ..NewJob::new(JobKind::WEBHOOK, "ann", Value::Null) };
        assert!(job("").check().is_err() && job(&"x".repeat(257)).check().is_err());
        assert!(job(&"x".repeat(256)).check().is_ok());
    }

    #[test]
    fn delays_grow_up_to_a_limit() {
        let seconds: Vec<u64> = [0, 1, 2, 3, 4, 5, 6, 1000].map(|it| retry_delay(it).as_secs()).into();
        assert_eq!(seconds, [1, 1, 4, 16, 64, 256, 600, 600]);
    }
}
