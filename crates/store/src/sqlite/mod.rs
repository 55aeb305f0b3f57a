//! The store in one SQLite file: write-ahead log, durable writes, migrations by version.

mod faults;
mod jobs;
mod leases;
mod migrate;
mod notes;
mod open;
mod schedules;
mod sessions;
mod slates;

use std::{
    ops::Deref,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use anyhow::Context;
use helve_contract::{
    Error, Result,
    ids::DEFAULT_TENANT,
    jiff::Timestamp,
    ports::{Clock, Message, WallClock},
};
use rusqlite::{Transaction, TransactionBehavior};
use tokio::sync::Semaphore;

pub use self::notes::MemoryConfig;
use self::{faults::retry_busy, open::OpenConnection};
use crate::jobs::ChangeCounter;

/// How many look something up at the same time; the next one waits.
const MAX_READERS: usize = 4;

/// A store in one file. Cheap to clone.
#[derive(Clone)]
pub struct SqliteStore {
    file: Arc<StoreFile>,
    /// The tenant whose rows are visible.
    tenant: Arc<str>,
    /// The clock for all stored times.
    clock: Arc<dyn Clock>,
    /// How memory is searched.
    search: Arc<notes::MemorySearcher>,
    /// The listener for stored messages.
    listener: Option<MessageListener>,
}

/// Called with stored messages: the session, and the messages with their numbers. It must not block.
pub type MessageListener = Arc<dyn Fn(&str, &[Message]) + Send + Sync>;

struct StoreFile {
    path: PathBuf,
    /// Messages about repairs of the file.
    notes: Mutex<Vec<String>>,
    /// Who is told of it at once.
    on_note: OnceLock<fn(&str)>,
    /// One writer at a time in this process; SQLite excludes other processes.
    write_slot: Arc<Semaphore>,
    writer: Mutex<Option<OpenConnection>>,
    /// Readers do not wait for the writer.
    read_slots: Arc<Semaphore>,
    readers: Mutex<Vec<OpenConnection>>,
    /// Changes of jobs through this handle and its clones.
    job_changes: ChangeCounter,
}

impl SqliteStore {
    /// The store in this file. It is opened or created at the first use.
    pub fn lazy(path: impl Into<PathBuf>) -> Self {
        let file = StoreFile {
            path: path.into(),
            notes: Mutex::default(),
            on_note: OnceLock::new(),
            write_slot: Arc::new(Semaphore::new(1)),
            writer: Mutex::default(),
            read_slots: Arc::new(Semaphore::new(MAX_READERS)),
            readers: Mutex::default(),
            job_changes: ChangeCounter::default(),
        };
        Self {
            file: Arc::new(file),
            tenant: DEFAULT_TENANT.into(),
            clock: Arc::new(WallClock),
            search: Arc::default(),
            listener: None,
        }
    }

    /// The same file for another tenant. Tenants see nothing of each other.
    #[must_use]
    pub fn for_tenant(&self, tenant: &str) -> Self {
        Self { tenant: tenant.into(), search: self.search.afresh(), ..self.clone() }
    }

    /// The same store with another clock for all times and leases.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// The same store with a listener.
    #[must_use]
    pub fn with_listener(self, heard: MessageListener) -> Self {
        Self { listener: Some(heard), ..self }
    }

    /// The same store with a handler that gets repair messages immediately.
    #[must_use]
    pub fn with_note_handler(self, tell: fn(&str)) -> Self {
        _ = self.file.on_note.set(tell);
        self
    }

    /// Opens the store in this file now, or makes it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let store = Self::lazy(path.as_ref());
        let opened = store.file.connection(None).map_err(|error| faults::to_error(store.path(), error))?;
        *lock(&store.file.writer) = Some(opened);
        Ok(store)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Repair messages for the operator, such as a quarantined file.
    pub fn warnings(&self) -> Vec<String> {
        lock(&self.file.notes).clone()
    }

    /// Runs a write transaction. It is durable when this returns.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (file, tenant, clock) = (self.file.clone(), self.tenant.clone(), self.clock.clone());
        run_blocking(&self.file.write_slot, move || {
            let mut slot = lock(&file.writer);
            let (left, outcome) =
                file.with_connection(slot.take(), |opened| write_transaction(opened, tenant, &*clock, work));
            *slot = left;
            outcome
        })
        .await
    }

    /// Runs a read in one consistent view.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (file, tenant, clock) = (self.file.clone(), self.tenant.clone(), self.clock.clone());
        run_blocking(&self.file.read_slots, move || {
            let idle = lock(&file.readers).pop();
            let (left, outcome) = file.with_connection(idle, |opened| read_transaction(opened, tenant, &*clock, work));
            lock(&file.readers).extend(left);
            outcome
        })
        .await
    }
}

