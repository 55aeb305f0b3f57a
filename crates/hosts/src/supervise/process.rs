//! The parent's handle of a running command: output, input, signals and exit.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use helve_contract::{
    Error, Result,
    ports::{Process, ProcessEvent, ProcessExit, SandboxLevel, Signal},
};
use rustix::process::{Signal as RawSignal, pidfd_send_signal};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::{
        UnixStream,
        unix::pipe::{Receiver, Sender},
    },
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{
    Cgroup,
    cgroup::oom_kill_count,
    launch::{HelperPipes, Launch, SharedCleanup},
    plan::{MSG_EXITED, TreeTracking},
    sys,
    warden::SpawnedHelper,
};
use crate::sandbox::{Check, DenialDetector};

/// The most that is read at once.
const READ_CHUNK_BYTES: usize = 64 << 10;
/// The most that waits for a program to read it.
const MAX_PENDING_INPUT: usize = 4 << 20;
/// How long the end of an abandoned command is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a pipe that another process holds is read after the exit.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

/// A running command. Dropping it ends the command and its descendants.
pub(crate) struct SupervisedProcess {
    pub(super) control: UnixStream,
    handle: Arc<OwnedFd>,
    cleanup: Option<ExitCleanup>,
    out: Option<Receiver>,
    err: Option<Receiver>,
    terminal: Option<BufferedWriter<AsyncFd<OwnedFd>>>,
    input: Option<BufferedWriter<Sender>>,
    /// Close the input when all of it has been taken.
    closing: bool,
    level: SandboxLevel,
    tree: TreeTracking,
    cgroup: Option<Arc<Cgroup>>,
    status_message: Vec<u8>,
    denials: DenialDetector,
    /// Both streams come through `out`.
    merged: bool,
    /// To be done when all has ended.
    check: Option<Check>,
    /// The cgroup with the memory of all commands, and its earlier OOM kills.
    shared: Option<(u64, Arc<Path>)>,
    out_of_memory: bool,
    end: Option<ProcessExit>,
    exit_reported: bool,
}

/// What is to be done when the init helper is gone.
pub(super) struct ExitCleanup {
    /// Let go of then.
    pub(super) keep: SharedCleanup,
    /// Comes when that has been done.
    pub(super) gone: oneshot::Receiver<()>,
}

impl ExitCleanup {
    /// Releases everything. If all processes have ended, nothing waits for the helper to exit.
    async fn wait(self, all_ended: bool) {
        if all_ended {
            self.keep.release();
        } else {
            _ = timeout(Duration::from_secs(1), self.gone).await;
        }
    }
}

/// A way to the program, and what was written to it and has not been taken yet.
struct BufferedWriter<T> {
    open: T,
    bytes: VecDeque<u8>,
}

impl<T> BufferedWriter<T> {
    fn at(open: T) -> Self {
        Self { open, bytes: VecDeque::new() }
    }
}

impl SupervisedProcess {
    pub(super) fn new(
        wires: HelperPipes,
        born: SpawnedHelper,
        parting: ExitCleanup,
        launch: &mut Launch,
    ) -> io::Result<Self> {
        let terminal = wires.terminal.map(sys::async_fd).transpose()?.map(BufferedWriter::at);
        Ok(Self {
            control: UnixStream::from_std(wires.control)?,
            handle: born.handle,
            shared: born.memory.map(|dir| (oom_kill_count(&dir), dir)),
            cleanup: Some(parting),
            out: Some(Receiver::from_owned_fd(wires.out)?),
            err: Some(Receiver::from_owned_fd(wires.err)?),
            terminal,
            input: wires.input.map(Sender::from_owned_fd).transpose()?.map(BufferedWriter::at),
            closing: false,
            out_of_memory: false,
            level: launch.level,
            tree: launch.plan.tree,
            cgroup: launch.cgroup.take(),
            status_message: Vec::new(),
            denials: DenialDetector::of(launch),
            merged: launch.plan.merged,
            check: launch.check.take(),
            end: None,
            exit_reported: false,
        })
    }

    /// Moves the init helper into its control group, before it has started anything.
    pub(super) fn join_cgroup(&mut self) -> Result<()> {
        let Some(group) = &self.cgroup else { return Ok(()) };
        group.add_process(self.handle.as_raw_fd()).map_err(|error| {
            Error::Internal(anyhow::Error::new(error).context("putting a command into its control group"))
        })
    }

