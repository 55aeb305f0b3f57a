//! Scheduler tests: a manual clock, a real store, and scripted runs.

mod clocks;
mod kill;
mod runs;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use helve_contract::{
    CancellationToken, async_trait,
    jiff::{SignedDuration, Timestamp},
    ports::{
        Cadence, Clock, MissedRunPolicy, Notification, Schedule, ScheduleFilter, ScheduleRun, ScheduleRunStatus,
        ScheduleStatus, Schedules,
    },
};
use helve_store::SqliteStore;

use super::*;

/// A clock that stands until it is set.
#[derive(Clone)]
struct ManualClock(Arc<Mutex<Timestamp>>);

impl ManualClock {
    fn forward(&self, seconds: i64) {
        let mut now = self.0.lock().unwrap();
        *now = now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

/// Does what the test says, and remembers what it was asked for.
#[derive(Default)]
struct ScriptedRunner {
    answers: Mutex<VecDeque<RunOutcome>>,
    /// Runs wait for a permit, where there is a door.
    door: Option<tokio::sync::Semaphore>,
    seen: Mutex<Vec<String>>,
}

#[async_trait]
impl ScheduleRunner for ScriptedRunner {
    async fn run(&self, schedule: &Schedule, run: &ScheduleRun, cancel: CancellationToken) -> RunOutcome {
        let due = run.due.as_second() - start().as_second();
        self.seen.lock().unwrap().push(format!("{} {due}#{}", schedule.id, run.attempt));
        if let Some(door) = &self.door {
            tokio::select! {
                permit = door.acquire() => permit.unwrap().forget(),
                () = cancel.cancelled() => return RunOutcome::failed("cancelled"),
            }
        }
        let answer = self.answers.lock().unwrap().pop_front();
        let answer = answer.unwrap_or_else(|| RunOutcome::success("done"));
        assert!(answer.output != "panic", "as the test wants it");
        answer
    }
}

/// Remembers what people were told.
#[derive(Default)]
struct RecordingNotifier(Mutex<Vec<String>>);

#[async_trait]
impl ScheduleNotifier for RecordingNotifier {
    async fn notify(&self, schedule: &Schedule, text: &str) -> bool {
        self.0.lock().unwrap().push(format!("{}: {text}", schedule.id));
        true
    }
}

/// A driver with all that belongs to it.
struct SchedulerFixture {
    folder: Arc<tempfile::TempDir>,
    store: Arc<SqliteStore>,
    clock: ManualClock,
    script: Arc<ScriptedRunner>,
    ears: Arc<RecordingNotifier>,
    driver: Scheduler,
}

fn start() -> Timestamp {
    "2026-01-05T09:00:00Z".parse().unwrap()
}

fn at(seconds: i64) -> Timestamp {
    start().checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

impl SchedulerFixture {
    fn new() -> Self {
        Self::with(ScriptedRunner::default(), SchedulerConfig::default())
    }

    fn with(script: ScriptedRunner, settings: SchedulerConfig) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let clock = ManualClock(Arc::new(Mutex::new(start())));
        let store = SqliteStore::open(folder.path().join("helve.db")).unwrap().with_clock(Arc::new(clock.clone()));
        Self::on(folder, Arc::new(store), clock, script, settings)
    }

    fn on(
        folder: Arc<tempfile::TempDir>,
        store: Arc<SqliteStore>,
        clock: ManualClock,
        script: ScriptedRunner,
        settings: SchedulerConfig,
    ) -> Self {
        let (script, ears) = (Arc::new(script), Arc::new(RecordingNotifier::default()));
        let driver = Scheduler::new(store.clone(), script.clone(), settings).unwrap();
        Self { folder, store, clock, script, driver: driver.with_notifier(ears.clone()), ears }
    }

    /// Another driver of the same store.
    fn another(&self, script: ScriptedRunner) -> Self {
        Self::on(self.folder.clone(), self.store.clone(), self.clock.clone(), script, SchedulerConfig::default())
    }

    async fn add(&self, id: &str, change: impl FnOnce(&mut Schedule)) {
        let mut schedule = Schedule {
            id: id.into(),
            user: "ann".into(),
            name: None,
            goal: format!("the task of {id}"),
            cadence: Cadence::Interval { every_secs: 60 },
            notification: Notification::Never,
            status: ScheduleStatus::Active,
            session: None,
            channel: None,
            workspace: None,
            dialect: None,
            missed: MissedRunPolicy::Once,
            created: start(),
            updated: start(),
            next: Some(at(60)),
            last_run: None,
            last_status: None,
            failures: 0,
            origin: None,
            skipped: 0,
        };
        change(&mut schedule);
        self.store.add_schedule(&schedule).await.unwrap();
    }

    /// Looks once, and waits for what began.
    async fn tick(&self) -> TickSummary {
        let tick = self.driver.tick().await.unwrap();
        self.driver.wait_idle().await;
        tick
    }

    /// Some seconds pass, and it looks.
    async fn after(&self, seconds: i64) -> TickSummary {
        self.clock.forward(seconds);
        self.tick().await
    }

    async fn schedule(&self, id: &str) -> Schedule {
        self.store.schedule(id).await.unwrap().unwrap()
    }

    async fn last(&self, id: &str) -> ScheduleRun {
        let run = self.store.runs(id, 1).await.unwrap().remove(0);
        self.store.run(&run.id).await.unwrap().unwrap()
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.script.seen.lock().unwrap())
    }

    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.ears.0.lock().unwrap())
    }
}

fn answering(answers: impl IntoIterator<Item = RunOutcome>) -> ScriptedRunner {
    ScriptedRunner { answers: Mutex::new(answers.into_iter().collect()), ..ScriptedRunner::default() }
}

fn closed() -> ScriptedRunner {
    ScriptedRunner { door: Some(tokio::sync::Semaphore::new(0)), ..ScriptedRunner::default() }
}
