//! An event with its number, time and stream. It is a line of `events.ndjson` or a row of a store.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};
use serde_json::{Map, Value, value::RawValue};

use super::Event;
use crate::json::ObjectWriter;

/// An event that gets its number and time from a store.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// What happened.
    pub event: Event,
    /// The task of a planned run that it belongs to.
    pub task: Option<String>,
    /// The attempt at that task.
    pub attempt: Option<String>,
    /// Where a copy comes from.
    pub source: Option<EventSource>,
    /// Fields of the data that this version does not know.
    pub unknown: Map<String, Value>,
}

impl<T: Into<Event>> From<T> for NewEvent {
    fn from(event: T) -> Self {
        Self { event: event.into(), task: None, attempt: None, source: None, unknown: Map::new() }
    }
}

/// A recorded event.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRecord {
    /// The id: `eventId` in JSON.
    pub id: String,
    /// The number in its stream: from 1, without gaps.
    pub seq: u64,
    /// When: UTC to the millisecond, as text. Later events never have an earlier time where one clock is used.
    pub timestamp: String,
    /// The stream: `runId` in JSON.
    pub stream: String,
    /// The task of a planned run that it belongs to.
    pub task: Option<String>,
    /// The attempt at that task.
    pub attempt: Option<String>,
    /// What happened.
    pub event: Event,
    /// Fields of the data that this version does not know. They are written after the known ones.
    pub unknown: Map<String, Value>,
    /// Where a copy comes from.
    pub source: Option<EventSource>,
}

/// Where an event comes from that was copied into the stream of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSource {
    /// The dialect of the session.
    pub dialect: String,
    /// The record that was copied; `None` for an event of the server.
    pub record: Option<EventOrigin>,
}

/// The identity of a record in another stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventOrigin {
    /// The id.
    pub id: String,
    /// The number.
    pub seq: u64,
    /// The stream.
    pub stream: String,
    /// When.
    pub timestamp: String,
}

impl EventRecord {
    /// The event with what a store adds to it.
    pub fn new(id: String, stream: &str, seq: u64, timestamp: String, new: NewEvent) -> Self {
        let NewEvent { event, task, attempt, source, unknown } = new;
        Self { id, seq, timestamp, stream: stream.to_owned(), task, attempt, event, unknown, source }
    }

    /// The line of JSON, without a newline.
    pub fn to_json(&self) -> Vec<u8> {
        self.append_json(Vec::with_capacity(512))
    }

    /// The same after other bytes.
    pub fn append_json(&self, out: Vec<u8>) -> Vec<u8> {
        let source = self.source.as_ref().and_then(|it| serde_json::to_vec(it).ok());
        let fields = ObjectWriter::with_prefix(out)
            .string("eventId", &self.id)
            .value("seq", &self.seq)
            .string("timestamp", &self.timestamp)
            .string("type", self.event.name())
            .string("runId", &self.stream)
            .optional_string("taskId", self.task.as_deref())
            .optional_string("attemptId", self.attempt.as_deref())
            .raw_with("data", |out| self.append_data(out));
        match source {
            Some(source) => fields.raw("source", &source).finish(),
            None => fields.finish(),
        }
    }

    /// The data with the fields that this version does not know, after other bytes.
    pub fn append_data(&self, mut out: Vec<u8>) -> Vec<u8> {
        let start = out.len();
        if self.event.write_data(&mut out).is_err() {
            out.truncate(start);
            out.extend_from_slice(b"null");
            return out;
        }
        if self.unknown.is_empty() || !out.ends_with(b"}") {
            return out;
        }
        let Ok(unknown) = serde_json::to_vec(&self.unknown) else { return out };
        out.pop();
        if !out.ends_with(b"{") {
            out.push(b',');
        }
        out.extend_from_slice(unknown.get(1..).unwrap_or(b"}"));
        out
    }
}

impl Serialize for EventRecord {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let line = String::from_utf8(self.to_json()).map_err(S::Error::custom)?;
        RawValue::from_string(line).map_err(S::Error::custom)?.serialize(to)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(default)]
    event_id: String,
    seq: u64,
    #[serde(default)]
    timestamp: String,
    #[serde(rename = "type")]
    name: String,
    #[serde(default)]
    run_id: String,
    task_id: Option<String>,
    attempt_id: Option<String>,
    data: Option<Box<RawValue>>,
    source: Option<EventSource>,
}

impl<'de> Deserialize<'de> for EventRecord {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let line = Line::deserialize(from)?;
        let data = match line.data {
            Some(data) => data,
            None => RawValue::from_string("null".to_owned()).map_err(D::Error::custom)?,
        };
        let (event, unknown) = Event::parse(&line.name, &data);
        Ok(Self {
            id: line.event_id,
            seq: line.seq,
            timestamp: line.timestamp,
            stream: line.run_id,
            task: line.task_id,
            attempt: line.attempt_id,
            event,
            unknown,
            source: line.source,
        })
    }
}
