//! The record of every call, and the implementations of the port `Events` for files and memory.

mod file;
mod file_events;
mod memory;
mod record;

use std::{
    io::{self, Write},
    panic::AssertUnwindSafe,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use helve_contract::events::{Event, EventRecord, NewEvent};

use file::EventFile;
pub use file_events::FileEvents;
pub use memory::MemoryEvents;

/// Is called with each event, as it was recorded.
pub type EventCallback = Arc<dyn Fn(&EventRecord) + Send + Sync>;

/// Records events: to a file, to standard output or to a function. A place that fails never fails a call.
///
/// It writes one stream of a file that [`FileEvents`] reads. Unlike the port it works without a runtime, lets read-only
/// calls wait for the next event, and keeps events in memory while the disk is full.
pub struct EventLog(Option<OpenEventLog>);

struct OpenEventLog {
    context: EventContext,
    sink: EventSink,
    /// Who hears of it besides.
    callback: Option<EventCallback>,
}

/// What all events of a stream have in common.
#[derive(Clone, Default)]
struct EventContext {
    run: String,
    task: Option<String>,
    attempt: Option<String>,
}

enum EventSink {
    File(Mutex<EventFile>),
    /// The number of the last line.
    Stdout(Mutex<u64>),
    Listener(AtomicU64, EventCallback),
}

/// When an event is written to a file. Where somebody listens they hear it at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WritePolicy {
    /// Before anything else happens.
    Immediate,
    /// Together with the next one, or when [`EventLog::settle`] is called: two lines in one go cost little more than one.
    WithNext,
    /// At once, or where events are gathered with those that are settled next: the end of a call that only looked.
    Batched,
}

impl EventContext {
    /// An event without its number and time.
    fn pending(&self, event: Event) -> io::Result<EventRecord> {
        let mut record = EventRecord::new(event_id()?, &self.run, 0, String::new(), NewEvent::from(event));
        (record.task, record.attempt) = (self.task.clone(), self.attempt.clone());
        Ok(record)
    }
}

fn notify(listener: &EventCallback, record: &EventRecord) -> io::Result<()> {
    std::panic::catch_unwind(AssertUnwindSafe(|| listener(record)))
        .map_err(|_| io::Error::other("the listener panicked"))
}

impl EventLog {
    /// Nowhere.
    pub fn none() -> Self {
        Self(None)
    }

    /// To the end of a file, which is made if it is not there. A line that was cut off by a crash is put right.
    pub fn file(path: impl AsRef<Path>, run: impl Into<String>) -> io::Result<Self> {
        let run = run.into();
        let log = EventFile::open(path.as_ref(), &run)?;
        Ok(Self::to(run, EventSink::File(Mutex::new(log))))
    }

    /// To standard output.
    pub fn stdout(run: impl Into<String>) -> Self {
        Self::to(run.into(), EventSink::Stdout(Mutex::new(0)))
    }

    /// To a function.
    pub fn callback(run: impl Into<String>, listener: EventCallback) -> Self {
        Self::to(run.into(), EventSink::Listener(AtomicU64::new(0), listener))
    }

    fn to(run: String, sink: EventSink) -> Self {
        Self(Some(OpenEventLog { context: EventContext { run, ..EventContext::default() }, sink, callback: None }))
    }

    /// The same, with the task and the attempt that the calls belong to.
    pub fn within(mut self, task: impl Into<String>, attempt: Option<String>) -> Self {
        if let Some(stream) = &mut self.0 {
            stream.context.task = Some(task.into());
            stream.context.attempt = attempt;
        }
        self
    }

    /// The same, heard by this too, as it was recorded.
    #[must_use]
    pub fn also(mut self, listener: EventCallback) -> Self {
        if let Some(stream) = &mut self.0 {
            stream.callback = Some(listener);
        }
        self
    }

