//! What happens in this process: the last events, for whoever listens, and numbers about all of them.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    fs,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

/// How many events are kept, and how many bytes of them.
const MOST: usize = 2000;
const LARGEST: usize = 4 << 20;
/// How many tools are told apart: a model may call anything by any name.
const TOOLS: usize = 500;

/// The last events, and numbers about all.
pub(super) struct Hub {
    kept: Mutex<Kept>,
    changed: watch::Sender<()>,
    sessions: AtomicU64,
    began: Instant,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<Bytes>,
    bytes: usize,
    /// How many there were before the first that is kept.
    gone: u64,
    calls: BTreeMap<(String, &'static str), Tally>,
}

#[derive(Default)]
struct Tally {
    count: u64,
    seconds: f64,
}

impl Hub {
    pub(super) fn new() -> Self {
        let (kept, changed) = (Mutex::default(), watch::Sender::new(()));
        Self { kept, changed, sessions: AtomicU64::new(0), began: Instant::now() }
    }

    /// A client of MCP came.
    pub(super) fn came(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    /// A client of MCP went.
    pub(super) fn went(&self) {
        _ = self.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1));
    }

    /// Takes an event in, with its number here and its dialect.
    pub(super) fn hear(&self, dialect: &str, event: &Value) {
        let mut event = event.clone();
        let mut kept = self.lock();
        if event["type"] == "tool.result" {
            kept.count(&event["data"]);
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

    /// The numbers, as Prometheus reads them.
    pub(super) fn metrics(&self) -> String {
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
    use serde_json::json;

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
        let text = hub.metrics();
        assert!(text.contains("helve_calls_total{tool=\"read\",outcome=\"ok\"} 2\n"), "{text}");
        assert!(text.contains("helve_call_seconds_sum{tool=\"read\",outcome=\"ok\"} 0.003000\n"), "{text}");
        assert!(text.contains("helve_calls_total{tool=\"a\\\"b\",outcome=\"error\"} 1\n"), "{text}");
    }

    #[test]
    fn invented_tools_do_not_fill_the_memory() {
        let hub = Hub::new();
        (0..TOOLS + 10).for_each(|it| hub.hear("solo", &ended(&format!("t{it}"), true)));
        assert!(hub.lock().calls.len() <= TOOLS + 2);
        assert!(hub.metrics().contains("helve_calls_total{tool=\"other\",outcome=\"error\"} 10\n"));
    }
}
