//! Starting the stage. One thread of the engine is the parent of all of them, for as long as the engine lives.
//!
//! The kernel ties a child's fate to the *thread* that made it, and threads of a pool come and go; so there is one that
//! stays. It also buries the dead, and lets go of what was kept for them.

use std::{
    any::Any,
    ffi::OsString,
    fs::File,
    io::{self, IoSlice, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError, mpsc},
    thread,
    time::Duration,
};

use helve_contract::{
    Error, Result,
    ports::{Input, Level, Terminal},
};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    process::{Pid, PidfdFlags, pidfd_open},
};
use tokio::{io::AsyncReadExt, sync::oneshot, time::timeout};

use super::{
    Cgroup,
    cgroup::{Nursery, Shares},
    own::stage_edition,
    plan::{FAILED, HELLO, MARKER, Plan, STARTED, Stdin},
    process::Running,
    terminal,
};
use crate::sandbox::Witness;

/// What is let go when the process is gone: files that stood in for missing ones, a control group.
pub(crate) type Keep = Vec<Box<dyn Any + Send>>;

/// How long the walls may take to go up.
const START: Duration = Duration::from_secs(20);

/// A stage to start.
pub(crate) struct Launch {
    /// The outer sandbox, or the stage itself.
    pub(crate) program: PathBuf,
    /// Its arguments, up to and without the stage's own.
    pub(crate) args: Vec<OsString>,
    /// What the stage is to do.
    pub(crate) plan: Plan,
    /// The kernel's file rules, where the engine has made them.
    pub(crate) rules: Option<Arc<OwnedFd>>,
    /// What the command reads.
    pub(crate) input: Input,
    /// The terminal it gets.
    pub(crate) terminal: Option<Terminal>,
    /// The walls around it.
    pub(crate) level: Level,
    /// Whether the walls keep it from the network.
    pub(crate) network_off: bool,
    /// Places that it may not change, for words about a refusal.
    pub(crate) protected: Vec<PathBuf>,
    /// Notices what no wall can prevent.
    pub(crate) witness: Witness,
    /// The control group it goes into.
    pub(crate) cgroup: Option<Arc<Cgroup>>,
    /// Let go when it is gone.
    pub(crate) keep: Keep,
}

/// The engine's ends of everything that leads to a stage.
pub(super) struct Wires {
    pub(super) control: UnixStream,
    pub(super) out: OwnedFd,
    pub(super) err: OwnedFd,
    pub(super) input: Option<OwnedFd>,
    pub(super) terminal: Option<OwnedFd>,
}

/// Starts a command and answers when it runs.
pub(crate) async fn launch(mut launch: Launch) -> Result<Running> {
    let typed = match (&mut launch.input, launch.terminal) {
        (Input::Bytes(bytes), Some(_)) => Some(std::mem::take(bytes)),
        _ => None,
    };
    let (wires, command, mut files) = wire(&mut launch).map_err(cannot_start)?;
    if launch.cgroup.is_none() {
        // Nothing is to be done between the stage's first word and the plan, so that nobody need wait for the word.
        send(&wires.control, &files).map_err(cannot_start)?;
        files.clear();
    }
    let (started, pid) = oneshot::channel();
    let (gone, ended) = oneshot::channel();
    let mut keep = std::mem::take(&mut launch.keep);
    keep.extend(launch.cgroup.clone().map(|group| Box::new(group) as Box<dyn Any + Send>));
    let job = Job {
        command,
        shares: (launch.level >= Level::Rules)
            .then_some(Shares { processes: launch.plan.limits.processes, memory: launch.plan.limits.memory_of_all }),
        keep,
        started: Box::new(move |answer| _ = started.send(answer)),
        gone: Box::new(move || _ = gone.send(())),
    };
    Warden::get().map_err(cannot_start)?.hire(job);
    let lost = || io::Error::other("the thread that starts programs is gone");
    let born = pid.await.map_err(|_| cannot_start(lost()))?.map_err(cannot_start)?;
    wires.control.set_nonblocking(true).map_err(cannot_start)?;
    let mut running = Running::new(wires, born, ended, &mut launch).map_err(cannot_start)?;
    match timeout(START, begin(&mut running, &files)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(error),
        Err(_) => return Err(Error::failed("the sandbox did not come up within 20 s; try again")),
    }
    drop(files);
    if let Some(bytes) = typed {
        running.type_in(bytes);
    }
    Ok(running)
}

