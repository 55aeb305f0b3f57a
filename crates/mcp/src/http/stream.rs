//! One event stream to a client: ordered and resumable.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{runtime::Handle, sync::watch, time::sleep};

use crate::{
    peer::{Outbox, Peer},
    wire::RequestId,
};

/// What is kept to be told again.
const RESUME_BUFFER_BYTES: usize = 1 << 20;
/// The maximum number of unread bytes. More is dropped, except answers.
const MAX_UNREAD_BYTES: usize = 8 << 20;
/// Sends a comment regularly, so that intermediaries keep the connection open.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The reconnect delay for clients, in milliseconds.
const RETRY_MS: u32 = 1000;

/// How a stream is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamMode {
    /// Without ids: a lost stream cannot be resumed.
    Unnumbered,
    /// With ids: a lost stream can be resumed.
    Numbered,
    /// With ids and an empty first event, so that there is an id from the start.
    Primed,
}

/// What a stream answers, and how to give up on it.
pub(crate) struct StreamRequest {
    pub(crate) peer: Arc<Peer>,
    pub(crate) ids: Vec<RequestId>,
    /// How long to wait for a client that may come back.
    pub(crate) grace: Duration,
}

impl StreamRequest {
    /// Cancels the request.
    pub(crate) fn cancel(&self) {
        for id in &self.ids {
            self.peer.cancel(id);
        }
    }
}

/// A stream of events.
pub(crate) struct EventStream {
    /// Its name in the session.
    pub(crate) name: u64,
    manner: StreamMode,
    errand: Option<StreamRequest>,
    state: Mutex<EventStreamState>,
    changed: watch::Sender<()>,
}

struct EventStreamState {
    /// Messages, the first of which has the number `first`.
    messages: VecDeque<Bytes>,
    first: u64,
    /// Bytes of all messages, and of those that nobody has read.
    bytes: usize,
    unread: usize,
    /// The number after the last that was read.
    read: u64,
    ended: bool,
    /// The current reader: only the latest one.
    reader: u64,
    is_read: bool,
}

/// What a stream says first.
pub(crate) enum FirstMessage {
    /// The answer is the only message.
    Answer(Bytes),
    /// More messages follow, or the answer takes time.
    Streaming,
    /// There is no answer: the request was cancelled.
    Cancelled,
}

impl EventStream {
    /// A stream that has said nothing.
    pub(crate) fn new(name: u64, manner: StreamMode, errand: Option<StreamRequest>) -> Arc<Self> {
        let state = EventStreamState {
            messages: VecDeque::new(),
            first: 1,
            bytes: 0,
            unread: 0,
            read: 1,
            ended: false,
            reader: 0,
            is_read: false,
        };
        Arc::new(Self { name, manner, errand, state: Mutex::new(state), changed: watch::Sender::new(()) })
    }

    /// The last word, where there is one.
    pub(crate) fn finish(&self, answer: Option<Vec<u8>>) {
        let mut state = self.lock();
        if let Some(answer) = answer {
            state.push(answer.into());
        }
        state.ended = true;
        drop(state);
        self.changed.send_replace(());
    }

    /// Waits for the first message until the timeout for plain answers.
    pub(crate) async fn first(&self, patience: Duration) -> FirstMessage {
        let mut changed = self.changed.subscribe();
        let patience = sleep(patience);
        tokio::pin!(patience);
        loop {
            {
                let state = self.lock();
                match (state.ended, state.messages.front()) {
                    (true, None) => return FirstMessage::Cancelled,
                    (true, Some(answer)) if state.messages.len() == 1 => return FirstMessage::Answer(answer.clone()),
                    (_, Some(_)) => return FirstMessage::Streaming,
                    (false, None) => {}
                }
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = &mut patience => return FirstMessage::Streaming,
            }
        }
    }

    /// Reads from the start or after this event id. Disconnects an earlier reader.
    pub(crate) fn read(self: &Arc<Self>, after: Option<u64>) -> EventReader {
        let mut state = self.lock();
        state.reader += 1;
        state.is_read = true;
        let reader = state.reader;
        drop(state);
        self.changed.send_replace(());
        let primed = after.is_some() || self.manner != StreamMode::Primed;
        EventReader { stream: self.clone(), next: after.map_or(1, |it| it.saturating_add(1)), reader, primed }
    }

    /// The waiting client is gone and has no event id to resume with.
    pub(crate) fn cancel(&self) {
        if let Some(errand) = self.errand.as_ref().filter(|_| !self.lock().ended) {
            errand.cancel();
        }
    }

