//! The init helper: first process inside the sandbox, parent of the command, and reaper of its descendants.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, IoSliceMut, Read, Seek, Write},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg},
    process::{DumpableBehavior, WaitStatus, getpid, set_child_subreaper, set_dumpable_behavior},
};

use super::{
    child::{self, PassedFds},
    dir,
    finish::apply,
    forward::ProxyForwarder,
    leash::{self, KILL_ON_EXIT_ARG},
    notify::{self, Notifier},
    own::helper_build_id,
    plan::{HELPER_ARG, MAX_FDS, MSG_EXITED, MSG_FAILED, MSG_READY, MSG_STARTED, SandboxPlan, TreeTracking},
    sys::{self, Forked},
    tree::{Reaped, reap},
};

/// How long leftover processes may take to exit by themselves.
const LINGER_TIMEOUT: Duration = Duration::from_millis(500);
/// How long it may take after SIGTERM.
const TERM_TIMEOUT: Duration = Duration::from_millis(200);
/// How long to retry killing a process that does not die (one that hangs in the kernel).
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval of repeated kills, for processes that fork fast.
const KILL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the init helper or the kill-on-exit wrapper if this process was started as one, and then never returns.
///
/// Call it first in `main`, before any thread exists and before arguments are parsed.
pub fn run_helper_if_requested() {
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    let (ran, part) = match first.as_deref() {
        Some(first) if first == HELPER_ARG => (run(args), "inner stage of the sandbox"),
        Some(first) if first == KILL_ON_EXIT_ARG => (leash::run_wrapped(args), "leash of a program"),
        _ => return leash::HELPER_AVAILABLE.store(true, Ordering::Relaxed),
    };
    sys::exit_now(ran.unwrap_or_else(|error| {
        eprintln!("the {part} failed: {error}");
        125
    }))
}

fn run(mut args: impl Iterator<Item = OsString>) -> io::Result<i32> {
    sys::close_inherited()?;
    if args.next().is_none_or(|edition| edition != helper_build_id().as_str()) {
        return Err(io::Error::other("it is of another version than the engine; start the engine again"));
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let signals = sys::signalfd(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
    let mut control = File::from(sys::stdio_fd(0));
    // Helve may wait for this before it sends the plan.
    control.write_all(&[MSG_READY])?;
    let Some((plan, mut sent)) = receive(&control)? else { return Ok(0) };
    if let Err(error) = finish_sandbox(&plan, &mut sent) {
        return report_failure(&mut control, &error);
    }
    let forwarder = match plan.forward.as_ref().map(ProxyForwarder::bind).transpose() {
        Ok(forwarder) => forwarder,
        Err(error) => return report_failure(&mut control, &error),
    };
    if plan.tree == TreeTracking::Walk {
        set_child_subreaper(Some(getpid()))?;
    }
    if let Some((path, text)) = &plan.home_file
        && let Ok(mut file) = File::create_new(path)
    {
        // A convenience; ignore errors.
        _ = file.write_all(text.as_bytes());
    }
    let (tell, told) = dir::pipes(&plan)?;
    let (main, notifier) = match start(&plan, sent, tell)? {
        Ok(started) => started,
        Err(error) => return report_failure(&mut control, &error),
    };
    // Threads may start only now: nothing forks any more.
    if let Some(forwarder) = forwarder {
        forwarder.start()?;
    }
    if let Some(notifier) = notifier {
        notifier.start()?;
    }
    control.write_all(&[MSG_STARTED])?;
    let (status, left) = TreeWatcher::new(main, plan.tree, control.as_fd().try_clone_to_owned()?, signals).run()?;
    let mut end = vec![MSG_EXITED];
    end.extend(status.as_raw().to_le_bytes());
    end.push(u8::from(left));
    let dir = told.map(dir::read).unwrap_or_default();
    end.extend((dir.len() as u16).to_le_bytes());
    end.extend(dir);
    // An engine that is gone needs no answer.
    _ = control.write_all(&end);
    Ok(0)
}

fn report_failure(control: &mut File, error: &str) -> io::Result<i32> {
    let mut text = vec![MSG_FAILED];
    text.extend((error.len() as u32).to_le_bytes());
    text.extend(error.as_bytes());
    control.write_all(&text)?;
    Ok(125)
}

/// The plan and the files that came with it; nothing when the engine went away first.
fn receive(control: &File) -> io::Result<Option<(SandboxPlan, Vec<OwnedFd>)>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut buffer = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut buffer, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes == 0 {
        return Ok(None);
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("the plan's files were cut off"));
    }
    let mut files: Vec<OwnedFd> = buffer
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        })
        .flatten()
        .collect();
    if files.is_empty() {
        return Err(io::Error::other("there is no plan"));
    }
    let mut text = Vec::new();
    let mut file = File::from(files.remove(0));
    file.rewind()?;
    file.read_to_end(&mut text)?;
    Ok(Some((serde_json::from_slice(&text)?, files)))
}