/// Waits until the stage is there, sends the plan if that has not been done, and waits until the command runs.
async fn begin(running: &mut Running, files: &[OwnedFd]) -> Result<()> {
    if let Ok(HELLO) = running.control.read_u8().await
        && !files.is_empty()
    {
        running.join_cgroup()?;
        send(running.control.as_fd(), files).map_err(cannot_start)?;
    }
    match running.control.read_u8().await {
        Ok(STARTED) => Ok(()),
        Ok(FAILED) => {
            let length = running.control.read_u32_le().await.unwrap_or(0).min(4096);
            let mut text = vec![0; length as usize];
            _ = running.control.read_exact(&mut text).await;
            Err(Error::failed(String::from_utf8_lossy(&text)))
        }
        _ => Err(Error::failed(format!("the sandbox could not be set up: {}", running.last_words().await))),
    }
}

/// Runs a plan to its end on this thread: for trying a level out. What went wrong is in the answer.
pub(crate) fn try_out(mut launch: Launch) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let (mut wires, command, files) = wire(&mut launch).map_err(text)?;
    let (started, pid) = mpsc::sync_channel(1);
    let job = Job {
        command,
        shares: None,
        keep: Vec::new(),
        started: Box::new(move |answer| _ = started.send(answer)),
        gone: Box::new(|| {}),
    };
    Warden::get().map_err(text)?.hire(job);
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
        Some((&STARTED, [_, 0, 0, 0, 0, 0, 0, 0])) => return Ok(()),
        Some((&FAILED, rest)) => String::from_utf8_lossy(rest.get(4..).unwrap_or_default()).into_owned(),
        _ => {
            _ = rustix::process::pidfd_send_signal(&born.handle, rustix::process::Signal::KILL);
            let mut words = Vec::new();
            _ = File::from(wires.err).take(4096).read_to_end(&mut words);
            String::from_utf8_lossy(&words).trim().to_owned()
        }
    };
    Err(if trouble.is_empty() { "it ended without a word".to_owned() } else { trouble })
}

/// Makes all files and the command line of the stage; also the files that travel with the plan.
fn wire(launch: &mut Launch) -> io::Result<(Wires, Command, Vec<OwnedFd>)> {
    let (control, theirs) = UnixStream::pair()?;
    let (out, out_theirs) = pipe()?;
    let (err, err_theirs) = pipe()?;
    let mut wires = Wires { control, out, err, input: None, terminal: None };
    let mut sent = Vec::new();
    launch.plan.terminal = launch.terminal.is_some();
    launch.plan.stdin = match (&launch.input, launch.terminal) {
        (Input::Closed, _) => Stdin::Nothing,
        (_, Some(_)) => Stdin::Terminal,
        (Input::Bytes(bytes), None) => {
            sent.push(nameless("input", bytes)?);
            Stdin::Sent
        }
        (Input::Open, None) => {
            let (read, write) = pipe()?;
            sent.push(read);
            wires.input = Some(write);
            Stdin::Sent
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
    sent.insert(0, nameless("plan", &serde_json::to_vec(&launch.plan)?)?);
    let mut command = Command::new(&launch.program);
    command
        .args(&launch.args)
        .arg(MARKER)
        .arg(stage_edition())
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(out_theirs))
        .stderr(Stdio::from(err_theirs))
        .process_group(0);
    Ok((wires, command, sent))
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = io::pipe()?;
    Ok((read.into(), write.into()))
}

/// A file in memory that nobody can change any more.
fn nameless(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(bytes)?;
    io::Seek::rewind(&mut file)?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file.into())
}