    /// The error output of the outer sandbox after a failed start.
    pub(super) async fn startup_stderr(&mut self) -> String {
        let mut text = Vec::new();
        let all = async {
            while let Some(err) = &self.err {
                _ = err.readable().await;
                match err.try_read_buf(&mut text) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Ok(count) if count > 0 && text.len() < 4096 => {}
                    _ => break,
                }
            }
        };
        _ = timeout(Duration::from_secs(1), all).await;
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        if text.is_empty() { "it ended without a word".to_owned() } else { text }
    }

    /// Queues text for the terminal, followed by the end of input.
    pub(super) fn queue_input(&mut self, bytes: Vec<u8>) {
        if let Some(terminal) = &mut self.terminal {
            terminal.bytes.extend(bytes);
            terminal.bytes.extend(b"\x04");
        }
    }

    /// One step: a piece of output, or nothing yet.
    async fn step(&mut self) -> Option<ProcessEvent> {
        let done = self.end.is_some();
        tokio::select! {
            piece = read(&mut self.err), if self.err.is_some() => {
                self.denials.feed(&piece);
                (!piece.is_empty()).then_some(ProcessEvent::Stderr(piece))
            }
            piece = read(&mut self.out), if self.out.is_some() => {
                if self.merged {
                    self.denials.feed(&piece);
                }
                (!piece.is_empty()).then_some(ProcessEvent::Stdout(piece))
            }
            piece = read_terminal(&mut self.terminal), if self.terminal.is_some() => {
                self.denials.feed(&piece);
                (!piece.is_empty()).then_some(ProcessEvent::Stdout(piece))
            }
            () = flush_input(&mut self.input), if self.input.as_ref().is_some_and(|input| !input.bytes.is_empty()) => {
                if self.closing && self.input.as_ref().is_some_and(|input| input.bytes.is_empty()) {
                    self.input = None;
                }
                None
            }
            () = read_status(&self.control, &mut self.status_message), if !done => {
                self.end = Some(self.exit_status());
                None
            }
            () = sleep(DRAIN_TIMEOUT), if done => {
                (self.out, self.err, self.terminal) = (None, None, None);
                None
            }
        }
    }

    /// The exit status: from the helper's message, or unknown if it is gone.
    fn exit_status(&self) -> ProcessExit {
        // Only an external kill of the helper can prevent its final message.
        let &[MSG_EXITED, a, b, c, d, left, _, _, ref dir @ ..] = &self.status_message[..] else {
            return ProcessExit {
                code: 137,
                signal: Some(libc::SIGKILL),
                left_behind: false,
                denials: Vec::new(),
                dir: None,
            };
        };
        let status = ExitStatus::from_raw(i32::from_le_bytes([a, b, c, d]));
        let signal = status.signal();
        let code = status.code().unwrap_or_else(|| 128 + signal.unwrap_or(0));
        let dir = (!dir.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(dir)));
        ProcessExit { code, signal, left_behind: left != 0, denials: Vec::new(), dir }
    }
}

