//! Jobs: work that is put into a queue, claimed with a lease by one worker at a time, and retried when it fails.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::leases::Lease;
use crate::{Error, Result, ids};

/// The longest name of a job kind.
const MAX_KIND_NAME: usize = 32;
/// The longest idempotency key.
const MAX_KEY: usize = 256;

/// A queue of jobs of one tenant.
///
/// A job is claimed with a lease whose epoch grows with every claim. [`hold`](Self::hold), [`finish`](Self::finish) and
/// [`hand_back`](Self::hand_back) carry that lease and fail with [`Error::LeaseLost`] where it is stale; nothing is
/// written then. A lease that ran out and that nobody claimed since is still good. Callers pass durations; the clock of
/// the queue decides what is due and which lease has ended. Delivery is at least once: a worker that dies leaves its job
/// to the next one, and every such claim counts as an attempt.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// Adds a job, unless the tenant has one with the same idempotency key.
    async fn enqueue(&self, job: &NewJob) -> Result<Enqueued>;
    /// Claims at most `limit` due jobs that the worker can do: highest priority first, then the longest due. Jobs whose
    /// lease ran out are due. One that was cancelled or has used all attempts ends instead.
    async fn claim(&self, worker: &Worker, length: Duration, limit: usize) -> Result<Vec<ClaimedJob>>;
    /// Renews a lease from now on, and says whether the job was cancelled meanwhile.
    async fn hold(&self, lease: &Lease, length: Duration) -> Result<HeldJob>;
    /// Ends an attempt. Answers the job as it is now: ended, or queued for the next attempt.
    async fn finish(&self, lease: &Lease, result: JobResult) -> Result<Job>;
    /// Gives a job back that was not worked to its end, because the worker stops. It is due at once, and the claim does
    /// not count as an attempt. A job that was cancelled ends instead.
    async fn hand_back(&self, lease: &Lease) -> Result<Job>;
    /// Cancels a job and everything below it by `parent`. Queued jobs end at once; the holder of a running one learns it
    /// from its next [`hold`](Self::hold). Answers the job as it is now. `None`: there is no such job.
    async fn cancel(&self, id: &JobId) -> Result<Option<Job>>;
    /// Queues a dead job again, with all its attempts. An error: its state is another one. `None`: there is no such job.
    async fn retry(&self, id: &JobId) -> Result<Option<Job>>;
    /// One job.
    async fn job(&self, id: &JobId) -> Result<Option<Job>>;
    /// Jobs that fit, newest first and without their payloads, and how many fit in all.
    async fn jobs(&self, filter: &JobFilter) -> Result<(Vec<Job>, u64)>;
    /// Removes jobs that ended longer ago than this; their idempotency keys are free again. How many went.
    async fn remove_ended(&self, age: Duration) -> Result<u64>;
    /// Waits until a job was added or changed since the call that returned `seen`, at most for `timeout`. Returns the
    /// value for the next call; begin with 0, which returns at once. Changes by other processes may go unnoticed: call
    /// [`claim`](Self::claim) after every return.
    async fn watch(&self, seen: u64, timeout: Duration) -> u64;
}

/// The identity of a job: a UUID, version 7 for new ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(String);

impl JobId {
    /// A new identity, which sorts after earlier ones.
    #[must_use]
    pub fn generate() -> Self {
        Self(ids::new_id())
    }

    /// As text.
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

/// What a job is, and which version of its payload: `webhook/1`. A worker claims only kinds and versions that it knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobKind {
    name: Cow<'static, str>,
    version: u32,
}

impl JobKind {
    /// A post to an inbound webhook.
    pub const WEBHOOK: Self = Self { name: Cow::Borrowed("webhook"), version: 1 };

    /// A kind of this name: 1 to 32 lower-case letters, digits and `-`.
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

    /// Its name.
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

/// Who claims jobs, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its name; unique among all workers.
    pub owner: String,
    /// The kinds that it knows, in exactly these versions.
    pub kinds: Vec<JobKind>,
    /// The workspaces that it can work in. Jobs that need none are for every worker.
    pub workspaces: Vec<String>,
}

