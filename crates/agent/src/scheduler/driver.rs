//! The loop that looks for what is due, and what keeps each run.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use helve_contract::{
    CancellationToken, Error, Result, ids,
    jiff::{SignedDuration, Timestamp},
    ports::{Cadence, Claim, ClaimedRun, Lease, Overlap, RunStatus, Schedule, ScheduleRun, ScheduleStatus, Schedules},
};
use helve_tools::schedule::cadence;
use tokio::sync::Notify as Bell;

use super::{
    Fire, Fired, Happening, Notify, Observer, Settings, Untold,
    conclude::conclude,
    plan::{Plan, plan},
};

/// A clock that went back by more than this was wrong before; schedules that it took into the future are planned anew.
const GONE_BACK: Duration = Duration::from_secs(3600);

/// Runs schedules when they are due. Cheap to clone; clones are one driver.
#[derive(Clone)]
pub struct Scheduler {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Schedules>,
    fire: Arc<dyn Fire>,
    notify: Arc<dyn Notify>,
    settings: Settings,
    observer: Option<Observer>,
    /// Who claims: one name a process and driver.
    owner: String,
    /// What runs here, by the id of the run: what stops it, and its lease.
    running: Mutex<HashMap<String, (CancellationToken, Lease)>>,
    /// Rung whenever a run is over.
    over: Bell,
    seen: Mutex<Option<Seen>>,
    closing: CancellationToken,
}

/// What the clocks showed at the last look.
#[derive(Clone, Copy)]
struct Seen {
    wall: Timestamp,
    steady: Instant,
    /// Until then no run of others is taken over: their claims only look old because the clock jumped.
    calm_until: Option<Instant>,
}

/// What one look led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Runs that began.
    pub started: usize,
    /// Runs that were taken over.
    pub taken_over: usize,
    /// Occurrences that were left out.
    pub skipped: u64,
}

impl Scheduler {
    /// A driver of this store.
    pub fn new(store: Arc<dyn Schedules>, fire: Arc<dyn Fire>, settings: Settings) -> Result<Self> {
        let owner = format!("{}:{}", std::process::id(), ids::new_id());
        Ok(Self {
            inner: Arc::new(Inner {
                store,
                fire,
                notify: Arc::new(Untold),
                settings,
                observer: None,
                owner,
                running: Mutex::default(),
                over: Bell::new(),
                seen: Mutex::new(None),
                closing: CancellationToken::new(),
            }),
        })
    }

    /// Results go here.
    #[must_use]
    pub fn telling(self, notify: Arc<dyn Notify>) -> Self {
        self.with(|inner| inner.notify = notify)
    }

    /// What happens is told to this.
    #[must_use]
    pub fn observed(self, observer: Observer) -> Self {
        self.with(|inner| inner.observer = Some(observer))
    }