impl StoreFile {
    /// A connection to the file: the given one if it is still current.
    fn connection(&self, before: Option<OpenConnection>) -> anyhow::Result<OpenConnection> {
        match before {
            Some(opened) if opened.is_current(&self.path) => Ok(opened),
            _ => {
                let (opened, remark) = open::open(&self.path)?;
                if let Some(remark) = remark {
                    if let Some(tell) = self.on_note.get() {
                        tell(&remark);
                    }
                    lock(&self.notes).push(remark);
                }
                Ok(opened)
            }
        }
    }

    /// Works with a connection, and gives it back if it is still good.
    fn with_connection<T>(
        &self,
        before: Option<OpenConnection>,
        work: impl FnOnce(&OpenConnection) -> anyhow::Result<T>,
    ) -> (Option<OpenConnection>, Result<T>) {
        let opened = match self.connection(before) {
            Ok(opened) => opened,
            Err(error) => return (None, Err(faults::to_error(&self.path, error))),
        };
        let error = match work(&opened) {
            Ok(done) => return (Some(opened), Ok(done)),
            Err(error) => error,
        };
        if !faults::needs_reopen(&error) {
            return (Some(opened), Err(faults::to_error(&self.path, error)));
        }
        drop(opened);
        (
            None,
            Err(if faults::is_corruption(&error) { self.repair(error) } else { faults::to_error(&self.path, error) }),
        )
    }

    /// The error for a caller that met corruption; the next call finds a repaired file.
    fn repair(&self, error: anyhow::Error) -> Error {
        match open::repair(&self.path, &error) {
            Ok(Some(remark)) => {
                lock(&self.notes).push(remark.clone());
                Error::failed(format!("{remark}; do this again"))
            }
            Ok(None) => faults::to_error(&self.path, error),
            Err(second) => faults::to_error(&self.path, second.context(error)),
        }
    }
}

/// One transaction of one tenant, and the time at which it began.
struct Tx<'a> {
    transaction: Transaction<'a>,
    tenant: Arc<str>,
    now: Timestamp,
}

impl<'a> Deref for Tx<'a> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Transaction<'a> {
        &self.transaction
    }
}