impl Worker {
    /// A worker of a unique name for these kinds, without a workspace.
    #[must_use]
    pub fn new(kinds: impl Into<Vec<JobKind>>) -> Self {
        Self { owner: ids::new_id(), kinds: kinds.into(), workspaces: Vec::new() }
    }
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It waits for a worker, or for its next attempt.
    Queued,
    /// A worker has claimed it.
    Running,
    /// It did its work.
    Done,
    /// It failed for good: all attempts are used, or another one would not help. A person can retry it.
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

    /// Whether nothing happens to the job any more by itself.
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

/// A job to be added.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// What it is.
    pub kind: JobKind,
    /// The idempotency key, at most 256 bytes. A second job of the tenant with the same key is not added.
    pub key: Option<String>,
    /// Whose it is.
    pub user: String,
    /// The session that it works in.
    pub session: Option<String>,
    /// The workspace that it needs: only workers that have it claim the job.
    pub workspace: Option<String>,
    /// The job that added it; it is cancelled with that one.
    pub parent: Option<JobId>,
    /// What a worker needs to know.
    pub payload: Value,
    /// Higher ones are claimed first.
    pub priority: i32,
    /// How long it waits before it is due.
    pub delay: Duration,
    /// How often it is tried; at least once.
    pub max_attempts: u32,
    /// Not added where the tenant has so many queued jobs of this kind, whatever their version.
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

/// What became of a job that was to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// It was added.
    Added(JobId),
    /// The tenant has a job with this key already, in whatever state: this one.
    Existing(JobId),
    /// Too many jobs of this kind are queued: so many.
    QueueFull(u64),
}

/// A job as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its identity.
    pub id: JobId,
    /// The tenant.
    pub tenant: String,
    /// What it is.
    pub kind: JobKind,
    /// The idempotency key.
    pub key: Option<String>,
    /// Whose it is.
    pub user: String,
    /// The session that it works in.
    pub session: Option<String>,
    /// The workspace that it needs.
    pub workspace: Option<String>,
    /// The job that added it.
    pub parent: Option<JobId>,
    /// What a worker needs to know. Null once the job is done or cancelled.
    pub payload: Value,
    /// Higher ones are claimed first.
    pub priority: i32,
    /// Where it stands.
    pub state: JobState,
    /// Claims that counted, since it was added or retried.
    pub attempt: u32,
    /// How often it is tried.
    pub max_attempts: u32,
    /// The number of claims. It never falls.
    pub epoch: u64,
    /// Who has claimed it, while it runs.
    pub owner: Option<String>,
    /// When that lease ends.
    pub until: Option<Timestamp>,
    /// Whether it was cancelled while it ran, and its holder has not stopped yet.
    pub is_cancel_requested: bool,
    /// What came of it, once it is done.
    pub result: Option<Value>,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// When it was added.
    pub created: Timestamp,
    /// When it is due, or was.
    pub run_at: Timestamp,
    /// When it was first claimed.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

/// A job, and the lease of whoever works on it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedJob {
    /// The job.
    pub job: Job,
    /// Its lease; the key is the id of the job.
    pub lease: Lease,
}

/// A lease that was renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldJob {
    /// The lease.
    pub lease: Lease,
    /// Whether somebody cancelled the job: stop, and finish it as [`JobResult::Cancelled`].
    pub is_cancel_requested: bool,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum JobResult {
    /// The work is done, also where it was cancelled too late.
    Done(Value),
    /// It failed.
    Failed {
        /// Why.
        error: String,
        /// How long to wait before the next attempt, if there is one left. `None`: another attempt would not help.
        retry: Option<Duration>,
    },
    /// It stopped because it was cancelled.
    Cancelled,
}

/// Which jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// In this state.
    pub state: Option<JobState>,
    /// Of a kind with this name, whatever the version.
    pub kind: Option<String>,
    /// Of one of these users. Empty: of every user.
    pub users: Vec<String>,
    /// That work in this session.
    pub session: Option<String>,
    /// That this job added.
    pub parent: Option<JobId>,
    /// How many to skip.
    pub offset: u64,
    /// How many at most.
    pub most: u64,
}

/// How long to wait after this attempt failed: 1 s, 4 s, 16 s, … and at most 10 minutes.
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
