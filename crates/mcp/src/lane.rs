//! The single writer of an output: messages are written whole and in order, and the input reader never waits for a
//! slow client.

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

/// How much a writable pipe accepts at least.
const PIPE_BUF: usize = 4096;
/// What an empty pipe takes at once, and a socket that says that it takes anything.
const DEFAULT_PIPE_BYTES: usize = 64 << 10;
/// What a pipe is made to take at most, once there is something that long to say.
const MAX_PIPE_BYTES: usize = 1 << 20;
/// The maximum size and duration of a batch.
const MAX_BATCH_BYTES: usize = 32 << 10;
const MAX_BATCH_DELAY: Duration = Duration::from_millis(1);
/// The maximum queue for a slow client; senders wait beyond it.
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// An output with a queue. The sender writes a message that fits into the pipe, which is fastest; a thread writes
/// others.
pub(crate) struct MessageWriter {
    to: File,
    /// What is done before messages leave.
    before_write: Box<dyn Fn() + Send + Sync>,
    state: Mutex<WriterState>,
    changed: Condvar,
}

struct WriterState {
    queue: Vec<Vec<u8>>,
    bytes: usize,
    /// What is said in one go with what comes next.
    batch: Vec<u8>,
    /// Since when messages are gathered.
    since: Option<Instant>,
    /// What the pipe takes at once when it is empty.
    pipe_capacity: usize,
    /// The thread is writing what it took from the queue.
    writing: bool,
    has_thread: bool,
    broken: bool,
}

impl MessageWriter {
    pub(crate) fn new(to: File, first: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let state = WriterState {
            queue: Vec::new(),
            bytes: 0,
            batch: Vec::new(),
            since: None,
            pipe_capacity: DEFAULT_PIPE_BYTES,
            writing: false,
            has_thread: false,
            broken: false,
        };
        Arc::new(Self { to, before_write: Box::new(first), state: Mutex::new(state), changed: Condvar::new() })
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

    /// Enables or disables batching of small messages, when more follow immediately.
    pub(crate) fn set_batching(self: &Arc<Self>, more_will_follow: bool) {
        let mut state = self.lock();
        let late = state.since.is_some_and(|it| it.elapsed() > MAX_BATCH_DELAY);
        if (late || !more_will_follow) && state.since.take().is_some() && !state.batch.is_empty() {
            let gathered = mem::take(&mut state.batch);
            self.write_out(state, gathered);
        } else if more_will_follow {
            state.since.get_or_insert_with(Instant::now);
        }
    }

    fn enqueue(self: &Arc<Self>, mut message: Vec<u8>) {
        message.push(b'\n');
        let mut state = self.lock();
        if state.since.is_some() && state.batch.len() + message.len() <= MAX_BATCH_BYTES {
            state.batch.extend(message);
            return;
        }
        if !state.batch.is_empty() {
            state.batch.extend(message);
            message = mem::take(&mut state.batch);
        }
        self.write_out(state, message);
    }

    /// Writes whole messages, or has them written.
    fn write_out(self: &Arc<Self>, mut state: MutexGuard<'_, WriterState>, message: Vec<u8>) {
        (self.before_write)();
        while state.bytes > MAX_QUEUED_BYTES && !state.broken {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.broken {
            return;
        }
        if state.queue.is_empty() && !state.writing && self.fits_now(message.len(), &mut state.pipe_capacity) {
            state.broken = (&self.to).write_all(&message).is_err();
            return;
        }
        state.bytes += message.len();
        state.queue.push(message);
        if !mem::replace(&mut state.has_thread, true) {
            let lane = self.clone();
            // Without a thread the sender writes, and waits for the client.
            if thread::Builder::new().name("mcp-out".into()).spawn(move || lane.writer_loop()).is_err() {
                state.has_thread = false;
                self.flush(state);
                return;
            }
        }
        self.changed.notify_all();
    }

    fn writer_loop(&self) {
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

    /// Writes the queue, while it accepts more.
    fn flush(&self, mut state: MutexGuard<'_, WriterState>) {
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

    /// Whether a write of this length returns immediately. Enlarges the pipe if possible.
    fn fits_now(&self, length: usize, width: &mut usize) -> bool {
        let mut ask = [PollFd::new(&self.to, PollFlags::OUT)];
        if poll(&mut ask, Some(&Timespec::default())) != Ok(1) {
            return false;
        }
        if length <= PIPE_BUF {
            return true;
        }
        if length > *width && length <= MAX_PIPE_BYTES {
            *width = fcntl_setpipe_size(&self.to, length.next_power_of_two()).unwrap_or(*width).max(*width);
        }
        length <= *width && ioctl_fionread(&self.to) == Ok(0)
    }

    fn lock(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to a client over a lane.
pub(crate) struct WriterOutbox(pub Arc<MessageWriter>);

impl Outbox for WriterOutbox {
    fn send(&self, message: Vec<u8>) {
        self.0.enqueue(message);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::*;

    fn lane() -> (Arc<MessageWriter>, io::PipeReader) {
        let (read, write) = io::pipe().unwrap();
        (MessageWriter::new(File::from(std::os::fd::OwnedFd::from(write)), || {}), read)
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
        lane.enqueue(b"one".to_vec());
        assert_eq!(said(&mut client), "one\n");
        lane.set_batching(true);
        lane.enqueue(b"two".to_vec());
        lane.enqueue(b"three".to_vec());
        assert_eq!(said(&mut client), "");
        lane.set_batching(false);
        assert_eq!(said(&mut client), "two\nthree\n");
        lane.enqueue(b"four".to_vec());
        assert_eq!(said(&mut client), "four\n");
    }

    #[test]
    fn a_long_one_takes_those_before_it_along() {
        let (lane, mut client) = lane();
        lane.set_batching(true);
        lane.enqueue(b"one".to_vec());
        lane.enqueue(vec![b'x'; MAX_BATCH_BYTES]);
        let all = said(&mut client);
        assert_eq!((&all[..5], all.len()), ("one\nx", MAX_BATCH_BYTES + 5));
    }

    #[test]
    fn a_pipe_is_made_as_wide_as_a_message() {
        let (lane, mut client) = lane();
        lane.enqueue(vec![b'x'; 3 * DEFAULT_PIPE_BYTES]);
        assert_eq!(said(&mut client).len(), 3 * DEFAULT_PIPE_BYTES + 1);
        assert!(!lane.lock().has_thread, "nobody had to wait");
    }
}
