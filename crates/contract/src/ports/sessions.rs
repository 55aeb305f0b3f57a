//! Conversations as they are kept: who, how much, and every message in parts.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    leases::{Lease, SessionHolder},
    store::{NoStore, no_store_error},
};
use crate::Result;

/// Conversations. What was acknowledged survives a crash.
///
/// Every write to a session needs its lease and fails with [`Error::LeaseLost`](crate::Error::LeaseLost) where that is
/// stale. Whoever does not hold the session uses [`post`](Self::post). Times are those of the store's clock: `created` and
/// `updated` of what is passed are ignored.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Whether records are kept at all.
    fn keeps_records(&self) -> bool {
        true
    }
    /// Claims a session for so long; it need not have a record yet. The owner that holds it may claim it again.
    /// [`Error::SessionHeld`](crate::Error::SessionHeld): another owner has it.
    async fn claim_session(&self, session: &str, owner: &str, length: Duration) -> Result<Lease>;
    /// Renews a lease from now on, also one that ran out and that nobody claimed since.
    async fn hold_session(&self, lease: &Lease, length: Duration) -> Result<Lease>;
    /// Gives a lease back.
    async fn release_session(&self, lease: &Lease) -> Result<()>;
    /// Gives a lease back without waiting for it; where that is impossible, it runs out.
    fn abandon_session(&self, lease: &Lease);
    /// Who holds a session now, if anybody does.
    async fn session_holder(&self, session: &str) -> Result<Option<SessionHolder>>;
    /// Begins a conversation. Answers its record as it is kept.
    async fn create_session(&self, lease: &Lease, record: &SessionRecord) -> Result<SessionRecord>;
    /// One conversation, if there is one of this id.
    async fn get_session(&self, id: &str) -> Result<Option<SessionRecord>>;
    /// Conversations, the last used first, and how many there are in all.
    async fn list_sessions(&self, which: &SessionFilter) -> Result<(Vec<SessionRecord>, u64)>;
    /// Adds messages at the end, in one transaction, with what they cost. Their numbers are given here; `seq` of what
    /// is passed is ignored.
    async fn append_messages(&self, lease: &Lease, messages: &[Message], spent: TokenUsage) -> Result<Appended>;
    /// Leaves something for whoever holds the session now or next. Needs no lease.
    async fn post(&self, session: &str, item: &InboxItem) -> Result<()>;
    /// Moves everything from the inbox into the session, in one transaction and in the order in which it was posted.
    async fn take_inbox(&self, lease: &Lease) -> Result<Moved>;
    /// Adds to what a session has cost. Needs no lease, because sums have no order.
    async fn add_cost(&self, session: &str, spent: TokenUsage) -> Result<()>;
    /// Messages in order: the last `most` of those before `before` (all of them: `None`).
    async fn messages(&self, session: &str, before: Option<u64>, most: usize) -> Result<Vec<Message>>;
    /// What the model's answers took, oldest first: the last `most` of them.
    async fn usage(&self, session: &str, most: usize) -> Result<Vec<UsageRecord>>;
    /// Takes messages back, from this number to the end: an undone turn. How many went.
    async fn truncate_messages(&self, lease: &Lease, from: u64) -> Result<u64>;
    /// Changes what is said about a conversation: its title, model, summary.
    async fn update_session(&self, lease: &Lease, change: &SessionUpdate) -> Result<()>;
    /// Removes a conversation with its children, unless somebody holds it.
    async fn delete_session(&self, session: &str) -> Result<bool>;
}

/// What is known of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Its id: a UUID.
    pub id: String,
    /// A name by which people and programs find it in its workspace, such as `hook:build`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The conversation that started it.
    pub parent: Option<String>,
    /// Whose it is.
    pub user: String,
    /// Which agent speaks: `main`, or a kind of sub-agent.
    pub agent: String,
    /// What it is about, in a line.
    pub title: String,
    /// The dialect that its tools speak.
    pub dialect: String,
    /// The model.
    pub model: String,
    /// The folder it works in.
    pub workspace: String,
    /// How many messages.
    pub messages: u64,
    /// What it has cost so far.
    pub spent: TokenUsage,
    /// The message from which a model's view begins, when older ones were summed up.
    pub view_from: Option<u64>,
    /// When it began.
    pub created: Timestamp,
    /// When something last happened.
    pub updated: Timestamp,
}

