//! Jobs in the store's file. Every change is one transaction that compares owner and epoch of the lease.

use std::time::Duration;

use helve_contract::{
    Result, async_trait,
    jiff::Timestamp,
    ports::{
        ClaimedJob, Enqueued, HeldJob, Job, JobFilter, JobId, JobKind, JobResult, JobState, Jobs, Lease, NewJob, Worker,
    },
};
use rusqlite::{OptionalExtension, Row, params, types::Type};
use serde_json::Value;

use super::{
    SqliteStore, Tx, from_micros,
    leases::{Process, lost, micros},
    to_micros,
};
use crate::jobs as rules;

const COLUMNS: &str = "tenant, id, kind, version, key, user, session, workspace, parent, priority, state, attempt, max_attempts, \
                       epoch, owner, until, is_cancel_requested, result, error, created, run_at, started, ended";

#[async_trait]
impl Jobs for SqliteStore {
    async fn enqueue(&self, job: &NewJob) -> Result<Enqueued> {
        job.check()?;
        let job = job.clone();
        self.write_jobs(move |t| add(t, job)).await
    }

    async fn claim(&self, worker: &Worker, length: Duration, limit: usize) -> Result<Vec<ClaimedJob>> {
        let (worker, looking) = (worker.clone(), worker.clone());
        // A read is cheap and does not block; usually there is nothing to claim.
        let is_idle = self.read(move |t| Ok(candidates(t, &looking, length, 1)?.is_empty())).await?;
        if is_idle || limit == 0 {
            return Ok(Vec::new());
        }
        // A waiter would find nothing new and would wake the claimer in turn.
        self.write(move |t| claim(t, &worker, length, limit)).await
    }

    async fn hold(&self, lease: &Lease, length: Duration) -> Result<HeldJob> {
        let lease = lease.clone();
        // Nobody waits for this change, so nobody is woken.
        self.write(move |t| {
            let until = to_micros(t.now).saturating_add(micros(length));
            let held: Option<bool> = t
                .prepare_cached(
                    "UPDATE jobs SET until = ?5 WHERE tenant = ?1 AND id = ?2 AND owner = ?3 AND epoch = ?4 \
                     AND state = 'running' RETURNING is_cancel_requested",
                )?
                .query_row(params![t.tenant, lease.key, lease.owner, lease.epoch, until], |row| row.get(0))
                .optional()?;
            let is_cancel_requested = held.ok_or_else(|| lost(&lease))?;
            Ok(HeldJob { lease: Lease { until: from_micros(until), ..lease }, is_cancel_requested })
        })
        .await
    }

    async fn finish(&self, lease: &Lease, result: JobResult) -> Result<Job> {
        self.change_held(lease, |job, now| rules::finish(job, result, now)).await
    }

    async fn hand_back(&self, lease: &Lease) -> Result<Job> {
        self.change_held(lease, rules::hand_back).await
    }

    async fn cancel(&self, id: &JobId) -> Result<Option<Job>> {
        let id = id.clone();
        self.write_jobs(move |t| {
            let mut tree = t.prepare_cached(
                "WITH RECURSIVE tree (id) AS (SELECT id FROM jobs WHERE tenant = ?1 AND id = ?2 UNION \
                 SELECT jobs.id FROM jobs JOIN tree ON jobs.parent = tree.id WHERE jobs.tenant = ?1) SELECT id FROM tree",
            )?;
            let ids = tree.query_map(params![t.tenant, id.as_str()], |row| row.get::<_, String>(0))?;
            for found in ids.collect::<Result<Vec<_>, _>>()? {
                let Some((mut job, process)) = find(t, &found)? else { continue };
                let is_lapsed = process.is_gone() || rules::is_lapsed(job.until, t.now, None);
                rules::cancel(&mut job, is_lapsed, t.now);
                save(t, &job)?;
            }
            Ok(find(t, id.as_str())?.map(|it| it.0))
        })
        .await
    }

    async fn retry(&self, id: &JobId) -> Result<Option<Job>> {
        let id = id.clone();
        self.write_jobs(move |t| {
            let Some((mut job, _)) = find(t, id.as_str())? else { return Ok(None) };
            rules::retry(&mut job, t.now)?;
            save(t, &job)?;
            Ok(Some(job))
        })
        .await
    }

    async fn job(&self, id: &JobId) -> Result<Option<Job>> {
        let id = id.clone();
        self.read(move |t| Ok(find(t, id.as_str())?.map(|it| it.0))).await
    }

    async fn jobs(&self, filter: &JobFilter) -> Result<(Vec<Job>, u64)> {
        let filter = filter.clone();
        self.read(move |t| list(t, &filter)).await
    }

    async fn remove_ended(&self, age: Duration) -> Result<u64> {
        self.write(move |t| {
            let before = to_micros(t.now).saturating_sub(micros(age));
            let sql = "DELETE FROM jobs WHERE tenant = ?1 AND ended <= ?2";
            Ok(t.prepare_cached(sql)?.execute(params![t.tenant, before])? as u64)
        })
        .await
    }

