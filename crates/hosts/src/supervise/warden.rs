//! The spawner thread: the parent of all init helpers during the life of the process.
//!
//! The kernel ties a child's lifetime to the *thread* that created it, and pool threads end; this one stays. It also
//! reaps children, runs their cleanup, and keeps a spare helper for the next command.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc},
    thread,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{
    cgroup::{CgroupLimits, SharedCgroup},
    launch::{HelperPipes, SharedCleanup, pipe},
    mark::FileFingerprint,
    own::helper_build_id,
    plan::HELPER_ARG,
};

/// How long an init helper is kept at hand while nothing is run.
const PRESPAWN_TTL: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// To look, and not to wait.
const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The properties that a helper is started with. Everything else comes with the plan, so two helpers with equal specs
/// are interchangeable.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct HelperSpec {
    pub(super) program: PathBuf,
    /// The arguments of its outer sandbox.
    pub(super) args: Vec<OsString>,
    /// The mounted files: mounts refer to these files, not to their names.
    pub(super) places: Vec<FileFingerprint>,
    /// What it may have, where it is to be held to that.
    pub(super) shares: Option<CgroupLimits>,
}

/// An init helper to start, and whom to tell.
pub(super) struct SpawnRequest {
    pub(super) command: Command,
    /// What it may have, where it is to be held to that.
    pub(super) shares: Option<CgroupLimits>,
    /// Its kind, where one like it can be kept at hand.
    pub(super) kind: Option<HelperSpec>,
    pub(super) started: Box<dyn FnOnce(io::Result<SpawnedHelper>) + Send>,
    pub(super) end: ExitHook,
}

/// What is done when an init helper is gone.
pub(super) struct ExitHook {
    pub(super) keep: SharedCleanup,
    pub(super) gone: Box<dyn FnOnce() + Send>,
}

/// An init helper that was started.
pub(super) struct SpawnedHelper {
    pub(super) handle: Arc<OwnedFd>,
    /// The group that holds its memory and that of others.
    pub(super) memory: Option<Arc<Path>>,
}

/// A helper that was started in advance. It waits for a plan and exits when its socket closes.
pub(super) struct PrespawnedHelper {
    pub(super) wires: HelperPipes,
    pub(super) born: SpawnedHelper,
    kind: HelperSpec,
}

enum SpawnerMessage {
    Start(Box<SpawnRequest>),
    /// The spare with this handle has a command now.
    Adopt(Arc<OwnedFd>, HelperSpec, ExitHook),
}

struct ChildEntry {
    child: Child,
    handle: Arc<OwnedFd>,
    end: ExitHook,
}

pub(super) struct SpawnerThread {
    words: Mutex<mpsc::Sender<SpawnerMessage>>,
    wake_fd: OwnedFd,
    spare: Arc<Mutex<Option<PrespawnedHelper>>>,
}

impl SpawnerThread {
    pub(super) fn get() -> io::Result<&'static Self> {
        static ONE: OnceLock<SpawnerThread> = OnceLock::new();
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(warden) = ONE.get() {
            return Ok(warden);
        }
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (words, inbox) = mpsc::channel();
        let spare = Arc::default();
        let mut round =
            SpawnerLoop { children: Vec::new(), shared_cgroup: None, last: None, spare: Arc::clone(&spare) };
        let ear = bell.try_clone()?;
        thread::Builder::new().name("helve-warden".into()).spawn(move || round.run(&inbox, &ear))?;
        Ok(ONE.get_or_init(|| Self { words: Mutex::new(words), wake_fd: bell, spare }))
    }

    /// Starts a helper.
    pub(super) fn spawn(&self, job: SpawnRequest) {
        self.send(SpawnerMessage::Start(Box::new(job)));
    }

    /// Takes the spare helper if it has this spec and is alive.
    pub(super) fn take_prespawned(&self, kind: &HelperSpec) -> Option<PrespawnedHelper> {
        let spare = lock(&self.spare).take_if(|it| it.kind == *kind)?;
        let lives = poll(&mut [PollFd::new(&*spare.born.handle, PollFlags::IN)], Some(&NO_WAIT)) == Ok(0);
        lives.then_some(spare)
    }

    /// Registers the cleanup of a spare helper that is now used, and starts another one.
    pub(super) fn adopt(&self, handle: Arc<OwnedFd>, kind: HelperSpec, end: ExitHook) {
        self.send(SpawnerMessage::Adopt(handle, kind, end));
    }

    fn send(&self, word: SpawnerMessage) {
        // If the thread is gone, the message is dropped with its senders and the waiter gets an error.
        _ = self.words.lock().unwrap_or_else(PoisonError::into_inner).send(word);
        _ = rustix::io::write(&self.wake_fd, &1_u64.to_ne_bytes());
    }
}

fn lock(spare: &Mutex<Option<PrespawnedHelper>>) -> MutexGuard<'_, Option<PrespawnedHelper>> {
    spare.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the thread looks after.
