//! Starts a command: takes or starts an init helper, sends it the plan and waits until the command runs.

use std::{
    any::Any,
    ffi::OsString,
    fs::File,
    io::{self, IoSlice, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

use helve_contract::{
    Error, Result,
    ports::{SandboxLevel, StdinSource, TerminalSize},
};
use rustix::{
    fs::{CWD, MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, openat},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};
use tokio::{io::AsyncReadExt, sync::oneshot, time::timeout};

use super::{
    Cgroup,
    cgroup::CgroupLimits,
    mark::FileFingerprint,
    plan::{MAX_FDS, MSG_FAILED, MSG_READY, MSG_STARTED, PlanStdin, SandboxPlan, TreeTracking},
    process::{ExitCleanup, SupervisedProcess},
    terminal,
    warden::{ExitHook, HelperSpec, SpawnRequest, SpawnedHelper, SpawnerThread, create_pipes},
};
use crate::sandbox::Check;

/// Resources to release when the process is gone, such as a cgroup.
pub(crate) type CleanupGuards = Vec<Box<dyn Any + Send>>;

/// Shared cleanup: the first owner to release it releases it for all.
#[derive(Clone, Default)]
pub(super) struct SharedCleanup(Arc<Mutex<CleanupGuards>>);

impl SharedCleanup {
    pub(super) fn release(&self) {
        // Under the lock, so that a second caller finds it finished.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl From<CleanupGuards> for SharedCleanup {
    fn from(keep: CleanupGuards) -> Self {
        Self(Arc::new(Mutex::new(keep)))
    }
}

/// The timeout for starting the sandbox.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The parameters of a start.
pub(crate) struct Launch {
    /// Bubblewrap, or the init helper.
    pub(crate) program: PathBuf,
    /// Its arguments, without those of the init helper.
    pub(crate) args: Vec<OsString>,
    /// The fingerprints of the mounted paths.
    pub(crate) mounted_paths: Vec<FileFingerprint>,
    pub(crate) plan: SandboxPlan,
    /// The Landlock ruleset, if Helve created it.
    pub(crate) rules: Option<Arc<OwnedFd>>,
    pub(crate) input: StdinSource,
    pub(crate) terminal: Option<TerminalSize>,
    pub(crate) level: SandboxLevel,
    pub(crate) network_off: bool,
    /// Read-only paths, for messages about denials.
    pub(crate) protected: Vec<PathBuf>,
    /// Virtual names of roots and the directories behind them.
    pub(crate) names: Vec<(PathBuf, PathBuf)>,
    /// Directories of the vault, which it does not see.
    pub(crate) vault: Vec<PathBuf>,
    /// Further places that it does not see.
    pub(crate) hidden: Vec<PathBuf>,
    /// Directories in which it may create nothing, because a hidden place lies in them.
    pub(crate) partial: Vec<PathBuf>,
    /// Roots that it may only read.
    pub(crate) read_only: Vec<PathBuf>,
    /// The integrity check to be done when it has ended.
    pub(crate) check: Option<Check>,
    /// The control group it goes into.
    pub(crate) cgroup: Option<Arc<Cgroup>>,
    /// Released when the process is gone.
    pub(crate) cleanup: CleanupGuards,
}

/// Where a command's init helper comes from. The spec is set if a spare one can be kept.
enum HelperSource {
    /// It is to be started.
    Spawn(Command, Option<HelperSpec>),
    /// It was started before.
    Prespawned(SpawnedHelper, HelperSpec),
}

impl Launch {
    /// The cgroup limits, if any apply.
    fn cgroup_limits(&self) -> Option<CgroupLimits> {
        let limits = &self.plan.limits;
        (self.level >= SandboxLevel::Rules)
            .then_some(CgroupLimits { processes: limits.processes, memory: limits.memory_of_all })
    }

    /// Takes or starts an init helper with its pipes. If bubblewrap builds all mounts, the sandbox belongs to one
    /// command; otherwise any helper with the same mounts works.
    fn acquire_helper(&self, warden: &SpawnerThread) -> io::Result<(HelperPipes, HelperSource)> {
        let kind = (self.plan.tree == TreeTracking::Walk || self.plan.last.is_some()).then(|| HelperSpec {
            program: self.program.clone(),
            args: self.args.clone(),
            places: self.mounted_paths.clone(),
            shares: self.cgroup_limits(),
        });
        if let Some(kind) = &kind
            && let Some(spare) = warden.take_prespawned(kind)
        {
            return Ok((spare.wires, HelperSource::Prespawned(spare.born, kind.clone())));
        }
        let (wires, command) = create_pipes(&self.program, &self.args)?;
        Ok((wires, HelperSource::Spawn(command, kind)))
    }
}

/// The engine's ends of everything that leads to an init helper.
pub(super) struct HelperPipes {
    pub(super) control: UnixStream,
    pub(super) out: OwnedFd,
    pub(super) err: OwnedFd,
    pub(super) input: Option<OwnedFd>,
    pub(super) terminal: Option<OwnedFd>,
}

/// Starts a command and answers when it runs.
pub(crate) async fn launch(mut launch: Launch) -> Result<SupervisedProcess> {
    let typed = match (&mut launch.input, launch.terminal) {
        (StdinSource::Bytes(bytes), Some(_)) => Some(std::mem::take(bytes)),
        _ => None,
    };
    let warden = SpawnerThread::get().map_err(spawn_error)?;
    let (mut wires, stage) = launch.acquire_helper(warden).map_err(spawn_error)?;
    let mut files = prepare_fds(&mut launch, &mut wires).map_err(spawn_error)?;
    if launch.cgroup.is_none() {
        // The plan is sent without waiting for the ready message.
        send(&wires.control, &files).map_err(spawn_error)?;
        files.clear();
    }
    let (gone, ended) = oneshot::channel();
    let mut keep = std::mem::take(&mut launch.cleanup);
    keep.extend(launch.cgroup.clone().map(|group| Box::new(group) as Box<dyn Any + Send>));
    let keep = SharedCleanup::from(keep);
    let end = ExitHook { keep: keep.clone(), gone: Box::new(move || _ = gone.send(())) };
    let born = match stage {
        HelperSource::Prespawned(born, kind) => {
            warden.adopt(born.handle.clone(), kind, end);
            born
        }
        HelperSource::Spawn(command, kind) => {
            let (started, pid) = oneshot::channel();
            let started = Box::new(move |answer| _ = started.send(answer));
            warden.spawn(SpawnRequest { command, shares: launch.cgroup_limits(), kind, started, end });
            let lost = || io::Error::other("the thread that starts programs is gone");
            pid.await.map_err(|_| spawn_error(lost()))?.map_err(spawn_error)?
        }
    };
    wires.control.set_nonblocking(true).map_err(spawn_error)?;
    let mut running =
        SupervisedProcess::new(wires, born, ExitCleanup { keep, gone: ended }, &mut launch).map_err(spawn_error)?;
    match timeout(START_TIMEOUT, start_command(&mut running, &files)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(error),
        Err(_) => return Err(Error::failed("the sandbox did not come up within 20 s; try again")),
    }
    drop(files);
    if let Some(bytes) = typed {
        running.queue_input(bytes);
    }
    Ok(running)
}

/// Waits for the init helper, sends the plan if needed, and waits until the command runs.
async fn start_command(running: &mut SupervisedProcess, files: &[OwnedFd]) -> Result<()> {
    if let Ok(MSG_READY) = running.control.read_u8().await
        && !files.is_empty()
    {
        running.join_cgroup()?;
        send(running.control.as_fd(), files).map_err(spawn_error)?;
    }
    match running.control.read_u8().await {
        Ok(MSG_STARTED) => Ok(()),
        Ok(MSG_FAILED) => {
            let length = running.control.read_u32_le().await.unwrap_or(0).min(4096);
            let mut text = vec![0; length as usize];
            _ = running.control.read_exact(&mut text).await;
            Err(Error::failed(String::from_utf8_lossy(&text)))
        }
        _ => Err(Error::failed(format!("the sandbox could not be set up: {}", running.startup_stderr().await))),
    }
}

/// Runs a plan to its end on this thread, to probe a level. The error contains what failed.
pub(crate) fn run_probe(mut launch: Launch) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let (mut wires, command) = create_pipes(&launch.program, &launch.args).map_err(text)?;
    let files = prepare_fds(&mut launch, &mut wires).map_err(text)?;
    let (started, pid) = mpsc::sync_channel(1);
    let job = SpawnRequest {
        command,
        shares: None,
        kind: None,
        started: Box::new(move |answer| _ = started.send(answer)),
        end: ExitHook { keep: SharedCleanup::default(), gone: Box::new(|| {}) },
    };
    SpawnerThread::get().map_err(text)?.spawn(job);
    let born = pid.recv().map_err(|error| error.to_string())?.map_err(text)?;
    wires.control.set_read_timeout(Some(Duration::from_secs(5))).map_err(text)?;
    let mut answer = Vec::new();
    let mut hello = [0];
    if wires.control.read_exact(&mut hello).is_ok() {
        send(wires.control.as_fd(), &files).map_err(text)?;
        _ = wires.control.read_to_end(&mut answer);
    }
    let trouble = match answer.split_first() {
        // Started, ended, status 0, nothing left behind, no directory.
        Some((&MSG_STARTED, [_, 0, 0, 0, 0, 0, 0, 0])) => return Ok(()),
        Some((&MSG_FAILED, rest)) => String::from_utf8_lossy(rest.get(4..).unwrap_or_default()).into_owned(),
        _ => {
            _ = rustix::process::pidfd_send_signal(&born.handle, rustix::process::Signal::KILL);
            let mut words = Vec::new();
            _ = File::from(wires.err).take(4096).read_to_end(&mut words);
            String::from_utf8_lossy(&words).trim().to_owned()
        }
    };
    Err(if trouble.is_empty() { "it ended without a word".to_owned() } else { trouble })
}

/// Makes the files that travel with the plan, the plan first, and the engine's ends of those that lead back.
fn prepare_fds(launch: &mut Launch, wires: &mut HelperPipes) -> io::Result<Vec<OwnedFd>> {
    let mut sent = Vec::new();
    launch.plan.terminal = launch.terminal.is_some();
    launch.plan.stdin = match (&launch.input, launch.terminal) {
        (StdinSource::Closed, _) => PlanStdin::Nothing,
        (_, Some(_)) => PlanStdin::Terminal,
        (StdinSource::Bytes(bytes), None) => {
            sent.push(sealed_memfd("input", bytes)?);
            PlanStdin::Sent
        }
        (StdinSource::Open, None) => {
            let (read, write) = pipe()?;
            sent.push(read);
            wires.input = Some(write);
            PlanStdin::Sent
        }
    };
    if let Some(size) = launch.terminal {
        let (ours, theirs) = terminal::open(size)?;
        wires.terminal = Some(ours);
        sent.push(theirs);
    }
    if let Some(rules) = &launch.rules {
        sent.push(rules.try_clone()?);
    }
    if launch.plan.last.is_some() {
        sent.insert(0, openat(CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?);
    }
    sent.insert(0, sealed_memfd("plan", &serde_json::to_vec(&launch.plan)?)?);
    Ok(sent)
}

pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = io::pipe()?;
    Ok((read.into(), write.into()))
}

/// A file in memory that nobody can change any more.
fn sealed_memfd(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(bytes)?;
    io::Seek::rewind(&mut file)?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file.into())
}

fn send(control: impl AsFd, files: &[OwnedFd]) -> io::Result<()> {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    if !buffer.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("too many files for one plan"));
    }
    sendmsg(control, &[IoSlice::new(&[1])], &mut buffer, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Why a program could not be started, with what to do about it.
fn spawn_error(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => {
            Error::failed("too many open files to start another command; stop a running task and try again")
        }
        Some(libc::EAGAIN | libc::ENOMEM) => Error::failed(format!(
            "the system cannot start another process now ({error}); stop a running task and try again"
        )),
        _ => Error::Internal(anyhow::Error::new(error).context("starting a command")),
    }
}
