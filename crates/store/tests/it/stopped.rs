//! A process that is stopped beyond its lease: another one takes over, and the first writes nothing when it goes on.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::Duration,
};

use helve_contract::{
    Error,
    ports::{Sessions, TokenUsage},
};
use helve_store::SqliteStore;

use crate::{
    sqlite::Place,
    suite::{begin, said, session},
};

/// Set for the process that is stopped: the store's file.
const ORDER: &str = "HELVE_TEST_STOPPED";
/// Short, so that the test need not wait long.
const LENGTH: Duration = Duration::from_secs(1);

/// Not a test of its own: this binary started again, as one who writes until its lease is lost.
#[tokio::test]
async fn writer() {
    let Ok(path) = std::env::var(ORDER) else { return };
    let store = SqliteStore::lazy(path);
    let lease = store.claim_session("a", "stopped", LENGTH).await.unwrap();
    let tell = |line: String| writeln!(std::io::stderr().lock(), "{line}").unwrap();
    loop {
        let wrote = async {
            store.hold_session(&lease, LENGTH).await?;
            store.append_messages(&lease, &[said("from the one that is stopped", 0)], TokenUsage::default()).await
        };
        match wrote.await {
            Ok(added) => tell(format!("kept {}", added.last)),
            Err(Error::LeaseLost(_)) => break,
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(LENGTH / 10).await;
    }
    // Whatever it tries now.
    assert!(store.append_messages(&lease, &[said("too late", 0)], TokenUsage::default()).await.is_err());
    tell("lost".to_owned());
}

struct Writer(Child);

impl Writer {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// How many processes are stopped; `HELVE_STOPS` sets it.
fn stops() -> u64 {
    std::env::var("HELVE_STOPS").ok().and_then(|it| it.parse().ok()).unwrap_or(3)
}

/// How many of them work at the same time, each with its own file.
const AT_ONCE: u64 = 8;

#[tokio::test]
async fn a_process_that_was_stopped_beyond_its_lease_writes_nothing() {
    let lanes = (0..AT_ONCE.min(stops())).map(|lane| {
        let rounds = (lane..stops()).step_by(AT_ONCE as usize);
        tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(stop_processes(rounds))
        })
    });
    let mut done = 0;
    for lane in lanes.collect::<Vec<_>>() {
        done += lane.await.unwrap();
    }
    assert_eq!(done, stops());
}

/// Stops one process after the other beyond its lease. How many.
async fn stop_processes(rounds: impl Iterator<Item = u64>) -> u64 {
    let place = Place::default();
    let store = SqliteStore::lazy(place.path());
    begin(&store, &session("a")).await.unwrap();
    let mut done = 0;
    for round in rounds {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["stopped::writer", "--exact", "--nocapture"])
            .env(ORDER, place.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut writer = Writer(child);
        let mut lines = BufReader::new(writer.0.stderr.take().unwrap()).lines().map(Result::unwrap);
        // Right after a write, when it sleeps and holds no lock.
        assert!(lines.by_ref().filter(|line| line.starts_with("kept ")).nth(2).is_some(), "round {round}");
        let held = store.claim_session("a", "other", LENGTH).await.unwrap_err();
        let Error::SessionHeld(holder) = held else { panic!("{held}") };
        assert_eq!(holder.pid, writer.0.id());
        writer.signal("-STOP");
        let lease = loop {
            match store.claim_session("a", "other", Duration::from_secs(60)).await {
                Ok(lease) => break lease,
                Err(Error::SessionHeld(_)) => tokio::time::sleep(LENGTH / 10).await,
                Err(error) => panic!("{error}"),
            }
        };
        let taken = store.append_messages(&lease, &[said("taken over", 0)], TokenUsage::default()).await.unwrap();
        writer.signal("-CONT");
        assert!(lines.any(|line| line == "lost"), "round {round}");
        assert!(writer.0.wait().unwrap().success());
        let record = store.get_session("a").await.unwrap().unwrap();
        assert_eq!(record.messages, taken.last, "round {round}");
        store.release_session(&lease).await.unwrap();
        done += 1;
    }
    done
}

#[tokio::test]
async fn the_lease_of_a_process_that_is_gone_is_free_at_once() {
    let place = Place::default();
    let store = SqliteStore::lazy(place.path());
    begin(&store, &session("a")).await.unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["stopped::writer", "--exact", "--nocapture"])
        .env(ORDER, place.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut writer = Writer(child);
    let mut lines = BufReader::new(writer.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("kept ")));
    writer.0.kill().unwrap();
    writer.0.wait().unwrap();
    assert_eq!(store.session_holder("a").await.unwrap(), None);
    store.claim_session("a", "other", LENGTH).await.unwrap();
}