/// What a model took and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Tokens of prompts, with those that were read from or written to the provider's cache.
    pub prompt_tokens: u64,
    /// Tokens of answers, with reasoning.
    pub completion_tokens: u64,
    /// Tokens of prompts that the provider read from its cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Tokens of prompts that the provider wrote to its cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// Tokens of answers that were reasoning.
    #[serde(default)]
    pub reasoning_tokens: u64,
    /// US dollars, where the price is known.
    pub cost: f64,
}

impl std::ops::Add for TokenUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            completion_tokens: self.completion_tokens.saturating_add(other.completion_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_add(other.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
            cost: self.cost + other.cost,
        }
    }
}

/// What one answer of a model took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// When it came.
    pub at: Timestamp,
    /// What it took.
    pub spent: TokenUsage,
}

/// Which conversations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Of this user only.
    pub user: Option<String>,
    /// Children of this conversation only.
    pub parent: Option<String>,
    /// Those that no other one started only.
    pub top_level_only: bool,
    /// In this workspace only.
    pub workspace: Option<String>,
    /// With this label only.
    pub label: Option<String>,
    /// How many to skip.
    pub offset: u64,
    /// How many at most.
    pub limit: u64,
}

/// What to say anew about a conversation; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionUpdate {
    /// Its title.
    pub title: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The message from which a model's view begins.
    pub view_from: Option<u64>,
}

/// What became of messages that were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The number of the last one.
    pub last: u64,
    /// When they were added.
    pub at: Timestamp,
}

/// Something for a session from somebody who does not hold it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InboxItem {
    /// A message for the end of the session.
    Message {
        /// Who speaks.
        role: MessageRole,
        /// What is said.
        parts: Vec<MessagePart>,
    },
    /// Messages from this number on are taken back.
    Undo {
        /// The first one.
        from: u64,
    },
}

impl InboxItem {
    /// A message in plain text.
    #[must_use]
    pub fn text(role: MessageRole, text: impl Into<String>) -> Self {
        Self::Message { role, parts: vec![MessagePart::Text { text: text.into() }] }
    }
}

/// What was moved from an inbox into its session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moved {
    /// Messages that were added, with their numbers.
    pub messages: Vec<Message>,
    /// Whether older messages were taken back.
    pub undone: bool,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its place in the conversation, from 1; given by the store.
    #[serde(default)]
    pub seq: u64,
    /// Who speaks.
    pub role: MessageRole,
    /// What is said.
    pub parts: Vec<MessagePart>,
    /// When.
    pub created: Timestamp,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageRole {
    /// The person, or what speaks for one: a schedule, a webhook.
    User,
    /// The model.
    Assistant,
    /// The tools.
    Tool,
    /// Helve itself: a summary of older messages.
    System,
}

/// Why a message of the model ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum FinishReason {
    /// The model had no more to say.
    EndTurn,
    /// The model calls tools.
    ToolUse,
    /// Somebody cancelled the turn.
    Canceled,
    /// The model's limit for one answer.
    Limit,
    /// The connection broke.
    Error,
    /// A reason that this version does not know.
    Other(String),
}

impl FinishReason {
    /// The name in JSON.
    pub fn as_str(&self) -> &str {
        match self {
            Self::EndTurn => "end_turn",
            Self::ToolUse => "tool_use",
            Self::Canceled => "canceled",
            Self::Limit => "limit",
            Self::Error => "error",
            Self::Other(name) => name,
        }
    }

    /// Whether the message is complete, so that a reader need not be told how it ended.
    pub fn is_usual(&self) -> bool {
        matches!(self, Self::EndTurn | Self::ToolUse)
    }
}

impl From<String> for FinishReason {
    fn from(name: String) -> Self {
        let known = [Self::EndTurn, Self::ToolUse, Self::Canceled, Self::Limit, Self::Error];
        known.into_iter().find(|it| it.as_str() == name).unwrap_or(Self::Other(name))
    }
}