fn write_transaction<T>(
    opened: &OpenConnection,
    tenant: Arc<str>,
    clock: &dyn Clock,
    work: impl FnOnce(&Tx<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    if let Some(refusal) = &opened.read_only_reason {
        return Err(Error::failed(refusal).into());
    }
    let transaction = retry_busy(|| Transaction::new_unchecked(&opened.connection, TransactionBehavior::Immediate))?;
    // Read late, because a writer may have waited for its turn.
    let transaction = Tx { transaction, tenant, now: clock.now() };
    let done = work(&transaction)?;
    retry_busy(|| opened.connection.execute_batch("COMMIT"))?;
    Ok(done)
}

fn read_transaction<T>(
    opened: &OpenConnection,
    tenant: Arc<str>,
    clock: &dyn Clock,
    work: impl FnOnce(&Tx<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let transaction = retry_busy(|| {
        let transaction = Transaction::new_unchecked(&opened.connection, TransactionBehavior::Deferred)?;
        // The view starts with the first read, which may find the database busy.
        transaction.prepare_cached("SELECT 1 FROM sqlite_schema LIMIT 1")?.exists([])?;
        Ok(transaction)
    })?;
    work(&Tx { transaction, tenant, now: clock.now() })
}

/// Waits for a slot without a thread, then works on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    turns: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let turn = turns.clone().acquire_owned().await.context("the store is closed")?;
    let working = tokio::task::spawn_blocking(move || {
        let outcome = work();
        drop(turn);
        outcome
    });
    working.await.context("the store stopped in the middle")?
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stored time: microseconds since 1970, so that the order in the file is the order in time.
fn to_micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}

/// A time as it was kept.
fn from_micros(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use helve_contract::ports::{SessionState, Sessions};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_full_disk_is_told_and_nothing_is_half_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = SqliteStore::open(&path).unwrap();
        let lease = store.claim_session("a", "me", Duration::from_secs(30)).await.unwrap();
        store.set_state(&lease, "pad", json!("before")).await.unwrap();
        {
            let writer = lock(&store.file.writer);
            let connection = &writer.as_ref().unwrap().connection;
            let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
            connection.pragma_update(None, "max_page_count", pages + 2).unwrap();
        }
        let long = json!("x".repeat(100_000));
        let error = store.set_state(&lease, "pad", long).await.unwrap_err();
        let want =
            format!("the disk is full, so nothing was kept in {}; free some space and try again", path.display());
        assert_eq!(error.to_string(), want);
        assert_eq!(store.get_state("a", "pad").await.unwrap().unwrap().value, json!("before"));
        store.set_state(&lease, "pad", json!("after")).await.unwrap();
    }

    #[tokio::test]
    async fn a_damaged_index_of_words_is_built_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = SqliteStore::open(&path).unwrap();
        let add = async |words: &'static str| {
            let added = store.write(move |t| {
                t.execute("INSERT OR IGNORE INTO shelves (id, tenant, user, kind, place) VALUES (1, 'default', 'ann', 'note', '')", [])?;
                let sql = "INSERT INTO passages (shelf, source, first, last, text, at, model, tokens, vector) \
                           VALUES (1, 's', 0, 0, ?1, 0, 'm', x'', x'')";
                Ok(t.execute(sql, [words])?)
            });
            added.await
        };
        add("ferns like shade").await.unwrap();
        store
            .write(|t| Ok(t.execute("UPDATE passages_fts_data SET block = x'FFFF' WHERE id > 10", [])?))
            .await
            .unwrap();
        let find = async || {
            let found = store.read(|t| {
                let sql = "SELECT count(*) FROM passages_fts WHERE passages_fts MATCH 'shade'";
                Ok(t.query_row(sql, [], |row| row.get::<_, i64>(0))?)
            });
            found.await
        };
        let remark = format!("the index of words in the store {} was damaged; it has been built anew", path.display());
        assert_eq!(find().await.unwrap_err().to_string(), format!("{remark}; do this again"));
        assert_eq!(find().await.unwrap(), 1);
        add("moss likes shade").await.unwrap();
        assert_eq!((find().await.unwrap(), store.warnings()), (2, vec![remark]));
    }

    #[tokio::test]
    async fn four_look_while_one_writes() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("store.db")).unwrap();
        let (begun, wait) = std::sync::mpsc::channel();
        let (end, until) = std::sync::mpsc::channel::<()>();
        let writing = tokio::spawn({
            let store = store.clone();
            async move {
                store
                    .write(move |t| {
                        t.execute("INSERT INTO slates VALUES ('default', 'a', 'b', '1', 0)", [])?;
                        begun.send(())?;
                        until.recv()?;
                        Ok(())
                    })
                    .await
            }
        });
        tokio::task::spawn_blocking(move || wait.recv()).await.unwrap().unwrap();
        let (a, b, c, d) = tokio::join!(
            store.get_state("a", "b"),
            store.get_state("a", "b"),
            store.get_state("a", "b"),
            store.get_state("a", "b")
        );
        assert!([a, b, c, d].into_iter().all(|seen| seen.unwrap().is_none()));
        end.send(()).unwrap();
        writing.await.unwrap().unwrap();
        assert_eq!(store.get_state("a", "b").await.unwrap().unwrap().value, json!(1));
    }
}
