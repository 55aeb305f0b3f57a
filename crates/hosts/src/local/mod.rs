//! This machine: its files beneath root handles, its programs through whoever starts them.

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
    Error, Result, SafePath, async_trait, is_patient,
    ports::{
        Change, Chunk, Command, Expect, Find, Found, Glance, Glimpse, Grep, Host, Item, Kind, Level, Matches, Process,
        Span, Stat, Written,
    },
};

use beneath::Beneath;
use journal::Journal;

/// Reads up to this size are done at once; larger ones, and all changes, on a thread that may wait.
const SMALL: u64 = 1 << 20;
/// So many files are changed together without calling it much.
const FEW: usize = 8;

/// Starts programs for a [`Local`] host.
#[async_trait]
pub trait Spawn: Send + Sync {
    /// Starts a program.
    async fn spawn(&self, command: &Command) -> Result<Box<dyn Process>>;

    /// The walls around programs.
    fn level(&self) -> Level;
}

/// The machine that this process runs on.
///
/// Files are reached only beneath the handle of their root: no spelling, link or race leads outside. Writes are
/// atomic and durable, and checked against what the writer believes is there.
#[derive(Clone)]
pub struct Local {
    beneath: Arc<Beneath>,
    programs: Option<Arc<dyn Spawn>>,
    patience: Duration,
    journal: Option<Journal>,
}

impl Local {
    /// Files only: no programs are started.
    #[must_use]
    pub fn new() -> Self {
        Self { beneath: Arc::new(Beneath::new()), programs: None, patience: Duration::from_secs(30), journal: None }
    }

    /// Files here, and programs by this.
    #[must_use]
    pub fn with(programs: Arc<dyn Spawn>) -> Self {
        Self { programs: Some(programs), ..Self::new() }
    }

    /// With a private folder for notes of changes to several files. What a killed process left half done is put right
    /// here and now: all of the files are as they were before, or all as they should have become.
    #[must_use]
    pub fn journal(self, folder: PathBuf) -> Self {
        let journal = Journal::new(folder);
        journal.recover();
        Self { journal: Some(journal), ..self }
    }

    /// How long one search may take before it answers with what it has; 30 seconds unless told.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Does a small change: here, if whoever looks after the call can wait for it, else aside.
    async fn soon<T: Send + 'static>(&self, work: impl FnOnce(&Beneath) -> Result<T> + Send + 'static) -> Result<T> {
        if is_patient() { work(&self.beneath) } else { self.aside(work).await }
    }

    /// Does work that may wait for a disk without holding up other calls.
    async fn aside<T: Send + 'static>(&self, work: impl FnOnce(&Beneath) -> Result<T> + Send + 'static) -> Result<T> {
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

impl Default for Local {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Host for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    async fn stat(&self, path: &SafePath) -> Result<Stat> {
        files::stat(&self.beneath, path)
    }

    async fn real_path(&self, path: &SafePath) -> Result<PathBuf> {
        self.beneath.real_path(path)
    }

    async fn read(&self, path: &SafePath, span: Span) -> Result<Chunk> {
        let reader = files::Reader::open(&self.beneath, path)?;
        if reader.expects(span) <= SMALL {
            return reader.read(path, span);
        }
        let path = path.clone();
        self.aside(move |_| reader.read(&path, span)).await
    }

    async fn write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<Written> {
        if is_patient() {
            return write::write(&self.beneath, path, bytes, expect);
        }
        let (path, bytes) = (path.clone(), bytes.to_vec());
        self.aside(move |beneath| write::write(beneath, &path, &bytes, expect)).await
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Vec<String>> {
        let journal = self.journal.clone();
        let few = changes.len() <= FEW;
        let work = move |beneath: &Beneath| change::change(beneath, journal.as_ref(), &changes);
        if few { self.soon(work).await } else { self.aside(work).await }
    }

    async fn remove(&self, path: &SafePath) -> Result<Kind> {
        let path = path.clone();
        self.soon(move |beneath| remove::remove(beneath, &path)).await
    }

    async fn list(&self, path: &SafePath) -> Result<Vec<Item>> {
        let path = path.clone();
        self.soon(move |beneath| files::list(beneath, &path)).await
    }

    async fn glance(&self, path: &SafePath, glance: Glance) -> Result<Glimpse> {
        let path = path.clone();
        self.soon(move |beneath| files::glance(beneath, &path, glance)).await
    }

    async fn find(&self, path: &SafePath, find: &Find) -> Result<Found> {
        let (path, find) = (path.clone(), find.clone());
        let (clock, _stop) = walk::Clock::start(self.patience);
        self.aside(move |beneath| walk::find(beneath, &path, &find, &clock)).await
    }

    async fn grep(&self, path: &SafePath, grep: &Grep) -> Result<Matches> {
        let (path, grep) = (path.clone(), grep.clone());
        let (clock, _stop) = walk::Clock::start(self.patience);
        self.aside(move |beneath| search::grep(beneath, &path, &grep, &clock)).await
    }

    async fn spawn(&self, command: &Command) -> Result<Box<dyn Process>> {
        match &self.programs {
            Some(programs) => programs.spawn(command).await,
            None => Err(Error::denied("commands are turned off on this host; use the file tools instead")),
        }
    }

    fn level(&self) -> Level {
        self.programs.as_ref().map_or(Level::None, |programs| programs.level())
    }
}