struct SpawnerLoop {
    children: Vec<ChildEntry>,
    shared_cgroup: Option<SharedCgroup>,
    /// The last spec. After two equal commands a third is likely.
    last: Option<HelperSpec>,
    spare: Arc<Mutex<Option<PrespawnedHelper>>>,
}

impl SpawnerLoop {
    fn run(&mut self, inbox: &mpsc::Receiver<SpawnerMessage>, ear: &OwnedFd) {
        loop {
            let idle = lock(&self.spare).is_some().then_some(&PRESPAWN_TTL);
            let mut files = vec![PollFd::new(ear, PollFlags::IN)];
            files.extend(self.children.iter().map(|ward| PollFd::new(&*ward.handle, PollFlags::IN)));
            match poll(&mut files, idle) {
                Ok(0) => _ = lock(&self.spare).take(),
                Ok(_) => {}
                Err(_) => continue,
            }
            let ended: Vec<bool> = files.iter().skip(1).map(|file| !file.revents().is_empty()).collect();
            drop(files);
            for at in (0..ended.len()).rev().filter(|at| ended[*at]) {
                self.reap(at);
            }
            _ = rustix::io::read(ear, &mut [0_u8; 8]);
            while let Ok(word) = inbox.try_recv() {
                match word {
                    SpawnerMessage::Start(job) => self.start(*job),
                    SpawnerMessage::Adopt(handle, kind, end) => self.adopt(&handle, kind, end),
                }
            }
        }
    }

    fn reap(&mut self, at: usize) {
        let mut ward = self.children.swap_remove(at);
        _ = ward.child.wait();
        lock(&self.spare).take_if(|it| Arc::ptr_eq(&it.born.handle, &ward.handle));
        ward.end.run();
    }

    fn start(&mut self, mut job: SpawnRequest) {
        self.enter(job.shares);
        let begun = spawn_with_pidfd(&mut job.command);
        // The command holds the helper's pipe ends; they must close here, or readers never see the end.
        drop(job.command);
        match begun {
            Ok((child, handle)) => {
                (job.started)(Ok(self.born(&handle)));
                self.children.push(ChildEntry { child, handle, end: job.end });
            }
            Err(error) => (job.started)(Err(error)),
        }
        if job.kind.is_some() && job.kind == self.last {
            self.last.clone().into_iter().for_each(|kind| self.prespawn(kind));
        }
        self.last = job.kind;
    }

    fn adopt(&mut self, handle: &Arc<OwnedFd>, kind: HelperSpec, end: ExitHook) {
        match self.children.iter_mut().find(|ward| Arc::ptr_eq(&ward.handle, handle)) {
            Some(ward) => ward.end = end,
            None => end.run(),
        }
        self.prespawn(kind);
    }

    /// Starts a spare helper. If that fails, the next command starts its own and reports the error.
    fn prespawn(&mut self, kind: HelperSpec) {
        if lock(&self.spare).as_ref().is_some_and(|it| it.kind == kind) {
            return;
        }
        self.enter(kind.shares);
        let Ok((wires, mut command)) = create_pipes(&kind.program, &kind.args) else { return };
        let Ok((child, handle)) = spawn_with_pidfd(&mut command) else { return };
        let born = self.born(&handle);
        self.children.push(ChildEntry {
            child,
            handle,
            end: ExitHook { keep: SharedCleanup::default(), gone: Box::new(|| {}) },
        });
        *lock(&self.spare) = Some(PrespawnedHelper { wires, born, kind });
    }

    fn enter(&mut self, shares: Option<CgroupLimits>) {
        if let Some(shares) = shares {
            SharedCgroup::enter(&mut self.shared_cgroup, shares);
        }
    }

    fn born(&self, handle: &Arc<OwnedFd>) -> SpawnedHelper {
        SpawnedHelper { handle: handle.clone(), memory: self.shared_cgroup.as_ref().and_then(SharedCgroup::memory) }
    }
}

impl ExitHook {
    fn run(self) {
        self.keep.release();
        (self.gone)();
    }
}

/// Starts a program; returns it with a pidfd.
fn spawn_with_pidfd(command: &mut Command) -> io::Result<(Child, Arc<OwnedFd>)> {
    let mut child = command.spawn()?;
    match open_handle(&child) {
        Ok(handle) => Ok((child, Arc::new(handle))),
        Err(error) => {
            _ = child.kill();
            _ = child.wait();
            Err(error)
        }
    }
}

fn open_handle(child: &Child) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("a child without a number"))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Makes the ways to an init helper and its command line.
pub(super) fn create_pipes(program: &Path, args: &[OsString]) -> io::Result<(HelperPipes, Command)> {
    let (control, theirs) = UnixStream::pair()?;
    let (out, out_theirs) = pipe()?;
    let (err, err_theirs) = pipe()?;
    let mut command = Command::new(program);
    command
        .args(args)
        .arg(HELPER_ARG)
        .arg(helper_build_id())
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(out_theirs))
        .stderr(Stdio::from(err_theirs))
        .process_group(0);
    Ok((HelperPipes { control, out, err, input: None, terminal: None }, command))
}