impl From<FinishReason> for String {
    fn from(reason: FinishReason) -> Self {
        reason.as_str().to_owned()
    }
}

impl std::fmt::Display for FinishReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessagePart {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
    /// What the model thought aloud.
    Reasoning {
        /// The words.
        thinking: String,
    },
    /// A provider's item that only the same API and model can read: a signed or encrypted piece of reasoning. It goes
    /// back unchanged, in its place, and to nobody else.
    Opaque {
        /// The API it belongs to: `chat`, `anthropic`, `responses`, `gemini`.
        api: String,
        /// The model that made it.
        model: String,
        /// The item as the API gave it.
        data: serde_json::Value,
    },
    /// The model calls a tool.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// Its arguments as the model wrote them.
        input: String,
        /// Whether the whole call arrived.
        finished: bool,
    },
    /// What a tool answered.
    ToolResult {
        /// The call's id.
        tool_call_id: String,
        /// The tool.
        name: String,
        /// The words of its reply.
        content: String,
        /// Whether it failed.
        is_error: bool,
    },
    /// How the message ended.
    Finish {
        /// Why.
        reason: FinishReason,
    },
    /// A picture or another file.
    Binary {
        /// Where it came from.
        path: String,
        /// MIME type.
        mime_type: String,
        /// The bytes, in base64.
        data: String,
    },
}

#[async_trait]
impl Sessions for NoStore {
    fn keeps_records(&self) -> bool {
        false
    }
    async fn claim_session(&self, session: &str, owner: &str, _: Duration) -> Result<Lease> {
        // What cannot be written needs no other guard.
        Ok(Lease { key: session.to_owned(), owner: owner.to_owned(), epoch: 0, until: Timestamp::MAX })
    }
    async fn hold_session(&self, lease: &Lease, _: Duration) -> Result<Lease> {
        Ok(lease.clone())
    }
    async fn release_session(&self, _: &Lease) -> Result<()> {
        Ok(())
    }
    fn abandon_session(&self, _: &Lease) {}
    async fn session_holder(&self, _: &str) -> Result<Option<SessionHolder>> {
        Ok(None)
    }
    async fn create_session(&self, _: &Lease, _: &SessionRecord) -> Result<SessionRecord> {
        no_store_error()
    }
    async fn get_session(&self, _: &str) -> Result<Option<SessionRecord>> {
        Ok(None)
    }
    async fn list_sessions(&self, _: &SessionFilter) -> Result<(Vec<SessionRecord>, u64)> {
        Ok((Vec::new(), 0))
    }
    async fn append_messages(&self, _: &Lease, _: &[Message], _: TokenUsage) -> Result<Appended> {
        no_store_error()
    }
    async fn post(&self, _: &str, _: &InboxItem) -> Result<()> {
        no_store_error()
    }
    async fn take_inbox(&self, _: &Lease) -> Result<Moved> {
        Ok(Moved::default())
    }
    async fn add_cost(&self, _: &str, _: TokenUsage) -> Result<()> {
        no_store_error()
    }
    async fn messages(&self, _: &str, _: Option<u64>, _: usize) -> Result<Vec<Message>> {
        Ok(Vec::new())
    }
    async fn usage(&self, _: &str, _: usize) -> Result<Vec<UsageRecord>> {
        Ok(Vec::new())
    }
    async fn truncate_messages(&self, _: &Lease, _: u64) -> Result<u64> {
        no_store_error()
    }
    async fn update_session(&self, _: &Lease, _: &SessionUpdate) -> Result<()> {
        no_store_error()
    }
    async fn delete_session(&self, _: &str) -> Result<bool> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_a_newer_version_is_kept() {
        for name in ["end_turn", "tool_use", "canceled", "limit", "error", "paused"] {
            let json = format!("{{\"type\":\"finish\",\"reason\":\"{name}\"}}");
            let part: MessagePart = serde_json::from_str(&json).unwrap();
            assert_eq!(matches!(part, MessagePart::Finish { reason: FinishReason::Other(_) }), name == "paused");
            assert_eq!(serde_json::to_string(&part).unwrap(), json);
        }
    }
}
