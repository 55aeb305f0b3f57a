//! What happens in this process: the last events, for whoever listens, and numbers about all of them.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    fs,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use helve_contract::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

/// How many events are kept, and how many bytes of them.
const MOST: usize = 2000;
const LARGEST: usize = 4 << 20;
/// How many tools are told apart: a model may call anything by any name.
const TOOLS: usize = 500;

/// How many calls are known by what they are about, and how many letters of that.
const OPEN: usize = 500;
const SUMMARY: usize = 300;
/// How many refused calls are remembered, and how many letters of the reason.
const DENIED: usize = 100;
const WHY: usize = 1000;
/// How long somebody counts as being at the page after a look.
const WATCHED: Duration = Duration::from_secs(60);

/// The last events, and numbers about all.
pub(super) struct Hub {
    kept: Mutex<Kept>,
    changed: watch::Sender<()>,
    sessions: AtomicU64,
    began: Instant,
    /// When somebody last looked at the questions, or heard events.
    looked: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<Bytes>,
    bytes: usize,
    /// How many there were before the first that is kept.
    gone: u64,
    calls: BTreeMap<(String, &'static str), Tally>,
    /// What calls are about that have not ended: by run and call, oldest first.
    open: VecDeque<(Value, Value, String)>,
    /// Calls that were refused, oldest first.
    denied: VecDeque<Value>,
}

#[derive(Default)]
struct Tally {
    count: u64,
    seconds: f64,
}

impl Hub {
    pub(super) fn new() -> Self {
        let (kept, changed) = (Mutex::default(), watch::Sender::new(()));
        Self { kept, changed, sessions: AtomicU64::new(0), began: Instant::now(), looked: Mutex::default() }
    }

    /// Somebody is there who would see a question.
    pub(super) fn look(&self) {
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether somebody was there a moment ago.
    pub(super) fn is_watched(&self) -> bool {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|it| it.elapsed() < WATCHED)
    }

    /// A client of MCP came.
    pub(super) fn came(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    /// A client of MCP went.
    pub(super) fn went(&self) {
        _ = self.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1));
    }

    /// Tells something of our own.
    pub(super) fn tell(&self, kind: &str, dialect: &str, data: Value) {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        self.hear(dialect, &json!({ "timestamp": now, "type": kind, "data": data }));
    }

    /// The last calls that were refused, newest first.
    pub(super) fn denied(&self) -> Vec<Value> {
        self.lock().denied.iter().rev().cloned().collect()
    }

    /// Takes an event in, with its number here and its dialect.
    pub(super) fn hear(&self, dialect: &str, event: &Value) {
        let mut event = event.clone();
        let mut kept = self.lock();
        if event["type"] == "tool.call" {
            kept.begins(&event);
        }
        if event["type"] == "tool.result" {
            kept.count(&event["data"]);
            kept.ends(dialect, &event);
        }
        event["dialect"] = dialect.into();
        event["at"] = (kept.last() + 1).into();
        kept.push(event.to_string().into());
        drop(kept);
        self.changed.send_replace(());
    }

    /// The first kept event after this number, with its own. A number that was never given is one of another process.
    pub(super) fn after(&self, number: u64) -> Option<(u64, Bytes)> {
        let kept = self.lock();
        let number = if number > kept.last() { 0 } else { number }.max(kept.gone);
        Some((number + 1, kept.events.get((number - kept.gone) as usize)?.clone()))
    }