    /// Whether anybody reads it.
    pub(crate) fn is_read(&self) -> bool {
        self.lock().is_read
    }

    /// Whether there is nothing more to come, and nobody reads what came.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.lock();
        state.ended && !state.is_read
    }

    /// The reader went away before the end.
    fn reader_left(self: &Arc<Self>, reader: u64) {
        let mut state = self.lock();
        if state.reader != reader {
            return;
        }
        state.is_read = false;
        if state.ended {
            return;
        }
        drop(state);
        let Some(errand) = &self.errand else { return };
        match Handle::try_current() {
            Ok(runtime) if self.manner != StreamMode::Unnumbered => {
                let stream = self.clone();
                runtime.spawn(async move { stream.wait_for_return(reader).await });
            }
            _ => errand.cancel(),
        }
    }

    async fn wait_for_return(&self, reader: u64) {
        let Some(errand) = &self.errand else { return };
        sleep(errand.grace).await;
        let is_gone = {
            let state = self.lock();
            state.reader == reader && !state.ended
        };
        if is_gone {
            errand.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, EventStreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventStreamState {
    fn push(&mut self, message: Bytes) {
        self.bytes += message.len();
        self.unread += message.len();
        self.messages.push_back(message);
        self.trim();
    }

    /// Drops the oldest messages that were read.
    fn trim(&mut self) {
        while self.bytes > RESUME_BUFFER_BYTES && self.first < self.read {
            let Some(oldest) = self.messages.pop_front() else { return };
            self.bytes -= oldest.len();
            self.first += 1;
        }
    }

    /// The message with this number, or the oldest after it that is still there.
    fn take(&mut self, number: u64) -> Option<(u64, Bytes)> {
        let number = number.max(self.first);
        let message = self.messages.get((number - self.first) as usize)?.clone();
        if number >= self.read {
            self.read = number + 1;
            self.unread = self.unread.saturating_sub(message.len());
            self.trim();
        }
        Some((number, message))
    }
}

impl Outbox for EventStream {
    fn send(&self, message: Vec<u8>) {
        let mut state = self.lock();
        if state.ended || state.unread + message.len() > MAX_UNREAD_BYTES {
            return;
        }
        state.push(message.into());
        drop(state);
        self.changed.send_replace(());
    }

    fn pause(&self) {
        if self.manner == StreamMode::Unnumbered {
            return;
        }
        let mut state = self.lock();
        state.reader += 1;
        state.is_read = false;
        drop(state);
        self.changed.send_replace(());
    }
}

/// Somebody who reads a stream. Dropped when the connection is gone.
pub(crate) struct EventReader {
    stream: Arc<EventStream>,
    next: u64,
    reader: u64,
    primed: bool,
}

impl EventReader {
    /// The next piece of the response; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        if !self.primed {
            self.primed = true;
            return Some(format!("id: {}-0\nretry: {RETRY_MS}\ndata: \n\n", self.stream.name).into());
        }
        let mut changed = self.stream.changed.subscribe();
        loop {
            {
                let mut state = self.stream.lock();
                if state.reader != self.reader {
                    return None;
                }
                if let Some((number, message)) = state.take(self.next) {
                    self.next = number + 1;
                    return Some(self.event(number, &message));
                }
                if state.ended {
                    return None;
                }
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = sleep(HEARTBEAT) => return Some(Bytes::from_static(b": still here\n\n")),
            }
        }
    }

    /// A message as a one-line event: in JSON, line ends are whitespace.
    fn event(&self, number: u64, message: &[u8]) -> Bytes {
        let mut head = String::new();
        if self.stream.manner != StreamMode::Unnumbered {
            _ = writeln!(head, "id: {}-{number}", self.stream.name);
        }
        head.push_str("event: message\ndata: ");
        let start = head.len();
        let mut event = [head.as_bytes(), message, b"\n\n"].concat();
        let line = start..start + message.len();
        event[line].iter_mut().filter(|it| matches!(it, b'\n' | b'\r')).for_each(|it| *it = b' ');
        event.into()
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.stream.reader_left(self.reader);
    }
}

/// The stream and the number in the name of an event.
pub(crate) fn parse_event_id(event: &str) -> Option<(u64, u64)> {
    let (stream, number) = event.split_once('-')?;
    Some((stream.parse().ok()?, number.parse().ok()?))
}
