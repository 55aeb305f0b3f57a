//! The events of this process: the latest ones for listeners, and metrics.

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
use helve_contract::{
    events::{Event, EventOrigin, EventRecord, EventSource, NewEvent, ToolCall, ToolResult},
    json::ObjectWriter,
};
use helve_engine::MemoryEvents;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The one stream of a server.
const STREAM: &str = "server";

/// The maximum number and size of kept events.
const MAX_EVENTS: usize = 2000;
const MAX_BYTES: usize = 4 << 20;
/// The maximum number of tools with separate metrics: a model may call any name.
const MAX_TOOL_LABELS: usize = 500;

/// How many calls are known by what they are about, and how many letters of that.
const MAX_OPEN_CALLS: usize = 500;
const MAX_SUMMARY_CHARS: usize = 300;
/// How many refused calls are remembered, and how many letters of the reason.
const MAX_DENIALS: usize = 100;
const MAX_REASON_CHARS: usize = 1000;
/// How long a person counts as present after a request of the page.
const WATCH_TTL: Duration = Duration::from_secs(60);

/// The last events, and numbers about all.
pub(super) struct EventBus {
    events: MemoryEvents,
    buffer: Mutex<EventBuffer>,
    sessions: AtomicU64,
    started: Instant,
    /// When somebody last read the questions or events.
    last_watched: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct EventBuffer {
    calls: BTreeMap<(String, &'static str), ToolCounters>,
    /// What calls are about that have not ended: by run and call, oldest first.
    open_calls: VecDeque<(String, String, String)>,
    /// Calls that were refused, oldest first.
    denied: VecDeque<Value>,
}

#[derive(Default)]
struct ToolCounters {
    count: u64,
    seconds: f64,
}

impl EventBus {
    pub(super) fn new() -> Self {
        let (events, kept) = (MemoryEvents::with_limits(MAX_EVENTS, MAX_BYTES), Mutex::default());
        Self {
            events,
            buffer: kept,
            sessions: AtomicU64::new(0),
            started: Instant::now(),
            last_watched: Mutex::default(),
        }
    }

    /// Records that a person is present.
    pub(super) fn mark_watched(&self) {
        *self.last_watched.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a person was present recently.
    pub(super) fn is_watched(&self) -> bool {
        self.last_watched.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|it| it.elapsed() < WATCH_TTL)
    }

    /// A client of MCP came.
    pub(super) fn client_connected(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    /// A client of MCP went.
    pub(super) fn client_disconnected(&self) {
        _ = self.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1));
    }

    /// Adds an event of the server.
    pub(super) fn publish(&self, dialect: &str, event: impl Into<Event>) {
        self.add(NewEvent {
            source: Some(EventSource { dialect: dialect.to_owned(), record: None }),
            ..NewEvent::from(event)
        });
    }

    /// The last calls that were refused, newest first.
    pub(super) fn recent_denials(&self) -> Vec<Value> {
        self.lock().denied.iter().rev().cloned().collect()
    }

    /// Adds a copy of an event that a session recorded.
    pub(super) fn publish_call_event(&self, dialect: &str, record: &EventRecord) {
        match &record.event {
            Event::ToolCall(call) => self.lock().call_started(&record.stream, call),
            Event::ToolResult(result) => {
                let mut kept = self.lock();
                kept.count(result);
                kept.call_finished(dialect, record, result);
            }
            _ => {}
        }
        let origin = EventOrigin {
            id: record.id.clone(),
            seq: record.seq,
            stream: record.stream.clone(),
            timestamp: record.timestamp.clone(),
        };
        self.add(NewEvent {
            event: record.event.clone(),
            task: record.task.clone(),
            attempt: record.attempt.clone(),
            source: Some(EventSource { dialect: dialect.to_owned(), record: Some(origin) }),
            unknown: record.unknown.clone(),
        });
    }

    fn add(&self, event: NewEvent) {
        // Only the random number generator can fail here, and an event stream must not fail what it reports.
        _ = self.events.append_now(STREAM, vec![event]);
    }

    /// The first kept event after this number, with its number. An unknown number belongs to another process.
    pub(super) fn next_after(&self, number: u64) -> Option<(u64, Bytes)> {
        let number = if number > self.last_number() { 0 } else { number };
        let record = self.events.read_now(STREAM, number, 1).pop()?;
        Some((record.seq, line(&record).into()))
    }

    /// The number of the last event.
    pub(super) fn last_number(&self) -> u64 {
        self.events.last_now(STREAM)
    }

    /// Notifies about new events.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.events.subscribe()
    }

