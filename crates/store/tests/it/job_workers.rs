//! Workers in other processes: claims are disjoint, one that was stopped writes nothing, one that was killed loses its job.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use helve_contract::{
    Error, Result,
    ports::{JobFilter, JobResult, JobState, Jobs, NewJob},
};
use helve_store::SqliteStore;
use serde_json::json;

use crate::{
    jobs::{self, add, new},
    sqlite::Place,
};

/// Set for the process that works: the store's file, and what it does.
const ORDER: [&str; 2] = ["HELVE_TEST_JOBS", "HELVE_TEST_WORK"];
/// Short, so that the test need not wait long.
const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(600);

fn tell(line: &str) {
    writeln!(std::io::stderr().lock(), "{line}").unwrap();
}

/// Not a test of its own: this binary started again, as a worker.
#[tokio::test]
async fn worker() -> Result<()> {
    let [Ok(path), Ok(work)] = ORDER.map(std::env::var) else { return Ok(()) };
    let store = SqliteStore::lazy(path);
    let owner = format!("worker {}", std::process::id());
    match work.as_str() {
        "finish" => loop {
            let claimed = store.claim(&jobs::worker(&owner), LONG, 3).await?;
            if claimed.is_empty() {
                return Ok(());
            }
            for it in claimed {
                tell(&format!("claimed {} {}", it.job.id, it.lease.epoch));
                Jobs::finish(&store, &it.lease, JobResult::Done(json!(owner))).await?;
            }
        },
        _ => {
            let length = if work == "hold long" { LONG } else { SHORT };
            let claimed = store.claim(&jobs::worker(&owner), length, 1).await?.remove(0);
            loop {
                match Jobs::hold(&store, &claimed.lease, length).await {
                    Ok(_) => tell("held"),
                    Err(Error::LeaseLost(_)) => break,
                    Err(error) => return Err(error),
                }
                tokio::time::sleep(SHORT / 10).await;
            }
            // Whatever it tries now.
            for result in [JobResult::Done(json!("too late")), JobResult::Cancelled] {
                assert!(matches!(Jobs::finish(&store, &claimed.lease, result).await, Err(Error::LeaseLost(_))));
            }
            assert!(matches!(store.hand_back(&claimed.lease).await, Err(Error::LeaseLost(_))));
            tell("lost");
            Ok(())
        }
    }
}

struct Worker(Child);

impl Worker {
    fn start(path: &Path, work: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["job_workers::worker", "--exact", "--nocapture"])
            .envs([(ORDER[0], path.as_os_str()), (ORDER[1], work.as_ref())])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stderr.take().unwrap()).lines().map(std::result::Result::unwrap)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[tokio::test]
async fn four_processes_work_each_job_once() {
    const MANY: usize = 60;
    let place = Place::default();
    let store = SqliteStore::lazy(place.path());
    for _ in 0..MANY {
        add(&store, &new()).await;
    }
    let mut workers: Vec<_> = (0..4).map(|_| Worker::start(&place.path(), "finish")).collect();
    let mut claimed = Vec::new();
    for worker in &mut workers {
        claimed.extend(worker.lines().filter(|it| it.starts_with("claimed ")));
        assert!(worker.0.wait().unwrap().success());
    }
    assert!(claimed.iter().all(|it| it.ends_with(" 1")), "every job had one claim: {claimed:?}");
    assert_eq!((claimed.len(), claimed.iter().collect::<BTreeSet<_>>().len()), (MANY, MANY));
    let done = JobFilter { state: Some(JobState::Done), ..JobFilter::default() };
    assert_eq!(store.jobs(&done).await.unwrap().1, MANY as u64);
}

#[tokio::test]
async fn a_worker_that_was_stopped_beyond_its_lease_writes_nothing() {
    let rounds: u64 = std::env::var("HELVE_ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(5);
    let place = Place::default();
    let store = SqliteStore::lazy(place.path());
    for round in 0..rounds {
        let id = add(&store, &new()).await;
        let mut worker = Worker::start(&place.path(), "hold");
        let mut lines = worker.lines();
        // Right after a write, when it sleeps and holds no lock.
        assert!(lines.by_ref().filter(|it| it == "held").nth(1).is_some(), "round {round}");
        worker.signal("-STOP");
        let mut seen = 0;
        let taken = loop {
            let mut claimed = store.claim(&jobs::worker("other"), LONG, 1).await.unwrap();
            if let Some(taken) = claimed.pop() {
                break taken;
            }
            seen = store.watch(seen, SHORT / 10).await;
        };
        assert_eq!((&taken.job.id, taken.lease.epoch, taken.job.attempt), (&id, 2, 2), "round {round}");
        let before = store.job(&id).await.unwrap();
        worker.signal("-CONT");
        assert!(lines.any(|it| it == "lost"), "round {round}");
        assert!(worker.0.wait().unwrap().success());
        assert_eq!(store.job(&id).await.unwrap(), before, "round {round}");
        Jobs::finish(&store, &taken.lease, JobResult::Done(json!("other"))).await.unwrap();
    }
}

#[tokio::test]
async fn the_job_of_a_worker_that_was_killed_is_free_at_once() {
    let place = Place::default();
    let store = SqliteStore::lazy(place.path());
    let id = add(&store, &NewJob { max_attempts: 2, ..new() }).await;
    for attempt in 1..=2 {
        let mut worker = Worker::start(&place.path(), "hold long");
        assert!(worker.lines().any(|it| it == "held"));
        assert!(store.claim(&jobs::worker("other"), LONG, 1).await.unwrap().is_empty());
        worker.0.kill().unwrap();
        worker.0.wait().unwrap();
        assert_eq!(store.job(&id).await.unwrap().unwrap().attempt, attempt);
    }
    // It killed as many workers as it may.
    assert!(store.claim(&jobs::worker("other"), LONG, 1).await.unwrap().is_empty());
    assert_eq!(store.job(&id).await.unwrap().unwrap().state, JobState::Dead);
}
