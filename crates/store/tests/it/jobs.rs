//! The contract of job queues: the suite runs for the one in memory and for SQLite.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use helve_contract::{
    Error,
    ports::{
        ClaimedJob, Enqueued, Job, JobFilter, JobId, JobKind, JobResult, JobState, Jobs, Lease, NewJob, Worker,
        retry_delay,
    },
};
use helve_store::{InProcessJobs, SqliteStore};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    sqlite::Place,
    suite::{LENGTH, TestClock, at},
};

/// A place for jobs that goes away with this.
pub(crate) trait Queue: Default + Send + Sync + 'static {
    /// Another handle on the jobs of this place.
    fn jobs(&self) -> Arc<dyn Jobs>;
    /// A handle for another tenant.
    fn jobs_of(&self, tenant: &str) -> Arc<dyn Jobs>;
    /// The clock of every handle.
    fn clock(&self) -> &TestClock;
}

impl Queue for Place {
    fn jobs(&self) -> Arc<dyn Jobs> {
        Arc::new(self.sqlite())
    }

    fn jobs_of(&self, tenant: &str) -> Arc<dyn Jobs> {
        Arc::new(self.sqlite().for_tenant(tenant))
    }

    fn clock(&self) -> &TestClock {
        crate::suite::Maker::clock(self)
    }
}

pub(crate) struct Memory(InProcessJobs, Arc<TestClock>);

impl Default for Memory {
    fn default() -> Self {
        let clock = Arc::<TestClock>::default();
        Self(InProcessJobs::default().with_clock(clock.clone()), clock)
    }
}

impl Queue for Memory {
    fn jobs(&self) -> Arc<dyn Jobs> {
        Arc::new(self.0.clone())
    }

    fn jobs_of(&self, tenant: &str) -> Arc<dyn Jobs> {
        Arc::new(self.0.for_tenant(tenant))
    }

    fn clock(&self) -> &TestClock {
        &self.1
    }
}

/// Runs the suite for both.
macro_rules! suite {
    ($($test:ident)*) => {
        mod in_process { $(
            #[tokio::test]
            async fn $test() {
                super::$test::<super::Memory>().await;
            }
        )* }
        mod sqlite { $(
            #[tokio::test]
            async fn $test() {
                super::$test::<super::Place>().await;
            }
        )* }
    };
}

suite! {
    keeps_a_job_as_it_was_added
    a_key_names_one_job_however_many_add_it
    claims_of_many_workers_are_disjoint
    claims_by_priority_and_then_by_time
    claims_only_known_kinds_and_versions
    claims_only_jobs_of_its_workspaces
    a_failing_job_waits_longer_and_then_is_dead
    a_failure_that_no_retry_helps_is_dead_at_once
    a_worker_that_stops_uses_up_an_attempt
    a_job_that_is_handed_back_keeps_its_attempts
    a_cancel_reaches_the_whole_tree
    a_cancelled_job_is_not_claimed_again
    a_stale_holder_writes_nothing
    a_lease_from_before_the_clock_went_back_is_taken_over
    a_full_queue_takes_no_more
    tenants_share_neither_jobs_nor_keys
    lists_jobs_newest_first
    removes_what_ended_long_ago
    wakes_who_waits_for_a_change
}

pub(crate) fn kind() -> JobKind {
    JobKind::new("test", 1).unwrap()
}

/// A worker that knows the usual kind and has the usual workspace.
pub(crate) fn worker(owner: &str) -> Worker {
    Worker { owner: owner.into(), kinds: vec![kind()], workspaces: vec!["/w".into()] }
}

pub(crate) fn new() -> NewJob {
    NewJob::new(kind(), "ann", json!({ "n": 1 }))
}

