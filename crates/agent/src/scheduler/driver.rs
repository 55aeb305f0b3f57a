//! The scheduler loop: finds due schedules and supervises runs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use helve_contract::{
    CancellationToken, Error, Result, ids,
    jiff::{SignedDuration, Timestamp},
    ports::{
        Cadence, ClaimedRun, Lease, LeaseClaim, OverlapPolicy, Schedule, ScheduleRun, ScheduleRunStatus,
        ScheduleStatus, Schedules,
    },
};
use helve_tools::schedule::cadence;
use tokio::sync::Notify as Bell;

use super::{
    NoNotifier, RunOutcome, ScheduleNotifier, ScheduleRunner, SchedulerConfig, SchedulerEvent, SchedulerListener,
    conclude::conclude,
    plan::{DueAction, decide_due_action},
};

/// A larger regression means that the clock was wrong before; schedules that it moved into the future are
/// rescheduled.
const MAX_CLOCK_REGRESSION: Duration = Duration::from_secs(3600);

/// Runs schedules when they are due. Cheap to clone; clones are one driver.
#[derive(Clone)]
pub struct Scheduler {
    inner: Arc<SchedulerInner>,
}

struct SchedulerInner {
    store: Arc<dyn Schedules>,
    runner: Arc<dyn ScheduleRunner>,
    notifier: Arc<dyn ScheduleNotifier>,
    settings: SchedulerConfig,
    listener: Option<SchedulerListener>,
    /// Who claims: one name a process and driver.
    owner: String,
    /// What runs here, by the id of the run: what stops it, and its lease.
    running: Mutex<HashMap<String, (CancellationToken, Lease)>>,
    /// Notified whenever a run has ended.
    run_finished: Bell,
    clock_readings: Mutex<Option<ClockReadings>>,
    shutdown: CancellationToken,
}

/// The clock readings at the last tick.
#[derive(Clone, Copy)]
struct ClockReadings {
    wall: Timestamp,
    steady: Instant,
    /// Until then no run is taken over: claims only look expired because the clock jumped.
    no_takeover_until: Option<Instant>,
}

/// What one look led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickSummary {
    /// Runs that began.
    pub started: usize,
    /// Runs that were taken over.
    pub taken_over: usize,
    /// Occurrences that were left out.
    pub skipped: u64,
}

impl Scheduler {
    /// A driver of this store.
    pub fn new(store: Arc<dyn Schedules>, fire: Arc<dyn ScheduleRunner>, settings: SchedulerConfig) -> Result<Self> {
        let owner = format!("{}:{}", std::process::id(), ids::new_id());
        Ok(Self {
            inner: Arc::new(SchedulerInner {
                store,
                runner: fire,
                notifier: Arc::new(NoNotifier),
                settings,
                listener: None,
                owner,
                running: Mutex::default(),
                run_finished: Bell::new(),
                clock_readings: Mutex::new(None),
                shutdown: CancellationToken::new(),
            }),
        })
    }

    /// Results go here.
    #[must_use]
    pub fn with_notifier(self, notify: Arc<dyn ScheduleNotifier>) -> Self {
        self.configure(|inner| inner.notifier = notify)
    }

    /// What happens is told to this.
    #[must_use]
    pub fn with_listener(self, observer: SchedulerListener) -> Self {
        self.configure(|inner| inner.listener = Some(observer))
    }