    /// Whether anybody listens.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records one event. It must hold no secrets.
    pub fn emit(&self, event: impl Into<Event>) -> io::Result<()> {
        if self.is_on() { self.put(event.into(), WritePolicy::Immediate) } else { Ok(()) }
    }

    fn put(&self, event: Event, when: WritePolicy) -> io::Result<()> {
        let Some(stream) = &self.0 else { return Ok(()) };
        let record = stream.context.pending(event)?;
        match stream {
            OpenEventLog { context: head, sink: EventSink::File(log), callback: None } => {
                lock(log).take(head, record, when)
            }
            _ => stream.emit(record),
        }
    }

    /// Whoever runs many small calls may record them together: from now on, calls that only look wait for [`EventLog::settle`],
    /// which must come before their answers leave; or no longer.
    pub fn gather(&self, gathering: bool) {
        if let Some(OpenEventLog { sink: EventSink::File(log), .. }) = &self.0 {
            lock(log).set_batching(gathering);
        }
    }

    /// Records what waits for the next event.
    pub fn settle(&self) -> io::Result<()> {
        match &self.0 {
            Some(OpenEventLog { context: head, sink: EventSink::File(log), .. }) => lock(log).flush(head),
            _ => Ok(()),
        }
    }
}

impl OpenEventLog {
    fn emit(&self, mut record: EventRecord) -> io::Result<()> {
        let recorded = match &self.sink {
            EventSink::File(log) => {
                let mut log = lock(log);
                let recorded = log.take(&self.context, record.clone(), WritePolicy::Immediate);
                (record.seq, record.timestamp) = log.last();
                if recorded.is_err() {
                    record.timestamp = timestamp_now();
                }
                recorded
            }
            EventSink::Stdout(last) => {
                let mut last = lock(last);
                *last += 1;
                (record.seq, record.timestamp) = (*last, timestamp_now());
                let mut line = record.to_json();
                line.push(b'\n');
                let mut out = io::stdout().lock();
                out.write_all(&line).and_then(|()| out.flush())
            }
            EventSink::Listener(last, listener) => {
                (record.seq, record.timestamp) = (last.fetch_add(1, Ordering::Relaxed) + 1, timestamp_now());
                notify(listener, &record)
            }
        };
        match &self.callback {
            Some(listener) => recorded.and(notify(listener, &record)),
            None => recorded,
        }
    }
}

