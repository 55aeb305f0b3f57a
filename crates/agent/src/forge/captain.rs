//! What a captain says and does, in the record of its run.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use helve_engine::{Events, Scrub};
use serde_json::{Value, json};

use super::Home;
use crate::Event;

/// How much of one message, of arguments or of a result is recorded.
const BOUND: usize = 16 << 10;

/// Writes down what a captain says and does, and what comes of it.
pub struct Diary {
    record: Events,
    scrub: Scrub,
    said: Mutex<String>,
}

impl Diary {
    /// The diary of a run's captain.
    pub fn open(home: &Home, run: &str) -> io::Result<Self> {
        let record = Events::file(home.events(run)?, run)?;
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
                self.tell("captain.tool_call", json!({ "toolName": name, "args": args }));
            }
            Event::Called { name, reply, .. } => {
                self.tell("captain.tool_result", json!({ "toolName": name, "result": bounded(&reply.text) }));
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
            let content = self.scrub.text(&said);
            self.tell("captain.message", json!({ "content": content, "role": "assistant" }));
        }
    }

    /// An artifact was written: `spec`, `task`, `dag`.
    pub fn written(&self, path: &str, kind: &str) {
        self.tell("artifact.written", json!({ "path": path, "type": kind }));
    }

    /// The plan is whole.
    pub fn finalized(&self, tasks: usize, refineries: usize, specs: usize) {
        let data = json!({ "totalTasks": tasks, "totalRefineries": refineries, "specCount": specs });
        self.tell("plan.finalized", data);
    }

    /// A record that cannot be written never stops a captain.
    fn tell(&self, kind: &str, data: Value) {
        _ = self.record.emit(kind, data);
    }
}

/// What a tool of the captain writes.
fn made_by(tool: &str) -> Option<&'static str> {
    match tool {
        "create_spec" => Some("spec"),
        "create_task" => Some("task"),
        "set_dag" => Some("dag"),
        _ => None,
    }
}

fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(BOUND)]
}
