//! A workspace and an engine over it: Helve's side of every in-process comparison.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use helve_contract::{
    Call, PathRules, Ports, Reply, Root, Session, Workspace,
    ports::{Host, NoTasks, Tasks},
};
use helve_dialects::by_name;
use helve_engine::{Engine, EngineBuilder, Gate, Mode, protected_path_rules};
use helve_hosts::LocalHost;
use tokio::runtime::{self, Runtime};

/// A workspace and an engine over it, as in a session of the program.
pub(crate) struct BenchSession {
    /// The engine.
    pub(crate) engine: Engine,
    /// The session that its calls belong to.
    pub(crate) session: Arc<Session>,
    runtime: Runtime,
}

impl BenchSession {
    /// A dialect over a directory, files only.
    pub(crate) fn new(dialect: &str, root: &Path) -> Result<Self> {
        Self::with_builder(dialect, root, Ok)
    }

    /// The same with an engine of its own.
    pub(crate) fn with_builder(
        dialect: &str,
        root: &Path,
        more: impl FnOnce(EngineBuilder) -> Result<EngineBuilder>,
    ) -> Result<Self> {
        Self::build(dialect, root, Arc::new(LocalHost::new()), Arc::new(NoTasks), more)
    }

    /// A dialect over a directory, with commands.
    pub(crate) fn with_tasks(dialect: &str, root: &Path, host: Arc<dyn Host>, tasks: Arc<dyn Tasks>) -> Result<Self> {
        Self::build(dialect, root, host, tasks, Ok)
    }

    fn build(
        dialect: &str,
        root: &Path,
        host: Arc<dyn Host>,
        tasks: Arc<dyn Tasks>,
        more: impl FnOnce(EngineBuilder) -> Result<EngineBuilder>,
    ) -> Result<Self> {
        let dialect = by_name(dialect).context("the dialect is not there")?;
        let workspace =
            Workspace::new([Root::writable(root)], PathRules::new(protected_path_rules()), dialect.path_style);
        let ports = Ports { tasks, ..Ports::new(host) };
        let engine = more(Engine::builder(dialect).gate(Gate::new(Mode::Open)))?.build()?;
        let session = Arc::new(Session::new("bench", workspace, ports));
        Ok(Self { engine, session, runtime: runtime::Builder::new_current_thread().enable_all().build()? })
    }

    /// A call of this session.
    pub(crate) fn call(&self) -> Call {
        Call::new("call-1", self.session.clone())
    }

    /// Waits for something on this desk's runtime.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Calls a tool once; a failure is an error here.
    pub(crate) fn call_tool(&self, tool: &str, args: &str) -> Result<Reply> {
        let reply = self.block_on(self.engine.run(tool, args, self.call()));
        if reply.is_error {
            bail!("{tool} failed: {}", reply.text);
        }
        Ok(reply)
    }

    /// Calls a tool this many times, one after the other.
    pub(crate) fn repeat(&self, times: usize, tool: &str, args: &str) -> Result<()> {
        let failed = self.block_on(async {
            for _ in 0..times {
                let reply = self.engine.run(tool, args, self.call()).await;
                if reply.is_error {
                    return Some(reply.text);
                }
            }
            None
        });
        failed.map_or(Ok(()), |text| bail!("{tool} failed: {text}"))
    }
}

/// A private directory in memory if the machine has one, so that no disk influences the result.
pub(crate) fn tmpfs_dir() -> Result<(tempfile::TempDir, PathBuf)> {
    let place = Path::new("/dev/shm");
    folder(if place.is_dir() { place } else { Path::new("/var/tmp") })
}

/// A directory of our own on a disk.
pub(crate) fn disk_dir() -> Result<(tempfile::TempDir, PathBuf)> {
    folder(Path::new("/var/tmp"))
}

fn folder(place: &Path) -> Result<(tempfile::TempDir, PathBuf)> {
    let held = tempfile::Builder::new().prefix("helve-bench-").tempdir_in(place)?;
    let path = held.path().canonicalize()?;
    Ok((held, path))
}

/// A program on `PATH`.
pub(crate) fn find_program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    names.iter().find_map(|name| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|it| it.is_file()))
}
