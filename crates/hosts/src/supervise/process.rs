//! A running command, seen from the engine.

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
    ports::{Exit, Level, Noticed, Process, Signal},
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
    cgroup::killed_for_memory,
    launch::{Kept, Launch, Wires},
    plan::{ENDED, Tree},
    sys,
    warden::Born,
};
use crate::sandbox::{Check, Denials};

/// The most that is read at once.
const PIECE: usize = 64 << 10;
/// The most that waits for a program to read it.
const MOST_TYPED: usize = 4 << 20;
/// How long the end of a command is waited for that nobody needs any more.
const PATIENCE: Duration = Duration::from_secs(5);
/// After the end: how long a pipe that somebody still holds is listened to.
const DRAIN: Duration = Duration::from_millis(300);

/// A command and the files that lead to it. Dropping it ends the command with all that it started.
pub(crate) struct Running {
    pub(super) control: UnixStream,
    handle: Arc<OwnedFd>,
    parting: Option<Parting>,
    out: Option<Receiver>,
    err: Option<Receiver>,
    terminal: Option<Waiting<AsyncFd<OwnedFd>>>,
    input: Option<Waiting<Sender>>,
    /// Close the input when all of it has been taken.
    closing: bool,
    level: Level,
    tree: Tree,
    cgroup: Option<Arc<Cgroup>>,
    word: Vec<u8>,
    denials: Denials,
    /// Both streams come through `out`.
    merged: bool,
    /// To be done when all has ended.
    check: Option<Check>,
    /// The group that holds the memory of all commands, and how often it killed before.
    shared: Option<(u64, Arc<Path>)>,
    out_of_memory: bool,
    end: Option<Exit>,
    told: bool,
}

/// What is to be done when the stage is gone.
pub(super) struct Parting {
    /// Let go of then.
    pub(super) keep: Kept,
    /// Comes when that has been done.
    pub(super) gone: oneshot::Receiver<()>,
}

impl Parting {
    /// Lets go of everything. Where all that was started is known to have ended nobody need wait for the stage, which has
    /// nothing left to do.
    async fn meet(self, all_ended: bool) {
        if all_ended {
            self.keep.let_go();
        } else {
            _ = timeout(Duration::from_secs(1), self.gone).await;
        }
    }
}

/// A way to the program, and what was written to it and has not been taken yet.
struct Waiting<T> {
    open: T,
    bytes: VecDeque<u8>,
}

impl<T> Waiting<T> {
    fn at(open: T) -> Self {
        Self { open, bytes: VecDeque::new() }
    }
}

impl Running {
    pub(super) fn new(wires: Wires, born: Born, parting: Parting, launch: &mut Launch) -> io::Result<Self> {
        let terminal = wires.terminal.map(sys::watched).transpose()?.map(Waiting::at);
        Ok(Self {
            control: UnixStream::from_std(wires.control)?,
            handle: born.handle,
            shared: born.memory.map(|dir| (killed_for_memory(&dir), dir)),
            parting: Some(parting),
            out: Some(Receiver::from_owned_fd(wires.out)?),
            err: Some(Receiver::from_owned_fd(wires.err)?),
            terminal,
            input: wires.input.map(Sender::from_owned_fd).transpose()?.map(Waiting::at),
            closing: false,
            out_of_memory: false,
            level: launch.level,
            tree: launch.plan.tree,
            cgroup: launch.cgroup.take(),
            word: Vec::new(),
            denials: Denials::of(launch),
            merged: launch.plan.merged,
            check: launch.check.take(),
            end: None,
            told: false,
        })
    }

    /// Moves the stage into its control group, before it has started anything.
    pub(super) fn join_cgroup(&mut self) -> Result<()> {
        let Some(group) = &self.cgroup else { return Ok(()) };
        group.take_in(self.handle.as_raw_fd()).map_err(|error| {
            Error::Internal(anyhow::Error::new(error).context("putting a command into its control group"))
        })
    }

