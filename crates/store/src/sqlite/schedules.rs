//! Schedules and their runs. Claiming an occurrence and advancing its schedule is one transaction.

use std::time::Duration;

use async_trait::async_trait;
use helve_contract::{
    Result,
    jiff::Timestamp,
    ports::{
        Cadence, ClaimedRun, Lease, LeaseClaim, OverlapPolicy, RunCompletion, Schedule, ScheduleFilter, ScheduleRun,
        ScheduleRunStatus, ScheduleStatus, Schedules,
    },
};
use rusqlite::{OptionalExtension, Row, params, types::Type};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    SqliteStore, Tx, from_micros,
    leases::{lost, micros},
    to_micros,
};

const SCHEDULE_COLUMNS: &str = "id, user, name, goal, cadence, notification, status, session, channel, workspace, dialect, \
                        missed, created, updated, next, last_run, last_status, failures, skipped, origin";
const RUN_COLUMNS: &str =
    "id, schedule, due, attempt, owner, started, finished, status, summary, turns, cost, notified";

#[async_trait]
impl Schedules for SqliteStore {
    async fn time(&self) -> Result<Timestamp> {
        Ok(self.clock.now())
    }

    async fn add_schedule(&self, schedule: &Schedule) -> Result<Schedule> {
        let mut schedule = schedule.clone();
        self.write(move |t| {
            (schedule.created, schedule.updated) = (from_micros(to_micros(t.now)), from_micros(to_micros(t.now)));
            insert_schedule(t, &schedule)?;
            Ok(schedule)
        })
        .await
    }

    async fn schedule(&self, id: &str) -> Result<Option<Schedule>> {
        let id = id.to_owned();
        self.read(move |t| find_schedule(t, &id)).await
    }

    async fn update_schedule(&self, schedule: &Schedule, seen: Timestamp) -> Result<bool> {
        let mut schedule = schedule.clone();
        self.write(move |t| {
            let there = find_schedule(t, &schedule.id)?;
            let Some(there) = there.filter(|it| to_micros(it.updated) == to_micros(seen)) else { return Ok(false) };
            schedule.updated = from_micros(next_update_time(there.updated, t.now));
            schedule.created = there.created;
            // Not `INSERT OR REPLACE`, which would delete the runs.
            t.prepare_cached(
                "UPDATE schedules SET user = ?2, name = ?3, goal = ?4, cadence = ?5, kind = ?6, notification = ?7, \
                 status = ?8, session = ?9, channel = ?10, workspace = ?11, dialect = ?12, missed = ?13, \
                 created = ?14, updated = ?15, next = ?16, last_run = ?17, last_status = ?18, failures = ?19, \
                 skipped = ?20, origin = ?21 WHERE id = ?1 AND tenant = ?22",
            )?
            .execute(rusqlite::params_from_iter(columns(t, &schedule)?))?;
            Ok(true)
        })
        .await
    }

    async fn remove_schedule(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.write(move |t| {
            let sql = "DELETE FROM schedules WHERE tenant = ?1 AND id = ?2";
            Ok(t.prepare_cached(sql)?.execute(params![t.tenant, id])? > 0)
        })
        .await
    }

    async fn schedules(&self, which: &ScheduleFilter) -> Result<(Vec<Schedule>, u64)> {
        let which = which.clone();
        self.read(move |t| list(t, &which)).await
    }