/// Reads a piece; empty at the end, and then the pipe is closed.
async fn read(pipe: &mut Option<Receiver>) -> Vec<u8> {
    let Some(open) = pipe else { return Vec::new() };
    loop {
        _ = open.readable().await;
        let mut piece = vec![0; READ_CHUNK_BYTES];
        match open.try_read(&mut piece) {
            Ok(count) if count > 0 => {
                piece.truncate(count);
                // Single bytes must not keep a whole buffer each while they are queued.
                piece.shrink_to_fit();
                return piece;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => {
                *pipe = None;
                return Vec::new();
            }
        }
    }
}

/// Writes some of what waits for the input. A program that has closed it gets none.
async fn flush_input(input: &mut Option<BufferedWriter<Sender>>) {
    let Some(BufferedWriter { open, bytes }) = input else { return };
    _ = open.writable().await;
    match open.try_write(bytes.as_slices().0) {
        Ok(count) => _ = bytes.drain(..count),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(_) => *input = None,
    }
}

/// Reads a piece of what a terminal shows, and types what is waiting meanwhile.
async fn read_terminal(terminal: &mut Option<BufferedWriter<AsyncFd<OwnedFd>>>) -> Vec<u8> {
    let Some(BufferedWriter { open, bytes: typed }) = terminal else { return Vec::new() };
    let interest = |typed: &VecDeque<u8>| {
        if typed.is_empty() { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE }
    };
    loop {
        let Ok(mut ready) = open.ready(interest(typed)).await else { break };
        if ready.ready().is_writable() && !typed.is_empty() {
            match ready.try_io(|file| Ok(rustix::io::write(file, typed.as_slices().0)?)) {
                Ok(Ok(count)) => _ = typed.drain(..count),
                Ok(Err(_)) => typed.clear(),
                Err(_) => {}
            }
        }
        if ready.ready().is_readable() || ready.ready().is_read_closed() {
            let mut piece = vec![0; READ_CHUNK_BYTES];
            match ready.try_io(|file| Ok(rustix::io::read(file, &mut piece)?)) {
                Ok(Ok(count)) if count > 0 => {
                    piece.truncate(count);
                    return piece;
                }
                // The kernel says EIO when the last program has let go of the terminal.
                Ok(_) => break,
                Err(_) => {}
            }
        }
    }
    *terminal = None;
    Vec::new()
}

/// Reads the helper's final message. A helper that died leaves an incomplete one.
async fn read_status(control: &UnixStream, word: &mut Vec<u8>) {
    loop {
        _ = control.readable().await;
        let mut piece = [0; 512];
        match control.try_read(&mut piece) {
            Ok(count) if count > 0 => {
                word.extend(&piece[..count]);
                if let [_, _, _, _, _, _, a, b, dir @ ..] = &word[..]
                    && dir.len() >= usize::from(u16::from_le_bytes([*a, *b]))
                {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => {
                word.clear();
                return;
            }
        }
    }
}

#[async_trait]
impl Process for SupervisedProcess {
    async fn next(&mut self) -> ProcessEvent {
        while self.out.is_some() || self.err.is_some() || self.terminal.is_some() || self.end.is_none() {
            if let Some(noticed) = self.step().await {
                return noticed;
            }
        }
        // The helper reaps the whole command before its final message. Killed processes may still be exiting, and a
        // cgroup cannot be removed while the helper is in it.
        let all_ended = self.cgroup.is_none()
            && self.end.as_ref().is_some_and(|end| !end.left_behind && !self.status_message.is_empty());
        self.out_of_memory |= self.cgroup.take().is_some_and(|group| group.ran_out_of_memory());
        self.out_of_memory |= self.shared.take().is_some_and(|(before, dir)| oom_kill_count(&dir) > before);
        if let Some(parting) = self.cleanup.take() {
            parting.wait(all_ended).await;
        }
        let found = match self.check.take() {
            Some(check) => check.finish().await,
            None => Vec::new(),
        };
        match &mut self.end {
            Some(exit) => {
                if !self.exit_reported {
                    exit.denials = self.denials.messages(self.out_of_memory);
                    exit.denials.extend(found);
                    self.exit_reported = true;
                }
                ProcessEvent::Exit(exit.clone())
            }
            None => ProcessEvent::Exit(ProcessExit {
                code: 137,
                signal: Some(9),
                left_behind: false,
                denials: Vec::new(),
                dir: None,
            }),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.end.is_some() {
            return Err(Error::failed("the program has ended; nothing reads its input any more"));
        }
        let waiting = match (&mut self.terminal, &mut self.input) {
            (Some(terminal), _) if !self.closing => &mut terminal.bytes,
            (None, Some(input)) if !self.closing => &mut input.bytes,
            _ => return Err(Error::failed("the program's input is closed; start it with its input kept open")),
        };
        // Waiting for the program to read could deadlock: it may wait for its output to be read.
        if waiting.len() + bytes.len() > MAX_PENDING_INPUT {
            return Err(Error::failed("the program does not read its input; wait until it does, or end it"));
        }
        waiting.extend(bytes);
        Ok(())
    }

    async fn close_stdin(&mut self) -> Result<()> {
        match (&mut self.terminal, &self.input) {
            (Some(terminal), _) if !self.closing => terminal.bytes.extend(b"\x04"),
            (None, Some(input)) if input.bytes.is_empty() => self.input = None,
            _ => {}
        }
        self.closing = true;
        Ok(())
    }

    async fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.end.is_some() {
            return Ok(());
        }
        let number = match signal {
            Signal::Interrupt => libc::SIGINT,
            Signal::Terminate => libc::SIGTERM,
            Signal::Kill => libc::SIGKILL,
            Signal::HangUp => libc::SIGHUP,
            Signal::Quit => libc::SIGQUIT,
            Signal::Stop => libc::SIGSTOP,
            Signal::Continue => libc::SIGCONT,
            Signal::User1 => libc::SIGUSR1,
            Signal::User2 => libc::SIGUSR2,
        };
        loop {
            _ = self.control.writable().await;
            match self.control.try_write(&[number as u8]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A helper that is gone has already ended its tree.
                _ => return Ok(()),
            }
        }
    }

    fn sandbox_level(&self) -> SandboxLevel {
        self.level
    }
}

impl Drop for SupervisedProcess {
    fn drop(&mut self) {
        // Without a namespace the helper must live to end the tree; it does so when its socket closes.
        if self.tree == TreeTracking::Namespace && self.end.is_none() {
            _ = pidfd_send_signal(&*self.handle, RawSignal::KILL);
        }
        if let (Some(check), Some(parting)) = (self.check.take(), self.cleanup.take()) {
            check.after(async move { _ = timeout(PATIENCE, parting.gone).await });
        }
    }
}