    /// The number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.lock().last()
    }

    /// Rings whenever something happened.
    pub(super) fn bell(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The numbers, as Prometheus reads them, with how many questions wait and how many conversations work.
    pub(super) fn metrics(&self, waiting: usize, working: usize) -> String {
        let mut text = String::new();
        let head = |name: &str, kind: &str, help: &str| format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        let counts = head("helve_calls_total", "counter", "Calls of tools that ended.");
        let times = head("helve_call_seconds", "summary", "How long calls of tools took.");
        let (mut of_counts, mut of_times) = (String::new(), String::new());
        for ((tool, outcome), tally) in &self.lock().calls {
            let labels = format!("{{tool=\"{}\",outcome=\"{outcome}\"}}", label(tool));
            _ = writeln!(of_counts, "helve_calls_total{labels} {}", tally.count);
            _ = writeln!(of_times, "helve_call_seconds_sum{labels} {:.6}", tally.seconds);
            _ = writeln!(of_times, "helve_call_seconds_count{labels} {}", tally.count);
        }
        text.push_str(&(counts + &of_counts + &times + &of_times));
        text.push_str(&head("helve_sessions", "gauge", "MCP sessions that are open."));
        _ = writeln!(text, "helve_sessions {}", self.sessions.load(Ordering::Relaxed));
        text.push_str(&head("helve_approvals_pending", "gauge", "Questions that wait for a person."));
        _ = writeln!(text, "helve_approvals_pending {waiting}");
        text.push_str(&head("helve_conversations_working", "gauge", "Conversations in which a turn runs."));
        _ = writeln!(text, "helve_conversations_working {working}");
        text.push_str(&head("helve_uptime_seconds", "gauge", "How long this process has been serving."));
        _ = writeln!(text, "helve_uptime_seconds {:.3}", self.began.elapsed().as_secs_f64());
        text.push_str(&head("process_resident_memory_bytes", "gauge", "Memory of this process."));
        _ = writeln!(text, "process_resident_memory_bytes {}", resident().unwrap_or_default());
        text
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn last(&self) -> u64 {
        self.gone + self.events.len() as u64
    }

    fn push(&mut self, event: Bytes) {
        self.bytes += event.len();
        self.events.push_back(event);
        while self.events.len() > MOST || (self.bytes > LARGEST && self.events.len() > 1) {
            let Some(oldest) = self.events.pop_front() else { return };
            self.bytes -= oldest.len();
            self.gone += 1;
        }
    }

    fn begins(&mut self, event: &Value) {
        let args = event["data"]["args"].to_string();
        let about = args.chars().take(SUMMARY).collect();
        self.open.push_back((event["runId"].clone(), event["data"]["callId"].clone(), about));
        if self.open.len() > OPEN {
            self.open.pop_front();
        }
    }

    fn ends(&mut self, dialect: &str, event: &Value) {
        let data = &event["data"];
        let place = self.open.iter().position(|(run, call, _)| *run == event["runId"] && *call == data["callId"]);
        let about = place.and_then(|it| self.open.remove(it)).map(|(_, _, about)| about).unwrap_or_default();
        if data["denied"] != true {
            return;
        }
        let why = match &data["result"] {
            Value::String(text) => text.clone(),
            other => other["error"].as_str().map_or_else(|| other.to_string(), str::to_owned),
        };
        self.denied.push_back(json!({
            "at": event["timestamp"], "dialect": dialect, "session": event["runId"], "tool": data["tool"],
            "summary": about, "why": why.chars().take(WHY).collect::<String>(),
        }));
        if self.denied.len() > DENIED {
            self.denied.pop_front();
        }
    }

    fn count(&mut self, data: &Value) {
        let outcome = if data["isError"] == true { "error" } else { "ok" };
        let mut key: (String, _) = (data["tool"].as_str().unwrap_or_default().chars().take(64).collect(), outcome);
        if !self.calls.contains_key(&key) && self.calls.len() >= TOOLS {
            "other".clone_into(&mut key.0);
        }
        let tally = self.calls.entry(key).or_default();
        tally.count += 1;
        tally.seconds += data["durationMs"].as_f64().unwrap_or_default() / 1000.0;
    }
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn resident() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(tool: &str, is_error: bool) -> Value {
        json!({ "type": "tool.result", "data": { "tool": tool, "isError": is_error, "durationMs": 1.5 } })
    }

    #[test]
    fn goes_on_after_a_number_and_forgets_the_oldest() {
        let hub = Hub::new();
        (0..MOST + 5).for_each(|_| hub.hear("solo", &json!({ "type": "tool.call" })));
        let (number, event) = hub.after(0).unwrap();
        assert_eq!(number, 6);
        assert_eq!(&event[..], br#"{"type":"tool.call","dialect":"solo","at":6}"#);
        let last = hub.last();
        assert_eq!(hub.after(last), None);
        assert_eq!(hub.after(last + 1000).unwrap().0, 6);
    }

    #[test]
    fn counts_calls_by_tool_and_outcome() {
        let hub = Hub::new();
        for (tool, is_error) in [("read", false), ("read", false), ("a\"b", true)] {
            hub.hear("solo", &ended(tool, is_error));
        }
        let text = hub.metrics(0, 0);
        assert!(text.contains("helve_calls_total{tool=\"read\",outcome=\"ok\"} 2\n"), "{text}");
        assert!(text.contains("helve_call_seconds_sum{tool=\"read\",outcome=\"ok\"} 0.003000\n"), "{text}");
        assert!(text.contains("helve_calls_total{tool=\"a\\\"b\",outcome=\"error\"} 1\n"), "{text}");
    }

    #[test]
    fn a_refused_call_is_remembered_with_what_it_was_about() {
        let hub = Hub::new();
        let event = |kind: &str, data: Value| json!({ "type": kind, "timestamp": "T", "runId": "r", "data": data });
        hub.hear("solo", &event("tool.call", json!({ "callId": "1", "tool": "bash", "args": { "command": "rm x" } })));
        let no = json!({ "callId": "1", "tool": "bash", "result": "no", "isError": true, "denied": true });
        hub.hear("solo", &event("tool.result", no));
        assert_eq!(
            hub.denied(),
            [json!({
                "at": "T", "dialect": "solo", "session": "r", "tool": "bash", "summary": "{\"command\":\"rm x\"}",
                "why": "no",
            })]
        );
        hub.hear("solo", &event("tool.result", json!({ "callId": "2", "tool": "bash", "isError": true })));
        assert_eq!((hub.denied().len(), hub.lock().open.len()), (1, 0));
    }

    #[test]
    fn invented_tools_do_not_fill_the_memory() {
        let hub = Hub::new();
        (0..TOOLS + 10).for_each(|it| hub.hear("solo", &ended(&format!("t{it}"), true)));
        assert!(hub.lock().calls.len() <= TOOLS + 2);
        assert!(hub.metrics(0, 0).contains("helve_calls_total{tool=\"other\",outcome=\"error\"} 10\n"));
    }
}
