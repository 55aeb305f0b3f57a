//! The one writer of an output: messages leave whole and in order, and the reader of input never waits for a client
//! that writes without reading.

use std::{
    fs::File,
    io::Write,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionread,
};

use crate::peer::Outbox;

/// What a pipe takes at once when it says that it takes anything.
const PIPE_BUF: usize = 4096;
/// What an empty pipe takes at once, and a socket that says that it takes anything.
const PIPE: usize = 64 << 10;
/// What may wait for a slow client; whoever has more to say waits with it.
const WAITING: usize = 64 << 20;

/// An output with a queue behind it. A message that fits into the pipe is written by the sender, for that is fastest;
/// any other is left to a thread.
pub(crate) struct Lane {
    to: File,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: Vec<Vec<u8>>,
    bytes: usize,
    /// The thread is writing what it took from the queue.
    writing: bool,
    has_thread: bool,
    broken: bool,
}

impl Lane {
    pub(crate) fn new(to: File) -> Arc<Self> {
        Arc::new(Self { to, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Whether the client is gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.lock().broken
    }

    /// Waits until everything is written, or the time is over.
    pub(crate) fn drain(&self, patience: Duration) {
        let state = self.lock();
        let _ = self.changed.wait_timeout_while(state, patience, |it| !it.broken && (it.writing || it.bytes > 0));
    }

    fn put(self: &Arc<Self>, mut message: Vec<u8>) {
        message.push(b'\n');
        let mut state = self.lock();
        while state.bytes > WAITING && !state.broken {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.broken {
            return;
        }
        if state.queue.is_empty() && !state.writing && self.takes(message.len()) {
            state.broken = (&self.to).write_all(&message).is_err();
            return;
        }
        state.bytes += message.len();
        state.queue.push(message);
        if !mem::replace(&mut state.has_thread, true) {
            let lane = self.clone();
            // Without a thread the sender writes, and waits for the client.
            if thread::Builder::new().name("mcp-out".into()).spawn(move || lane.work()).is_err() {
                state.has_thread = false;
                self.flush(state);
                return;
            }
        }
        self.changed.notify_all();
    }

    fn work(&self) {
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() && !state.broken {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.broken {
                return;
            }
            self.flush(state);
        }
    }

    /// Writes what waits, with the door open for more.
    fn flush(&self, mut state: MutexGuard<'_, State>) {
        let queue = mem::take(&mut state.queue);
        state.writing = true;
        drop(state);
        let mut to = &self.to;
        let broken = queue.iter().any(|message| to.write_all(message).is_err());
        let written: usize = queue.iter().map(Vec::len).sum();
        let mut state = self.lock();
        state.writing = false;
        state.bytes -= written;
        state.broken |= broken;
        self.changed.notify_all();
    }

    /// Whether a write of this length returns at once.
    fn takes(&self, length: usize) -> bool {
        let mut ask = [PollFd::new(&self.to, PollFlags::OUT)];
        let open = poll(&mut ask, Some(&Timespec::default())) == Ok(1);
        open && (length <= PIPE_BUF || (length <= PIPE && ioctl_fionread(&self.to) == Ok(0)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to a client over a lane.
pub(crate) struct Post(pub Arc<Lane>);

impl Outbox for Post {
    fn send(&self, message: Vec<u8>) {
        self.0.put(message);
    }
}