    async fn due_schedules(&self, most: usize) -> Result<Vec<Schedule>> {
        self.read(move |t| {
            let sql = format!(
                "SELECT {SCHEDULE_COLUMNS} FROM schedules WHERE tenant = ?1 AND status = 'active' AND next IS NOT NULL \
                 AND next <= ?2 ORDER BY next, id LIMIT ?3"
            );
            let mut statement = t.prepare_cached(&sql)?;
            let rows = statement
                .query_map(params![t.tenant, to_micros(t.now), most.min(i64::MAX as usize) as i64], schedule)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    async fn begun_ahead(&self, by: Duration) -> Result<Vec<Schedule>> {
        self.read(move |t| {
            let sql = format!(
                "SELECT {SCHEDULE_COLUMNS} FROM schedules WHERE tenant = ?1 AND status = 'active' AND last_run > ?2 ORDER BY id"
            );
            let mut statement = t.prepare_cached(&sql)?;
            let rows = statement.query_map(params![t.tenant, to_micros(t.now).saturating_add(micros(by))], schedule)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    async fn claim_run(&self, claim: &LeaseClaim) -> Result<Option<ClaimedRun>> {
        let claim = claim.clone();
        self.write(move |t| claim_occurrence(t, &claim)).await
    }

    async fn skip_occurrence(
        &self,
        schedule: &str,
        due: Timestamp,
        next: Option<Timestamp>,
        count: u64,
    ) -> Result<bool> {
        let schedule = schedule.to_owned();
        self.write(move |t| {
            let gone_on = t
                .prepare_cached(
                    "UPDATE schedules SET next = ?3, skipped = skipped + ?4, updated = updated + 1 \
                     WHERE id = ?1 AND next = ?2 AND status = 'active' AND tenant = ?5",
                )?
                .execute(params![schedule, to_micros(due), next.map(to_micros), count, t.tenant])?;
            Ok(gone_on > 0)
        })
        .await
    }

    async fn renew_lease(&self, lease: &Lease, length: Duration) -> Result<Lease> {
        let lease = lease.clone();
        self.write(move |t| prolong(t, &lease, to_micros(t.now).saturating_add(micros(length)))).await
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        let lease = lease.clone();
        self.write(move |t| prolong(t, &lease, to_micros(t.now)).map(drop)).await
    }

    async fn take_over_expired(&self, owner: &str, length: Duration, most: usize) -> Result<Vec<ClaimedRun>> {
        let owner = owner.to_owned();
        // A read is cheap and does not block; usually there is nothing to take over.
        let idle = self.read(move |t| Ok(expired_runs(t, length, 1)?.is_empty())).await?;
        if idle {
            return Ok(Vec::new());
        }
        self.write(move |t| {
            let ids = expired_runs(t, length, most)?;
            let sql = format!(
                "UPDATE schedule_runs SET owner = ?3, until = ?4, started = ?5, attempt = attempt + 1 \
                 WHERE tenant = ?1 AND id = ?2 RETURNING {RUN_COLUMNS}"
            );
            let mut statement = t.prepare_cached(&sql)?;
            let until = to_micros(t.now).saturating_add(micros(length));
            let mut taken = Vec::with_capacity(ids.len());
            for id in ids {
                let run = statement.query_row(params![t.tenant, id, owner, until, to_micros(t.now)], run)?;
                taken.push(claimed(run, until));
            }
            Ok(taken)
        })
        .await
    }

    async fn finish_run(&self, lease: &Lease, finish: &RunCompletion) -> Result<ScheduleRun> {
        let (lease, finish) = (lease.clone(), finish.clone());
        self.write(move |t| finish_run(t, &lease, finish)).await
    }

    async fn runs(&self, schedule: &str, most: usize) -> Result<Vec<ScheduleRun>> {
        let schedule = schedule.to_owned();
        self.read(move |t| {
            let sql = format!(
                "SELECT {RUN_COLUMNS} FROM schedule_runs WHERE tenant = ?1 AND schedule = ?2 \
                     ORDER BY started DESC, due DESC LIMIT ?3"
            );
            let mut statement = t.prepare_cached(&sql)?;
            let rows = statement.query_map(params![t.tenant, schedule, most.min(i64::MAX as usize) as i64], run)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    async fn run(&self, id: &str) -> Result<Option<ScheduleRun>> {
        let id = id.to_owned();
        self.read(move |t| {
            let sql = format!("SELECT {RUN_COLUMNS}, output FROM schedule_runs WHERE tenant = ?1 AND id = ?2");
            let mut statement = t.prepare_cached(&sql)?;
            let found = statement
                .query_row(params![t.tenant, id], |row| Ok(ScheduleRun { output: row.get("output")?, ..run(row)? }));
            Ok(found.optional()?)
        })
        .await
    }
}

fn find_schedule(t: &Tx<'_>, id: &str) -> anyhow::Result<Option<Schedule>> {
    let sql = format!("SELECT {SCHEDULE_COLUMNS} FROM schedules WHERE tenant = ?1 AND id = ?2");
    Ok(t.prepare_cached(&sql)?.query_row(params![t.tenant, id], schedule).optional()?)
}

fn insert_schedule(t: &Tx<'_>, schedule: &Schedule) -> anyhow::Result<()> {
    let sql = "INSERT INTO schedules (id, user, name, goal, cadence, kind, notification, status, session, channel, \
               workspace, dialect, missed, created, updated, next, last_run, last_status, failures, skipped, \
               origin, tenant) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
               ?18, ?19, ?20, ?21, ?22)";
    t.prepare_cached(sql)?.execute(rusqlite::params_from_iter(columns(t, schedule)?))?;
    Ok(())
}

/// A schedule in the order of the table's columns.
fn columns(t: &Tx<'_>, it: &Schedule) -> anyhow::Result<Vec<rusqlite::types::Value>> {
    let time = |it: Option<Timestamp>| it.map(to_micros).into();
    Ok(vec![
        it.id.clone().into(),
        it.user.clone().into(),
        it.name.clone().into(),
        it.goal.clone().into(),
        serde_json::to_string(&it.cadence)?.into(),
        cadence_kind(&it.cadence).to_owned().into(),
        to_text(&it.notification)?.into(),
        to_text(&it.status)?.into(),
        it.session.clone().into(),
        it.channel.clone().into(),
        it.workspace.clone().into(),
        it.dialect.clone().into(),
        to_text(&it.missed)?.into(),
        to_micros(it.created).into(),
        to_micros(it.updated).into(),
        time(it.next),
        time(it.last_run),
        it.last_status.as_ref().map(to_text).transpose()?.into(),
        i64::from(it.failures).into(),
        it.skipped.min(i64::MAX as u64).cast_signed().into(),
        it.origin.clone().into(),
        t.tenant.to_string().into(),
    ])
}

fn list(t: &Tx<'_>, which: &ScheduleFilter) -> anyhow::Result<(Vec<Schedule>, u64)> {
    let status = which.status.as_ref().map(to_text).transpose()?;
    let notification = which.notification.as_ref().map(to_text).transpose()?;
    let fits = "(?1 IS NULL OR user = ?1) AND (?2 IS NULL OR status = ?2) AND (?3 IS NULL OR kind = ?3) \
                AND (?4 IS NULL OR notification = ?4) AND (?5 IS NULL OR session = ?5) AND tenant = ?6";
    let from = format!("SELECT {SCHEDULE_COLUMNS} FROM schedules WHERE {fits} ORDER BY created DESC, rowid DESC");
    let given = params![which.user, status, which.cadence, notification, which.session, t.tenant];
    let signed = |it: u64| it.min(i64::MAX as u64).cast_signed();
    let Some(name) = which.name.as_ref().map(|it| it.to_lowercase()) else {
        let count = format!("SELECT count(*) FROM schedules WHERE {fits}");
        let total = t.prepare_cached(&count)?.query_row(given, |row| row.get(0))?;
        let page = format!("{from} LIMIT {} OFFSET {}", signed(which.limit), signed(which.offset));
        let found = t.prepare(&page)?.query_map(given, schedule)?.collect::<Result<_, _>>()?;
        return Ok((found, total));
    };
    // What is compared without regard to case is compared here: SQLite knows the case of ASCII alone.
    let (mut total, mut found) = (0, Vec::new());
    for row in t.prepare_cached(&from)?.query_map(given, schedule)? {
        let row = row?;
        if !row.name.as_ref().is_some_and(|it| it.to_lowercase().contains(name.as_str())) {
            continue;
        }
        if total >= which.offset && (found.len() as u64) < which.limit {
            found.push(row);
        }
        total += 1;
    }
    Ok((found, total))
}

fn claim_occurrence(t: &Tx<'_>, claim: &LeaseClaim) -> anyhow::Result<Option<ClaimedRun>> {
    let Some(there) = find_schedule(t, &claim.schedule)? else { return Ok(None) };
    let by_hand = claim.overlap == OverlapPolicy::Manual;
    let is_due = there.status == ScheduleStatus::Active && there.next.map(to_micros) == Some(to_micros(claim.due));
    if !by_hand && !is_due {
        return Ok(None);
    }
    let busy: bool = t
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM schedule_runs WHERE tenant = ?1 AND schedule = ?2 AND status = 'running')",
        )?
        .query_row(params![t.tenant, claim.schedule], |row| row.get(0))?;
    if busy && claim.overlap != OverlapPolicy::Skip {
        return Ok(None);
    }
    let (now, until) = (to_micros(t.now), to_micros(t.now).saturating_add(micros(claim.length)));
    let mut begun = false;
    if !busy {
        begun = t
            .prepare_cached(
                "INSERT INTO schedule_runs (tenant, id, schedule, due, attempt, owner, until, started, status, summary, \
                 output, turns, cost, notified) VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, 'running', '', '', 0, 0.0, 0) \
                 ON CONFLICT (tenant, schedule, due) DO NOTHING",
            )?
            .execute(params![t.tenant, claim.run, claim.schedule, to_micros(claim.due), claim.owner, until, now])?
            > 0;
    }
    // The schedule advances even if the occurrence was claimed before: otherwise it would stay due.
    t.prepare_cached(
        "UPDATE schedules SET next = ?2, skipped = skipped + ?3, updated = ?4, last_run = coalesce(?5, last_run) \
         WHERE id = ?1 AND tenant = ?6",
    )?
    .execute(params![
        claim.schedule,
        if by_hand { there.next.map(to_micros) } else { claim.next.map(to_micros) },
        claim.skipped + u64::from(busy),
        next_update_time(there.updated, t.now),
        begun.then_some(now),
        t.tenant,
    ])?;
    let run = ScheduleRun {
        id: claim.run.clone(),
        schedule: claim.schedule.clone(),
        due: from_micros(to_micros(claim.due)),
        attempt: 1,
        owner: claim.owner.clone(),
        started: from_micros(now),
        finished: None,
        status: ScheduleRunStatus::Running,
        summary: String::new(),
        output: String::new(),
        turns: 0,
        cost: 0.0,
        notified: false,
    };
    Ok(begun.then(|| claimed(run, until)))
}

/// A run with its lease: its epoch is the number of the attempt.
fn claimed(run: ScheduleRun, until: i64) -> ClaimedRun {
    let lease =
        Lease { key: run.id.clone(), owner: run.owner.clone(), epoch: run.attempt.into(), until: from_micros(until) };
    ClaimedRun { run, lease }
}

/// Moves the end of a lease.
fn prolong(t: &Tx<'_>, lease: &Lease, until: i64) -> anyhow::Result<Lease> {
    let held = t
        .prepare_cached(
            "UPDATE schedule_runs SET until = ?5 WHERE tenant = ?1 AND id = ?2 AND owner = ?3 AND attempt = ?4 \
             AND status = 'running'",
        )?
        .execute(params![t.tenant, lease.key, lease.owner, lease.epoch, until])?;
    if held == 0 { Err(lost(lease)) } else { Ok(Lease { until: from_micros(until), ..lease.clone() }) }
}

/// Runs with expired leases. A lease that ends unusually late was created before the clock went back.
fn expired_runs(t: &Tx<'_>, length: Duration, most: usize) -> anyhow::Result<Vec<String>> {
    let now = to_micros(t.now);
    let farthest = now.saturating_add(micros(length).saturating_mul(4));
    let mut statement = t.prepare_cached(
        "SELECT id FROM schedule_runs WHERE tenant = ?1 AND status = 'running' AND (until <= ?2 OR until > ?3) \
         ORDER BY due, id LIMIT ?4",
    )?;
    let values = params![t.tenant, now, farthest, most.min(i64::MAX as usize) as i64];
    let rows = statement.query_map(values, |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn finish_run(t: &Tx<'_>, lease: &Lease, finish: RunCompletion) -> anyhow::Result<ScheduleRun> {
    let mut run = finish.run;
    run.finished = Some(from_micros(to_micros(t.now)));
    // What is not a number cannot be kept as one.
    run.cost = if run.cost.is_finite() { run.cost } else { 0.0 };
    let status = to_text(&run.status)?;
    let ended = t
        .prepare_cached(
            "UPDATE schedule_runs SET finished = ?5, status = ?6, summary = ?7, output = ?8, turns = ?9, cost = ?10, \
             notified = ?11 WHERE tenant = ?1 AND id = ?2 AND owner = ?3 AND attempt = ?4 AND status = 'running'",
        )?
        .execute(params![
            t.tenant,
            lease.key,
            lease.owner,
            lease.epoch,
            to_micros(t.now),
            status,
            run.summary,
            run.output,
            run.turns,
            run.cost,
            run.notified,
        ])?;
    if ended == 0 {
        return Err(lost(lease));
    }
    t.prepare_cached(
        "UPDATE schedules SET last_status = ?3, failures = ?4, updated = updated + 1 WHERE tenant = ?1 AND id = ?2",
    )?
    .execute(params![t.tenant, run.schedule, status, finish.failures])?;
    if let Some(status) = finish.status {
        // The owner's concurrent decisions stand: a one-off with a new time is not over, a paused one is not
        // disabled.
        t.prepare_cached(
            "UPDATE schedules SET status = ?3, next = NULL WHERE tenant = ?1 AND id = ?2 \
             AND CASE WHEN ?3 IN ('completed', 'failed') THEN next IS NULL ELSE status = 'active' END",
        )?
        .execute(params![t.tenant, run.schedule, to_text(&status)?])?;
    }
    t.prepare_cached(
        "DELETE FROM schedule_runs WHERE tenant = ?1 AND schedule = ?2 AND status <> 'running' AND id NOT IN \
         (SELECT id FROM schedule_runs WHERE tenant = ?1 AND schedule = ?2 ORDER BY started DESC, due DESC LIMIT ?3)",
    )?
    .execute(params![t.tenant, run.schedule, finish.keep_runs.min(i64::MAX as usize) as i64])?;
    Ok(run)
}

/// A time of change that is later than the last one, also where the clock went back.
fn next_update_time(last: Timestamp, now: Timestamp) -> i64 {
    to_micros(now).max(to_micros(last) + 1)
}

fn schedule(row: &Row<'_>) -> rusqlite::Result<Schedule> {
    let time = |at: &str| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(from_micros));
    let cadence: String = row.get("cadence")?;
    Ok(Schedule {
        id: row.get("id")?,
        user: row.get("user")?,
        name: row.get("name")?,
        goal: row.get("goal")?,
        cadence: serde_json::from_str(&cadence)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(4, Type::Text, error.into()))?,
        notification: from_text(row.get("notification")?)?,
        status: from_text(row.get("status")?)?,
        session: row.get("session")?,
        channel: row.get("channel")?,
        workspace: row.get("workspace")?,
        dialect: row.get("dialect")?,
        missed: from_text(row.get("missed")?)?,
        created: from_micros(row.get("created")?),
        updated: from_micros(row.get("updated")?),
        next: time("next")?,
        last_run: time("last_run")?,
        last_status: row.get::<_, Option<String>>("last_status")?.map(from_text).transpose()?,
        failures: row.get("failures")?,
        skipped: row.get("skipped")?,
        origin: row.get("origin")?,
    })
}

/// A run without its output, which may be long.
fn run(row: &Row<'_>) -> rusqlite::Result<ScheduleRun> {
    Ok(ScheduleRun {
        id: row.get("id")?,
        schedule: row.get("schedule")?,
        due: from_micros(row.get("due")?),
        attempt: row.get("attempt")?,
        owner: row.get("owner")?,
        started: from_micros(row.get("started")?),
        finished: row.get::<_, Option<i64>>("finished")?.map(from_micros),
        status: from_text(row.get("status")?)?,
        summary: row.get("summary")?,
        output: String::new(),
        turns: row.get("turns")?,
        cost: row.get("cost")?,
        notified: row.get("notified")?,
    })
}

fn cadence_kind(cadence: &Cadence) -> &'static str {
    match cadence {
        Cadence::Once { .. } => "once",
        Cadence::Cron { .. } => "cron",
        Cadence::Interval { .. } => "interval",
    }
}

/// The word by which a value of a few is kept.
fn to_text<T: Serialize>(value: &T) -> anyhow::Result<String> {
    match serde_json::to_value(value)? {
        Value::String(word) => Ok(word),
        other => anyhow::bail!("{other} is not a word"),
    }
}

fn from_text<T: DeserializeOwned>(word: String) -> rusqlite::Result<T> {
    serde_json::from_value(Value::String(word))
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error.into()))
}