/// Makes the final mounts if they are left to the helper. Inside namespaces all capabilities must be dropped; without
/// them the child drops its own.
fn finish_sandbox(plan: &SandboxPlan, sent: &mut Vec<OwnedFd>) -> Result<(), String> {
    if plan.tree == TreeTracking::Walk {
        return Ok(());
    }
    if let Some(last) = &plan.last {
        let proc = (!sent.is_empty()).then(|| sent.remove(0)).ok_or("the way to /proc did not come with the plan")?;
        apply(last, &proc)?;
    }
    let have = rustix::thread::capabilities(None).map_err(|error| format!("cannot read capabilities: {error}"))?;
    if have.effective.is_empty() && have.permitted.is_empty() {
        return Ok(());
    }
    Err("the sandbox left capabilities to its inside; nothing was run".to_owned())
}

/// Runs the command as a child; returns its pid and the notifier, or why it failed.
fn start(
    plan: &SandboxPlan,
    sent: Vec<OwnedFd>,
    tell: Option<dir::CwdReporter>,
) -> io::Result<Result<(i32, Option<Notifier>), String>> {
    let sent = PassedFds::with(plan, sent);
    let supervised = plan.walls.as_ref().filter(|walls| walls.needs_supervisor());
    let (mut read, write) = io::pipe()?;
    let (ours, theirs) = supervised.map(|_| notify::channel()).transpose()?.unzip();
    match sys::fork()? {
        Forked::Child => {
            drop((read, ours));
            let error = child::exec(plan, sent, tell, theirs);
            _ = (&write).write_all(error.as_bytes());
            sys::exit_now(125)
        }
        Forked::Parent(pid) => {
            drop((write, sent, tell, theirs));
            // Closes the helper's copies, so that the output ends with the command.
            let null = File::options().read(true).write(true).open("/dev/null")?;
            sys::dup_to(&null, 1)?;
            sys::dup_to(&null, 2)?;
            let mut error = String::new();
            read.read_to_string(&mut error)?;
            if !error.is_empty() {
                return Ok(Err(error));
            }
            let listener = ours.as_ref().and_then(notify::receive_listener);
            let roots = supervised.and_then(|walls| walls.attribute_roots.as_deref()).unwrap_or_default();
            let notifier = listener.map(|listener| Notifier::new(listener, roots));
            Ok(Ok((pid, notifier)))
        }
    }
}

/// What the init helper is waiting for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShutdownPhase {
    /// The command to end.
    Running,
    /// What it left behind to end by itself.
    Lingering,
    /// The same, after SIGTERM.
    Terminating,
    /// Everything to die.
    Killing,
}

/// Waits for a command to end and makes sure that none of its processes survives.
pub(super) struct TreeWatcher {
    main: i32,
    tree: TreeTracking,
    control: OwnedFd,
    signals: OwnedFd,
    ended: Option<WaitStatus>,
    phase: ShutdownPhase,
    until: Option<Instant>,
    give_up: Option<Instant>,
    left: bool,
    parent_gone: bool,
}

