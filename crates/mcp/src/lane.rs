//! The one writer of an output: messages leave whole and in order, and the reader of input never waits for a client
//! that writes without reading.

use std::{
    fs::File,
    io::Write,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionread,
    pipe::fcntl_setpipe_size,
};

use crate::peer::Outbox;

/// What a pipe takes at once when it says that it takes anything.
const PIPE_BUF: usize = 4096;
/// What an empty pipe takes at once, and a socket that says that it takes anything.
const PIPE: usize = 64 << 10;
/// What a pipe is made to take at most, once there is something that long to say.
const WIDEST: usize = 1 << 20;
/// How much is said in one go, and for how long it may be gathered.
const GATHERED: usize = 32 << 10;
const SOON: Duration = Duration::from_millis(1);
/// What may wait for a slow client; whoever has more to say waits with it.
const WAITING: usize = 64 << 20;

/// An output with a queue behind it. A message that fits into the pipe is written by the sender, for that is fastest;
/// any other is left to a thread.
pub(crate) struct Lane {
    to: File,
    /// What is done before messages leave.
    first: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    queue: Vec<Vec<u8>>,
    bytes: usize,
    /// What is said in one go with what comes next.
    gathered: Vec<u8>,
    /// Since when messages are gathered.
    since: Option<Instant>,
    /// What the pipe takes at once when it is empty.
    width: usize,
    /// The thread is writing what it took from the queue.
    writing: bool,
    has_thread: bool,
    broken: bool,
}

impl Lane {
    pub(crate) fn new(to: File, first: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let state = State {
            queue: Vec::new(),
            bytes: 0,
            gathered: Vec::new(),
            since: None,
            width: PIPE,
            writing: false,
            has_thread: false,
            broken: false,
        };
        Arc::new(Self { to, first: Box::new(first), state: Mutex::new(state), changed: Condvar::new() })
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

    /// Small messages may be said together from now on, because more will follow at once; or no longer.
    pub(crate) fn gather(self: &Arc<Self>, more_will_follow: bool) {
        let mut state = self.lock();
        let late = state.since.is_some_and(|it| it.elapsed() > SOON);
        if (late || !more_will_follow) && state.since.take().is_some() && !state.gathered.is_empty() {
            let gathered = mem::take(&mut state.gathered);
            self.leave(state, gathered);
        } else if more_will_follow {
            state.since.get_or_insert_with(Instant::now);
        }
    }

    fn put(self: &Arc<Self>, mut message: Vec<u8>) {
        message.push(b'\n');
        let mut state = self.lock();
        if state.since.is_some() && state.gathered.len() + message.len() <= GATHERED {
            state.gathered.extend(message);
            return;
        }
        if !state.gathered.is_empty() {
            state.gathered.extend(message);
            message = mem::take(&mut state.gathered);
        }
        self.leave(state, message);
    }

    /// Writes whole messages, or has them written.
    fn leave(self: &Arc<Self>, mut state: MutexGuard<'_, State>, message: Vec<u8>) {
        (self.first)();
        while state.bytes > WAITING && !state.broken {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.broken {
            return;
        }
        if state.queue.is_empty() && !state.writing && self.takes(message.len(), &mut state.width) {
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

    /// Whether a write of this length returns at once. A pipe that is too narrow for it is made wider where that is
    /// possible, so that no other thread has to wait for the client.
    fn takes(&self, length: usize, width: &mut usize) -> bool {
        let mut ask = [PollFd::new(&self.to, PollFlags::OUT)];
        if poll(&mut ask, Some(&Timespec::default())) != Ok(1) {
            return false;
        }
        if length <= PIPE_BUF {
            return true;
        }
        if length > *width && length <= WIDEST {
            *width = fcntl_setpipe_size(&self.to, length.next_power_of_two()).unwrap_or(*width).max(*width);
        }
        length <= *width && ioctl_fionread(&self.to) == Ok(0)
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

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::*;

    fn lane() -> (Arc<Lane>, io::PipeReader) {
        let (read, write) = io::pipe().unwrap();
        (Lane::new(File::from(std::os::fd::OwnedFd::from(write)), || {}), read)
    }

    /// What can be read at once.
    fn said(from: &mut io::PipeReader) -> String {
        let waiting = ioctl_fionread(&*from).unwrap() as usize;
        let mut bytes = vec![0; waiting];
        from.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn answers_to_many_questions_leave_together() {
        let (lane, mut client) = lane();
        lane.put(b"one".to_vec());
        assert_eq!(said(&mut client), "one\n");
        lane.gather(true);
        lane.put(b"two".to_vec());
        lane.put(b"three".to_vec());
        assert_eq!(said(&mut client), "");
        lane.gather(false);
        assert_eq!(said(&mut client), "two\nthree\n");
        lane.put(b"four".to_vec());
        assert_eq!(said(&mut client), "four\n");
    }

    #[test]
    fn a_long_one_takes_those_before_it_along() {
        let (lane, mut client) = lane();
        lane.gather(true);
        lane.put(b"one".to_vec());
        lane.put(vec![b'x'; GATHERED]);
        let all = said(&mut client);
        assert_eq!((&all[..5], all.len()), ("one\nx", GATHERED + 5));
    }

    #[test]
    fn a_pipe_is_made_as_wide_as_a_message() {
        let (lane, mut client) = lane();
        lane.put(vec![b'x'; 3 * PIPE]);
        assert_eq!(said(&mut client).len(), 3 * PIPE + 1);
        assert!(!lane.lock().has_thread, "nobody had to wait");
    }
}