    async fn watch(&self, seen: u64, timeout: Duration) -> u64 {
        self.file.job_changes.wait(seen, timeout).await
    }
}

impl SqliteStore {
    /// Changes jobs, and wakes those in this process who wait for that.
    async fn write_jobs<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T> {
        let done = self.write(work).await?;
        self.file.job_changes.add();
        Ok(done)
    }

    /// Changes the job of a lease that is still good.
    async fn change_held(
        &self,
        lease: &Lease,
        change: impl FnOnce(&mut Job, Timestamp) + Send + 'static,
    ) -> Result<Job> {
        let lease = lease.clone();
        self.write_jobs(move |t| {
            let found = find(t, &lease.key)?.map(|it| it.0).filter(|it| rules::is_held(it, &lease));
            let mut job = found.ok_or_else(|| lost(&lease))?;
            change(&mut job, t.now);
            save(t, &job)?;
            Ok(job)
        })
        .await
    }
}

fn add(t: &Tx<'_>, new: NewJob) -> anyhow::Result<Enqueued> {
    if let Some(key) = &new.key {
        let sql = "SELECT id FROM jobs WHERE tenant = ?1 AND key = ?2";
        let id: Option<String> =
            t.prepare_cached(sql)?.query_row(params![t.tenant, key], |row| row.get(0)).optional()?;
        if let Some(id) = id {
            return Ok(Enqueued::Existing(id.parse()?));
        }
    }
    if let Some(most) = new.max_queued {
        let sql = "SELECT count(*) FROM jobs WHERE tenant = ?1 AND kind = ?2 AND state = 'queued'";
        let queued = t.prepare_cached(sql)?.query_row(params![t.tenant, new.kind.name()], |row| row.get(0))?;
        if queued >= most {
            return Ok(Enqueued::QueueFull(queued));
        }
    }
    let parent = match &new.parent {
        Some(id) => Some(find(t, id.as_str())?.ok_or_else(|| rules::no_parent(id))?.0),
        None => None,
    };
    let job = rules::create(new, &t.tenant, parent.as_ref(), t.now);
    t.prepare_cached(
        "INSERT INTO jobs (tenant, id, kind, version, key, user, session, parent, payload, priority, state, attempt, \
         max_attempts, epoch, is_cancel_requested, created, run_at, ended, workspace) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 0, ?12, 0, 0, ?13, ?14, ?15, ?16)",
    )?
    .execute(params![
        t.tenant,
        job.id.as_str(),
        job.kind.name(),
        job.kind.version(),
        job.key,
        job.user,
        job.session,
        job.parent.as_ref().map(JobId::as_str),
        job.payload.to_string(),
        job.priority,
        job.state.name(),
        job.max_attempts,
        to_micros(job.created),
        to_micros(job.run_at),
        job.ended.map(to_micros),
        job.workspace,
    ])?;
    Ok(Enqueued::Added(job.id))
}

/// Ids of claimable jobs: all with expired leases, and the first of those that are due.
fn candidates(t: &Tx<'_>, worker: &Worker, length: Duration, limit: usize) -> anyhow::Result<Vec<String>> {
    const FITS: &str = "kind || '/' || version IN (SELECT value FROM json_each(?2)) \
                        AND (workspace IS NULL OR workspace IN (SELECT value FROM json_each(?3)))";
    let (kinds, workspaces) = (serde_json::to_string(&worker.kinds)?, serde_json::to_string(&worker.workspaces)?);
    let sql = format!(
        "SELECT id, until, host, pid_namespace, pid FROM jobs WHERE tenant = ?1 AND state = 'running' AND {FITS}"
    );
    let mut running = t.prepare_cached(&sql)?;
    let mut rows = running.query(params![t.tenant, kinds, workspaces])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let until = row.get::<_, Option<i64>>("until")?.map(from_micros);
        if process(row)?.is_gone() || rules::is_lapsed(until, t.now, Some(length)) {
            found.push(row.get("id")?);
        }
    }
    let sql = format!(
        "SELECT id FROM jobs WHERE tenant = ?1 AND state = 'queued' AND run_at <= ?4 AND {FITS} \
         ORDER BY priority DESC, run_at, id LIMIT ?5"
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut queued = t.prepare_cached(&sql)?;
    for id in queued.query_map(params![t.tenant, kinds, workspaces, to_micros(t.now), limit], |row| row.get(0))? {
        found.push(id?);
    }
    Ok(found)
}

fn claim(t: &Tx<'_>, worker: &Worker, length: Duration, limit: usize) -> anyhow::Result<Vec<ClaimedJob>> {
    let mut jobs = Vec::new();
    for id in candidates(t, worker, length, limit)? {
        jobs.extend(find(t, &id)?.map(|it| it.0));
    }
    jobs.sort_by(|a, b| (b.priority, a.run_at, &a.id).cmp(&(a.priority, b.run_at, &b.id)));
    let mut claimed = Vec::new();
    for mut job in jobs {
        if claimed.len() >= limit {
            break;
        }
        let lease = rules::claim(&mut job, &worker.owner, t.now, length);
        save(t, &job)?;
        if let Some(lease) = lease {
            claimed.push(ClaimedJob { job, lease });
        }
    }
    Ok(claimed)
}

