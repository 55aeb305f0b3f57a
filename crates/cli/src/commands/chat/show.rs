//! What happens in a conversation, on the screen.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use helve_agent::{ATTACHED, Event};
use helve_contract::ports::{Message, Part, Speaker};
use serde_json::Value;

use crate::{
    knobs::SessionKnobs,
    print::harmless,
    terminal::{Markdown, Screen, called, calling, changes, count, short, took},
    undo::Memory,
};

/// Shows events as they come.
pub(super) struct Show {
    screen: Screen,
    memory: Arc<Memory>,
    knobs: Arc<SessionKnobs>,
    inner: Mutex<Inner>,
}

struct Inner {
    markdown: Markdown,
    /// Whether thoughts were shown last, and not words.
    thinking: bool,
    calls: HashMap<String, String>,
}

impl Show {
    pub(super) fn new(screen: Screen, memory: Arc<Memory>, knobs: Arc<SessionKnobs>) -> Self {
        let inner = Inner { markdown: Markdown::new(screen.look), thinking: false, calls: HashMap::new() };
        Self { screen, memory, knobs, inner: Mutex::new(inner) }
    }

    pub(super) fn hear(&self, event: &Event) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (screen, look) = (&self.screen, self.screen.look);
        match event {
            Event::Asking { .. } => screen.status(Some("thinking")),
            Event::Text(text) => {
                if std::mem::take(&mut inner.thinking) {
                    screen.end_line();
                }
                screen.write(&inner.markdown.push(text));
            }
            Event::Reasoning(text) if self.knobs.base().get("chat.reasoning") == Some(Value::Bool(true)) => {
                inner.thinking = true;
                screen.write(&look.dim(&harmless(text)));
            }
            Event::Calling { id, name, input } => {
                self.end_text(&mut inner);
                let call = calling(name, input);
                screen.status(Some(&call));
                inner.calls.insert(id.clone(), call);
            }
            Event::Progress { text, .. } => {
                if let Some(last) = text.lines().rfind(|it| !it.trim().is_empty()) {
                    screen.detail(&short(last, 60));
                }
            }
            Event::Called { id, name, reply, took } => {
                let call = inner.calls.remove(id).unwrap_or_else(|| harmless(name).into_owned());
                screen.line(&called(look, &call, reply, *took));
                screen.write(&changes(look, &self.memory.fresh()));
            }
            Event::Retrying { why, after } => {
                let text = format!("{}; asked again in {}", short(why, 200), took(*after));
                screen.line(&look.ink("33", &text));
            }
            Event::Compacted { before, after } => {
                let text =
                    format!("older messages were shortened: {} tokens are now {}", count(*before), count(*after));
                screen.line(&look.dim(&text));
            }
            Event::Child { title, ended, .. } => {
                let what = if *ended { "has ended" } else { "works" };
                screen.line(&look.dim(&format!("agent \"{}\" {what}", short(title, 80))));
            }
            Event::Notice(text) => screen.line(&look.ink("33", &harmless(text))),
            Event::Ended(_) => self.end_text(&mut inner),
            // The person shows the list, and the turn's end the bill.
            Event::Reasoning(_) | Event::Todos(_) | Event::Spent(_) => {}
        }
    }

    /// Ends the words that stand there.
    fn end_text(&self, inner: &mut Inner) {
        self.screen.write(&inner.markdown.finish());
        self.screen.end_line();
        inner.thinking = false;
    }
}

/// A message of an older part of the conversation, in few lines.
pub(super) fn in_short(message: &Message) -> Vec<String> {
    let who = match message.role {
        Speaker::User => "›",
        Speaker::Assistant => " ",
        Speaker::Tool | Speaker::System => return Vec::new(),
    };
    let is_list = |part: &Part| matches!(part, Part::Text { text } if text.starts_with(ATTACHED));
    let (said, files) = match message.parts.iter().position(is_list) {
        Some(at) => (&message.parts[..at], message.parts.get(at)),
        None => (&message.parts[..], None),
    };
    let listed = files.into_iter().flat_map(|part| match part {
        Part::Text { text } => text.lines().skip(1).map(|it| format!("{who} [file {}]", short(it, 160))).collect(),
        _ => Vec::new(),
    });
    let lines = said.iter().filter_map(|part| match part {
        Part::Text { text } if !text.trim().is_empty() => Some(format!("{who} {}", short(text, 100))),
        Part::ToolCall { name, input, .. } => Some(format!("  → {}", calling(name, input))),
        Part::Binary { path, mime_type, .. } => Some(format!("{who} [{mime_type} {}]", short(path, 100))),
        _ => None,
    });
    lines.chain(listed).collect()
}
