//! The stage: first process inside the walls, parent of the command, and the one that turns off the lights.

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
    child::{self, Sent},
    dir,
    finish::finish,
    forward::Forwarder,
    leash::{self, LEASH},
    notify::{self, Notifier},
    own::stage_edition,
    plan::{ENDED, FAILED, FILES, HELLO, MARKER, Plan, STARTED, Tree},
    sys::{self, Forked},
    tree::{Reaped, reap},
};

/// How long what a command left running may take to end by itself.
const LINGER: Duration = Duration::from_millis(500);
/// How long it may take after SIGTERM.
const LAST_CHANCE: Duration = Duration::from_millis(200);
/// How long to go on killing what does not die (a process that hangs in the kernel).
const PATIENCE: Duration = Duration::from_secs(2);
/// How often to kill again what forks faster than it dies.
const AGAIN: Duration = Duration::from_millis(20);

/// Takes over when this process was started as the stage of a sandbox or as a leash, and then never returns.
///
/// Call it first thing in `main`, before any thread exists and before arguments are read.
pub fn inner_stage() {
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    let (ran, part) = match first.as_deref() {
        Some(first) if first == MARKER => (run(args), "inner stage of the sandbox"),
        Some(first) if first == LEASH => (leash::hold(args), "leash of a program"),
        _ => return leash::KNOWN.store(true, Ordering::Relaxed),
    };
    sys::leave(ran.unwrap_or_else(|error| {
        eprintln!("the {part} failed: {error}");
        125
    }))
}