impl TreeWatcher {
    pub(super) fn new(main: i32, tree: TreeTracking, control: OwnedFd, signals: OwnedFd) -> Self {
        Self {
            main,
            tree,
            control,
            signals,
            ended: None,
            phase: ShutdownPhase::Running,
            until: None,
            give_up: None,
            left: false,
            parent_gone: false,
        }
    }

    /// How it ended, and whether something of it had to be ended.
    pub(super) fn run(mut self) -> io::Result<(WaitStatus, bool)> {
        loop {
            let empty = self.reap_all();
            if let Some(status) = self.ended
                && (empty || self.give_up.is_some_and(|at| at <= Instant::now()))
            {
                return Ok((status, self.left));
            }
            if empty || (self.parent_gone && self.give_up.is_some_and(|at| at <= Instant::now())) {
                // The command was reaped by somebody else, which only a tracer can do, or cannot be killed.
                return Err(io::Error::other("the command was lost"));
            }
            self.advance();
            self.poll()?;
        }
    }

    /// Reaps all exited children; returns whether none is left.
    fn reap_all(&mut self) -> bool {
        loop {
            match reap() {
                Reaped::One(pid, status) if pid == self.main => self.ended = Some(status),
                Reaped::One(..) => {}
                Reaped::Running => return false,
                Reaped::Empty => return true,
            }
        }
    }

    /// Goes from one phase to the next when its time has come.
    fn advance(&mut self) {
        let now = Instant::now();
        let due = self.until.is_some_and(|at| at <= now);
        match self.phase {
            ShutdownPhase::Running if self.ended.is_some() => self.enter(ShutdownPhase::Lingering, LINGER_TIMEOUT),
            ShutdownPhase::Lingering if due => {
                self.left = true;
                self.tree.signal(self.main, libc::SIGTERM);
                self.enter(ShutdownPhase::Terminating, TERM_TIMEOUT);
            }
            ShutdownPhase::Terminating if due => self.kill(),
            ShutdownPhase::Killing if due => {
                self.tree.kill(self.main);
                self.enter(ShutdownPhase::Killing, KILL_INTERVAL);
            }
            _ => {}
        }
    }

    fn enter(&mut self, phase: ShutdownPhase, time: Duration) {
        self.phase = phase;
        self.until = Some(Instant::now() + time);
    }

    fn kill(&mut self) {
        self.give_up.get_or_insert_with(|| Instant::now() + KILL_TIMEOUT);
        self.tree.kill(self.main);
        self.enter(ShutdownPhase::Killing, KILL_INTERVAL);
    }

    /// Waits for a child to end, a word from the engine, or the end of a phase.
    fn poll(&mut self) -> io::Result<()> {
        let timeout = self.until.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let control = if self.parent_gone { PollFlags::empty() } else { PollFlags::IN };
        let mut files =
            [PollFd::new(&self.signals, PollFlags::IN), PollFd::from_borrowed_fd(self.control.as_fd(), control)];
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [signalled, spoken] = files.map(|file| !file.revents().is_empty());
        if signalled {
            self.drain_signals();
        }
        if spoken && !self.parent_gone {
            self.read_control();
        }
        Ok(())
    }

    fn drain_signals(&mut self) {
        let mut buffer = [0; 128];
        while let Ok(128) = rustix::io::read(&self.signals, &mut buffer) {
            let signal = i32::from_ne_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
            if signal != libc::SIGCHLD {
                self.kill();
            }
        }
    }

    /// Each byte is a signal for the tree. End of file means that Helve is gone: kill the tree.
    fn read_control(&mut self) {
        let mut buffer = [0; 64];
        match rustix::io::read(&self.control, &mut buffer) {
            Ok(count) if count > 0 => {
                for signal in &buffer[..count] {
                    match i32::from(*signal) {
                        libc::SIGKILL => self.kill(),
                        signal => self.tree.signal(self.main, signal),
                    }
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            _ => {
                self.parent_gone = true;
                self.kill();
            }
        }
    }
}
