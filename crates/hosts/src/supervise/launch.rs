//! Starting a command: a stage is started or was at hand, the plan is sent to it, and it says when the command runs.

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

/// What is let go when the process is gone, such as a control group.
pub(crate) type CleanupGuards = Vec<Box<dyn Any + Send>>;

/// The same, shared by all who may be the last to need it: whoever lets go first does it for all.
#[derive(Clone, Default)]
pub(super) struct SharedCleanup(Arc<Mutex<CleanupGuards>>);

impl SharedCleanup {
    pub(super) fn release(&self) {
        // Under the lock: who comes second finds it done, and not about to be.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl From<CleanupGuards> for SharedCleanup {
    fn from(keep: CleanupGuards) -> Self {
        Self(Arc::new(Mutex::new(keep)))
    }
}

/// How long the walls may take to go up.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A stage to start.
pub(crate) struct Launch {
    /// The outer sandbox, or the stage itself.
    pub(crate) program: PathBuf,
    /// Its arguments, up to and without the stage's own.
    pub(crate) args: Vec<OsString>,
    /// The places that its walls are made of.
    pub(crate) mounted_paths: Vec<FileFingerprint>,
    /// What the stage is to do.
    pub(crate) plan: SandboxPlan,
    /// The kernel's file rules, where the engine has made them.
    pub(crate) rules: Option<Arc<OwnedFd>>,
    /// What the command reads.
    pub(crate) input: StdinSource,
    /// The terminal it gets.
    pub(crate) terminal: Option<TerminalSize>,
    /// The walls around it.
    pub(crate) level: SandboxLevel,
    /// Whether the walls keep it from the network.
    pub(crate) network_off: bool,
    /// Places that it may not change, for words about a refusal.
    pub(crate) protected: Vec<PathBuf>,
    /// Virtual names of roots and the folders behind them.
    pub(crate) names: Vec<(PathBuf, PathBuf)>,
    /// Folders of the vault, which it does not see.
    pub(crate) vault: Vec<PathBuf>,
    /// Further places that it does not see.
    pub(crate) hidden: Vec<PathBuf>,
    /// Folders in which it may create nothing, because a hidden place lies in them.
    pub(crate) partial: Vec<PathBuf>,
    /// Roots that it may only read.
    pub(crate) read_only: Vec<PathBuf>,
    /// The integrity check to be done when it has ended.
    pub(crate) check: Option<Check>,
    /// The control group it goes into.
    pub(crate) cgroup: Option<Arc<Cgroup>>,
    /// Let go when it is gone.
    pub(crate) cleanup: CleanupGuards,
}

/// Where a command's stage comes from. Its kind is known where one like it can be kept at hand.
enum HelperSource {
    /// It is to be started.
    Spawn(Command, Option<HelperSpec>),
    /// It was started before.
    Prespawned(SpawnedHelper, HelperSpec),
}

impl Launch {
    /// What the command may have, where it is to be held to that.
    fn cgroup_limits(&self) -> Option<CgroupLimits> {
        let limits = &self.plan.limits;
        (self.level >= SandboxLevel::Rules)
            .then_some(CgroupLimits { processes: limits.processes, memory: limits.memory_of_all })
    }

    /// A stage for it, and the ways there. Where outer walls are built by another program, all of them, they are built around
    /// one command; else any stage behind the same walls will do.
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

/// The engine's ends of everything that leads to a stage.
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
        // Nothing is to be done between the stage's first word and the plan, so that nobody need wait for the word.
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

/// Waits until the stage is there, sends the plan if that has not been done, and waits until the command runs.
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

/// Runs a plan to its end on this thread: for trying a level out. What went wrong is in the answer.
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
        // Started, ended, status 0, nothing left behind, no folder.
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