fn send(control: impl AsFd, files: &[OwnedFd]) -> io::Result<()> {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    if !buffer.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("too many files for one plan"));
    }
    sendmsg(control, &[IoSlice::new(&[1])], &mut buffer, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Why a program could not be started, with what to do about it.
fn cannot_start(error: io::Error) -> Error {
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

/// A stage to start, and whom to tell.
struct Job {
    command: Command,
    /// What it may have, where it is to be held to that.
    shares: Option<Shares>,
    keep: Keep,
    started: Box<dyn FnOnce(io::Result<Born>) + Send>,
    gone: Box<dyn FnOnce() + Send>,
}

/// A stage that was started.
pub(super) struct Born {
    pub(super) handle: Arc<OwnedFd>,
    /// The group that holds its memory and that of others.
    pub(super) memory: Option<Arc<Path>>,
}

struct Ward {
    child: Child,
    handle: Arc<OwnedFd>,
    keep: Keep,
    gone: Box<dyn FnOnce() + Send>,
}

/// The thread that starts and buries.
struct Warden {
    jobs: Mutex<mpsc::Sender<Job>>,
    bell: OwnedFd,
}

impl Warden {
    fn get() -> io::Result<&'static Self> {
        static ONE: OnceLock<Warden> = OnceLock::new();
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(warden) = ONE.get() {
            return Ok(warden);
        }
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let ear = bell.try_clone()?;
        let (jobs, inbox) = mpsc::channel();
        thread::Builder::new().name("helve-warden".into()).spawn(move || Self::watch(&inbox, &ear))?;
        Ok(ONE.get_or_init(|| Self { jobs: Mutex::new(jobs), bell }))
    }

    fn hire(&self, job: Job) {
        // Were the thread gone, the job would be dropped with its senders, and whoever waits would learn of it.
        _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
        _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn watch(inbox: &mpsc::Receiver<Job>, ear: &OwnedFd) {
        let mut wards: Vec<Ward> = Vec::new();
        let mut nursery = None;
        loop {
            let mut files = vec![PollFd::new(ear, PollFlags::IN)];
            files.extend(wards.iter().map(|ward| PollFd::new(&*ward.handle, PollFlags::IN)));
            if poll(&mut files, None).is_err() {
                continue;
            }
            let ended: Vec<bool> = files.iter().skip(1).map(|file| !file.revents().is_empty()).collect();
            drop(files);
            for at in (0..ended.len()).rev().filter(|at| ended[*at]) {
                let mut ward = wards.swap_remove(at);
                _ = ward.child.wait();
                drop(ward.keep);
                (ward.gone)();
            }
            _ = rustix::io::read(ear, &mut [0_u8; 8]);
            while let Ok(job) = inbox.try_recv() {
                if let Some(shares) = job.shares {
                    Nursery::enter(&mut nursery, shares);
                }
                let memory = nursery.as_ref().and_then(Nursery::memory);
                wards.extend(Self::start(job, memory));
            }
        }
    }

    fn start(mut job: Job, memory: Option<Arc<Path>>) -> Option<Ward> {
        let child = match job.command.spawn() {
            Ok(child) => child,
            Err(error) => {
                (job.started)(Err(error));
                return None;
            }
        };
        // The command holds the stage's ends of all pipes; they must close here, or no end would ever be seen.
        drop(job.command);
        match open_handle(&child) {
            Ok(handle) => {
                let handle = Arc::new(handle);
                (job.started)(Ok(Born { handle: handle.clone(), memory }));
                Some(Ward { child, handle, keep: job.keep, gone: job.gone })
            }
            Err(error) => {
                let mut child = child;
                _ = child.kill();
                _ = child.wait();
                (job.started)(Err(error));
                None
            }
        }
    }
}

fn open_handle(child: &Child) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("a child without a number"))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}
