//! Opens the file: creates it if missing, refuses foreign files, and quarantines damaged ones.
//!
//! The file is accessed only through SQLite. Opening and closing it otherwise would drop the locks that SQLite holds
//! in this process.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use helve_contract::{Error, jiff::Timestamp};
use rusqlite::{Connection, MAIN_DB, OpenFlags, Transaction, TransactionBehavior, config::DbConfig};

use super::{
    faults::{BUSY_TIMEOUT, is_corruption, is_index_corruption, retry_busy},
    migrate::{self, SchemaState},
};

/// The log is cut back to this size when it has been taken over into the file.
const MAX_WAL_BYTES: i64 = 16 << 20;

/// A connection to the file.
pub(super) struct OpenConnection {
    pub(super) connection: Connection,
    /// Why nothing may be written, if so.
    pub(super) read_only_reason: Option<String>,
    mark: StoreFileId,
}

impl OpenConnection {
    /// Whether the path still leads to the file that was opened: somebody may have moved it aside.
    pub(super) fn is_current(&self, path: &Path) -> bool {
        StoreFileId::of(path).is_ok_and(|mark| mark == self.mark)
    }
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StoreFileId(u64, u64);

impl StoreFileId {
    fn of(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let about = fs::symlink_metadata(path)?;
        Ok(Self(about.dev(), about.ino()))
    }
}

/// Opens or creates the file, and returns repair messages.
pub(super) fn open(path: &Path) -> anyhow::Result<(OpenConnection, Option<String>)> {
    match open_once(path) {
        Err(error) if is_corruption(&error) => {
            let remark = repair(path, &error)?;
            Ok((open_once(path)?, remark))
        }
        outcome => Ok((outcome?, None)),
    }
}

/// Does what can be done about damage that somebody met, and tells what.
pub(super) fn repair(path: &Path, met: &anyhow::Error) -> anyhow::Result<Option<String>> {
    let real = real_place(path)?;
    let _door = StoreDirLock::exclusive(&real);
    match health(&real)? {
        FileHealth::Damaged => quarantine(path, &real).map(Some),
        FileHealth::Sound if !is_index_corruption(met) => Ok(None), // Somebody else has done it meanwhile.
        FileHealth::Sound | FileHealth::IndexDamaged => {
            rebuild_index(&real)?;
            Ok(Some(format!("the index of words in the store {} was damaged; it has been built anew", path.display())))
        }
    }
}

/// Moves the file aside with its log, and returns the new path.
fn quarantine(path: &Path, real: &Path) -> anyhow::Result<String> {
    let stamp = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let aside = (1..1000)
        .map(|n| sibling(real, &if n == 1 { format!(".damaged-{stamp}") } else { format!(".damaged-{stamp}-{n}") }))
        .find(|aside| !aside.exists())
        .unwrap_or_else(|| sibling(real, ".damaged"));
    // The log first: a log without its file would be discarded by the next process.
    for end in ["-wal", "-shm", ""] {
        match fs::rename(sibling(real, end), sibling(&aside, end)) {
            Err(error) if end.is_empty() || error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("setting {} aside", real.display()));
            }
            _ => {}
        }
    }
    Ok(format!(
        "the store {} was damaged; it has been set aside as {}, and a new one was begun",
        path.display(),
        aside.display()
    ))
}

/// Rebuilds a full-text index from its content, instead of giving up the file.
fn rebuild_index(real: &Path) -> anyhow::Result<()> {
    let connection = connect(real)?;
    let transaction = retry_busy(|| Transaction::new_unchecked(&connection, TransactionBehavior::Immediate))?;
    let tables: Vec<String> = transaction
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE % fts5 %'")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for table in tables {
        transaction.execute_batch(&format!("INSERT INTO \"{table}\" (\"{table}\") VALUES ('rebuild')"))?;
    }
    retry_busy(|| connection.execute_batch("COMMIT"))?;
    Ok(())
}

fn open_once(path: &Path) -> anyhow::Result<OpenConnection> {
    refuse_links(path)?;
    create_file(path)?;
    let real = real_place(path)?;
    let _door = StoreDirLock::shared(&real);
    if is_truncated_with_wal(&real) {
        return Err(corruption_error("the file is empty, but there is a log for it"));
    }
    let mark = StoreFileId::of(&real)?;
    let connection = connect(&real)?;
    let locked = connection.is_readonly(MAIN_DB)?;
    let refusal = match retry_busy(|| migrate::schema_state(&connection))? {
        SchemaState::Foreign => {
            return Err(Error::failed(format!(
                "{} is a database of another program; choose another file for the store",
                path.display()
            ))
            .into());
        }
        SchemaState::Newer(version, writer) => {
            let writer = writer.map_or_else(|| "a newer helve".to_owned(), |it| format!("helve {it}"));
            return Err(Error::failed(format!(
                "{} was written by {writer} in format {version}, and this helve ({}) reads up to format {}. Use {writer} \
                 or a later one, or choose another file with store.file",
                path.display(),
                env!("CARGO_PKG_VERSION"),
                migrate::latest_version()
            ))
            .into());
        }
        SchemaState::Outdated if locked => {
            return Err(Error::failed(format!(
                "{} has an older format and is read-only, so it cannot be migrated. Make the file and its directory writable \
                 for this user",
                path.display()
            ))
            .into());
        }
        SchemaState::Current if locked => Some(format!(
            "{} is read-only, so nothing can be kept; make the file and its folder writable for this user",
            path.display()
        )),
        SchemaState::Outdated => {
            migrate::migrate(&connection, &real)?;
            None
        }
        SchemaState::Current => None,
    };
    if refusal.is_some() {
        connection.pragma_update(None, "query_only", true)?;
    }
    Ok(OpenConnection { connection, read_only_reason: refusal, mark })
}