/// A last try for what waits or is held.
impl Drop for OpenEventLog {
    fn drop(&mut self) {
        if let EventSink::File(log) = &self.sink {
            _ = lock(log).flush(&self.context);
        }
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time in UTC, to the millisecond. All but the last digits stay the same for a second.
fn timestamp_now() -> String {
    static CACHED_SECOND: Mutex<(i64, String)> = Mutex::new((i64::MIN, String::new()));
    let time = jiff::Timestamp::now();
    let mut last = lock(&CACHED_SECOND);
    if last.0 != time.as_second() {
        let whole = format!("{time:.0}");
        *last = (time.as_second(), whole.trim_end_matches('Z').to_owned());
    }
    let mut text = String::with_capacity(last.1.len() + 5);
    text.push_str(&last.1);
    let thousandths = time.subsec_millisecond().unsigned_abs();
    text.push('.');
    for place in [100, 10, 1] {
        text.push(char::from(b'0' + (thousandths / place % 10) as u8));
    }
    text.push('Z');
    text
}

/// The name of an event: a random UUID, version 4.
fn event_id() -> io::Result<String> {
    let mut bits = random_bits()?;
    bits[6] = bits[6] & 0x0f | 0x40;
    bits[8] = bits[8] & 0x3f | 0x80;
    let digits = hex(bits);
    let mut id = String::with_capacity(40);
    id.push_str("evt");
    for (sign, part) in [("_", 0..8), ("-", 8..12), ("-", 12..16), ("-", 16..20), ("-", 20..32)] {
        id.push_str(sign);
        id.push_str(str::from_utf8(&digits[part]).unwrap_or_default());
    }
    Ok(id)
}

/// 128 random bits as 32 digits.
pub(crate) fn random_hex() -> io::Result<String> {
    Ok(str::from_utf8(&hex(random_bits()?)).unwrap_or_default().to_owned())
}

fn hex(bits: [u8; 16]) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 32];
    for (two, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(bits) {
        *two = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    digits
}

/// 128 random bits. The kernel is asked for many at a time.
fn random_bits() -> io::Result<[u8; 16]> {
    static RANDOM_POOL: Mutex<Vec<[u8; 16]>> = Mutex::new(Vec::new());
    let mut drawn = lock(&RANDOM_POOL);
    if let Some(bits) = drawn.pop() {
        return Ok(bits);
    }
    let mut bytes = [[0; 16]; 32];
    getrandom::fill(bytes.as_flattened_mut()).map_err(io::Error::other)?;
    let [first, rest @ ..] = bytes;
    drawn.extend(rest);
    Ok(first)
}

#[cfg(test)]
mod tests {
    use helve_contract::events::{ForgeStarted, PauseReason, RunPaused};
    use serde_json::{Value, json};

    use super::*;

    fn event(run: &str) -> ForgeStarted {
        ForgeStarted { run: run.to_owned() }
    }

    #[test]
    fn an_event_has_forges_envelope() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = heard.clone();
        let events = EventLog::callback(
            "run-1",
            Arc::new(move |event: &EventRecord| listener.lock().unwrap().push(event.clone())),
        )
        .within("t-1", Some("2".into()));
        events.emit(event("a")).unwrap();
        events.emit(RunPaused { reason: PauseReason::User, cr_id: None }).unwrap();
        let heard: Vec<Value> = heard.lock().unwrap().iter().map(|it| serde_json::to_value(it).unwrap()).collect();
        let keys: Vec<&str> = heard[0].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["eventId", "seq", "timestamp", "type", "runId", "taskId", "attemptId", "data"]);
        assert_eq!((&heard[0]["seq"], &heard[1]["seq"]), (&json!(1), &json!(2)));
        let (id, time) = (heard[0]["eventId"].as_str().unwrap(), heard[0]["timestamp"].as_str().unwrap());
        let shape: String = id.chars().map(|it| if it.is_ascii_hexdigit() && it != 'e' { 'x' } else { it }).collect();
        assert_eq!((&id[..4], &id[18..19], shape.matches('-').count(), id.len()), ("evt_", "4", 4, 40));
        assert_eq!((time.len(), &time[10..11], &time[19..20], &time[23..]), (24, "T", ".", "Z"));
    }

    #[test]
    fn a_second_listener_hears_the_same() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = |name: &'static str| -> EventCallback {
            let heard = heard.clone();
            Arc::new(move |event: &EventRecord| heard.lock().unwrap().push((name, event.seq)))
        };
        let events = EventLog::callback("r", listener("first")).also(listener("second"));
        events.emit(event("x")).unwrap();
        assert_eq!(*heard.lock().unwrap(), [("first", 1), ("second", 1)]);
    }

    #[test]
    fn who_listens_beside_a_file_hears_what_is_in_it() {
        let path = std::env::temp_dir().join(format!("helve-events-also-{}", random_hex().unwrap()));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = heard.clone();
        let events = EventLog::file(&path, "r").unwrap();
        let events = events.also(Arc::new(move |event: &EventRecord| listener.lock().unwrap().push(event.clone())));
        events.emit(event("x")).unwrap();
        events.emit(event("y")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let recorded: Vec<EventRecord> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(*heard.lock().unwrap(), recorded);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_listener_that_panics_is_only_told_of() {
        let events = EventLog::callback("r", Arc::new(|_: &EventRecord| panic!("no")));
        assert_eq!(events.emit(event("x")).unwrap_err().to_string(), "the listener panicked");
    }
}