    /// Only before the first look: a driver that runs is shared, and stays as it is.
    fn configure(mut self, change: impl FnOnce(&mut SchedulerInner)) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            change(inner);
        }
        self
    }

    /// One tick: takes over abandoned runs and starts due ones. It does not wait for the runs.
    pub async fn tick(&self) -> Result<TickSummary> {
        let now = self.inner.store.time().await?;
        let may_take_over = self.handle_clock_jump(now).await?;
        let mut tick = TickSummary::default();
        if may_take_over {
            tick.taken_over = self.take_over().await?;
        }
        while self.free_slots() > 0 {
            let due = self.inner.store.due_schedules(self.free_slots()).await?;
            if due.is_empty() {
                break;
            }
            let mut moved = false;
            for schedule in due {
                moved |= self.process_due(schedule, now, &mut tick).await?;
            }
            // What is left waits for its own last run, or went to somebody else.
            if !moved {
                break;
            }
        }
        Ok(tick)
    }

    /// Runs one schedule now and waits for its end. `None`: it is already running, or does not exist.
    pub async fn run_now(&self, schedule: &Schedule) -> Result<Option<ScheduleRun>> {
        let now = self.inner.store.time().await?;
        let Some(claimed) = self.claim(schedule, now, None, 0, OverlapPolicy::Manual).await? else { return Ok(None) };
        let id = claimed.run.id.clone();
        self.run_claimed(schedule.clone(), claimed).await;
        self.inner.store.run(&id).await
    }

    /// Ticks until `cancel` is set. Interrupted runs are released for the next driver.
    pub async fn run_loop(&self, cancel: CancellationToken) {
        loop {
            if let Err(error) = self.tick().await {
                self.emit(|| SchedulerEvent::Error(format!("schedules could not be looked at: {error}")));
            }
            tokio::select! {
                () = cancel.cancelled() => break,
                () = tokio::time::sleep(self.inner.settings.poll) => {}
                () = self.inner.run_finished.notified() => {}
            }
        }
        self.close().await;
    }

    /// Stops what runs, and releases it.
    pub async fn close(&self) {
        self.inner.shutdown.cancel();
        self.wait_idle().await;
    }

    /// Waits until nothing runs here.
    pub async fn wait_idle(&self) {
        loop {
            let over = self.inner.run_finished.notified();
            if self.running().is_empty() {
                return;
            }
            // The bell may have rung between the look and the wait; a look now and then costs nothing.
            let _ = tokio::time::timeout(Duration::from_millis(50), over).await;
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, (CancellationToken, Lease)>> {
        self.inner.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free_slots(&self) -> usize {
        self.inner.settings.max_concurrent.max(1).saturating_sub(self.running().len())
    }

    fn emit(&self, what: impl FnOnce() -> SchedulerEvent) {
        if let Some(observer) = &self.inner.listener {
            observer(&what());
        }
    }

    /// Handles clock jumps. Returns whether the claims of others can be judged.
    async fn handle_clock_jump(&self, now: Timestamp) -> Result<bool> {
        let lease = self.inner.settings.lease;
        let steady = Instant::now();
        let last = {
            let mut seen = self.inner.clock_readings.lock().unwrap_or_else(PoisonError::into_inner);
            let last = *seen;
            let calm_until = last.and_then(|it| it.no_takeover_until).filter(|it| *it > steady);
            *seen = Some(ClockReadings { wall: now, steady, no_takeover_until: calm_until });
            last
        };
        let Some(last) = last else {
            self.reschedule_future(now).await?;
            return Ok(true);
        };
        let passed = SignedDuration::try_from(steady - last.steady).unwrap_or(SignedDuration::MAX);
        let jump = now.duration_since(last.wall).saturating_sub(passed);
        let limit = SignedDuration::try_from(lease / 2).unwrap_or(SignedDuration::MAX);
        if jump.abs() > limit {
            // Our own claims first, so that others see at once that somebody is there.
            let own: Vec<Lease> = self.running().values().map(|(_, lease)| lease.clone()).collect();
            for held in own {
                match self.inner.store.renew_lease(&held, lease).await {
                    // Whoever keeps the run finds out by itself.
                    Ok(_) | Err(Error::LeaseLost(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            let mut seen = self.inner.clock_readings.lock().unwrap_or_else(PoisonError::into_inner);
            *seen = Some(ClockReadings { wall: now, steady, no_takeover_until: steady.checked_add(lease) });
        }
        if jump < SignedDuration::ZERO - limit {
            self.reschedule_future(now).await?;
        }
        let seen = self.inner.clock_readings.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(seen.is_none_or(|it| it.no_takeover_until.is_none()))
    }

    /// Brings back schedules that a wrong clock took far into the future.
    async fn reschedule_future(&self, now: Timestamp) -> Result<()> {
        let store = &self.inner.store;
        for schedule in store.begun_ahead(MAX_CLOCK_REGRESSION).await? {
            if matches!(schedule.cadence, Cadence::Once { .. }) {
                continue;
            }
            let next = cadence::next_run(&schedule.cadence, now, now);
            if schedule.next.zip(next).is_some_and(|(planned, next)| planned > next) {
                // Whoever changes it at this moment plans it himself.
                let seen = schedule.updated;
                let _ = store.update_schedule(&Schedule { next, ..schedule }, seen).await?;
            }
        }
        Ok(())
    }

    async fn take_over(&self) -> Result<usize> {
        let (store, settings) = (&self.inner.store, &self.inner.settings);
        let mut taken = 0;
        while self.free_slots() > 0 {
            let runs = store.take_over_expired(&self.inner.owner, settings.lease, self.free_slots()).await?;
            if runs.is_empty() {
                break;
            }
            for claimed in runs {
                let run = &claimed.run;
                let Some(schedule) = store.schedule(&run.schedule).await? else { continue };
                let stopped = matches!(schedule.status, ScheduleStatus::Paused | ScheduleStatus::Disabled);
                let fired = if stopped {
                    let output = "cut off, and not begun again: the schedule was stopped meanwhile".to_owned();
                    Some(RunOutcome { output, status: ScheduleRunStatus::Cancelled, turns: 0, cost: 0.0 })
                } else if run.attempt > settings.max_attempts.max(1) {
                    let tries = run.attempt - 1;
                    Some(RunOutcome::failed(format!("given up after {tries} attempts; the program ended during each")))
                } else {
                    None
                };
                match fired {
                    Some(fired) => self.finish_run(&schedule, &claimed, fired).await?,
                    None => {
                        taken += 1;
                        self.spawn_run(schedule, claimed);
                    }
                }
            }
        }
        Ok(taken)
    }

    /// Sees to one schedule that is due. Whether it moved on.
    async fn process_due(&self, schedule: Schedule, now: Timestamp, tick: &mut TickSummary) -> Result<bool> {
        let Some(due) = schedule.next else { return Ok(false) };
        match decide_due_action(&schedule, due, now, &self.inner.settings) {
            DueAction::Skip { next, count } => {
                let moved = self.inner.store.skip_occurrence(&schedule.id, due, next, count).await?;
                if moved {
                    tick.skipped += count;
                    self.emit(|| SchedulerEvent::Skipped(Box::new(schedule), count));
                }
                Ok(moved)
            }
            DueAction::Expired => {
                let Some(claimed) = self.claim(&schedule, due, None, 0, OverlapPolicy::Skip).await? else {
                    return Ok(false);
                };
                let why = format!("nobody was there at {due}, and late runs are left out");
                self.finish_run(&schedule, &claimed, RunOutcome::failed(why)).await?;
                tick.skipped += 1;
                Ok(true)
            }
            DueAction::Run { next, skipped, overlap } => {
                let Some(claimed) = self.claim(&schedule, due, next, skipped, overlap).await? else {
                    // It may have been left out because its last run goes on; then it is not due any more.
                    let there = self.inner.store.schedule(&schedule.id).await?;
                    return Ok(there.is_none_or(|it| it.next != Some(due)));
                };
                tick.started += 1;
                tick.skipped += skipped;
                self.spawn_run(schedule, claimed);
                Ok(true)
            }
        }
    }

    async fn claim(
        &self,
        schedule: &Schedule,
        due: Timestamp,
        next: Option<Timestamp>,
        skipped: u64,
        overlap: OverlapPolicy,
    ) -> Result<Option<ClaimedRun>> {
        let claim = LeaseClaim {
            schedule: schedule.id.clone(),
            due,
            next,
            owner: self.inner.owner.clone(),
            length: self.inner.settings.lease,
            run: ids::new_id(),
            skipped,
            overlap,
        };
        self.inner.store.claim_run(&claim).await
    }

    /// Lets a run go on by itself.
    fn spawn_run(&self, schedule: Schedule, claimed: ClaimedRun) {
        let here = self.clone();
        // Counted before it begins, so that a look that follows sees it.
        self.running().insert(claimed.run.id.clone(), (CancellationToken::new(), claimed.lease.clone()));
        tokio::spawn(async move { here.run_claimed(schedule, claimed).await });
    }

    /// Runs a claimed occurrence, renews its lease, and stores the result.
    async fn run_claimed(&self, schedule: Schedule, claimed: ClaimedRun) {
        let ClaimedRun { run, lease } = claimed.clone();
        let cancel = {
            let mut running = self.running();
            running.entry(run.id.clone()).or_insert_with(|| (CancellationToken::new(), lease.clone())).0.clone()
        };
        self.emit(|| SchedulerEvent::RunStarted(Box::new(schedule.clone()), Box::new(run.clone())));
        let fire = {
            let (fire, schedule, run, cancel) =
                (self.inner.runner.clone(), schedule.clone(), run.clone(), cancel.clone());
            // On its own, so that one that panics takes nothing along.
            tokio::spawn(async move { fire.run(&schedule, &run, cancel).await })
        };
        let fired = tokio::select! {
            fired = fire => fired.unwrap_or_else(|_| RunOutcome::failed("the run broke off; the log has more")),
            () = self.renew_lease_loop(&lease) => return self.on_lease_lost(&schedule, &run, &cancel),
            () = tokio::time::sleep(self.inner.settings.max_time) => {
                cancel.cancel();
                RunOutcome::failed(format!("stopped after {} s, the most that a run may take", self.inner.settings.max_time.as_secs()))
            }
            () = self.inner.shutdown.cancelled() => {
                cancel.cancel();
                // Released, not finished: the next driver starts it again.
                let _ = self.inner.store.release(&lease).await;
                return self.on_lease_lost(&schedule, &run, &cancel);
            }
        };
        if let Err(error) = self.finish_run(&schedule, &claimed, fired).await {
            self.emit(|| SchedulerEvent::Error(format!("the end of a run could not be kept: {error}")));
        }
        self.remove_running(&run);
    }

    fn on_lease_lost(&self, schedule: &Schedule, run: &ScheduleRun, cancel: &CancellationToken) {
        cancel.cancel();
        self.emit(|| SchedulerEvent::LeaseLost(Box::new(schedule.clone()), Box::new(run.clone())));
        self.remove_running(run);
    }

    fn remove_running(&self, run: &ScheduleRun) {
        self.running().remove(&run.id);
        self.inner.run_finished.notify_one();
        self.inner.run_finished.notify_waiters();
    }

    /// Prolongs a claim again and again; comes back when it is lost.
    async fn renew_lease_loop(&self, lease: &Lease) {
        let length = self.inner.settings.lease;
        let mut sure_until = Instant::now() + length;
        loop {
            tokio::time::sleep(length / 3).await;
            let begun = Instant::now();
            match self.inner.store.renew_lease(lease, length).await {
                Ok(_) => sure_until = begun + length,
                Err(Error::LeaseLost(_)) => return,
                // The store may come back; until the lease has run out nobody else begins.
                Err(_) if Instant::now() < sure_until => {}
                Err(_) => return,
            }
        }
    }

    /// Tells who should hear of it, and keeps how a run went.
    async fn finish_run(&self, schedule: &Schedule, claimed: &ClaimedRun, fired: RunOutcome) -> Result<()> {
        let (store, settings) = (&self.inner.store, &self.inner.settings);
        let ClaimedRun { run, lease } = claimed;
        let now = store.time().await?;
        // What its owner changed meanwhile counts.
        let Some(schedule) = store.schedule(&schedule.id).await? else { return Ok(()) };
        let mut conclusion = conclude(&schedule, run, fired, now, settings);
        // Nobody is told of a run that is somebody else's by now.
        let telling = conclusion.result.is_some() || conclusion.notice.is_some();
        if telling {
            match store.renew_lease(lease, settings.lease).await {
                Ok(_) => {}
                Err(Error::LeaseLost(_)) => {
                    self.emit(|| SchedulerEvent::LeaseLost(Box::new(schedule), Box::new(run.clone())));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        for text in [conclusion.result.take(), conclusion.notice.take()].into_iter().flatten() {
            conclusion.finish.run.notified |= self.inner.notifier.notify(&schedule, &text).await;
        }
        match store.finish_run(lease, &conclusion.finish).await {
            Ok(run) => self.emit(|| SchedulerEvent::RunFinished(Box::new(schedule), Box::new(run))),
            Err(Error::LeaseLost(_)) => {
                self.emit(|| SchedulerEvent::LeaseLost(Box::new(schedule), Box::new(run.clone())));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
