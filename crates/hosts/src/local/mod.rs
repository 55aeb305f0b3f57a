//! The local machine: files beneath root handles, programs through a [`Spawn`].

mod atomic;
mod beneath;
mod change;
mod fault;
mod files;
mod journal;
mod lock;
pub(crate) mod names;
mod remove;
pub(crate) mod search;
pub(crate) mod walk;
mod write;

use std::{path::PathBuf, sync::Arc, time::Duration};

use helve_contract::{
    Error, Result, SafePath, async_trait, is_blocking_allowed,
    ports::{
        DirEntry, DirListing, Expect, FileChange, FileChunk, FileKind, FindQuery, FindResult, GrepQuery, GrepResult,
        Host, ListOptions, Process, ProcessSpec, SandboxLevel, Span, Stat, WriteOutcome,
    },
};

use beneath::Beneath;
use journal::Journal;

/// Reads up to this size run inline; larger ones and all changes run on a blocking thread.
const INLINE_READ_BYTES: u64 = 1 << 20;
/// The maximum number of files in a change that runs inline.
const INLINE_CHANGE_FILES: usize = 8;

/// Starts programs for a [`LocalHost`].
#[async_trait]
pub trait Spawn: Send + Sync {
    /// Starts a program.
    async fn spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>>;

    /// The sandbox level of programs.
    fn level(&self) -> SandboxLevel;
}

/// The machine that this process runs on.
///
/// It opens files only beneath the handle of their root: no spelling, link or race leads outside. Writes are atomic
/// and durable, and are checked against the content that the writer expects.
#[derive(Clone)]
pub struct LocalHost {
    beneath: Arc<Beneath>,
    spawner: Option<Arc<dyn Spawn>>,
    search_timeout: Duration,
    journal: Option<Journal>,
}

impl LocalHost {
    /// Creates a host without programs.
    #[must_use]
    pub fn new() -> Self {
        Self {
            beneath: Arc::new(Beneath::new()),
            spawner: None,
            search_timeout: Duration::from_secs(30),
            journal: None,
        }
    }

    /// Creates a host that starts programs with this spawner.
    #[must_use]
    pub fn with_spawner(programs: Arc<dyn Spawn>) -> Self {
        Self { spawner: Some(programs), ..Self::new() }
    }

    /// Sets a private directory for the journal of multi-file changes. Recovers changes of killed processes now:
    /// afterwards all files of a change are old, or all are new.
    #[must_use]
    pub fn with_journal(self, folder: PathBuf) -> Self {
        let journal = Journal::new(folder);
        journal.recover();
        Self { journal: Some(journal), ..self }
    }

    /// Sets the timeout of one search, after which it returns partial results; 30 seconds by default.
    #[must_use]
    pub fn with_search_timeout(self, patience: Duration) -> Self {
        Self { search_timeout: patience, ..self }
    }

    /// Runs a small change inline if the runtime can block, otherwise on a blocking thread.
    async fn run_small<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Beneath) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if is_blocking_allowed() { work(&self.beneath) } else { self.run_blocking(work).await }
    }

    /// Runs work that may wait for a disk, without delaying other calls.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Beneath) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let beneath = self.beneath.clone();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => runtime
                .spawn_blocking(move || work(&beneath))
                .await
                .map_err(|error| Error::Internal(anyhow::Error::new(error).context("file work did not finish")))?,
            Err(_) => work(&beneath),
        }
    }
}

impl Default for LocalHost {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Host for LocalHost {
    fn name(&self) -> &'static str {
        "local"
    }

    async fn stat(&self, path: &SafePath) -> Result<Stat> {
        files::stat(&self.beneath, path)
    }

    async fn real_path(&self, path: &SafePath) -> Result<PathBuf> {
        self.beneath.real_path(path)
    }

    async fn read(&self, path: &SafePath, span: Span) -> Result<FileChunk> {
        let reader = files::OpenFile::open(&self.beneath, path)?;
        if reader.expected_len(span) <= INLINE_READ_BYTES {
            return reader.read(path, span);
        }
        let path = path.clone();
        self.run_blocking(move |_| reader.read(&path, span)).await
    }

    async fn write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<WriteOutcome> {
        if is_blocking_allowed() {
            return write::write(&self.beneath, path, bytes, expect);
        }
        let (path, bytes) = (path.clone(), bytes.to_vec());
        self.run_blocking(move |beneath| write::write(beneath, &path, &bytes, expect)).await
    }

    async fn apply_changes(&self, changes: Vec<FileChange>) -> Result<Vec<String>> {
        let journal = self.journal.clone();
        let few = changes.len() <= INLINE_CHANGE_FILES;
        let work = move |beneath: &Beneath| change::apply_all(beneath, journal.as_ref(), &changes);
        if few { self.run_small(work).await } else { self.run_blocking(work).await }
    }

    async fn remove(&self, path: &SafePath) -> Result<FileKind> {
        let path = path.clone();
        self.run_small(move |beneath| remove::remove(beneath, &path)).await
    }

    async fn list(&self, path: &SafePath) -> Result<Vec<DirEntry>> {
        let path = path.clone();
        self.run_small(move |beneath| files::list(beneath, &path)).await
    }

    async fn list_with(&self, path: &SafePath, glance: ListOptions) -> Result<DirListing> {
        let path = path.clone();
        self.run_small(move |beneath| files::list_some(beneath, &path, glance)).await
    }

    async fn find(&self, path: &SafePath, find: &FindQuery) -> Result<FindResult> {
        let (path, find) = (path.clone(), find.clone());
        let (clock, _stop) = walk::WalkDeadline::start(self.search_timeout);
        self.run_blocking(move |beneath| walk::find(beneath, &path, &find, &clock)).await
    }

    async fn grep(&self, path: &SafePath, grep: &GrepQuery) -> Result<GrepResult> {
        let (path, grep) = (path.clone(), grep.clone());
        let (clock, _stop) = walk::WalkDeadline::start(self.search_timeout);
        self.run_blocking(move |beneath| search::grep(beneath, &path, &grep, &clock)).await
    }

    async fn spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>> {
        match &self.spawner {
            Some(programs) => programs.spawn(command).await,
            None => Err(Error::denied("commands are turned off on this host; use the file tools instead")),
        }
    }

    fn sandbox_level(&self) -> SandboxLevel {
        self.spawner.as_ref().map_or(SandboxLevel::None, |programs| programs.level())
    }
}