/// Creates a private directory and file. Existing ones keep their permissions.
fn create_file(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let folder = parent_dir(path);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("making {}", folder.display()))?;
    match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("making {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The file's name in the real directory. The name itself is never followed.
fn real_place(path: &Path) -> anyhow::Result<PathBuf> {
    let folder = fs::canonicalize(parent_dir(path))?;
    let name = path.file_name().with_context(|| format!("{} names no file", path.display()))?;
    Ok(folder.join(name))
}

/// Refuses a store file that is a link: its target is not the store's to change.
fn refuse_links(path: &Path) -> anyhow::Result<()> {
    for end in ["", "-wal", "-shm", "-journal"] {
        let file = sibling(path, end);
        if file.symlink_metadata().is_ok_and(|about| about.is_symlink()) {
            return Err(Error::failed(format!(
                "the store was not opened: {} is a symbolic link, and links are not followed there. Remove the link, or name \
                 the file that it leads to in `store.file`",
                file.display()
            ))
            .into());
        }
    }
    Ok(())
}

/// SQLite refuses links at the end of these names itself, also those that appear after the check.
fn connect(path: &Path) -> anyhow::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Otherwise a statement is planned again for every value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    let mode: String = retry_busy(|| connection.pragma_query_value(None, "journal_mode", |row| row.get(0)))?;
    if mode != "wal"
        && !connection.is_readonly(MAIN_DB)?
        && retry_busy(|| migrate::schema_state(&connection))? != SchemaState::Foreign
    {
        retry_busy(|| connection.pragma_update(None, "journal_mode", "wal"))?;
    }
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "journal_size_limit", MAX_WAL_BYTES)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// How a file is.
enum FileHealth {
    Sound,
    /// Only an index of words is wrong.
    IndexDamaged,
    Damaged,
}

/// How a file is. An error that says nothing about that is passed on.
fn health(path: &Path) -> anyhow::Result<FileHealth> {
    if is_truncated_with_wal(path) {
        return Ok(FileHealth::Damaged);
    }
    let check = || -> anyhow::Result<FileHealth> {
        let connection = connect(path)?;
        // The log is evidence: it stays unchanged after this check.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        let found: String = retry_busy(|| connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)))?;
        Ok(match found.as_str() {
            "ok" => FileHealth::Sound,
            found if found.contains("inverted index") || found.starts_with("fts5: ") => FileHealth::IndexDamaged,
            _ => FileHealth::Damaged,
        })
    };
    match check() {
        Err(error) if is_index_corruption(&error) => Ok(FileHealth::IndexDamaged),
        Err(error) if is_corruption(&error) => Ok(FileHealth::Damaged),
        outcome => outcome,
    }
}

/// Whether the file was truncated while a log existed. SQLite would discard the log.
fn is_truncated_with_wal(path: &Path) -> bool {
    // In this order: a log is begun after the file has its first page.
    let size = |path: &Path| fs::metadata(path).map_or(0, |about| about.len());
    let log = size(&sibling(path, "-wal"));
    log > 0 && size(path) == 0
}

fn corruption_error(text: &str) -> anyhow::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOTADB);
    rusqlite::Error::SqliteFailure(code, Some(text.to_owned())).into()
}

fn parent_dir(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sibling(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// The directory lock: shared by all who open the file, exclusive while one quarantines it. Without working locks, or
/// after a timeout, the caller proceeds without it.
struct StoreDirLock(Option<File>);

impl StoreDirLock {
    fn shared(path: &Path) -> Self {
        Self::wait(path, File::try_lock_shared)
    }

    fn exclusive(path: &Path) -> Self {
        Self::wait(path, File::try_lock)
    }

    fn wait(path: &Path, lock: impl Fn(&File) -> Result<(), TryLockError>) -> Self {
        let Ok(folder) = File::open(parent_dir(path)) else { return Self(None) };
        let begun = Instant::now();
        while matches!(lock(&folder), Err(TryLockError::WouldBlock)) && begun.elapsed() < BUSY_TIMEOUT {
            thread::sleep(Duration::from_millis(5));
        }
        Self(Some(folder))
    }
}

impl Drop for StoreDirLock {
    fn drop(&mut self) {
        // A child process may hold the same open directory, so it is not enough to close it here.
        if let Some(folder) = &self.0 {
            _ = folder.unlock();
        }
    }
}
