//! The rules of jobs, for every store: each rule changes a [`Job`] in memory, and the store saves it.

mod in_process;

use std::time::Duration;

use helve_contract::{
    Error, Result,
    jiff::{SignedDuration, Timestamp},
    ports::{Job, JobId, JobResult, JobState, Lease, NewJob},
};
use serde_json::Value;
use tokio::sync::watch;

pub use in_process::InProcessJobs;
pub(crate) use in_process::no_parent;

/// How many lease lengths a lease may reach into the future. A longer one was created before the clock went back.
const MAX_LEASES_AHEAD: u32 = 4;

/// A new job. One below a cancelled job is cancelled from the beginning.
pub(crate) fn create(new: NewJob, tenant: &str, parent: Option<&Job>, now: Timestamp) -> Job {
    let is_cancelled = parent.is_some_and(|it| it.is_cancel_requested || it.state == JobState::Cancelled);
    let mut job = Job {
        id: JobId::generate(),
        tenant: tenant.to_owned(),
        kind: new.kind,
        key: new.key,
        user: new.user,
        session: new.session,
        workspace: new.workspace,
        parent: new.parent,
        payload: new.payload,
        priority: new.priority,
        state: JobState::Queued,
        attempt: 0,
        max_attempts: new.max_attempts.max(1),
        epoch: 0,
        owner: None,
        until: None,
        is_cancel_requested: false,
        result: None,
        error: None,
        created: now,
        run_at: after(now, new.delay),
        started: None,
        ended: None,
    };
    if is_cancelled {
        end(&mut job, JobState::Cancelled, now);
    }
    job
}

/// Whether a running job can be claimed from its holder. `length` is that of the requested lease, if any.
pub(crate) fn is_lapsed(until: Option<Timestamp>, now: Timestamp, length: Option<Duration>) -> bool {
    let is_ahead = |until| length.is_some_and(|it| until > after(now, it.saturating_mul(MAX_LEASES_AHEAD)));
    until.is_none_or(|until| until <= now || is_ahead(until))
}

/// Claims a job that is due or whose lease expired. `None`: it ended instead.
pub(crate) fn claim(job: &mut Job, owner: &str, now: Timestamp, length: Duration) -> Option<Lease> {
    if job.state == JobState::Running {
        if job.is_cancel_requested {
            end(job, JobState::Cancelled, now);
            return None;
        }
        job.error = Some(format!("attempt {} ended without a result: its worker stopped", job.attempt));
        if job.attempt >= job.max_attempts {
            end(job, JobState::Dead, now);
            return None;
        }
    }
    job.state = JobState::Running;
    job.attempt = job.attempt.saturating_add(1);
    job.epoch += 1;
    job.owner = Some(owner.to_owned());
    job.started.get_or_insert(now);
    let until = after(now, length);
    job.until = Some(until);
    Some(Lease { key: job.id.to_string(), owner: owner.to_owned(), epoch: job.epoch, until })
}

/// Whether a lease is the last claim of a job that still runs.
pub(crate) fn is_held(job: &Job, lease: &Lease) -> bool {
    job.state == JobState::Running && job.epoch == lease.epoch && job.owner.as_deref() == Some(&*lease.owner)
}

/// Ends an attempt.
pub(crate) fn finish(job: &mut Job, result: JobResult, now: Timestamp) {
    match result {
        JobResult::Done(result) => {
            job.result = Some(result);
            job.error = None;
            end(job, JobState::Done, now);
        }
        JobResult::Cancelled => end(job, JobState::Cancelled, now),
        JobResult::Failed { error, retry } => {
            job.error = Some(error);
            match retry.filter(|_| job.attempt < job.max_attempts) {
                _ if job.is_cancel_requested => end(job, JobState::Cancelled, now),
                Some(delay) => queue(job, after(now, delay)),
                None => end(job, JobState::Dead, now),
            }
        }
    }
}

/// Requeues a job whose worker stops.
pub(crate) fn hand_back(job: &mut Job, now: Timestamp) {
    if job.is_cancel_requested {
        end(job, JobState::Cancelled, now);
    } else {
        job.attempt = job.attempt.saturating_sub(1);
        queue(job, job.run_at);
    }
}

/// Cancels one job. `is_lapsed`: it runs with an expired lease.
pub(crate) fn cancel(job: &mut Job, is_lapsed: bool, now: Timestamp) {
    match job.state {
        JobState::Running if !is_lapsed => job.is_cancel_requested = true,
        JobState::Running | JobState::Queued => end(job, JobState::Cancelled, now),
        JobState::Done | JobState::Dead | JobState::Cancelled => {}
    }
}

/// Queues a dead job again.
pub(crate) fn retry(job: &mut Job, now: Timestamp) -> Result<()> {
    if job.state != JobState::Dead {
        return Err(Error::failed(format!("job {} is {}; only a dead job can be retried", job.id, job.state)));
    }
    job.attempt = 0;
    job.ended = None;
    queue(job, now);
    Ok(())
}

fn queue(job: &mut Job, run_at: Timestamp) {
    job.state = JobState::Queued;
    job.run_at = run_at;
    (job.owner, job.until) = (None, None);
}

fn end(job: &mut Job, state: JobState, now: Timestamp) {
    job.state = state;
    job.ended = Some(now);
    job.is_cancel_requested = false;
    (job.owner, job.until) = (None, None);
    // A dead job may be retried. Other ended jobs do not need their payload, which may be large.
    if state != JobState::Dead {
        job.payload = Value::Null;
    }
}

/// A later time; the last one there is where it would be beyond that.
pub(crate) fn after(now: Timestamp, length: Duration) -> Timestamp {
    SignedDuration::try_from(length).ok().and_then(|it| now.checked_add(it).ok()).unwrap_or(Timestamp::MAX)
}

/// Counts the changes of jobs in this process, and wakes those who wait for one.
pub(crate) struct ChangeCounter(watch::Sender<u64>);

impl Default for ChangeCounter {
    fn default() -> Self {
        Self(watch::Sender::new(1))
    }
}

impl ChangeCounter {
    /// Something has changed.
    pub(crate) fn add(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Waits until the count is another one, at most for so long. The count.
    pub(crate) async fn wait(&self, seen: u64, timeout: Duration) -> u64 {
        let mut receiver = self.0.subscribe();
        match tokio::time::timeout(timeout, receiver.wait_for(|count| *count != seen)).await {
            Ok(Ok(count)) => *count,
            _ => seen,
        }
    }
}
