//! Records what a captain says and does in its run's event log.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use helve_contract::{
    events::{self, ArtifactKind, ArtifactWritten, CaptainMessage, CaptainToolCall, CaptainToolResult, PlanFinalized},
    ports::MessageRole,
};
use helve_engine::{EventLog, Redactor};
use serde_json::Value;

use super::{ForgeDir, Run};
use crate::AgentEvent;

/// How much of one message, of arguments or of a result is recorded.
const MAX_FIELD_BYTES: usize = 16 << 10;

/// Writes down what a captain says and does, and what comes of it.
pub struct CaptainLog {
    event_log: EventLog,
    redactor: Redactor,
    pending_text: Mutex<String>,
}

impl CaptainLog {
    /// The diary of a run's captain.
    pub fn open(home: &ForgeDir, run: &Run) -> io::Result<Self> {
        let record = EventLog::file(home.event_file(run)?, run.id.as_str())?;
        Ok(Self { event_log: record, redactor: Redactor::standard(), pending_text: Mutex::default() })
    }

    /// Takes in what happens in the captain's session.
    pub fn record(&self, event: &AgentEvent) {
        match event {
            AgentEvent::Text(piece) => {
                let mut said = self.pending_text.lock().unwrap_or_else(PoisonError::into_inner);
                if said.len() < MAX_FIELD_BYTES {
                    said.push_str(piece);
                }
            }
            AgentEvent::ToolCallStarted { name, input, .. } => {
                self.flush_message();
                let input = self.redactor.redact_text(truncate(input));
                let args = serde_json::from_str(&input).unwrap_or_else(|_| Value::from(input.as_ref()));
                self.emit(CaptainToolCall { tool_name: name.clone(), args });
            }
            AgentEvent::ToolCallFinished { name, reply, .. } => {
                self.emit(CaptainToolResult { tool_name: name.clone(), result: truncate(&reply.text).to_owned() });
                let path = reply.data.as_ref().and_then(|it| it["path"].as_str());
                if let (Some(kind), Some(path), false) = (artifact_kind_of_tool(name), path, reply.is_error) {
                    self.artifact_written(path, kind);
                }
            }
            AgentEvent::TurnEnded(_) => self.flush_message(),
            _ => {}
        }
    }

    /// Records the text so far as a message.
    fn flush_message(&self) {
        let said = std::mem::take(&mut *self.pending_text.lock().unwrap_or_else(PoisonError::into_inner));
        if !said.trim().is_empty() {
            let content = self.redactor.redact_text(&said).into_owned();
            self.emit(CaptainMessage { content, role: MessageRole::Assistant });
        }
    }

    /// An artifact was written.
    pub fn artifact_written(&self, path: &str, kind: ArtifactKind) {
        self.emit(ArtifactWritten { path: path.to_owned(), kind });
    }

    /// The plan is whole.
    pub fn plan_finalized(&self, tasks: usize, refineries: usize, specs: usize) {
        self.emit(PlanFinalized {
            total_tasks: tasks as u64,
            total_refineries: refineries as u64,
            spec_count: specs as u64,
        });
    }

    /// A failed record never stops a captain.
    fn emit(&self, event: impl Into<events::Event>) {
        _ = self.event_log.emit(event);
    }
}

/// What a tool of the captain writes.
fn artifact_kind_of_tool(tool: &str) -> Option<ArtifactKind> {
    match tool {
        "create_spec" => Some(ArtifactKind::Spec),
        "create_task" => Some(ArtifactKind::Task),
        "set_dag" => Some(ArtifactKind::Dag),
        _ => None,
    }
}

fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_FIELD_BYTES)]
}