pub(crate) async fn add(jobs: &dyn Jobs, job: &NewJob) -> JobId {
    match jobs.enqueue(job).await.unwrap() {
        Enqueued::Added(id) => id,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn claim(jobs: &dyn Jobs, owner: &str) -> Option<ClaimedJob> {
    let mut claimed = jobs.claim(&worker(owner), LENGTH, 1).await.unwrap();
    assert!(claimed.len() < 2);
    claimed.pop()
}

async fn state(jobs: &dyn Jobs, id: &JobId) -> JobState {
    jobs.job(id).await.unwrap().unwrap().state
}

fn failed(retry: Option<Duration>) -> JobResult {
    JobResult::Failed { error: "no network".into(), retry }
}

fn is_lost<T>(outcome: &helve_contract::Result<T>) -> bool {
    matches!(outcome, Err(Error::LeaseLost(_)))
}

async fn keeps_a_job_as_it_was_added<Q: Queue>() {
    let place = Q::default();
    let jobs = place.jobs();
    place.clock().set(5);
    let parent = add(&*jobs, &new()).await;
    let given = NewJob {
        key: Some("delivery ü".into()),
        session: Some("s".into()),
        workspace: Some("/w".into()),
        parent: Some(parent.clone()),
        payload: json!({ "text": "\u{0}", "n": [1.5, null] }),
        priority: -3,
        delay: Duration::from_secs(60),
        max_attempts: 7,
        ..new()
    };
    let id = add(&*jobs, &given).await;
    let mut want = Job {
        id: id.clone(),
        tenant: "default".into(),
        kind: kind(),
        key: given.key.clone(),
        user: "ann".into(),
        session: Some("s".into()),
        workspace: Some("/w".into()),
        parent: Some(parent),
        payload: given.payload.clone(),
        priority: -3,
        state: JobState::Queued,
        attempt: 0,
        max_attempts: 7,
        epoch: 0,
        owner: None,
        until: None,
        is_cancel_requested: false,
        result: None,
        error: None,
        created: at(5),
        run_at: at(65),
        started: None,
        ended: None,
    };
    assert_eq!(place.jobs().job(&id).await.unwrap().unwrap(), want);
    assert_eq!(jobs.job(&JobId::generate()).await.unwrap(), None);
    let orphan = NewJob { parent: Some(JobId::generate()), ..new() };
    assert!(jobs.enqueue(&orphan).await.unwrap_err().to_string().contains("no job can be added below it"));

    place.clock().set(70);
    let first = claim(&*jobs, "me").await.unwrap();
    jobs.finish(&first.lease, JobResult::Done(Value::Null)).await.unwrap();
    let ClaimedJob { job, lease } = claim(&*jobs, "me").await.unwrap();
    assert_eq!(lease, Lease { key: id.to_string(), owner: "me".into(), epoch: 1, until: at(100) });
    want = Job {
        state: JobState::Running,
        attempt: 1,
        epoch: 1,
        owner: Some("me".into()),
        until: Some(at(100)),
        started: Some(at(70)),
        ..want
    };
    assert_eq!(job, want);
    place.clock().set(80);
    let done = jobs.finish(&lease, JobResult::Done(json!("fine"))).await.unwrap();
    // Nobody needs the payload any more.
    let (payload, result, ended) = (Value::Null, Some(json!("fine")), Some(at(80)));
    want = Job { state: JobState::Done, owner: None, until: None, payload, result, ended, ..want };
    assert_eq!(done, want);
    assert_eq!(place.jobs().job(&id).await.unwrap().unwrap(), want);
}

async fn a_key_names_one_job_however_many_add_it<Q: Queue>() {
    let place = Arc::new(Q::default());
    let mut adding = JoinSet::new();
    for n in 0..100 {
        let place = place.clone();
        adding.spawn(async move {
            let job = NewJob { key: Some("one".into()), payload: json!(n), ..new() };
            place.jobs().enqueue(&job).await.unwrap()
        });
    }
    let (mut added, mut existing) = (Vec::new(), Vec::new());
    for outcome in adding.join_all().await {
        match outcome {
            Enqueued::Added(id) => added.push(id),
            Enqueued::Existing(id) => existing.push(id),
            Enqueued::QueueFull(queued) => panic!("{queued}"),
        }
    }
    assert_eq!((added.len(), existing.len()), (1, 99));
    assert!(existing.iter().all(|id| *id == added[0]));
    // Also when it is over.
    let jobs = place.jobs();
    let claimed = claim(&*jobs, "me").await.unwrap();
    jobs.finish(&claimed.lease, JobResult::Done(Value::Null)).await.unwrap();
    let again = jobs.enqueue(&NewJob { key: Some("one".into()), ..new() }).await.unwrap();
    assert_eq!(again, Enqueued::Existing(added.remove(0)));
    assert_eq!(claim(&*jobs, "me").await, None);
    assert!(jobs.enqueue(&NewJob { key: Some(String::new()), ..new() }).await.is_err());
}

async fn claims_of_many_workers_are_disjoint<Q: Queue>() {
    const MANY: usize = 120;
    let place = Arc::new(Q::default());
    let jobs = place.jobs();
    for _ in 0..MANY {
        add(&*jobs, &new()).await;
    }
    let mut workers = JoinSet::new();
    for n in 0..8 {
        let place = place.clone();
        workers.spawn(async move {
            let (jobs, owner, mut worked) = (place.jobs(), format!("worker-{n}"), Vec::new());
            loop {
                let claimed = jobs.claim(&worker(&owner), LENGTH, 5).await.unwrap();
                if claimed.is_empty() {
                    return worked;
                }
                for it in claimed {
                    worked.push((it.job.id.clone(), it.lease.epoch));
                    jobs.finish(&it.lease, JobResult::Done(json!(owner))).await.unwrap();
                }
            }
        });
    }
    let worked: Vec<_> = workers.join_all().await.into_iter().flatten().collect();
    let once: BTreeMap<JobId, u64> = worked.iter().cloned().collect();
    assert_eq!((worked.len(), once.len()), (MANY, MANY));
    assert!(once.values().all(|epoch| *epoch == 1));
    let done = JobFilter { state: Some(JobState::Done), ..JobFilter::default() };
    assert_eq!(jobs.jobs(&done).await.unwrap().1, MANY as u64);
}

async fn claims_by_priority_and_then_by_time<Q: Queue>() {
    let place = Q::default();
    let jobs = place.jobs();
    let later = Duration::from_secs(10);
    let mut named = BTreeMap::new();
    for (name, priority, delay) in
        [("late", 0, later), ("first", 0, Duration::ZERO), ("second", 0, Duration::ZERO), ("urgent", 9, later)]
    {
        let id = add(&*jobs, &NewJob { priority, delay, ..new() }).await;
        named.insert(id, name);
    }
    let next = async || claim(&*jobs, "me").await.map(|it| named[&it.job.id]);
    assert_eq!(next().await, Some("first"));
    place.clock().set(9);
    let early = jobs.claim(&worker("me"), LENGTH, 9).await.unwrap();
    assert_eq!(early.iter().map(|it| named[&it.job.id]).collect::<Vec<_>>(), ["second"]);
    place.clock().set(10);
    let all = jobs.claim(&worker("me"), LENGTH, 9).await.unwrap();
    assert_eq!(all.iter().map(|it| named[&it.job.id]).collect::<Vec<_>>(), ["urgent", "late"]);
    assert_eq!(next().await, None);
    add(&*jobs, &new()).await;
    assert!(jobs.claim(&worker("me"), LENGTH, 0).await.unwrap().is_empty());
}

async fn claims_only_known_kinds_and_versions<Q: Queue>() {
    let jobs = Q::default().kept();
    let jobs = &*jobs.1;
    let later = JobKind::new("test", 2).unwrap();
    let other = JobKind::new("other", 1).unwrap();
    let newer = add(jobs, &NewJob { kind: later.clone(), ..new() }).await;
    let foreign = add(jobs, &NewJob { kind: other.clone(), ..new() }).await;
    assert!(jobs.claim(&worker("me"), LENGTH, 9).await.unwrap().is_empty());
    assert!(jobs.claim(&Worker::new([]), LENGTH, 9).await.unwrap().is_empty());
    let claimed = jobs.claim(&Worker::new([kind(), later, other]), LENGTH, 9).await.unwrap();
    assert_eq!(claimed.into_iter().map(|it| it.job.id).collect::<Vec<_>>(), [newer, foreign]);
}

async fn claims_only_jobs_of_its_workspaces<Q: Queue>() {
    let place = Q::default();
    let jobs = &*place.jobs();
    let (here, everywhere) = (NewJob { workspace: Some("/w".into()), ..new() }, new());
    let here = add(jobs, &here).await;
    let everywhere = add(jobs, &everywhere).await;
    let elsewhere = Worker { workspaces: vec!["/v".into(), "/".into()], ..worker("elsewhere") };
    let claimed = jobs.claim(&elsewhere, LENGTH, 9).await.unwrap();
    assert_eq!(claimed.into_iter().map(|it| it.job.id).collect::<Vec<_>>(), [everywhere]);
    let claimed = claim(jobs, "here").await.unwrap();
    assert_eq!(claimed.job.id, here);
    // Nobody else takes it over either.
    place.clock().set(100);
    assert!(jobs.claim(&elsewhere, LENGTH, 9).await.unwrap().iter().all(|it| it.job.id != here));
    assert_eq!(claim(jobs, "again").await.unwrap().job.id, here);
}

async fn a_failing_job_waits_longer_and_then_is_dead<Q: Queue>() {
    let place = Q::default();
    let jobs = &*place.jobs();
    let id = add(jobs, &NewJob { max_attempts: 3, ..new() }).await;
    let mut now = 0;
    for attempt in 1..=3 {
        let claimed = claim(jobs, "me").await.unwrap();
        assert_eq!((claimed.job.attempt, claimed.lease.epoch), (attempt, u64::from(attempt)));
        let delay = retry_delay(attempt);
        let job = jobs.finish(&claimed.lease, failed(Some(delay))).await.unwrap();
        assert_eq!(job.error.as_deref(), Some("no network"));
        if attempt < 3 {
            now += delay.as_secs().cast_signed();
            assert_eq!((job.state, job.run_at), (JobState::Queued, at(now)));
            place.clock().set(now - 1);
            assert_eq!(claim(jobs, "me").await, None, "before its time");
            place.clock().set(now);
        } else {
            assert_eq!((job.state, job.ended, &job.payload), (JobState::Dead, Some(at(now)), &json!({ "n": 1 })));
        }
    }
    place.clock().set(now + 100_000);
    assert_eq!(claim(jobs, "me").await, None);
    // Somebody retries it: all attempts are there again, and the epoch goes on.
    let queued = jobs.retry(&id).await.unwrap().unwrap();
    assert_eq!((queued.state, queued.attempt, queued.epoch, queued.ended), (JobState::Queued, 0, 3, None));
    let refused = jobs.retry(&id).await.unwrap_err().to_string();
    assert_eq!(refused, format!("job {id} is queued; only a dead job can be retried"));
    let claimed = claim(jobs, "me").await.unwrap();
    assert_eq!((claimed.job.attempt, claimed.lease.epoch), (1, 4));
    let done = jobs.finish(&claimed.lease, JobResult::Done(json!(2))).await.unwrap();
    assert_eq!((done.state, done.error), (JobState::Done, None));
    assert_eq!(jobs.retry(&JobId::generate()).await.unwrap(), None);
}

async fn a_failure_that_no_retry_helps_is_dead_at_once<Q: Queue>() {
    let jobs = Q::default().kept();
    let jobs = &*jobs.1;
    add(jobs, &new()).await;
    let claimed = claim(jobs, "me").await.unwrap();
    assert_eq!(jobs.finish(&claimed.lease, failed(None)).await.unwrap().state, JobState::Dead);
}

async fn a_worker_that_stops_uses_up_an_attempt<Q: Queue>() {
    let place = Q::default();
    let jobs = &*place.jobs();
    let id = add(jobs, &NewJob { max_attempts: 2, ..new() }).await;
    let healthy = add(jobs, &NewJob { priority: -1, ..new() }).await;
    for attempt in 1..=2 {
        let claimed = claim(jobs, "dies").await.unwrap();
        assert_eq!((&claimed.job.id, claimed.job.attempt), (&id, attempt));
        place.clock().set(i64::from(attempt) * 100);
    }
    // The job that kills its workers is dead, and the other one is worked.
    let claimed = claim(jobs, "lives").await.unwrap();
    assert_eq!(claimed.job.id, healthy);
    let dead = jobs.job(&id).await.unwrap().unwrap();
    assert_eq!(dead.state, JobState::Dead);
    assert_eq!(dead.error.as_deref(), Some("attempt 2 ended without a result: its worker stopped"));
}

async fn a_job_that_is_handed_back_keeps_its_attempts<Q: Queue>() {
    let place = Q::default();
    let jobs = &*place.jobs();
    add(jobs, &NewJob { max_attempts: 1, ..new() }).await;
    for epoch in 1..=20 {
        let claimed = claim(jobs, "me").await.unwrap();
        assert_eq!((claimed.job.attempt, claimed.lease.epoch), (1, epoch));
        let back = jobs.hand_back(&claimed.lease).await.unwrap();
        assert_eq!((back.state, back.attempt, back.owner), (JobState::Queued, 0, None));
        assert!(is_lost(&jobs.finish(&claimed.lease, JobResult::Done(Value::Null)).await));
        assert!(is_lost(&jobs.hand_back(&claimed.lease).await));
    }
}

async fn a_cancel_reaches_the_whole_tree<Q: Queue>() {
    let place = Q::default();
    let jobs = &*place.jobs();
    let apart = add(jobs, &NewJob { delay: LENGTH, ..new() }).await;
    let mut ids = vec![add(jobs, &new()).await];
    for n in 1..50 {
        ids.push(add(jobs, &NewJob { parent: Some(ids[(n - 1) / 3].clone()), ..new() }).await);
    }
    let mut running = jobs.claim(&worker("me"), LENGTH, 10).await.unwrap();
    let done = running.pop().unwrap();
    jobs.finish(&done.lease, JobResult::Done(Value::Null)).await.unwrap();
    for it in &running {
        assert!(!jobs.hold(&it.lease, LENGTH).await.unwrap().is_cancel_requested);
    }
    let root = jobs.cancel(&ids[0]).await.unwrap().unwrap();
    assert_eq!((root.state, root.is_cancel_requested), (JobState::Running, true));
    // The holders hear it, and end.
    for (n, it) in running.iter().enumerate() {
        let held = jobs.hold(&it.lease, LENGTH).await.unwrap();
        assert!(held.is_cancel_requested);
        let ended = match n {
            0 => jobs.finish(&held.lease, failed(Some(LENGTH))).await,
            1 => jobs.hand_back(&held.lease).await,
            // What was done before it heard is done.
            2 => jobs.finish(&held.lease, JobResult::Done(Value::Null)).await,
            _ => jobs.finish(&held.lease, JobResult::Cancelled).await,
        };
        let want = if n == 2 { JobState::Done } else { JobState::Cancelled };
        assert_eq!(ended.unwrap().state, want, "{n}");
    }
    let count = async |state| {
        let filter = JobFilter { state: Some(state), ..JobFilter::default() };
        jobs.jobs(&filter).await.unwrap().1
    };
    assert_eq!((count(JobState::Cancelled).await, count(JobState::Done).await), (48, 2));
    assert_eq!(claim(jobs, "me").await, None);
    assert_eq!(state(jobs, &apart).await, JobState::Queued);
    // What a holder adds before it hears of the cancel is cancelled too.
    let late = add(jobs, &NewJob { parent: Some(ids[0].clone()), ..new() }).await;
    assert_eq!(state(jobs, &late).await, JobState::Cancelled);
    assert_eq!(jobs.cancel(&JobId::generate()).await.unwrap(), None);
    // Of an ended one nothing changes.
    assert_eq!(jobs.cancel(&done.job.id).await.unwrap().unwrap().state, JobState::Done);
}

async fn a_cancelled_job_is_not_claimed_again<Q: Queue>() {
    let place = Q::default();
    let jobs = &*place.jobs();
    for cancel_at in [10, 40] {
        place.clock().set(0);
        let id = add(jobs, &new()).await;
        let claimed = claim(jobs, "dies").await.unwrap();
        // Before and after its lease ran out.
        place.clock().set(cancel_at);
        jobs.cancel(&id).await.unwrap();
        place.clock().set(50);
        assert_eq!(claim(jobs, "other").await, None);
        assert_eq!(state(jobs, &id).await, JobState::Cancelled);
        assert!(is_lost(&jobs.hold(&claimed.lease, LENGTH).await));
    }
}

/// Many rounds in which a holder sleeps beyond its lease: it goes on where nobody claimed the job, and writes nothing
/// where somebody did.
async fn a_stale_holder_writes_nothing<Q: Queue>() {
    let place = Q::default();
    let jobs = &*place.jobs();
    let id = add(jobs, &NewJob { max_attempts: u32::MAX, ..new() }).await;
    let mut epoch = 0;
    for round in 0..300 {
        place.clock().set(round * 100);
        let old = claim(jobs, "first").await.unwrap().lease;
        assert_eq!((old.until, old.epoch), (at(round * 100 + 30), epoch + 1));
        assert_eq!(claim(jobs, "second").await, None, "it is held");
        place.clock().set(round * 100 + 40);
        // Nobody took it, so it is renewed silently.
        let old = if round % 2 == 0 { jobs.hold(&old, LENGTH).await.unwrap().lease } else { old };
        place.clock().set(round * 100 + 80);
        // The same owner or another one: the epoch decides.
        let owner = if round % 3 == 0 { "first" } else { "second" };
        let new = claim(jobs, owner).await.unwrap().lease;
        assert!(new.epoch > old.epoch);
        let before = jobs.job(&id).await.unwrap();
        assert!(is_lost(&jobs.hold(&old, LENGTH).await), "{round}");
        assert!(is_lost(&jobs.hand_back(&old).await), "{round}");
        for result in [JobResult::Done(json!("stale")), failed(None), failed(Some(LENGTH)), JobResult::Cancelled] {
            assert!(is_lost(&jobs.finish(&old, result).await), "{round}");
        }
        let forged = Lease { owner: "nobody".into(), ..new.clone() };
        assert!(is_lost(&jobs.finish(&forged, JobResult::Cancelled).await), "{round}");
        assert_eq!(jobs.job(&id).await.unwrap(), before);
        epoch = new.epoch;
        jobs.hand_back(&new).await.unwrap();
    }
    assert!(is_lost(&jobs.hold(&Lease { key: "x".into(), owner: "me".into(), epoch: 1, until: at(0) }, LENGTH).await));
}

async fn a_lease_from_before_the_clock_went_back_is_taken_over<Q: Queue>() {
    let place = Q::default();
    let jobs = &*place.jobs();
    place.clock().set(-100_000);
    add(jobs, &new()).await;
    place.clock().set(0);
    claim(jobs, "me").await.unwrap();
    place.clock().set(-3600);
    assert_eq!(claim(jobs, "other").await.unwrap().lease.epoch, 2);
}

async fn a_full_queue_takes_no_more<Q: Queue>() {
    let place = Arc::new(Q::default());
    let mut adding = JoinSet::new();
    for n in 0..20 {
        let place = place.clone();
        adding.spawn(async move {
            let job = NewJob { max_queued: Some(4), key: Some(format!("k{n}")), ..new() };
            matches!(place.jobs().enqueue(&job).await.unwrap(), Enqueued::Added(_))
        });
    }
    assert_eq!(adding.join_all().await.into_iter().filter(|it| *it).count(), 4);
    let jobs = &*place.jobs();
    let full = NewJob { max_queued: Some(4), ..new() };
    assert_eq!(jobs.enqueue(&full).await.unwrap(), Enqueued::QueueFull(4));
    // Another kind has its own limit, a known key needs no room, and a job that runs does not wait.
    let other = NewJob { kind: JobKind::new("other", 1).unwrap(), ..full.clone() };
    assert!(matches!(jobs.enqueue(&other).await.unwrap(), Enqueued::Added(_)));
    let claimed = claim(jobs, "me").await.unwrap();
    let known = NewJob { key: claimed.job.key.clone(), ..full.clone() };
    assert_eq!(jobs.enqueue(&known).await.unwrap(), Enqueued::Existing(claimed.job.id));
    assert!(matches!(jobs.enqueue(&full).await.unwrap(), Enqueued::Added(_)));
}

async fn tenants_share_neither_jobs_nor_keys<Q: Queue>() {
    let place = Q::default();
    let (ours, theirs) = (&*place.jobs(), &*place.jobs_of("other"));
    let keyed = NewJob { key: Some("k".into()), ..new() };
    let id = add(ours, &keyed).await;
    assert_eq!(theirs.job(&id).await.unwrap(), None);
    assert_eq!(theirs.jobs(&JobFilter { most: 9, ..JobFilter::default() }).await.unwrap().1, 0);
    assert_eq!(theirs.cancel(&id).await.unwrap(), None);
    assert_eq!(claim(theirs, "me").await, None);
    assert!(theirs.enqueue(&NewJob { parent: Some(id.clone()), ..new() }).await.is_err());
    let own = add(theirs, &keyed).await;
    assert_ne!(own, id);
    let held = claim(ours, "me").await.unwrap();
    assert!(is_lost(&theirs.finish(&held.lease, JobResult::Cancelled).await));
    assert!(is_lost(&theirs.hold(&held.lease, LENGTH).await));
    assert_eq!(theirs.remove_ended(Duration::ZERO).await.unwrap(), 0);
    let claimed = claim(theirs, "me").await.unwrap();
    assert_eq!((claimed.job.id, claimed.job.tenant.as_str()), (own, "other"));
}

async fn lists_jobs_newest_first<Q: Queue>() {
    let place = Q::default();
    let jobs = &*place.jobs();
    let mut names = BTreeMap::new();
    for (second, name, user, session) in [(1, "a", "ann", None), (3, "b", "bob", Some("s")), (2, "c", "ann", Some("s"))]
    {
        place.clock().set(second);
        let job = NewJob { user: user.into(), session: session.map(str::to_owned), ..new() };
        names.insert(add(jobs, &job).await, name);
    }
    place.clock().set(9);
    claim(jobs, "me").await.unwrap();
    let list = async |filter: JobFilter| {
        let (found, total) = jobs.jobs(&filter).await.unwrap();
        assert!(found.iter().all(|it| it.payload.is_null()), "payloads may be large");
        format!("{} of {total}", found.iter().map(|it| names[&it.id]).collect::<String>())
    };
    let all = JobFilter { most: 9, ..JobFilter::default() };
    assert_eq!(list(all.clone()).await, "bca of 3");
    assert_eq!(list(JobFilter { most: 1, offset: 1, ..all.clone() }).await, "c of 3");
    assert_eq!(list(JobFilter { users: vec!["ann".into()], ..all.clone() }).await, "ca of 2");
    assert_eq!(list(JobFilter { users: vec!["bob".into(), "ann".into()], ..all.clone() }).await, "bca of 3");
    assert_eq!(list(JobFilter { session: Some("s".into()), ..all.clone() }).await, "bc of 2");
    assert_eq!(list(JobFilter { state: Some(JobState::Running), ..all.clone() }).await, "a of 1");
    assert_eq!(list(JobFilter { kind: Some("other".into()), ..all.clone() }).await, " of 0");
    assert_eq!(list(JobFilter { parent: Some(JobId::generate()), ..all.clone() }).await, " of 0");
    assert_eq!(list(JobFilter { most: u64::MAX, offset: u64::MAX, ..all }).await, " of 3");
}

async fn removes_what_ended_long_ago<Q: Queue>() {
    let place = Q::default();
    let jobs = &*place.jobs();
    let keyed = NewJob { key: Some("k".into()), ..new() };
    let old = add(jobs, &keyed).await;
    let claimed = claim(jobs, "me").await.unwrap();
    jobs.finish(&claimed.lease, JobResult::Done(Value::Null)).await.unwrap();
    let waiting = add(jobs, &new()).await;
    place.clock().set(99);
    assert_eq!(jobs.remove_ended(Duration::from_secs(100)).await.unwrap(), 0);
    place.clock().set(100);
    assert_eq!(jobs.remove_ended(Duration::from_secs(100)).await.unwrap(), 1);
    assert_eq!(jobs.job(&old).await.unwrap(), None);
    assert_eq!(state(jobs, &waiting).await, JobState::Queued);
    add(jobs, &keyed).await;
}

async fn wakes_who_waits_for_a_change<Q: Queue>() {
    let long = Duration::from_secs(3600);
    let jobs = Q::default().kept();
    let seen = jobs.1.watch(0, long).await;
    let waiting = tokio::spawn({
        let jobs = jobs.1.clone();
        async move { jobs.watch(seen, long).await }
    });
    add(&*jobs.1, &new()).await;
    let next = waiting.await.unwrap();
    assert_ne!(next, seen);
    // A change before the call is not missed either.
    let claimed = claim(&*jobs.1, "me").await.unwrap();
    jobs.1.hand_back(&claimed.lease).await.unwrap();
    let next = jobs.1.watch(next, long).await;
    // A claim by itself wakes nobody: two workers would wake each other for ever.
    claim(&*jobs.1, "me").await.unwrap();
    assert_eq!(jobs.1.watch(next, Duration::from_millis(1)).await, next);
}

#[tokio::test]
async fn jobs_outlive_the_process_that_added_them() {
    let place = Place::default();
    let id = add(&SqliteStore::lazy(place.path()), &NewJob { key: Some("k".into()), ..new() }).await;
    let store = SqliteStore::lazy(place.path());
    let claimed = claim(&store, "me").await.unwrap();
    assert_eq!((&claimed.job.id, &claimed.job.payload), (&id, &json!({ "n": 1 })));
    drop(store);
    let store = SqliteStore::lazy(place.path());
    let held = Jobs::hold(&store, &claimed.lease, LENGTH).await.unwrap();
    Jobs::finish(&store, &held.lease, JobResult::Done(json!(1))).await.unwrap();
    let again = SqliteStore::lazy(place.path()).enqueue(&NewJob { key: Some("k".into()), ..new() }).await.unwrap();
    assert_eq!(again, Enqueued::Existing(id));
}

/// Keeps the place together with a handle on it, for a test that needs one handle only.
trait Kept: Queue {
    fn kept(self) -> (Self, Arc<dyn Jobs>) {
        let jobs = self.jobs();
        (self, jobs)
    }
}

impl<Q: Queue> Kept for Q {}