fn find(t: &Tx<'_>, id: &str) -> anyhow::Result<Option<(Job, Process)>> {
    let sql = format!("SELECT {COLUMNS}, payload, host, pid_namespace, pid FROM jobs WHERE tenant = ?1 AND id = ?2");
    let found = t.prepare_cached(&sql)?.query_row(params![t.tenant, id], |row| {
        let payload: String = row.get("payload")?;
        Ok((Job { payload: json(&payload)?, ..job(row)? }, process(row)?))
    });
    Ok(found.optional()?)
}

/// Keeps what the rules change. A process is kept with a claim.
fn save(t: &Tx<'_>, job: &Job) -> anyhow::Result<()> {
    let this = Process::this();
    t.prepare_cached(
        "UPDATE jobs SET state = ?3, attempt = ?4, epoch = ?5, owner = ?6, until = ?7, is_cancel_requested = ?8, \
         result = ?9, error = ?10, run_at = ?11, started = ?12, ended = ?13, \
         payload = CASE WHEN ?14 THEN 'null' ELSE payload END, \
         host = CASE WHEN ?5 > epoch THEN ?15 ELSE host END, \
         pid_namespace = CASE WHEN ?5 > epoch THEN ?16 ELSE pid_namespace END, \
         pid = CASE WHEN ?5 > epoch THEN ?17 ELSE pid END WHERE tenant = ?1 AND id = ?2",
    )?
    .execute(params![
        t.tenant,
        job.id.as_str(),
        job.state.name(),
        job.attempt,
        job.epoch,
        job.owner,
        job.until.map(to_micros),
        job.is_cancel_requested,
        job.result.as_ref().map(Value::to_string),
        job.error,
        to_micros(job.run_at),
        job.started.map(to_micros),
        job.ended.map(to_micros),
        job.payload.is_null(),
        this.host,
        this.pid_namespace,
        this.pid,
    ])?;
    Ok(())
}

fn list(t: &Tx<'_>, filter: &JobFilter) -> anyhow::Result<(Vec<Job>, u64)> {
    let fits = "tenant = ?1 AND (?2 IS NULL OR state = ?2) AND (?3 IS NULL OR kind = ?3) AND (?4 = '[]' OR user IN (SELECT value FROM json_each(?4))) \
                AND (?5 IS NULL OR session = ?5) AND (?6 IS NULL OR parent = ?6)";
    let (state, parent) = (filter.state.map(JobState::name), filter.parent.as_ref().map(JobId::as_str));
    let users = serde_json::to_string(&filter.users)?;
    let given = params![t.tenant, state, filter.kind, users, filter.session, parent];
    let count = format!("SELECT count(*) FROM jobs WHERE {fits}");
    let total = t.prepare_cached(&count)?.query_row(given, |row| row.get(0))?;
    let signed = |it: u64| it.min(i64::MAX as u64).cast_signed();
    let page = format!(
        "SELECT {COLUMNS} FROM jobs WHERE {fits} ORDER BY created DESC, id DESC LIMIT {} OFFSET {}",
        signed(filter.most),
        signed(filter.offset)
    );
    let found = t.prepare(&page)?.query_map(given, job)?.collect::<Result<_, _>>()?;
    Ok((found, total))
}

/// A job without its payload, which may be large.
fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let time = |name: &str| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(name)?.map(from_micros));
    let kind: String = row.get("kind")?;
    let parent: Option<String> = row.get("parent")?;
    let result: Option<String> = row.get("result")?;
    Ok(Job {
        id: parsed(&row.get::<_, String>("id")?)?,
        tenant: row.get("tenant")?,
        kind: JobKind::new(&kind, row.get("version")?).map_err(wrong)?,
        key: row.get("key")?,
        user: row.get("user")?,
        session: row.get("session")?,
        workspace: row.get("workspace")?,
        parent: parent.as_deref().map(parsed).transpose()?,
        payload: Value::Null,
        priority: row.get("priority")?,
        state: parsed(&row.get::<_, String>("state")?)?,
        attempt: row.get("attempt")?,
        max_attempts: row.get("max_attempts")?,
        epoch: row.get("epoch")?,
        owner: row.get("owner")?,
        until: time("until")?,
        is_cancel_requested: row.get("is_cancel_requested")?,
        result: result.as_deref().map(json).transpose()?,
        error: row.get("error")?,
        created: from_micros(row.get("created")?),
        run_at: from_micros(row.get("run_at")?),
        started: time("started")?,
        ended: time("ended")?,
    })
}

fn process(row: &Row<'_>) -> rusqlite::Result<Process> {
    Ok(Process { host: row.get("host")?, pid_namespace: row.get("pid_namespace")?, pid: row.get("pid")? })
}

fn parsed<T: std::str::FromStr<Err = helve_contract::Error>>(text: &str) -> rusqlite::Result<T> {
    text.parse().map_err(wrong)
}

fn json(text: &str) -> rusqlite::Result<Value> {
    serde_json::from_str(text).map_err(wrong)
}

fn wrong(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
}
