//! Events of a session.

use std::{sync::Arc, time::Duration};

use helve_contract::{
    Reply,
    ports::{Todo, TokenUsage},
};

use crate::TurnOutcome;

/// Hears everything that happens in a session. It must not block.
pub type AgentListener = Arc<dyn Fn(&AgentEvent) + Send + Sync>;

/// Something that happened.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "events are lent, and not kept in lists")]
pub enum AgentEvent {
    /// The model is asked.
    ModelRequested {
        /// Which time in this turn, from 1.
        turn: u32,
    },
    /// The model says something: a piece.
    Text(String),
    /// The model thinks aloud: a piece.
    Reasoning(String),
    /// A tool is called; the call is complete.
    ToolCallStarted {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// The arguments as the model wrote them.
        input: String,
    },
    /// A running call says something: a command's output.
    Progress {
        /// The call's id.
        id: String,
        /// The piece.
        text: String,
    },
    /// A call has ended.
    ToolCallFinished {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// What the model will see.
        reply: Reply,
        /// How long it took.
        took: Duration,
    },
    /// The to-do list changed.
    TodosChanged(Vec<Todo>),
    /// The endpoint failed, and is asked again.
    Retrying {
        /// Why.
        why: String,
        /// After this long.
        after: Duration,
    },
    /// Older messages were summed up or shortened, so that the rest fits.
    Compacted {
        /// Tokens before, about.
        before: u64,
        /// Tokens after, about.
        after: u64,
    },
    /// An agent was started, or has ended.
    SubAgent {
        /// Its id.
        id: String,
        /// What it does.
        title: String,
        /// Whether it has ended.
        ended: bool,
    },
    /// Something that the user should know.
    Notice(String),
    /// What the last answer of the model took.
    Usage(TokenUsage),
    /// The turn is over.
    TurnEnded(TurnOutcome),
}
