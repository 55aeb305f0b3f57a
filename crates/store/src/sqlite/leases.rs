//! Leases of sessions: one row each, whose epoch grows with every claim.

use std::{fs, sync::LazyLock, time::Duration};

use helve_contract::{
    Error,
    ports::{Lease, SessionHolder},
};
use rusqlite::{OptionalExtension, params};

use super::{Tx, from_micros, to_micros};

/// The condition of a write: this lease is still the last claim. Parameters 1 to 4 are the tenant, the
/// key, the owner and the epoch.
pub(super) const IS_HELD: &str =
    "EXISTS (SELECT 1 FROM leases WHERE tenant = ?1 AND key = ?2 AND owner = ?3 AND epoch = ?4)";

/// A process, so that others can see whether it still lives.
pub(super) struct Process {
    pub(super) host: String,
    /// A number names the same process only in the same namespace.
    pub(super) pid_namespace: String,
    pub(super) pid: u32,
}

/// This process. Only the number changes after a fork, and nothing forks here.
static THIS: LazyLock<Process> = LazyLock::new(|| {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| fs::read_to_string("/etc/hostname"));
    let host = host.ok().map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
    let pid_namespace = fs::read_link("/proc/self/ns/pid").map(|it| it.display().to_string()).unwrap_or_default();
    Process { host: host.unwrap_or_else(|| "this machine".to_owned()), pid_namespace, pid: std::process::id() }
});

/// A row of the table.
struct Row {
    owner: String,
    until: i64,
    since: i64,
    process: Process,
}

impl Row {
    /// Whether the holder can still write. A lease that ends unusually late was created before the clock went back.
    fn is_held(&self, now: i64, length: i64) -> bool {
        !self.owner.is_empty()
            && self.until > now
            && self.until <= now.saturating_add(length.saturating_mul(4))
            && !self.process.is_gone()
    }

    fn holder(self, session: &str) -> SessionHolder {
        SessionHolder {
            session: session.to_owned(),
            host: self.process.host,
            pid: self.process.pid,
            since: from_micros(self.since),
            until: from_micros(self.until),
        }
    }
}

impl Process {
    /// This process.
    pub(super) fn this() -> &'static Self {
        &THIS
    }

    /// Whether it is known to have ended: a process of this machine that no longer exists.
    pub(super) fn is_gone(&self) -> bool {
        let is_here = self.host == THIS.host && self.pid_namespace == THIS.pid_namespace;
        is_here && !self.pid_namespace.is_empty() && !fs::exists(format!("/proc/{}", self.pid)).unwrap_or(true)
    }
}

impl Tx<'_> {
    /// Whether a lease is still the last claim of its key.
    pub(super) fn holds(&self, lease: &Lease) -> anyhow::Result<bool> {
        let sql = format!("SELECT {IS_HELD}");
        let values = params![self.tenant, lease.key, lease.owner, lease.epoch];
        Ok(self.prepare_cached(&sql)?.query_row(values, |row| row.get(0))?)
    }
}

/// Claims a key. The same owner may claim it again, and gets a new epoch.
pub(super) fn claim(t: &Tx<'_>, key: &str, owner: &str, length: Duration) -> anyhow::Result<Lease> {
    let (now, micros) = (to_micros(t.now), micros(length));
    if let Some(row) = find(t, key)?
        && row.owner != owner
        && row.is_held(now, micros)
    {
        return Err(Error::SessionHeld(Box::new(row.holder(key))).into());
    }
    let until = now.saturating_add(micros);
    let epoch = t
        .prepare_cached(
            "INSERT INTO leases (tenant, key, owner, epoch, until, since, host, pid_namespace, pid) \
             VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (tenant, key) DO UPDATE SET owner = ?3, \
             epoch = epoch + 1, until = ?4, since = ?5, host = ?6, pid_namespace = ?7, pid = ?8 RETURNING epoch",
        )?
        .query_row(params![t.tenant, key, owner, until, now, THIS.host, THIS.pid_namespace, THIS.pid], |row| {
            row.get(0)
        })?;
    Ok(Lease { key: key.to_owned(), owner: owner.to_owned(), epoch, until: from_micros(until) })
}

/// Renews a lease, even an expired one, unless the key was claimed since.
pub(super) fn hold(t: &Tx<'_>, lease: &Lease, length: Duration) -> anyhow::Result<Lease> {
    let until = to_micros(t.now).saturating_add(micros(length));
    let held = t
        .prepare_cached("UPDATE leases SET until = ?5 WHERE tenant = ?1 AND key = ?2 AND owner = ?3 AND epoch = ?4")?
        .execute(params![t.tenant, lease.key, lease.owner, lease.epoch, until])?;
    if held == 0 { Err(lost(lease)) } else { Ok(Lease { until: from_micros(until), ..lease.clone() }) }
}

/// Releases a lease. The row stays, so that the next epoch is new.
pub(super) fn release(t: &Tx<'_>, lease: &Lease) -> anyhow::Result<()> {
    let held = t
        .prepare_cached(
            "UPDATE leases SET owner = '', until = 0 WHERE tenant = ?1 AND key = ?2 AND owner = ?3 AND epoch = ?4",
        )?
        .execute(params![t.tenant, lease.key, lease.owner, lease.epoch])?;
    if held == 0 { Err(lost(lease)) } else { Ok(()) }
}

/// Who holds a key now.
pub(super) fn holder(t: &Tx<'_>, key: &str) -> anyhow::Result<Option<SessionHolder>> {
    // How long its lease is nobody knows here; a day is longer than any.
    let length = micros(Duration::from_secs(24 * 3600));
    Ok(find(t, key)?.filter(|row| row.is_held(to_micros(t.now), length)).map(|row| row.holder(key)))
}

fn find(t: &Tx<'_>, key: &str) -> anyhow::Result<Option<Row>> {
    let row = t
        .prepare_cached(
            "SELECT owner, until, since, host, pid_namespace, pid FROM leases WHERE tenant = ?1 AND key = ?2",
        )?
        .query_row(params![t.tenant, key], |row| {
            let process = Process { host: row.get(3)?, pid_namespace: row.get(4)?, pid: row.get(5)? };
            Ok(Row { owner: row.get(0)?, until: row.get(1)?, since: row.get(2)?, process })
        })
        .optional()?;
    Ok(row)
}

/// The error of a write whose lease is stale.
pub(super) fn lost(lease: &Lease) -> anyhow::Error {
    Error::LeaseLost(lease.key.clone()).into()
}

/// A length of time as times are kept.
pub(super) fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}