    /// Only before the first look: a driver that runs is shared, and stays as it is.
    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            change(inner);
        }
        self
    }

    /// Looks once: takes over what others left behind, and begins what is due. It does not wait for the runs.
    pub async fn tick(&self) -> Result<Tick> {
        let now = self.inner.store.time().await?;
        let may_take_over = self.mind_the_clock(now).await?;
        let mut tick = Tick::default();
        if may_take_over {
            tick.taken_over = self.take_over().await?;
        }
        while self.free() > 0 {
            let due = self.inner.store.due(self.free()).await?;
            if due.is_empty() {
                break;
            }
            let mut moved = false;
            for schedule in due {
                moved |= self.attend(schedule, now, &mut tick).await?;
            }
            // What is left waits for its own last run, or went to somebody else.
            if !moved {
                break;
            }
        }
        Ok(tick)
    }

    /// Runs one schedule now, whether it is due or not, and waits for its end. `None`: it runs already, or is gone.
    pub async fn run_now(&self, schedule: &Schedule) -> Result<Option<ScheduleRun>> {
        let now = self.inner.store.time().await?;
        let Some(claimed) = self.claim(schedule, now, None, 0, Overlap::ByHand).await? else { return Ok(None) };
        let id = claimed.run.id.clone();
        self.keep(schedule.clone(), claimed).await;
        self.inner.store.run(&id).await
    }

    /// Looks again and again until `cancel` is set. Runs that are cut off then are released, for the next driver.
    pub async fn drive(&self, cancel: CancellationToken) {
        loop {
            if let Err(error) = self.tick().await {
                self.tell(|| Happening::Trouble(format!("schedules could not be looked at: {error}")));
            }
            tokio::select! {
                () = cancel.cancelled() => break,
                () = tokio::time::sleep(self.inner.settings.poll) => {}
                () = self.inner.over.notified() => {}
            }
        }
        self.close().await;
    }

    /// Stops what runs, and releases it.
    pub async fn close(&self) {
        self.inner.closing.cancel();
        self.idle().await;
    }

    /// Waits until nothing runs here.
    pub async fn idle(&self) {
        loop {
            let over = self.inner.over.notified();
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

    fn free(&self) -> usize {
        self.inner.settings.max_concurrent.max(1).saturating_sub(self.running().len())
    }

    fn tell(&self, what: impl FnOnce() -> Happening) {
        if let Some(observer) = &self.inner.observer {
            observer(&what());
        }
    }

    /// Sees to jumps of the clock. Whether claims of others can be judged by it.
    async fn mind_the_clock(&self, now: Timestamp) -> Result<bool> {
        let lease = self.inner.settings.lease;
        let steady = Instant::now();
        let last = {
            let mut seen = self.inner.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let last = *seen;
            let calm_until = last.and_then(|it| it.calm_until).filter(|it| *it > steady);
            *seen = Some(Seen { wall: now, steady, calm_until });
            last
        };
        let Some(last) = last else {
            self.replan(now).await?;
            return Ok(true);
        };
        let passed = SignedDuration::try_from(steady - last.steady).unwrap_or(SignedDuration::MAX);
        let jump = now.duration_since(last.wall).saturating_sub(passed);
        let limit = SignedDuration::try_from(lease / 2).unwrap_or(SignedDuration::MAX);
        if jump.abs() > limit {
            // Our own claims first, so that others see at once that somebody is there.
            let own: Vec<Lease> = self.running().values().map(|(_, lease)| lease.clone()).collect();
            for held in own {
                match self.inner.store.hold(&held, lease).await {
                    // Whoever keeps the run finds out by itself.
                    Ok(_) | Err(Error::LeaseLost(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            let mut seen = self.inner.seen.lock().unwrap_or_else(PoisonError::into_inner);
            *seen = Some(Seen { wall: now, steady, calm_until: steady.checked_add(lease) });
        }
        if jump < SignedDuration::ZERO - limit {
            self.replan(now).await?;
        }
        let seen = self.inner.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(seen.is_none_or(|it| it.calm_until.is_none()))
    }

    /// Brings back schedules that a wrong clock took far into the future.
    async fn replan(&self, now: Timestamp) -> Result<()> {
        let store = &self.inner.store;
        for schedule in store.begun_ahead(GONE_BACK).await? {
            if matches!(schedule.cadence, Cadence::Once { .. }) {
                continue;
            }
            let next = cadence::next(&schedule.cadence, now, now);
            if schedule.next.zip(next).is_some_and(|(planned, next)| planned > next) {
                // Whoever changes it at this moment plans it himself.
                let seen = schedule.updated;
                let _ = store.change_schedule(&Schedule { next, ..schedule }, seen).await?;
            }
        }
        Ok(())
    }

    async fn take_over(&self) -> Result<usize> {
        let (store, settings) = (&self.inner.store, &self.inner.settings);
        let mut taken = 0;
        while self.free() > 0 {
            let runs = store.take_over(&self.inner.owner, settings.lease, self.free()).await?;
            if runs.is_empty() {
                break;
            }
            for claimed in runs {
                let run = &claimed.run;
                let Some(schedule) = store.schedule(&run.schedule).await? else { continue };
                let stopped = matches!(schedule.status, ScheduleStatus::Paused | ScheduleStatus::Disabled);
                let fired = if stopped {
                    let output = "cut off, and not begun again: the schedule was stopped meanwhile".to_owned();
                    Some(Fired { output, status: RunStatus::Cancelled, turns: 0, cost: 0.0 })
                } else if run.attempt > settings.max_attempts.max(1) {
                    let tries = run.attempt - 1;
                    Some(Fired::failed(format!("given up after {tries} attempts; the program ended during each")))
                } else {
                    None
                };
                match fired {
                    Some(fired) => self.end(&schedule, &claimed, fired).await?,
                    None => {
                        taken += 1;
                        self.begin(schedule, claimed);
                    }
                }
            }
        }
        Ok(taken)
    }

    /// Sees to one schedule that is due. Whether it moved on.
    async fn attend(&self, schedule: Schedule, now: Timestamp, tick: &mut Tick) -> Result<bool> {
        let Some(due) = schedule.next else { return Ok(false) };
        match plan(&schedule, due, now, &self.inner.settings) {
            Plan::Pass { next, count } => {
                let moved = self.inner.store.pass_over(&schedule.id, due, next, count).await?;
                if moved {
                    tick.skipped += count;
                    self.tell(|| Happening::Skipped(Box::new(schedule), count));
                }
                Ok(moved)
            }
            Plan::TooLate => {
                let Some(claimed) = self.claim(&schedule, due, None, 0, Overlap::Skip).await? else {
                    return Ok(false);
                };
                let why = format!("nobody was there at {due}, and late runs are left out");
                self.end(&schedule, &claimed, Fired::failed(why)).await?;
                tick.skipped += 1;
                Ok(true)
            }
            Plan::Run { next, skipped, overlap } => {
                let Some(claimed) = self.claim(&schedule, due, next, skipped, overlap).await? else {
                    // It may have been left out because its last run goes on; then it is not due any more.
                    let there = self.inner.store.schedule(&schedule.id).await?;
                    return Ok(there.is_none_or(|it| it.next != Some(due)));
                };
                tick.started += 1;
                tick.skipped += skipped;
                self.begin(schedule, claimed);
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
        overlap: Overlap,
    ) -> Result<Option<ClaimedRun>> {
        let claim = Claim {
            schedule: schedule.id.clone(),
            due,
            next,
            owner: self.inner.owner.clone(),
            length: self.inner.settings.lease,
            run: ids::new_id(),
            skipped,
            overlap,
        };
        self.inner.store.claim(&claim).await
    }

    /// Lets a run go on by itself.
    fn begin(&self, schedule: Schedule, claimed: ClaimedRun) {
        let here = self.clone();
        // Counted before it begins, so that a look that follows sees it.
        self.running().insert(claimed.run.id.clone(), (CancellationToken::new(), claimed.lease.clone()));
        tokio::spawn(async move { here.keep(schedule, claimed).await });
    }

    /// Fires a run, prolongs its claim while it lasts, and keeps how it went.
    async fn keep(&self, schedule: Schedule, claimed: ClaimedRun) {
        let ClaimedRun { run, lease } = claimed.clone();
        let cancel = {
            let mut running = self.running();
            running.entry(run.id.clone()).or_insert_with(|| (CancellationToken::new(), lease.clone())).0.clone()
        };
        self.tell(|| Happening::Began(Box::new(schedule.clone()), Box::new(run.clone())));
        let fire = {
            let (fire, schedule, run, cancel) =
                (self.inner.fire.clone(), schedule.clone(), run.clone(), cancel.clone());
            // On its own, so that one that panics takes nothing along.
            tokio::spawn(async move { fire.fire(&schedule, &run, cancel).await })
        };
        let fired = tokio::select! {
            fired = fire => fired.unwrap_or_else(|_| Fired::failed("the run broke off; the log has more")),
            () = self.hold(&lease) => return self.lost(&schedule, &run, &cancel),
            () = tokio::time::sleep(self.inner.settings.max_time) => {
                cancel.cancel();
                Fired::failed(format!("stopped after {} s, the most that a run may take", self.inner.settings.max_time.as_secs()))
            }
            () = self.inner.closing.cancelled() => {
                cancel.cancel();
                // Released and not ended: whoever drives next begins it again.
                let _ = self.inner.store.release(&lease).await;
                return self.lost(&schedule, &run, &cancel);
            }
        };
        if let Err(error) = self.end(&schedule, &claimed, fired).await {
            self.tell(|| Happening::Trouble(format!("the end of a run could not be kept: {error}")));
        }
        self.leave(&run);
    }

    fn lost(&self, schedule: &Schedule, run: &ScheduleRun, cancel: &CancellationToken) {
        cancel.cancel();
        self.tell(|| Happening::Lost(Box::new(schedule.clone()), Box::new(run.clone())));
        self.leave(run);
    }

    fn leave(&self, run: &ScheduleRun) {
        self.running().remove(&run.id);
        self.inner.over.notify_one();
        self.inner.over.notify_waiters();
    }

    /// Prolongs a claim again and again; comes back when it is lost.
    async fn hold(&self, lease: &Lease) {
        let length = self.inner.settings.lease;
        let mut sure_until = Instant::now() + length;
        loop {
            tokio::time::sleep(length / 3).await;
            let begun = Instant::now();
            match self.inner.store.hold(lease, length).await {
                Ok(_) => sure_until = begun + length,
                Err(Error::LeaseLost(_)) => return,
                // The store may come back; until the lease has run out nobody else begins.
                Err(_) if Instant::now() < sure_until => {}
                Err(_) => return,
            }
        }
    }

    /// Tells who should hear of it, and keeps how a run went.
    async fn end(&self, schedule: &Schedule, claimed: &ClaimedRun, fired: Fired) -> Result<()> {
        let (store, settings) = (&self.inner.store, &self.inner.settings);
        let ClaimedRun { run, lease } = claimed;
        let now = store.time().await?;
        // What its owner changed meanwhile counts.
        let Some(schedule) = store.schedule(&schedule.id).await? else { return Ok(()) };
        let mut conclusion = conclude(&schedule, run, fired, now, settings);
        // Nobody is told of a run that is somebody else's by now.
        let telling = conclusion.result.is_some() || conclusion.notice.is_some();
        if telling {
            match store.hold(lease, settings.lease).await {
                Ok(_) => {}
                Err(Error::LeaseLost(_)) => {
                    self.tell(|| Happening::Lost(Box::new(schedule), Box::new(run.clone())));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        for text in [conclusion.result.take(), conclusion.notice.take()].into_iter().flatten() {
            conclusion.finish.run.notified |= self.inner.notify.notify(&schedule, &text).await;
        }
        match store.finish(lease, &conclusion.finish).await {
            Ok(run) => self.tell(|| Happening::Ended(Box::new(schedule), Box::new(run))),
            Err(Error::LeaseLost(_)) => self.tell(|| Happening::Lost(Box::new(schedule), Box::new(run.clone()))),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