    /// The metrics in Prometheus format, with the number of pending questions and active sessions.
    pub(super) fn metrics(&self, waiting: usize, working: usize) -> String {
        let mut text = String::new();
        let head = |name: &str, kind: &str, help: &str| format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        let counts = head("helve_calls_total", "counter", "Calls of tools that ended.");
        let times = head("helve_call_seconds", "summary", "How long calls of tools took.");
        let (mut of_counts, mut of_times) = (String::new(), String::new());
        for ((tool, outcome), tally) in &self.lock().calls {
            let labels = format!("{{tool=\"{}\",outcome=\"{outcome}\"}}", escape_label(tool));
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
        _ = writeln!(text, "helve_uptime_seconds {:.3}", self.started.elapsed().as_secs_f64());
        text.push_str(&head("process_resident_memory_bytes", "gauge", "Memory of this process."));
        _ = writeln!(text, "process_resident_memory_bytes {}", resident_bytes().unwrap_or_default());
        text
    }

    fn lock(&self) -> MutexGuard<'_, EventBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event for clients: the record with its dialect and its number in this process.
fn line(record: &EventRecord) -> Vec<u8> {
    let source = record.source.as_ref();
    let fields = ObjectWriter::with_prefix(Vec::with_capacity(512));
    let fields = match source.and_then(|it| it.record.as_ref()) {
        Some(origin) => fields
            .string("eventId", &origin.id)
            .value("seq", &origin.seq)
            .string("timestamp", &origin.timestamp)
            .string("type", record.event.name())
            .string("runId", &origin.stream)
            .optional_string("taskId", record.task.as_deref())
            .optional_string("attemptId", record.attempt.as_deref()),
        None => fields.string("timestamp", &record.timestamp).string("type", record.event.name()),
    };
    fields
        .raw_with("data", |out| record.append_data(out))
        .string("dialect", source.map_or("", |it| it.dialect.as_str()))
        .value("at", &record.seq)
        .finish()
}

impl EventBuffer {
    fn call_started(&mut self, run: &str, call: &ToolCall) {
        let about = call.args.to_string().chars().take(MAX_SUMMARY_CHARS).collect();
        self.open_calls.push_back((run.to_owned(), call.call_id.clone(), about));
        if self.open_calls.len() > MAX_OPEN_CALLS {
            self.open_calls.pop_front();
        }
    }

    fn call_finished(&mut self, dialect: &str, record: &EventRecord, result: &ToolResult) {
        let place = self.open_calls.iter().position(|(run, call, _)| *run == record.stream && *call == result.call_id);
        let about = place.and_then(|it| self.open_calls.remove(it)).map(|(_, _, about)| about).unwrap_or_default();
        if !result.denied {
            return;
        }
        let why = match &result.result {
            Value::String(text) => text.clone(),
            other => other["error"].as_str().map_or_else(|| other.to_string(), str::to_owned),
        };
        self.denied.push_back(json!({
            "at": record.timestamp, "dialect": dialect, "session": record.stream, "tool": result.tool,
            "summary": about, "why": why.chars().take(MAX_REASON_CHARS).collect::<String>(),
        }));
        if self.denied.len() > MAX_DENIALS {
            self.denied.pop_front();
        }
    }

    fn count(&mut self, result: &ToolResult) {
        let outcome = if result.is_error { "error" } else { "ok" };
        let mut key: (String, _) = (result.tool.chars().take(64).collect(), outcome);
        if !self.calls.contains_key(&key) && self.calls.len() >= MAX_TOOL_LABELS {
            "other".clone_into(&mut key.0);
        }
        let tally = self.calls.entry(key).or_default();
        tally.count += 1;
        tally.seconds += result.duration_ms / 1000.0;
    }
}

fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use helve_contract::events::SessionStarted;

    use super::*;

    fn record(event: impl Into<Event>) -> EventRecord {
        EventRecord::new("evt_1".into(), "r", 7, "T".into(), NewEvent::from(event))
    }

    fn called(id: &str, args: Value) -> EventRecord {
        record(ToolCall {
            agent_id: "main".into(),
            call_id: id.into(),
            tool_call_id: String::new(),
            tool: "bash".into(),
            tool_name: "bash".into(),
            task_id: None,
            profile: None,
            args: args.clone(),
            params: args,
            notes: Vec::new(),
        })
    }

    fn result(id: &str, tool: &str) -> ToolResult {
        ToolResult {
            agent_id: "main".into(),
            call_id: id.into(),
            tool_call_id: String::new(),
            tool: tool.into(),
            tool_name: tool.into(),
            task_id: None,
            denied: false,
            result: "no".into(),
            is_error: true,
            duration_ms: 1.5,
            exit: None,
            wall: None,
            notes: Vec::new(),
            spill: None,
        }
    }

    fn ended(tool: &str, is_error: bool) -> EventRecord {
        record(ToolResult { is_error, ..result("1", tool) })
    }

    #[test]
    fn goes_on_after_a_number_and_forgets_the_oldest() {
        let hub = EventBus::new();
        (0..MAX_EVENTS + 5).for_each(|_| hub.publish_call_event("solo", &called("1", json!({}))));
        assert_eq!(hub.next_after(0).unwrap().0, 6);
        let last = hub.last_number();
        assert_eq!(hub.next_after(last), None);
        assert_eq!(hub.next_after(last + 1000).unwrap().0, 6);
    }

    #[test]
    fn an_event_has_its_dialect_and_its_number_behind_what_was_recorded() {
        let hub = EventBus::new();
        let mut heard = called("1", json!({ "command": "ls" }));
        heard.task = Some("t1".into());
        hub.publish_call_event("solo", &heard);
        hub.publish("claude", SessionStarted { session: "s1".into(), parent: None });
        let text = |after| String::from_utf8(hub.next_after(after).unwrap().1.to_vec()).unwrap();
        assert_eq!(
            text(0),
            concat!(
                r#"{"eventId":"evt_1","seq":7,"timestamp":"T","type":"tool.call","runId":"r","taskId":"t1","#,
                r#""data":{"agentId":"main","callId":"1","tool":"bash","toolName":"bash","args":{"command":"ls"},"#,
                r#""params":{"command":"ls"}},"dialect":"solo","at":1}"#
            )
        );
        let second = text(1);
        let (time, rest) = second.split_at(r#"{"timestamp":"2026-11-18T06:00:00.000Z","#.len());
        assert!(time.starts_with(r#"{"timestamp":"2"#) && time.ends_with(r#"Z","#), "{second}");
        assert_eq!(
            rest,
            r#""type":"session.started","data":{"session":"s1","parent":null},"dialect":"claude","at":2}"#
        );
    }

    #[test]
    fn counts_calls_by_tool_and_outcome() {
        let hub = EventBus::new();
        for (tool, is_error) in [("read", false), ("read", false), ("a\"b", true)] {
            hub.publish_call_event("solo", &ended(tool, is_error));
        }
        let text = hub.metrics(0, 0);
        assert!(text.contains("helve_calls_total{tool=\"read\",outcome=\"ok\"} 2\n"), "{text}");
        assert!(text.contains("helve_call_seconds_sum{tool=\"read\",outcome=\"ok\"} 0.003000\n"), "{text}");
        assert!(text.contains("helve_calls_total{tool=\"a\\\"b\",outcome=\"error\"} 1\n"), "{text}");
    }

    #[test]
    fn a_refused_call_is_remembered_with_what_it_was_about() {
        let hub = EventBus::new();
        hub.publish_call_event("solo", &called("1", json!({ "command": "rm x" })));
        hub.publish_call_event("solo", &record(ToolResult { denied: true, ..result("1", "bash") }));
        assert_eq!(
            hub.recent_denials(),
            [json!({
                "at": "T", "dialect": "solo", "session": "r", "tool": "bash", "summary": "{\"command\":\"rm x\"}",
                "why": "no",
            })]
        );
        hub.publish_call_event("solo", &record(result("2", "bash")));
        assert_eq!((hub.recent_denials().len(), hub.lock().open_calls.len()), (1, 0));
    }

    #[test]
    fn invented_tools_do_not_fill_the_memory() {
        let hub = EventBus::new();
        (0..MAX_TOOL_LABELS + 10).for_each(|it| hub.publish_call_event("solo", &ended(&format!("t{it}"), true)));
        assert!(hub.lock().calls.len() <= MAX_TOOL_LABELS + 2);
        assert!(hub.metrics(0, 0).contains("helve_calls_total{tool=\"other\",outcome=\"error\"} 10\n"));
    }
}