fn run(mut args: impl Iterator<Item = OsString>) -> io::Result<i32> {
    sys::close_inherited()?;
    if args.next().is_none_or(|edition| edition != stage_edition().as_str()) {
        return Err(io::Error::other("it is of another version than the engine; start the engine again"));
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let signals = sys::hold_signals(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
    let mut control = File::from(sys::standard(0));
    // The engine may want to know that the stage is there before it tells it anything.
    control.write_all(&[HELLO])?;
    let Some((plan, mut sent)) = receive(&control)? else { return Ok(0) };
    if let Err(error) = close_walls(&plan, &mut sent) {
        return refuse(&mut control, &error);
    }
    let forwarder = match plan.forward.as_ref().map(Forwarder::bind).transpose() {
        Ok(forwarder) => forwarder,
        Err(error) => return refuse(&mut control, &error),
    };
    if plan.tree == Tree::Walk {
        set_child_subreaper(Some(getpid()))?;
    }
    if let Some((path, text)) = &plan.home_file
        && let Ok(mut file) = File::create_new(path)
    {
        // A convenience: a command that misses it says so itself.
        _ = file.write_all(text.as_bytes());
    }
    let (tell, told) = dir::ways(&plan)?;
    let (main, notifier) = match start(&plan, sent, tell)? {
        Ok(started) => started,
        Err(error) => return refuse(&mut control, &error),
    };
    // Threads may be made only now: nothing forks any more.
    if let Some(forwarder) = forwarder {
        forwarder.start()?;
    }
    if let Some(notifier) = notifier {
        notifier.start()?;
    }
    control.write_all(&[STARTED])?;
    let (status, left) =
        Watch::over(main, plan.tree, control.as_fd().try_clone_to_owned()?, signals).until_the_end()?;
    let mut end = vec![ENDED];
    end.extend(status.as_raw().to_le_bytes());
    end.push(u8::from(left));
    let dir = told.map(dir::read).unwrap_or_default();
    end.extend((dir.len() as u16).to_le_bytes());
    end.extend(dir);
    // An engine that is gone needs no answer.
    _ = control.write_all(&end);
    Ok(0)
}

fn refuse(control: &mut File, error: &str) -> io::Result<i32> {
    let mut text = vec![FAILED];
    text.extend((error.len() as u32).to_le_bytes());
    text.extend(error.as_bytes());
    control.write_all(&text)?;
    Ok(125)
}

/// The plan and the files that came with it; nothing when the engine went away first.
fn receive(control: &File) -> io::Result<Option<(Plan, Vec<OwnedFd>)>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
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

/// Finishes the outer walls where that is left to the stage. Inside namespaces every capability must be gone then; without
/// them the child gives its own up.
fn close_walls(plan: &Plan, sent: &mut Vec<OwnedFd>) -> Result<(), String> {
    if plan.tree == Tree::Walk {
        return Ok(());
    }
    if let Some(last) = &plan.last {
        let proc = (!sent.is_empty()).then(|| sent.remove(0)).ok_or("the way to /proc did not come with the plan")?;
        finish(last, &proc)?;
    }
    let have = rustix::thread::capabilities(None).map_err(|error| format!("cannot read capabilities: {error}"))?;
    if have.effective.is_empty() && have.permitted.is_empty() {
        return Ok(());
    }
    Err("the sandbox left capabilities to its inside; nothing was run".to_owned())
}

/// Runs the command as a child; its id and who answers its notifications, or why it could not be started.
fn start(
    plan: &Plan,
    sent: Vec<OwnedFd>,
    tell: Option<dir::Tell>,
) -> io::Result<Result<(i32, Option<Notifier>), String>> {
    let sent = Sent::with(plan, sent);
    let supervised = plan.walls.as_ref().filter(|walls| walls.needs_supervisor());
    let (mut read, write) = io::pipe()?;
    let (ours, theirs) = supervised.map(|_| notify::channel()).transpose()?.unzip();
    match sys::fork()? {
        Forked::Child => {
            drop((read, ours));
            let error = child::become_command(plan, sent, tell, theirs);
            _ = (&write).write_all(error.as_bytes());
            sys::leave(125)
        }
        Forked::Parent(pid) => {
            drop((write, sent, tell, theirs));
            // What the command writes ends when the command ends, not when the stage does.
            let null = File::options().read(true).write(true).open("/dev/null")?;
            sys::place(&null, 1)?;
            sys::place(&null, 2)?;
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

/// What the stage is waiting for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The command to end.
    Running,
    /// What it left behind to end by itself.
    Lingering,
    /// The same, after SIGTERM.
    Asked,
    /// Everything to die.
    Killing,
}

/// Waits for a command to end, and sees to it that nothing of it stays.
pub(super) struct Watch {
    main: i32,
    tree: Tree,
    control: OwnedFd,
    signals: OwnedFd,
    ended: Option<WaitStatus>,
    phase: Phase,
    until: Option<Instant>,
    give_up: Option<Instant>,
    left: bool,
    engine_gone: bool,
}

impl Watch {
    pub(super) fn over(main: i32, tree: Tree, control: OwnedFd, signals: OwnedFd) -> Self {
        Self {
            main,
            tree,
            control,
            signals,
            ended: None,
            phase: Phase::Running,
            until: None,
            give_up: None,
            left: false,
            engine_gone: false,
        }
    }

    /// How it ended, and whether something of it had to be ended.
    pub(super) fn until_the_end(mut self) -> io::Result<(WaitStatus, bool)> {
        loop {
            let empty = self.bury();
            if let Some(status) = self.ended
                && (empty || self.give_up.is_some_and(|at| at <= Instant::now()))
            {
                return Ok((status, self.left));
            }
            if empty || (self.engine_gone && self.give_up.is_some_and(|at| at <= Instant::now())) {
                // The command was reaped by somebody else, which only a tracer can do, or cannot be killed.
                return Err(io::Error::other("the command was lost"));
            }
            self.advance();
            self.listen()?;
        }
    }

    /// Buries all that has ended; says whether nothing is left.
    fn bury(&mut self) -> bool {
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
            Phase::Running if self.ended.is_some() => self.enter(Phase::Lingering, LINGER),
            Phase::Lingering if due => {
                self.left = true;
                self.tree.signal(self.main, libc::SIGTERM);
                self.enter(Phase::Asked, LAST_CHANCE);
            }
            Phase::Asked if due => self.kill(),
            Phase::Killing if due => {
                self.tree.kill(self.main);
                self.enter(Phase::Killing, AGAIN);
            }
            _ => {}
        }
    }

    fn enter(&mut self, phase: Phase, time: Duration) {
        self.phase = phase;
        self.until = Some(Instant::now() + time);
    }

    fn kill(&mut self) {
        self.give_up.get_or_insert_with(|| Instant::now() + PATIENCE);
        self.tree.kill(self.main);
        self.enter(Phase::Killing, AGAIN);
    }

    /// Waits for a child to end, a word from the engine, or the end of a phase.
    fn listen(&mut self) -> io::Result<()> {
        let timeout = self.until.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let control = if self.engine_gone { PollFlags::empty() } else { PollFlags::IN };
        let mut files =
            [PollFd::new(&self.signals, PollFlags::IN), PollFd::from_borrowed_fd(self.control.as_fd(), control)];
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [signalled, spoken] = files.map(|file| !file.revents().is_empty());
        if signalled {
            self.hear_signals();
        }
        if spoken && !self.engine_gone {
            self.hear_engine();
        }
        Ok(())
    }

    fn hear_signals(&mut self) {
        let mut buffer = [0; 128];
        while let Ok(128) = rustix::io::read(&self.signals, &mut buffer) {
            let signal = i32::from_ne_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
            if signal != libc::SIGCHLD {
                self.kill();
            }
        }
    }

    /// Each byte is a signal for the tree. No more bytes: the engine is gone, and so goes the tree.
    fn hear_engine(&mut self) {
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
                self.engine_gone = true;
                self.kill();
            }
        }
    }
}
