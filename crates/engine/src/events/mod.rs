//! The record of every call: one line of JSON each for its beginning and its end.

mod file;
mod record;

use std::{
    io::{self, Write},
    panic::AssertUnwindSafe,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{Map, Value};

use file::Log;

/// Who hears of events.
pub type Listener = Arc<dyn Fn(&Value) + Send + Sync>;

/// Where calls are recorded. A place that fails never fails a call.
pub struct Events(Option<Stream>);

struct Stream {
    run: String,
    task: Option<String>,
    attempt: Option<String>,
    sink: Sink,
    /// Who hears of it besides.
    also: Option<Listener>,
}

enum Sink {
    File(Mutex<Log>),
    /// The number of the last line.
    Stdout(Mutex<u64>),
    Listener(AtomicU64, Listener),
}

impl Events {
    /// Nowhere.
    pub fn none() -> Self {
        Self(None)
    }

    /// To the end of a file, which is made if it is not there. A line that was cut off by a crash is put right.
    pub fn file(path: impl AsRef<Path>, run: impl Into<String>) -> io::Result<Self> {
        let run = run.into();
        let log = Log::open(path.as_ref(), &run)?;
        Ok(Self::to(run, Sink::File(Mutex::new(log))))
    }

    /// To standard output.
    pub fn stdout(run: impl Into<String>) -> Self {
        Self::to(run.into(), Sink::Stdout(Mutex::new(0)))
    }

    /// To a function.
    pub fn callback(run: impl Into<String>, listener: Listener) -> Self {
        Self::to(run.into(), Sink::Listener(AtomicU64::new(0), listener))
    }

    fn to(run: String, sink: Sink) -> Self {
        Self(Some(Stream { run, task: None, attempt: None, sink, also: None }))
    }

    /// The same, with the task and the attempt that the calls belong to.
    pub fn within(mut self, task: impl Into<String>, attempt: Option<String>) -> Self {
        if let Some(stream) = &mut self.0 {
            stream.task = Some(task.into());
            stream.attempt = attempt;
        }
        self
    }

    /// The same, heard by this too, as it was recorded.
    #[must_use]
    pub fn also(mut self, listener: Listener) -> Self {
        if let Some(stream) = &mut self.0 {
            stream.also = Some(listener);
        }
        self
    }

    /// Whether anybody listens.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records one event. `data` must hold no secrets.
    pub fn emit(&self, kind: &str, data: Value) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |stream| stream.emit(kind, data))
    }
}

impl Stream {
    fn emit(&self, kind: &str, data: Value) -> io::Result<()> {
        let mut event = Map::new();
        event.insert("eventId".into(), format!("evt_{}", uuid()?).into());
        event.insert("seq".into(), 0.into());
        event.insert("timestamp".into(), now().into());
        event.insert("type".into(), kind.into());
        event.insert("runId".into(), self.run.as_str().into());
        for (key, value) in [("taskId", &self.task), ("attemptId", &self.attempt)] {
            if let Some(value) = value {
                event.insert(key.into(), value.as_str().into());
            }
        }
        event.insert("data".into(), data);
        let mut event = Value::Object(event);
        let recorded = match &self.sink {
            Sink::File(log) => log.lock().unwrap_or_else(PoisonError::into_inner).append(&mut event),
            Sink::Stdout(last) => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                *last += 1;
                event["seq"] = (*last).into();
                event["timestamp"] = now().into();
                let mut out = io::stdout().lock();
                out.write_all(format!("{event}\n").as_bytes()).and_then(|()| out.flush())
            }
            Sink::Listener(last, listener) => {
                event["seq"] = (last.fetch_add(1, Ordering::Relaxed) + 1).into();
                heard(listener, &event)
            }
        };
        match &self.also {
            Some(listener) => recorded.and(heard(listener, &event)),
            None => recorded,
        }
    }
}

fn heard(listener: &Listener, event: &Value) -> io::Result<()> {
    std::panic::catch_unwind(AssertUnwindSafe(|| listener(event)))
        .map_err(|_| io::Error::other("the listener panicked"))
}

/// The time in UTC, to the millisecond.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// A random UUID, version 4.
fn uuid() -> io::Result<String> {
    let hex = random_hex()?;
    let variant = ["8", "9", "a", "b"][usize::from(hex.as_bytes()[16] & 3)];
    Ok(format!("{}-{}-4{}-{variant}{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]))
}

/// 128 random bits as 32 digits.
pub(crate) fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_has_forges_envelope() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = heard.clone();
        let events =
            Events::callback("run-1", Arc::new(move |event: &Value| listener.lock().unwrap().push(event.clone())))
                .within("t-1", Some("2".into()));
        events.emit("tool.call", json!({ "a": 1 })).unwrap();
        events.emit("tool.result", json!({})).unwrap();
        let heard = heard.lock().unwrap();
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
        let listener = |name: &'static str| -> Listener {
            let heard = heard.clone();
            Arc::new(move |event: &Value| heard.lock().unwrap().push((name, event["seq"].clone())))
        };
        let events = Events::callback("r", listener("first")).also(listener("second"));
        events.emit("x", json!({})).unwrap();
        assert_eq!(*heard.lock().unwrap(), [("first", json!(1)), ("second", json!(1))]);
    }

    #[test]
    fn a_listener_that_panics_is_only_told_of() {
        let events = Events::callback("r", Arc::new(|_: &Value| panic!("no")));
        assert_eq!(events.emit("x", json!({})).unwrap_err().to_string(), "the listener panicked");
    }
}
