//! Prints the events of a session.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use helve_agent::{ATTACHED, AgentEvent};
use helve_contract::ports::{Message, MessagePart, MessageRole};
use serde_json::Value;

use crate::{
    knobs::SessionKnobs,
    print::escape_for_terminal,
    terminal::{
        MarkdownRenderer, Screen, format_call, format_count, format_diffs, format_duration, format_result, one_line,
    },
    undo::UndoLog,
};

/// Shows events as they come.
pub(super) struct EventView {
    screen: Screen,
    memory: Arc<UndoLog>,
    runtime_settings: Arc<SessionKnobs>,
    inner: Mutex<EventViewState>,
}

struct EventViewState {
    markdown: MarkdownRenderer,
    /// Whether the last output was reasoning rather than text.
    thinking: bool,
    calls: HashMap<String, String>,
}

impl EventView {
    pub(super) fn new(screen: Screen, memory: Arc<UndoLog>, knobs: Arc<SessionKnobs>) -> Self {
        let inner = EventViewState {
            markdown: MarkdownRenderer::new(screen.capabilities),
            thinking: false,
            calls: HashMap::new(),
        };
        Self { screen, memory, runtime_settings: knobs, inner: Mutex::new(inner) }
    }

    pub(super) fn show_event(&self, event: &AgentEvent) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (screen, look) = (&self.screen, self.screen.capabilities);
        match event {
            AgentEvent::ModelRequested { .. } => screen.set_status(Some("thinking")),
            AgentEvent::Text(text) => {
                if std::mem::take(&mut inner.thinking) {
                    screen.end_line();
                }
                screen.write(&inner.markdown.push(text));
            }
            AgentEvent::Reasoning(text)
                if self.runtime_settings.base().get("chat.reasoning") == Some(Value::Bool(true)) =>
            {
                inner.thinking = true;
                screen.write(&look.dim(&escape_for_terminal(text)));
            }
            AgentEvent::ToolCallStarted { id, name, input } => {
                self.end_text(&mut inner);
                let call = format_call(name, input);
                screen.set_status(Some(&call));
                inner.calls.insert(id.clone(), call);
            }
            AgentEvent::Progress { text, .. } => {
                if let Some(last) = text.lines().rfind(|it| !it.trim().is_empty()) {
                    screen.set_detail(&one_line(last, 60));
                }
            }
            AgentEvent::ToolCallFinished { id, name, reply, took } => {
                let call = inner.calls.remove(id).unwrap_or_else(|| escape_for_terminal(name).into_owned());
                screen.line(&format_result(look, &call, reply, *took));
                screen.write(&format_diffs(look, &self.memory.take_diffs()));
            }
            AgentEvent::Retrying { why, after } => {
                let text = format!("{}; asked again in {}", one_line(why, 200), format_duration(*after));
                screen.line(&look.style("33", &text));
            }
            AgentEvent::Compacted { before, after } => {
                let text = format!(
                    "older messages were shortened: {} tokens are now {}",
                    format_count(*before),
                    format_count(*after)
                );
                screen.line(&look.dim(&text));
            }
            AgentEvent::SubAgent { title, ended, .. } => {
                let what = if *ended { "has ended" } else { "works" };
                screen.line(&look.dim(&format!("agent \"{}\" {what}", one_line(title, 80))));
            }
            AgentEvent::Notice(text) => screen.line(&look.style("33", &escape_for_terminal(text))),
            AgentEvent::TurnEnded(_) => self.end_text(&mut inner),
            // The `User` port prints the to-do list, and the end of the turn prints the cost.
            AgentEvent::Reasoning(_) | AgentEvent::TodosChanged(_) | AgentEvent::Usage(_) => {}
        }
    }

    /// Ends the current line.
    fn end_text(&self, inner: &mut EventViewState) {
        self.screen.write(&inner.markdown.finish());
        self.screen.end_line();
        inner.thinking = false;
    }
}

/// A message of an older part of the session, in few lines.
pub(super) fn summarize_message(message: &Message) -> Vec<String> {
    let who = match message.role {
        MessageRole::User => "›",
        MessageRole::Assistant => " ",
        MessageRole::Tool | MessageRole::System => return Vec::new(),
    };
    let is_list = |part: &MessagePart| matches!(part, MessagePart::Text { text } if text.starts_with(ATTACHED));
    let (said, files) = match message.parts.iter().position(is_list) {
        Some(at) => (&message.parts[..at], message.parts.get(at)),
        None => (&message.parts[..], None),
    };
    let listed = files.into_iter().flat_map(|part| match part {
        MessagePart::Text { text } => {
            text.lines().skip(1).map(|it| format!("{who} [file {}]", one_line(it, 160))).collect()
        }
        _ => Vec::new(),
    });
    let lines = said.iter().filter_map(|part| match part {
        MessagePart::Text { text } if !text.trim().is_empty() => Some(format!("{who} {}", one_line(text, 100))),
        MessagePart::ToolCall { name, input, .. } => Some(format!("  → {}", format_call(name, input))),
        MessagePart::Binary { path, mime_type, .. } => Some(format!("{who} [{mime_type} {}]", one_line(path, 100))),
        _ => None,
    });
    lines.chain(listed).collect()
}
