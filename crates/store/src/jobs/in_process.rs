//! Jobs in memory: the queue of one process. Nothing is written to disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use helve_contract::{
    Error, Result, async_trait,
    ids::DEFAULT_TENANT,
    jiff::Timestamp,
    ports::{
        ClaimedJob, Clock, Enqueued, HeldJob, Job, JobFilter, JobId, JobResult, JobState, Jobs, Lease, NewJob,
        WallClock, Worker,
    },
};
use serde_json::Value;

use super::{ChangeCounter, after, is_held, is_lapsed};

/// Ended jobs that are kept, of all tenants together.
const MAX_ENDED: usize = 1000;

/// Jobs in the memory of this process. Clones share them.
#[derive(Clone)]
pub struct InProcessJobs {
    shared: Arc<Shared>,
    tenant: Arc<str>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<BTreeMap<JobId, Job>>,
    changes: ChangeCounter,
}

impl Default for InProcessJobs {
    fn default() -> Self {
        Self { shared: Arc::default(), tenant: DEFAULT_TENANT.into(), clock: Arc::new(WallClock) }
    }
}

impl InProcessJobs {
    /// The same queue for another tenant. Tenants see nothing of each other.
    #[must_use]
    pub fn for_tenant(&self, tenant: &str) -> Self {
        Self { tenant: tenant.into(), ..self.clone() }
    }

    /// The same queue with another clock.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    fn read(&self) -> MutexGuard<'_, BTreeMap<JobId, Job>> {
        self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something without waking waiters.
    fn write_quietly<T>(&self, work: impl FnOnce(&mut BTreeMap<JobId, Job>, Timestamp) -> Result<T>) -> Result<T> {
        let mut jobs = self.read();
        let done = work(&mut jobs, self.clock.now());
        remove_oldest(&mut jobs);
        done
    }

    /// Changes something and wakes waiters.
    fn write<T>(&self, work: impl FnOnce(&mut BTreeMap<JobId, Job>, Timestamp) -> Result<T>) -> Result<T> {
        let done = self.write_quietly(work)?;
        self.shared.changes.add();
        Ok(done)
    }

    /// Changes the job of a lease that is still good.
    fn write_held<T>(&self, lease: &Lease, work: impl FnOnce(&mut Job, Timestamp) -> T) -> Result<T> {
        self.write(|jobs, now| {
            let lost = || Error::LeaseLost(lease.key.clone());
            let id: JobId = lease.key.parse().map_err(|_| lost())?;
            let job = jobs.get_mut(&id).filter(|it| it.tenant == *self.tenant && is_held(it, lease));
            Ok(work(job.ok_or_else(lost)?, now))
        })
    }
}

/// Removes the jobs that ended first where too many are kept.
fn remove_oldest(jobs: &mut BTreeMap<JobId, Job>) {
    let mut ended: Vec<_> = jobs.values().filter_map(|it| Some((it.ended?, it.id.clone()))).collect();
    let surplus = ended.len().saturating_sub(MAX_ENDED);
    if surplus > 0 {
        ended.sort();
        ended.truncate(surplus);
        for (_, id) in ended {
            jobs.remove(&id);
        }
    }
}

/// A job as lists show it.
fn without_payload(job: &Job) -> Job {
    Job { payload: Value::Null, ..job.clone() }
}

#[async_trait]
impl Jobs for InProcessJobs {
    async fn enqueue(&self, job: &NewJob) -> Result<Enqueued> {
        job.check()?;
        self.write(|jobs, now| {
            let mut own = jobs.values().filter(|it| it.tenant == *self.tenant);
            if let Some(same) = own.clone().find(|it| it.key.is_some() && it.key == job.key) {
                return Ok(Enqueued::Existing(same.id.clone()));
            }
            let is_waiting = |it: &&Job| it.state == JobState::Queued && it.kind.name() == job.kind.name();
            let queued = own.clone().filter(is_waiting).count() as u64;
            if job.max_queued.is_some_and(|most| queued >= most) {
                return Ok(Enqueued::QueueFull(queued));
            }
            let parent = match &job.parent {
                Some(id) => Some(own.find(|it| it.id == *id).ok_or_else(|| no_parent(id))?),
                None => None,
            };
            let job = super::create(job.clone(), &self.tenant, parent, now);
            let id = job.id.clone();
            jobs.insert(id.clone(), job);
            Ok(Enqueued::Added(id))
        })
    }

