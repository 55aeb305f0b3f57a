//! Which conversations are at work in this process, whoever began it: a person, a schedule, a webhook, an agent.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use helve_agent::Outcome;
use helve_contract::{
    events::{SessionEnded, SessionMessage, SessionStarted, TurnEnd},
    ports::{Message, Part},
};

use super::{board::bounded, hub::Hub};

/// Conversations at work, with how many turns each.
pub(super) struct Turns {
    hub: Arc<Hub>,
    working: Mutex<HashMap<String, usize>>,
}

/// A turn that has begun. It ends when this is dropped, at the latest.
pub(super) struct Turn {
    turns: Arc<Turns>,
    session: String,
    dialect: String,
    told: bool,
}

impl Turns {
    pub(super) fn new(hub: Arc<Hub>) -> Arc<Self> {
        Arc::new(Self { hub, working: Mutex::default() })
    }

    /// A turn begins.
    pub(super) fn begin(self: &Arc<Self>, session: &str, dialect: &str, parent: Option<&str>) -> Turn {
        *self.lock().entry(session.to_owned()).or_default() += 1;
        self.hub.tell(dialect, SessionStarted { session: session.to_owned(), parent: parent.map(str::to_owned) });
        Turn { turns: self.clone(), session: session.to_owned(), dialect: dialect.to_owned(), told: false }
    }

    /// Whether a conversation is at work.
    pub(super) fn is_working(&self, session: &str) -> bool {
        self.lock().contains_key(session)
    }

    /// How many are at work.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Messages were kept: the numbers are those of the store.
    pub(super) fn said(&self, session: &str, messages: &[Message]) {
        for message in messages {
            let event = SessionMessage {
                session: session.to_owned(),
                seq: message.seq,
                role: message.role,
                text: words(message),
            };
            self.hub.tell("", event);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// It ended like this.
    pub(super) fn end(mut self, outcome: &helve_contract::Result<Outcome>) {
        let (end, why) = match outcome {
            Ok(outcome) => (outcome.ended.turn_end(), outcome.ended.why().map(str::to_owned)),
            Err(error) => (TurnEnd::Error, Some(error.to_string())),
        };
        self.leave(end, why);
    }

    /// It ended, and there is no more to say.
    pub(super) fn over(mut self, end: TurnEnd) {
        self.leave(end, None);
    }

    fn leave(&mut self, outcome: TurnEnd, why: Option<String>) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let mut working = self.turns.lock();
        if let Some(count) = working.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                working.remove(&self.session);
            }
        }
        drop(working);
        self.turns.hub.tell(&self.dialect, SessionEnded { session: self.session.clone(), outcome, why });
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.leave(TurnEnd::Error, Some("it broke off".to_owned()));
    }
}

/// The words of a message, in short: calls by their names, results by their beginning.
fn words(message: &Message) -> String {
    const SHORT: usize = 500;
    let short = |text: &str| text.chars().take(SHORT).collect::<String>();
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(bounded(text)),
        Part::ToolCall { name, input, .. } => Some(format!("[{name} {}]", short(input))),
        Part::ToolResult { name, content, .. } => Some(format!("[{name}] {}", short(content))),
        Part::Binary { mime_type, .. } => Some(format!("[{mime_type}]")),
        Part::Reasoning { .. } | Part::Opaque { .. } | Part::Finish { .. } => None,
    });
    bounded(&parts.collect::<Vec<_>>().join("\n"))
}
