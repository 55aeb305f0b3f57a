//! Ten thousand schedules, a hundred of them due in one second: the time until all are claimed and done.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use helve_agent::scheduler::{RunOutcome, ScheduleRunner, Scheduler, SchedulerConfig};
use helve_contract::{
    CancellationToken, async_trait,
    jiff::Timestamp,
    ports::{
        Cadence, MissedRunPolicy, Notification, Schedule, ScheduleRun, ScheduleRunStatus, ScheduleStatus, Schedules,
    },
};
use helve_store::SqliteStore;

use crate::{
    desk::{disk_dir, tmpfs_dir},
    report::{BenchReport, BenchTarget, PreparedWork},
};

/// How many are due at once.
const DUE: usize = 100;
/// How long it may take until all of them are claimed.
const LIMIT: Duration = Duration::from_secs(2);

/// Has nothing to do.
struct NoopFire;

#[async_trait]
impl ScheduleRunner for NoopFire {
    async fn run(&self, _: &Schedule, _: &ScheduleRun, _: CancellationToken) -> RunOutcome {
        RunOutcome::success("")
    }
}

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let (_held, root) = disk_dir()?;
    let all = if report.effort.is_small() { 1_000 } else { 10_000 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let told = runtime.block_on(measure(SqliteStore::lazy(root.join("helve.db")), all))?;
    let name = format!("{all} schedules, {DUE} due at once");
    report.figure(&format!("{name}: looked up"), told.looked, "ms", None);
    report.figure(
        &format!("{name}: all claimed"),
        told.claimed,
        "ms",
        Some(BenchTarget::Most(LIMIT.as_secs_f64() * 1e3)),
    );
    report.figure(&format!("{name}: all done"), told.done, "ms", None);
    report.figure(&format!("{name}: runs kept, each once"), told.runs as f64, "", Some(BenchTarget::Least(DUE as f64)));

    let (_held, root) = tmpfs_dir()?;
    let (root, runtime) = (&root, &runtime);
    let mut grown = |all: usize| -> Result<PreparedWork<'_>> {
        let store = SqliteStore::lazy(root.join(format!("{all}.db")));
        let now = Timestamp::now();
        runtime.block_on(async {
            for n in 0..all {
                store.add_schedule(&schedule(n, now)?).await.map_err(|it| anyhow!("{it}"))?;
            }
            anyhow::Ok(())
        })?;
        Ok(Box::new(move |times| {
            (0..times)
                .try_for_each(|_| runtime.block_on(store.due_schedules(DUE)).map(drop).map_err(|it| anyhow!("{it}")))
        }))
    };
    report.measure_growth(
        ("look up what is due", "schedules"),
        &[100, 1_000, 10_000, 100_000],
        &mut [("helve", &mut grown)],
    )
}

/// Milliseconds, and how many runs there were.
struct ScheduleTimes {
    looked: f64,
    claimed: f64,
    done: f64,
    runs: usize,
}

async fn measure(store: SqliteStore, all: usize) -> Result<ScheduleTimes> {
    let said = |error: helve_contract::Error| anyhow!("{error}");
    let now = Timestamp::now();
    for n in 0..all {
        store.add_schedule(&schedule(n, now)?).await.map_err(said)?;
    }
    let store = Arc::new(store);
    let settings = SchedulerConfig { max_concurrent: DUE, ..SchedulerConfig::default() };
    let driver = Scheduler::new(store.clone(), Arc::new(NoopFire), settings).map_err(said)?;
    // The first tick initialises the clock and has nothing to run.
    let begun = Instant::now();
    store.due_schedules(DUE).await.map_err(said)?;
    let looked = begun.elapsed();
    let begun = Instant::now();
    let tick = driver.tick().await.map_err(said)?;
    let claimed = begun.elapsed();
    driver.wait_idle().await;
    let done = begun.elapsed();
    let mut runs = 0;
    for n in 0..DUE {
        let kept = store.runs(&format!("s{n}"), 5).await.map_err(said)?;
        runs += kept.iter().filter(|run| run.status == ScheduleRunStatus::Success).count();
    }
    ensure!(tick.started == DUE, "{} were started and not {DUE}", tick.started);
    let millis = |it: Duration| it.as_secs_f64() * 1e3;
    Ok(ScheduleTimes { looked: millis(looked), claimed: millis(claimed), done: millis(done), runs })
}

fn schedule(n: usize, now: Timestamp) -> Result<Schedule> {
    let later = Timestamp::from_second(now.as_second() + 3_600)?;
    Ok(Schedule {
        origin: None,
        id: format!("s{n}"),
        user: format!("u{}", n % 200),
        name: None,
        goal: "nothing".into(),
        cadence: Cadence::Interval { every_secs: 3_600 },
        notification: Notification::Never,
        status: ScheduleStatus::Active,
        session: None,
        channel: None,
        workspace: None,
        dialect: None,
        missed: MissedRunPolicy::Once,
        created: now,
        updated: now,
        next: Some(if n < DUE { now } else { later }),
        last_run: None,
        last_status: None,
        failures: 0,
        skipped: 0,
    })
}