    async fn claim(&self, worker: &Worker, length: Duration, limit: usize) -> Result<Vec<ClaimedJob>> {
        // A waiter would find nothing new and would wake the claimer in turn.
        self.write_quietly(|jobs, now| {
            let is_candidate = |job: &&mut Job| {
                let is_free = match job.state {
                    JobState::Queued => job.run_at <= now,
                    JobState::Running => is_lapsed(job.until, now, Some(length)),
                    _ => false,
                };
                let has_workspace = job.workspace.as_ref().is_none_or(|it| worker.workspaces.contains(it));
                is_free && has_workspace && job.tenant == *self.tenant && worker.kinds.contains(&job.kind)
            };
            let mut candidates: Vec<&mut Job> = jobs.values_mut().filter(is_candidate).collect();
            candidates.sort_by(|a, b| (b.priority, a.run_at, &a.id).cmp(&(a.priority, b.run_at, &b.id)));
            let mut claimed = Vec::new();
            for job in candidates {
                if claimed.len() >= limit {
                    break;
                }
                if let Some(lease) = super::claim(job, &worker.owner, now, length) {
                    claimed.push(ClaimedJob { job: job.clone(), lease });
                }
            }
            Ok(claimed)
        })
    }

    async fn hold(&self, lease: &Lease, length: Duration) -> Result<HeldJob> {
        self.write_held(lease, |job, now| {
            let until = after(now, length);
            job.until = Some(until);
            HeldJob { lease: Lease { until, ..lease.clone() }, is_cancel_requested: job.is_cancel_requested }
        })
    }

    async fn finish(&self, lease: &Lease, result: JobResult) -> Result<Job> {
        self.write_held(lease, |job, now| {
            super::finish(job, result, now);
            job.clone()
        })
    }

    async fn hand_back(&self, lease: &Lease) -> Result<Job> {
        self.write_held(lease, |job, now| {
            super::hand_back(job, now);
            job.clone()
        })
    }

    async fn cancel(&self, id: &JobId) -> Result<Option<Job>> {
        self.write(|jobs, now| {
            if jobs.get(id).is_none_or(|it| it.tenant != *self.tenant) {
                return Ok(None);
            }
            let mut tree = BTreeSet::from([id.clone()]);
            loop {
                let is_below = |it: &&Job| it.parent.as_ref().is_some_and(|parent| tree.contains(parent));
                let below: Vec<JobId> = jobs.values().filter(is_below).map(|it| it.id.clone()).collect();
                let size = tree.len();
                tree.extend(below);
                if tree.len() == size {
                    break;
                }
            }
            for job in jobs.values_mut().filter(|it| tree.contains(&it.id)) {
                let is_lapsed = is_lapsed(job.until, now, None);
                super::cancel(job, is_lapsed, now);
            }
            Ok(jobs.get(id).cloned())
        })
    }

    async fn retry(&self, id: &JobId) -> Result<Option<Job>> {
        self.write(|jobs, now| {
            let Some(job) = jobs.get_mut(id).filter(|it| it.tenant == *self.tenant) else { return Ok(None) };
            super::retry(job, now)?;
            Ok(Some(job.clone()))
        })
    }

    async fn job(&self, id: &JobId) -> Result<Option<Job>> {
        Ok(self.read().get(id).filter(|it| it.tenant == *self.tenant).cloned())
    }

    async fn jobs(&self, filter: &JobFilter) -> Result<(Vec<Job>, u64)> {
        let jobs = self.read();
        let fits = |job: &&Job| {
            job.tenant == *self.tenant
                && filter.state.is_none_or(|it| job.state == it)
                && filter.kind.as_ref().is_none_or(|it| job.kind.name() == it)
                && (filter.users.is_empty() || filter.users.contains(&job.user))
                && filter.session.as_ref().is_none_or(|it| job.session.as_ref() == Some(it))
                && filter.parent.as_ref().is_none_or(|it| job.parent.as_ref() == Some(it))
        };
        let mut found: Vec<&Job> = jobs.values().filter(fits).collect();
        found.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        let size = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
        let page = found.iter().skip(size(filter.offset)).take(size(filter.most));
        Ok((page.map(|job| without_payload(job)).collect(), found.len() as u64))
    }

    async fn remove_ended(&self, age: Duration) -> Result<u64> {
        self.write_quietly(|jobs, now| {
            let before = jobs.len();
            jobs.retain(|_, it| it.tenant != *self.tenant || it.ended.is_none_or(|ended| after(ended, age) > now));
            Ok((before - jobs.len()) as u64)
        })
    }

    async fn watch(&self, seen: u64, timeout: Duration) -> u64 {
        self.shared.changes.wait(seen, timeout).await
    }
}

/// The error of a job below one that is not there.
pub(crate) fn no_parent(id: &JobId) -> Error {
    Error::failed(format!("there is no job {id}, so no job can be added below it"))
}