    /// What the outer sandbox had to say when it failed.
    pub(super) async fn last_words(&mut self) -> String {
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

    /// Keeps text for the terminal, and the end of input after it.
    pub(super) fn type_in(&mut self, bytes: Vec<u8>) {
        if let Some(terminal) = &mut self.terminal {
            terminal.bytes.extend(bytes);
            terminal.bytes.extend(b"\x04");
        }
    }

    /// One step: a piece of output, or nothing yet.
    async fn step(&mut self) -> Option<Noticed> {
        let done = self.end.is_some();
        tokio::select! {
            piece = read(&mut self.err), if self.err.is_some() => {
                self.denials.read(&piece);
                (!piece.is_empty()).then_some(Noticed::Stderr(piece))
            }
            piece = read(&mut self.out), if self.out.is_some() => {
                if self.merged {
                    self.denials.read(&piece);
                }
                (!piece.is_empty()).then_some(Noticed::Stdout(piece))
            }
            piece = screen(&mut self.terminal), if self.terminal.is_some() => {
                self.denials.read(&piece);
                (!piece.is_empty()).then_some(Noticed::Stdout(piece))
            }
            () = feed(&mut self.input), if self.input.as_ref().is_some_and(|input| !input.bytes.is_empty()) => {
                if self.closing && self.input.as_ref().is_some_and(|input| input.bytes.is_empty()) {
                    self.input = None;
                }
                None
            }
            () = listen(&self.control, &mut self.word), if !done => {
                self.end = Some(self.ending());
                None
            }
            () = sleep(DRAIN), if done => {
                (self.out, self.err, self.terminal) = (None, None, None);
                None
            }
        }
    }

    /// How it ended: as the stage has said, or as one that is gone.
    fn ending(&self) -> Exit {
        // Only somebody who kills the stage from outside can keep it from its last word.
        let &[ENDED, a, b, c, d, left, _, _, ref dir @ ..] = &self.word[..] else {
            return Exit { code: 137, signal: Some(libc::SIGKILL), left_behind: false, denials: Vec::new(), dir: None };
        };
        let status = ExitStatus::from_raw(i32::from_le_bytes([a, b, c, d]));
        let signal = status.signal();
        let code = status.code().unwrap_or_else(|| 128 + signal.unwrap_or(0));
        let dir = (!dir.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(dir)));
        Exit { code, signal, left_behind: left != 0, denials: Vec::new(), dir }
    }
}

/// Reads a piece; empty at the end, and then the pipe is closed.
async fn read(pipe: &mut Option<Receiver>) -> Vec<u8> {
    let Some(open) = pipe else { return Vec::new() };
    loop {
        _ = open.readable().await;
        let mut piece = vec![0; PIECE];
        match open.try_read(&mut piece) {
            Ok(count) if count > 0 => {
                piece.truncate(count);
                // A byte at a time must not cost a page each while it waits to be taken.
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
async fn feed(input: &mut Option<Waiting<Sender>>) {
    let Some(Waiting { open, bytes }) = input else { return };
    _ = open.writable().await;
    match open.try_write(bytes.as_slices().0) {
        Ok(count) => _ = bytes.drain(..count),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(_) => *input = None,
    }
}

/// Reads a piece of what a terminal shows, and types what is waiting meanwhile.
async fn screen(terminal: &mut Option<Waiting<AsyncFd<OwnedFd>>>) -> Vec<u8> {
    let Some(Waiting { open, bytes: typed }) = terminal else { return Vec::new() };
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
            let mut piece = vec![0; PIECE];
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

/// Collects the stage's last word. A stage that went without one leaves a word that is too short.
async fn listen(control: &UnixStream, word: &mut Vec<u8>) {
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
impl Process for Running {
    async fn next(&mut self) -> Noticed {
        while self.out.is_some() || self.err.is_some() || self.terminal.is_some() || self.end.is_none() {
            if let Some(noticed) = self.step().await {
                return noticed;
            }
        }
        // The stage buries all of the command before its last word. What it had to kill may be on its way out still, and a
        // group cannot be removed while the stage is in it.
        let all_ended =
            self.cgroup.is_none() && self.end.as_ref().is_some_and(|end| !end.left_behind && !self.word.is_empty());
        self.out_of_memory |= self.cgroup.take().is_some_and(|group| group.ran_out_of_memory());
        self.out_of_memory |= self.shared.take().is_some_and(|(before, dir)| killed_for_memory(&dir) > before);
        if let Some(parting) = self.parting.take() {
            parting.meet(all_ended).await;
        }
        let found = match self.check.take() {
            Some(check) => check.finish().await,
            None => Vec::new(),
        };
        match &mut self.end {
            Some(exit) => {
                if !self.told {
                    exit.denials = self.denials.told(self.out_of_memory);
                    exit.denials.extend(found);
                    self.told = true;
                }
                Noticed::Exit(exit.clone())
            }
            None => {
                Noticed::Exit(Exit { code: 137, signal: Some(9), left_behind: false, denials: Vec::new(), dir: None })
            }
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
        // Waiting for the program to read could wait for ever: it may be waiting for its output to be read.
        if waiting.len() + bytes.len() > MOST_TYPED {
            return Err(Error::failed("the program does not read its input; wait until it does, or end it"));
        }
        waiting.extend(bytes);
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
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
                // A stage that is gone has ended its tree already.
                _ => return Ok(()),
            }
        }
    }

    fn level(&self) -> Level {
        self.level
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Without a namespace the stage must live to end the tree; it does so when its socket closes.
        if self.tree == Tree::Namespace && self.end.is_none() {
            _ = pidfd_send_signal(&*self.handle, RawSignal::KILL);
        }
        if let (Some(check), Some(parting)) = (self.check.take(), self.parting.take()) {
            check.after(async move { _ = timeout(PATIENCE, parting.gone).await });
        }
    }
}
