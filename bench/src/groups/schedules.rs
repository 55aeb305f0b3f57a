//! Ten thousand schedules, a hundred of them due in one second: how long until all are claimed, and done.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use helve_agent::scheduler::{Fire, Fired, Scheduler, Settings};
use helve_contract::{
    CancellationToken, async_trait,
    jiff::Timestamp,
    ports::{Cadence, Missed, Notification, RunStatus, Schedule, ScheduleRun, ScheduleStatus, Schedules, WallClock},
};
use helve_store::Sqlite;

use crate::{desk::on_disk, report::Report};

/// How many are due at once.
const DUE: usize = 100;
/// How long it may take until all of them are claimed.
const LIMIT: Duration = Duration::from_secs(2);

/// Has nothing to do.
struct Nothing;

#[async_trait]
impl Fire for Nothing {
    async fn fire(&self, _: &Schedule, _: &ScheduleRun, _: CancellationToken) -> Fired {
        Fired::done("")
    }
}

pub(super) fn run(report: &mut Report) -> Result<()> {
    let (_held, root) = on_disk()?;
    let all = if report.effort.quick { 1_000 } else { 10_000 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let told = runtime.block_on(measured(Sqlite::at(root.join("helve.db")), all))?;
    match told {
        Ok(text) => report.note(&text),
        Err(text) => report.fail(&text),
    }
    Ok(())
}

async fn measured(store: Sqlite, all: usize) -> Result<Result<String, String>> {
    let said = |error: helve_contract::Error| anyhow!("{error}");
    let now = Timestamp::now();
    for n in 0..all {
        store.add_schedule(&schedule(n, now)?).await.map_err(said)?;
    }
    let store = Arc::new(store);
    let settings = Settings { max_concurrent: DUE, ..Settings::default() };
    let driver = Scheduler::new(store.clone(), Arc::new(WallClock), Arc::new(Nothing), settings).map_err(said)?;
    // The first look minds the clock, and has nothing to run yet.
    let begun = Instant::now();
    store.due(now, DUE).await.map_err(said)?;
    let looked = begun.elapsed();
    let begun = Instant::now();
    let tick = driver.tick().await.map_err(said)?;
    let claimed = begun.elapsed();
    driver.idle().await;
    let done = begun.elapsed();
    let mut runs = 0;
    for n in 0..DUE {
        let kept = store.runs(&format!("s{n}"), 5).await.map_err(said)?;
        runs += kept.iter().filter(|run| run.status == RunStatus::Success).count();
    }
    let text = format!(
        "{all} schedules, {DUE} due at once: looked up in {:.1} ms, all claimed after {:.0} ms (aim: {} ms), all done \
         after {:.0} ms, {runs} runs kept",
        looked.as_secs_f64() * 1e3,
        claimed.as_secs_f64() * 1e3,
        LIMIT.as_millis(),
        done.as_secs_f64() * 1e3,
    );
    Ok(if tick.started == DUE && runs == DUE && claimed < LIMIT { Ok(text) } else { Err(text) })
}

fn schedule(n: usize, now: Timestamp) -> Result<Schedule> {
    let later = Timestamp::from_second(now.as_second() + 3_600)?;
    Ok(Schedule {
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
        missed: Missed::Once,
        created: now,
        updated: now,
        next: Some(if n < DUE { now } else { later }),
        last_run: None,
        last_status: None,
        failures: 0,
        skipped: 0,
    })
}
