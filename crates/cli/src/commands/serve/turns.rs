//! The active sessions of this process, started by a person, a schedule, a webhook or an agent.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use helve_agent::TurnOutcome;
use helve_contract::{
    events::{SessionEnded, SessionMessage, SessionStarted, TurnEnd},
    ports::{Message, MessagePart},
};

use super::{board::truncate_text, hub::EventBus};

/// Active sessions with their number of turns.
pub(super) struct ActiveTurns {
    event_bus: Arc<EventBus>,
    working: Mutex<HashMap<String, usize>>,
}

/// A running turn. Dropping it ends the turn.
pub(super) struct ActiveTurn {
    turns: Arc<ActiveTurns>,
    session: String,
    dialect: String,
    is_published: bool,
}

impl ActiveTurns {
    pub(super) fn new(hub: Arc<EventBus>) -> Arc<Self> {
        Arc::new(Self { event_bus: hub, working: Mutex::default() })
    }

    /// A turn begins.
    pub(super) fn begin(self: &Arc<Self>, session: &str, dialect: &str, parent: Option<&str>) -> ActiveTurn {
        *self.lock().entry(session.to_owned()).or_default() += 1;
        self.event_bus
            .publish(dialect, SessionStarted { session: session.to_owned(), parent: parent.map(str::to_owned) });
        ActiveTurn {
            turns: self.clone(),
            session: session.to_owned(),
            dialect: dialect.to_owned(),
            is_published: false,
        }
    }

    /// Whether a session is at work.
    pub(super) fn is_working(&self, session: &str) -> bool {
        self.lock().contains_key(session)
    }

    /// How many are at work.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Messages were kept: the numbers are those of the store.
    pub(super) fn messages_stored(&self, session: &str, messages: &[Message]) {
        for message in messages {
            let event = SessionMessage {
                session: session.to_owned(),
                seq: message.seq,
                role: message.role,
                text: message_text(message),
            };
            self.event_bus.publish("", event);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActiveTurn {
    /// It ended like this.
    pub(super) fn end(mut self, outcome: &helve_contract::Result<TurnOutcome>) {
        let (end, why) = match outcome {
            Ok(outcome) => (outcome.stop_reason.turn_end(), outcome.stop_reason.why().map(str::to_owned)),
            Err(error) => (TurnEnd::Error, Some(error.to_string())),
        };
        self.finish(end, why);
    }

    /// It ended, and there is no more to say.
    pub(super) fn end_with(mut self, end: TurnEnd) {
        self.finish(end, None);
    }

    fn finish(&mut self, outcome: TurnEnd, why: Option<String>) {
        if std::mem::replace(&mut self.is_published, true) {
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
        self.turns.event_bus.publish(&self.dialect, SessionEnded { session: self.session.clone(), outcome, why });
    }
}

impl Drop for ActiveTurn {
    fn drop(&mut self) {
        self.finish(TurnEnd::Error, Some("it broke off".to_owned()));
    }
}

/// A short form of a message: calls by name, results by their beginning.
fn message_text(message: &Message) -> String {
    const SHORT: usize = 500;
    let short = |text: &str| text.chars().take(SHORT).collect::<String>();
    let parts = message.parts.iter().filter_map(|part| match part {
        MessagePart::Text { text } => Some(truncate_text(text)),
        MessagePart::ToolCall { name, input, .. } => Some(format!("[{name} {}]", short(input))),
        MessagePart::ToolResult { name, content, .. } => Some(format!("[{name}] {}", short(content))),
        MessagePart::Binary { mime_type, .. } => Some(format!("[{mime_type}]")),
        MessagePart::Reasoning { .. } | MessagePart::Opaque { .. } | MessagePart::Finish { .. } => None,
    });
    truncate_text(&parts.collect::<Vec<_>>().join("\n"))
}
