//! Records in one SQLite file: write-ahead log, synced when it must last, migrated by version.

mod migrate;
mod notes;
mod schedules;
mod sessions;
mod slates;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use helve_contract::{Error, Result, jiff::Timestamp};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

/// How long a writer waits for another process.
const PATIENCE: Duration = Duration::from_secs(30);

/// A store in one file. Cheap to clone.
#[derive(Clone)]
pub struct Sqlite {
    file: Arc<File>,
}

struct File {
    path: PathBuf,
    /// One writer at a time in this process; other processes are kept apart by SQLite itself.
    writer: Mutex<Connection>,
    /// Readers do not wait for the writer.
    reader: Mutex<Connection>,
}

impl Sqlite {
    /// Opens the store in this file, or makes it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let mut writer = connect(&path)?;
        migrate::bring_up(&mut writer).map_err(internal)?;
        let reader = connect(&path)?;
        Ok(Self { file: Arc::new(File { path, writer: Mutex::new(writer), reader: Mutex::new(reader) }) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Changes something, all or nothing. It is on disk when this returns.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T> {
        let file = self.file.clone();
        blocking(move || {
            let mut writer = file.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        })
        .await
    }

    /// Looks something up, in one consistent view.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T> {
        let file = self.file.clone();
        blocking(move || {
            let mut reader = file.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction = reader.transaction()?;
            work(&transaction)
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(internal),
        Err(gone) => Err(Error::Internal(anyhow::Error::new(gone).context("the store stopped in the middle"))),
    }
}

fn connect(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> anyhow::Result<Connection> {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(PATIENCE)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    };
    open().with_context(|| format!("opening {}", path.display())).map_err(internal)
}

fn internal(error: anyhow::Error) -> Error {
    Error::Internal(error)
}

/// A time as it is kept: microseconds since 1970, so that order in the file is order in time.
fn kept(time: Timestamp) -> i64 {
    time.as_microsecond()
}

/// A time as it was kept.
fn told(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}
