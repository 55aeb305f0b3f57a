//! Two processes drive one store and are killed repeatedly. Every occurrence starts once, or again with a label; none
//! is missing.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use super::*;

/// Set for a process that drives: the directory of the store.
const FOLDER: &str = "HELVE_TEST_DRIVE";
/// How many schedules share the occurrences.
const SCHEDULES: u64 = 10;

/// Writes a line for every beginning.
struct Pen(PathBuf);

#[async_trait]
impl ScheduleRunner for Pen {
    async fn run(&self, schedule: &Schedule, run: &ScheduleRun, _: CancellationToken) -> RunOutcome {
        let line = format!("{} {} {}\n", schedule.id, run.due.as_second(), run.attempt);
        let mut log = OpenOptions::new().append(true).create(true).open(&self.0).unwrap();
        log.write_all(line.as_bytes()).unwrap();
        tokio::time::sleep(Duration::from_millis(run.due.as_second().unsigned_abs() / 60 % 4)).await;
        RunOutcome::success(line)
    }
}

/// Not a test of its own: this binary started again, as one who drives until nothing is left.
#[tokio::test]
async fn driver() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let folder = PathBuf::from(folder);
    let store = Arc::new(SqliteStore::open(folder.join("helve.db")).unwrap());
    let settings = SchedulerConfig {
        poll: Duration::from_millis(5),
        max_concurrent: 4,
        lease: Duration::from_millis(400),
        catch_up_window: Duration::from_secs(u32::MAX.into()),
        max_attempts: u32::MAX,
        keep_runs: usize::MAX,
        ..SchedulerConfig::default()
    };
    let log = folder.join(format!("log-{}", std::process::id()));
    let driver = Scheduler::new(store.clone(), Arc::new(Pen(log)), settings).unwrap();
    let cancel = CancellationToken::new();
    let watch = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if store.due_schedules(1).await.unwrap().is_empty() && nothing_runs(&store).await {
                return cancel.cancel();
            }
        }
    };
    tokio::join!(driver.run_loop(cancel.clone()), watch);
}

async fn nothing_runs(store: &SqliteStore) -> bool {
    for n in 0..SCHEDULES {
        let runs = store.runs(&format!("s{n}"), 1).await.unwrap();
        if runs.iter().any(|it| it.status == ScheduleRunStatus::Running) {
            return false;
        }
    }
    true
}

/// A process that drives, ended with the test.
struct Driver(Child);

impl Driver {
    fn start(folder: &Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["scheduler::tests::kill::driver", "--exact"])
            .env(FOLDER, folder)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn kill(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test]
async fn none_is_missing_and_none_runs_twice_unlabelled() {
    let occurrences = number("HELVE_OCCURRENCES", 120);
    let kills = number("HELVE_KILLS", occurrences / 8);
    let stage = SchedulerFixture::new();
    let each = occurrences.div_ceil(SCHEDULES);
    let now = Timestamp::now().as_second() / 60 * 60;
    // The last one is due now, and the next one only tomorrow.
    let first = now - (each as i64 - 1) * 60;
    for n in 0..SCHEDULES {
        stage
            .add(&format!("s{n}"), |it| {
                it.missed = MissedRunPolicy::All;
                it.next = Some(Timestamp::from_second(first).unwrap());
                it.cadence = Cadence::Cron { expression: "* * * * *".into(), timezone: "UTC".into() };
            })
            .await;
    }
    let folder = stage.folder.path().to_owned();
    let mut dice = number("HELVE_SEED", 7) | 1;
    let mut roll = move |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % sides
    };
    let mut drivers = [Driver::start(&folder), Driver::start(&folder)];
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(10 + roll(90))).await;
        let one = &mut drivers[roll(2) as usize];
        one.kill();
        *one = Driver::start(&folder);
    }
    let begun = Instant::now();
    while drivers.iter_mut().any(|it| it.0.try_wait().unwrap().is_none()) {
        assert!(begun.elapsed() < Duration::from_secs(600), "the drivers do not come to an end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    check(&stage, each, first).await;
}

async fn check(stage: &SchedulerFixture, each: u64, first: i64) {
    let mut begun: BTreeMap<(String, i64), HashSet<u32>> = BTreeMap::new();
    for entry in fs::read_dir(stage.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_string_lossy().starts_with("log-") {
            continue;
        }
        for line in fs::read_to_string(path).unwrap().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let key = (words[0].to_owned(), words[1].parse().unwrap());
            let fresh = begun.entry(key).or_default().insert(words[2].parse().unwrap());
            assert!(fresh, "`{line}` was begun twice under one label");
        }
    }
    let mut retries = 0;
    for n in 0..SCHEDULES {
        let id = format!("s{n}");
        let runs = stage.store.runs(&id, usize::MAX).await.unwrap();
        let ends: BTreeMap<i64, &ScheduleRun> = runs.iter().map(|it| (it.due.as_second(), it)).collect();
        assert_eq!(ends.len(), runs.len(), "one row an occurrence");
        for minute in 0..each as i64 {
            let due = first + minute * 60;
            let run = ends.get(&due).unwrap_or_else(|| panic!("{id} {due} is missing"));
            assert_eq!(run.status, ScheduleRunStatus::Success, "{run:?}");
            let labels = &begun[&(id.clone(), due)];
            assert!(labels.contains(&run.attempt), "{run:?} {labels:?}");
            retries += labels.len() - 1;
        }
    }
    println!("{} occurrences, {retries} labelled retries", SCHEDULES * each);
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(usual)
}
