//! Migrates a file to the current version: all missing steps in one transaction, after a backup.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use anyhow::Context;
use helve_contract::ids::{self, DEFAULT_TENANT};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};

use super::faults::{BUSY_TIMEOUT, retry_busy};

/// One step, applied once.
enum Step {
    Sql(&'static str),
    Code(fn(&Transaction<'_>) -> anyhow::Result<()>),
}

/// The steps, oldest first; a released step never changes. A file's version is the number of its steps.
const MIGRATIONS: &[Step] = &[
    Step::Sql(include_str!("../../migrations/01_sessions.sql")),
    Step::Sql(include_str!("../../migrations/02_notes.sql")),
    Step::Sql(include_str!("../../migrations/03_schedules.sql")),
    Step::Sql(include_str!("../../migrations/04_note_origins.sql")),
    Step::Sql(include_str!("../../migrations/05_message_costs.sql")),
    Step::Sql(include_str!("../../migrations/06_schedule_origins.sql")),
    Step::Code(add_tenants_and_leases),
];

/// The first version that names the program which wrote the file.
const NAMES_ITS_WRITER: usize = 7;

/// What a file is to this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SchemaState {
    /// It has the present version.
    Current,
    /// It misses some steps, or all.
    Outdated,
    /// A newer program wrote it: the file's version, and the program's if the file names it.
    Newer(usize, Option<String>),
    /// It contains other tables.
    Foreign,
}

/// What a file is to this program. Waits for nobody.
pub(super) fn schema_state(connection: &Connection) -> rusqlite::Result<SchemaState> {
    // In one view: somebody may be bringing it up just now.
    let view = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
    let version = version(&view)?;
    if version == 0 {
        let others: bool = view.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))?;
        return Ok(if others { SchemaState::Foreign } else { SchemaState::Outdated });
    }
    Ok(match version.cmp(&MIGRATIONS.len()) {
        std::cmp::Ordering::Less => SchemaState::Outdated,
        std::cmp::Ordering::Equal => SchemaState::Current,
        std::cmp::Ordering::Greater => SchemaState::Newer(version, writer(&view)),
    })
}

/// The version that this program knows.
pub(super) fn latest_version() -> usize {
    MIGRATIONS.len()
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// The program that wrote the file, where it says so in a way that this one can read.
fn writer(connection: &Connection) -> Option<String> {
    let sql = "SELECT value FROM meta WHERE name = 'writer'";
    connection.query_row(sql, [], |row| row.get(0)).optional().ok().flatten()
}

/// Applies the missing steps. A second caller finds nothing to do. An interruption leaves the old or the new file.
pub(super) fn migrate(connection: &Connection, path: &Path) -> anyhow::Result<()> {
    // Tables are replaced by others of the same name; foreign keys are checked at the end. This setting cannot change
    // inside a transaction.
    connection.pragma_update(None, "foreign_keys", false)?;
    let outcome = bring_up_unchecked(connection, path);
    connection.pragma_update(None, "foreign_keys", true)?;
    outcome
}

fn bring_up_unchecked(connection: &Connection, path: &Path) -> anyhow::Result<()> {
    let transaction = retry_busy(|| Transaction::new_unchecked(connection, TransactionBehavior::Immediate))?;
    let old = version(&transaction)?;
    if old >= MIGRATIONS.len() {
        return Ok(());
    }
    if old > 0 {
        back_up(path, old).with_context(|| format!("copying {} before its migration", path.display()))?;
    }
    for step in MIGRATIONS.iter().skip(old) {
        match step {
            Step::Sql(sql) => transaction.execute_batch(sql)?,
            Step::Code(apply) => apply(&transaction)?,
        }
    }
    let dangling = transaction.prepare("PRAGMA foreign_key_check")?.exists([])?;
    anyhow::ensure!(
        !dangling,
        "rows of {} refer to rows that do not exist; its content was not changed",
        path.display()
    );
    if MIGRATIONS.len() >= NAMES_ITS_WRITER {
        transaction
            .execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('writer', ?1)", [env!("CARGO_PKG_VERSION")])?;
    }
    transaction.pragma_update(None, "user_version", MIGRATIONS.len() as i64)?;
    retry_busy(|| connection.execute_batch("COMMIT"))?;
    Ok(())
}

/// Where the copy of a file of this version goes.
fn backup_path(path: &Path, version: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".v{version}.backup"));
    name.into()
}

/// Copies the file while nobody can write to it. The copy gets its name only when it is complete and synced.
fn back_up(path: &Path, version: usize) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let done = backup_path(path, version);
    let mut part = done.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    // SQLite writes into an existing empty file, so the copy is never readable by others. A partial copy is removed;
    // a link in its place is never followed.
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    let reader =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    reader.busy_timeout(BUSY_TIMEOUT)?;
    reader.execute("VACUUM INTO ?1", [part.to_str().context("the path is not UTF-8")?])?;
    File::open(&part)?.sync_all()?;
    fs::rename(&part, &done)?;
    if let Some(folder) = done.parent().filter(|it| !it.as_os_str().is_empty()) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Gives every session a UUID, keeps its old name as a label, and puts tenant and user into every key.
fn add_tenants_and_leases(transaction: &Transaction<'_>) -> anyhow::Result<()> {
    transaction.execute_batch("CREATE TABLE session_ids (old TEXT PRIMARY KEY, new TEXT NOT NULL) STRICT")?;
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    let mut sessions = transaction.prepare("SELECT id, user, workspace FROM sessions")?;
    let mut rows = sessions.query([])?;
    while let Some(row) = rows.next()? {
        let (id, user, workspace): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let new = session_id(&id, &user, &workspace);
        ids.insert(id, new);
    }
    // Some are named without a record: a session of `helve call`, a parent that is gone.
    let mut named = transaction.prepare(
        "SELECT parent FROM sessions WHERE parent IS NOT NULL UNION SELECT session FROM slates \
         UNION SELECT session FROM schedules WHERE session IS NOT NULL \
         UNION SELECT origin FROM schedules WHERE origin IS NOT NULL",
    )?;
    let mut rows = named.query([])?;
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        ids.entry(id.clone()).or_insert_with(|| session_id(&id, "user", ""));
    }
    let mut add = transaction.prepare("INSERT INTO session_ids (old, new) VALUES (?1, ?2)")?;
    for (old, new) in ids {
        add.execute(params![old, new])?;
    }
    transaction.execute_batch(include_str!("../../migrations/07_tenants_leases.sql"))?;
    transaction.execute_batch(include_str!("../../migrations/07_jobs.sql"))?;
    Ok(())
}

fn session_id(old: &str, user: &str, workspace: &str) -> String {
    if ids::is_id(old) { old.to_owned() } else { ids::labelled_id(DEFAULT_TENANT, user, workspace, old) }
}
