//! What a captain says and does, in the record of its run.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use helve_contract::{
    events::{self, ArtifactKind, ArtifactWritten, CaptainMessage, CaptainToolCall, CaptainToolResult, PlanFinalized},
    ports::Speaker,
};
use helve_engine::{EventLog, Scrub};
use serde_json::Value;

use super::{Home, Run};
use crate::Event;

/// How much of one message, of arguments or of a result is recorded.
const BOUND: usize = 16 << 10;

/// Writes down what a captain says and does, and what comes of it.
pub struct Diary {
    record: EventLog,
    scrub: Scrub,
    said: Mutex<String>,
}

impl Diary {
    /// The diary of a run's captain.
    pub fn open(home: &Home, run: &Run) -> io::Result<Self> {
        let record = EventLog::file(home.events(run)?, run.id.as_str())?;
        Ok(Self { record, scrub: Scrub::standard(), said: Mutex::default() })
    }

    /// Takes in what happens in the captain's conversation.
    pub fn hear(&self, event: &Event) {
        match event {
            Event::Text(piece) => {
                let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
                if said.len() < BOUND {
                    said.push_str(piece);
                }
            }
            Event::Calling { name, input, .. } => {
                self.message();
                let input = self.scrub.text(bounded(input));
                let args = serde_json::from_str(&input).unwrap_or_else(|_| Value::from(input.as_ref()));
                self.tell(CaptainToolCall { tool_name: name.clone(), args });
            }
            Event::Called { name, reply, .. } => {
                self.tell(CaptainToolResult { tool_name: name.clone(), result: bounded(&reply.text).to_owned() });
                let path = reply.data.as_ref().and_then(|it| it["path"].as_str());
                if let (Some(kind), Some(path), false) = (made_by(name), path, reply.is_error) {
                    self.written(path, kind);
                }
            }
            Event::Ended(_) => self.message(),
            _ => {}
        }
    }

    /// What was said until now is a message.
    fn message(&self) {
        let said = std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner));
        if !said.trim().is_empty() {
            let content = self.scrub.text(&said).into_owned();
            self.tell(CaptainMessage { content, role: Speaker::Assistant });
        }
    }

    /// An artifact was written.
    pub fn written(&self, path: &str, kind: ArtifactKind) {
        self.tell(ArtifactWritten { path: path.to_owned(), kind });
    }

    /// The plan is whole.
    pub fn finalized(&self, tasks: usize, refineries: usize, specs: usize) {
        self.tell(PlanFinalized {
            total_tasks: tasks as u64,
            total_refineries: refineries as u64,
            spec_count: specs as u64,
        });
    }

    /// A record that cannot be written never stops a captain.
    fn tell(&self, event: impl Into<events::Event>) {
        _ = self.record.emit(event);
    }
}

/// What a tool of the captain writes.
fn made_by(tool: &str) -> Option<ArtifactKind> {
    match tool {
        "create_spec" => Some(ArtifactKind::Spec),
        "create_task" => Some(ArtifactKind::Task),
        "set_dag" => Some(ArtifactKind::Dag),
        _ => None,
    }
}

fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(BOUND)]
}
