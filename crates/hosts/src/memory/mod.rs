//! Memory: files that are nowhere else, and a shell that starts no process.
//!
//! Nothing here touches the machine: the files are a map, the shell and its commands are functions over it.

mod beneath;
mod braces;
mod change;
mod export;
mod fault;
mod files;
mod place;
mod search;
mod shell;
mod snapshot;
mod threads;
mod walk;

use std::{path::Path, sync::Arc};

use bashkit::{FileSystem, FsLimits, InMemoryFs, OverlayFs};
use helve_contract::{
    Error, PathRules, Reading, Result, Root, SafePath, Session, Workspace, async_trait,
    ports::{
        Change, Chunk, Command, Expect, Find, Found, Grep, Host, Item, Kind, Matches, Process, Span, Stat, Written,
    },
};
use tokio::sync::{Mutex, Semaphore};

pub use beneath::PROJECT;
pub use shell::{Ended, Script};

/// Where scripts start, and where relative paths begin.
pub const HOME: &str = "/home/user";
/// All bytes of all files.
const TOTAL: u64 = 256 << 20;
/// The bytes of one file.
const FILE: u64 = 64 << 20;
/// How many files.
const FILES: u64 = 20_000;
/// How many folders.
const FOLDERS: u64 = 10_000;
/// How many scripts run at once. One that does not end when it is told to keeps its place.
const SCRIPTS: usize = 8;

/// Files in memory, and a shell over them. Cheap to make and to clone; clones share the files.
#[derive(Clone)]
pub struct Memory {
    files: Arc<dyn FileSystem>,
    /// Held by whoever compares and writes, so that no update is lost.
    writing: Arc<Mutex<()>>,
    scripts: Arc<Semaphore>,
}

impl Memory {
    /// Empty but for the usual folders.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Arc::new(InMemoryFs::with_limits(limits())))
    }

    /// The same, with the first root of a workspace to be seen at [`PROJECT`]. It is read through its host, by its rules,
    /// when something is looked at; whatever is changed there is changed in memory alone.
    #[must_use]
    pub fn over(host: Arc<dyn Host>, workspace: Workspace) -> Self {
        Self::with(Arc::new(OverlayFs::with_limits(Arc::new(beneath::Beneath::new(host, workspace)), limits())))
    }

    fn with(files: Arc<dyn FileSystem>) -> Self {
        Self { files, writing: Arc::default(), scripts: Arc::new(Semaphore::new(SCRIPTS)) }
    }

    /// All of it, with relative paths beginning at [`HOME`].
    #[must_use]
    pub fn workspace() -> Workspace {
        Workspace::new([Root::writable(HOME), Root::writable("/")], PathRules::default(), Reading::Relative)
    }

    /// A session over these files, to draft a plan in. Its output stays in memory too.
    #[must_use]
    pub fn session(&self, id: impl Into<String>) -> Session {
        let host: Arc<dyn Host> = Arc::new(self.clone());
        // No folder can be there, so that long output is never written to a disk.
        let tasks = Arc::new(crate::Runner::new(host.clone(), "/dev/null/nowhere"));
        let ports = helve_contract::Ports { tasks, ..helve_contract::Ports::new(host) };
        Session::new(id, Self::workspace(), ports)
    }

    /// Makes a folder, and those above it.
    pub async fn make_folder(&self, path: &Path) -> Result<()> {
        let made = self.files.mkdir(path, true).await;
        made.map_err(|error| Error::file(path.display(), fault::fault(&error)))
    }

    /// Runs a script to its end, with the environment and the folder that it names.
    pub async fn run(&self, script: Script) -> Result<Ended> {
        shell::run(self, script).await
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Host for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn stat(&self, path: &SafePath) -> Result<Stat> {
        files::stat(&*self.files, path).await
    }

    async fn read(&self, path: &SafePath, span: Span) -> Result<Chunk> {
        files::read(&*self.files, path, span).await
    }

    async fn write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<Written> {
        let _held = self.writing.lock().await;
        change::write(&*self.files, path, bytes, expect).await
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Vec<String>> {
        let _held = self.writing.lock().await;
        change::change(&*self.files, &changes).await
    }

    async fn remove(&self, path: &SafePath) -> Result<Kind> {
        let _held = self.writing.lock().await;
        files::remove(&*self.files, path).await
    }

    async fn list(&self, path: &SafePath) -> Result<Vec<Item>> {
        files::list(&*self.files, path).await
    }

    async fn find(&self, path: &SafePath, find: &Find) -> Result<Found> {
        search::find(&*self.files, path, find).await
    }

    async fn grep(&self, path: &SafePath, grep: &Grep) -> Result<Matches> {
        search::grep(&*self.files, path, grep).await
    }

    async fn spawn(&self, command: &Command) -> Result<Box<dyn Process>> {
        let Some(script) = &command.script else {
            return Err(Error::failed("there are no programs in memory; give a shell command"));
        };
        let script = Script {
            dir: command.dir.on_host(),
            env: command.env.clone(),
            input: command.input.clone(),
            streams: command.streams,
            ..Script::new(script)
        };
        Ok(Box::new(shell::start(self, script).await?))
    }
}

fn limits() -> FsLimits {
    FsLimits::new().max_total_bytes(TOTAL).max_file_size(FILE).max_file_count(FILES).max_dir_count(FOLDERS)
}

/// Files are named by absolute paths without links on the way.
fn is_home(path: &Path) -> bool {
    path == Path::new(HOME)
}
