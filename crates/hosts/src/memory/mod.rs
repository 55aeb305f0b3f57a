//! A host in memory: files without a disk and a shell without processes.
//!
//! Nothing here touches the machine: the files are a map, and the shell and its commands are functions over it.

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
    Error, PathRules, PathStyle, Result, Root, SafePath, Session, Workspace, async_trait,
    ports::{
        DirEntry, Expect, FileChange, FileChunk, FileKind, FindQuery, FindResult, GrepQuery, GrepResult, Host, Process,
        ProcessSpec, Span, Stat, WriteOutcome,
    },
};
use tokio::sync::{Mutex, Semaphore};

pub use beneath::PROJECT_DIR;
pub use shell::{Script, ScriptOutput};

/// The working directory of scripts and the base of relative paths.
pub const HOME_DIR: &str = "/home/user";
const MAX_TOTAL_BYTES: u64 = 256 << 20;
const MAX_FILE_BYTES: u64 = 64 << 20;
const MAX_FILES: u64 = 20_000;
const MAX_DIRS: u64 = 10_000;
/// The maximum number of concurrent scripts. A script that ignores its termination keeps its slot.
const MAX_CONCURRENT_SCRIPTS: usize = 8;

/// Files in memory and a shell over them. Cheap to create and to clone; clones share the files.
#[derive(Clone)]
pub struct MemoryHost {
    files: Arc<dyn FileSystem>,
    /// Held during compare-and-write, so that no update is lost.
    write_lock: Arc<Mutex<()>>,
    scripts: Arc<Semaphore>,
}

impl MemoryHost {
    /// Creates a host with only the standard directories.
    #[must_use]
    pub fn new() -> Self {
        Self::with_filesystem(Arc::new(InMemoryFs::with_limits(limits())))
    }

    /// Shows the first root of a workspace at [`PROJECT_DIR`]. Reads go through its host and its rules; changes stay
    /// in memory.
    #[must_use]
    pub fn over_workspace(host: Arc<dyn Host>, workspace: Workspace) -> Self {
        Self::with_filesystem(Arc::new(OverlayFs::with_limits(
            Arc::new(beneath::WorkspaceLayer::new(host, workspace)),
            limits(),
        )))
    }

    fn with_filesystem(files: Arc<dyn FileSystem>) -> Self {
        Self { files, write_lock: Arc::default(), scripts: Arc::new(Semaphore::new(MAX_CONCURRENT_SCRIPTS)) }
    }

    /// A workspace over all files; relative paths start at [`HOME_DIR`].
    #[must_use]
    pub fn workspace() -> Workspace {
        Workspace::new([Root::writable(HOME_DIR), Root::writable("/")], PathRules::default(), PathStyle::Relative)
    }

    /// A session over these files, for drafting a plan. Its output stays in memory too.
    #[must_use]
    pub fn session(&self, id: impl Into<String>) -> Session {
        let host: Arc<dyn Host> = Arc::new(self.clone());
        // This directory cannot exist, so long output is never written to a disk.
        let tasks = Arc::new(crate::TaskRunner::new(host.clone(), "/dev/null/nowhere"));
        let ports = helve_contract::Ports { tasks, ..helve_contract::Ports::new(host) };
        Session::new(id, Self::workspace(), ports)
    }

    /// Creates a directory and its parents.
    pub async fn create_dir_all(&self, path: &Path) -> Result<()> {
        let made = self.files.mkdir(path, true).await;
        made.map_err(|error| Error::file(path.display(), fault::from_bashkit_error(&error)))
    }

    /// Runs a script to its end, with its environment and working directory.
    pub async fn run(&self, script: Script) -> Result<ScriptOutput> {
        shell::run(self, script).await
    }
}

impl Default for MemoryHost {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Host for MemoryHost {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn stat(&self, path: &SafePath) -> Result<Stat> {
        files::stat(&*self.files, path).await
    }

    async fn read(&self, path: &SafePath, span: Span) -> Result<FileChunk> {
        files::read(&*self.files, path, span).await
    }

    async fn write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<WriteOutcome> {
        let _held = self.write_lock.lock().await;
        change::write(&*self.files, path, bytes, expect).await
    }

    async fn apply_changes(&self, changes: Vec<FileChange>) -> Result<Vec<String>> {
        let _held = self.write_lock.lock().await;
        change::change(&*self.files, &changes).await
    }

    async fn remove(&self, path: &SafePath) -> Result<FileKind> {
        let _held = self.write_lock.lock().await;
        files::remove(&*self.files, path).await
    }

    async fn list(&self, path: &SafePath) -> Result<Vec<DirEntry>> {
        files::list(&*self.files, path).await
    }

    async fn find(&self, path: &SafePath, find: &FindQuery) -> Result<FindResult> {
        search::find(&*self.files, path, find).await
    }

    async fn grep(&self, path: &SafePath, grep: &GrepQuery) -> Result<GrepResult> {
        search::grep(&*self.files, path, grep).await
    }

    async fn spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>> {
        let Some(script) = &command.script else {
            return Err(Error::failed("there are no programs in memory; give a shell command"));
        };
        let script = Script {
            dir: command.cwd.host_path(),
            env: command.env.clone(),
            input: command.stdin.clone(),
            streams: command.streams,
            ..Script::new(script)
        };
        Ok(Box::new(shell::start(self, script).await?))
    }
}

fn limits() -> FsLimits {
    FsLimits::new()
        .max_total_bytes(MAX_TOTAL_BYTES)
        .max_file_size(MAX_FILE_BYTES)
        .max_file_count(MAX_FILES)
        .max_dir_count(MAX_DIRS)
}

/// Files have absolute paths without links.
fn is_home(path: &Path) -> bool {
    path == Path::new(HOME_DIR)
}
