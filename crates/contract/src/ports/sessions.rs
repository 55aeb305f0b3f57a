//! The `Sessions` port: stored sessions with their messages, inbox and cost.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    leases::{Lease, SessionHolder},
    store::{NoStore, no_store_error},
};
use crate::Result;

/// Stored sessions. Acknowledged writes survive a crash.
///
/// Every write to a session needs its lease and fails with [`Error::LeaseLost`](crate::Error::LeaseLost) if the lease
/// is stale. Callers without the lease use [`post`](Self::post). Times come from the store's clock: `created` and
/// `updated` in the arguments are ignored.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Whether this store keeps records.
    fn keeps_records(&self) -> bool {
        true
    }
    /// Claims a session for `length`; it need not have a record yet. The holder may claim it again.
    /// [`Error::SessionHeld`](crate::Error::SessionHeld): another owner holds it.
    async fn claim_session(&self, session: &str, owner: &str, length: Duration) -> Result<Lease>;
    /// Renews a lease from now. An expired lease is renewable until somebody claims the session.
    async fn hold_session(&self, lease: &Lease, length: Duration) -> Result<Lease>;
    /// Releases a lease.
    async fn release_session(&self, lease: &Lease) -> Result<()>;
    /// Releases a lease without waiting; if that is impossible, the lease expires.
    fn abandon_session(&self, lease: &Lease);
    /// The current holder of a session, if any.
    async fn session_holder(&self, session: &str) -> Result<Option<SessionHolder>>;
    /// Creates a session. Returns the stored record.
    async fn create_session(&self, lease: &Lease, record: &SessionRecord) -> Result<SessionRecord>;
    /// One session. `None` if the id is unknown.
    async fn get_session(&self, id: &str) -> Result<Option<SessionRecord>>;
    /// The sessions, most recently used first, and their total number.
    async fn list_sessions(&self, which: &SessionFilter) -> Result<(Vec<SessionRecord>, u64)>;
    /// Appends messages and adds their cost, in one transaction. The store assigns the numbers; `seq` in the arguments
    /// is ignored.
    async fn append_messages(&self, lease: &Lease, messages: &[Message], spent: TokenUsage) -> Result<Appended>;
    /// Posts an item to the inbox, for the current or next holder of the session. Needs no lease.
    async fn post(&self, session: &str, item: &InboxItem) -> Result<()>;
    /// Moves all inbox items into the session, in one transaction and in the order of posting.
    async fn take_inbox(&self, lease: &Lease) -> Result<Moved>;
    /// Adds to the cost of a session. Needs no lease, because sums have no order.
    async fn add_cost(&self, session: &str, spent: TokenUsage) -> Result<()>;
    /// Messages in order: the last `most` of those before `before` (`None`: of all).
    async fn messages(&self, session: &str, before: Option<u64>, most: usize) -> Result<Vec<Message>>;
    /// The usage of the model's answers, oldest first: the last `most`.
    async fn usage(&self, session: &str, most: usize) -> Result<Vec<UsageRecord>>;
    /// Removes messages from this number to the end (undo). Returns the number removed.
    async fn truncate_messages(&self, lease: &Lease, from: u64) -> Result<u64>;
    /// Updates the metadata of a session: title, model, start of the model's view.
    async fn update_session(&self, lease: &Lease, change: &SessionUpdate) -> Result<()>;
    /// Removes a session with its children, unless somebody holds it.
    async fn delete_session(&self, session: &str) -> Result<bool>;
}

/// The metadata of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Its id: a UUID.
    pub id: String,
    /// A name that identifies it in its workspace, such as `hook:build`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The session that started it.
    pub parent: Option<String>,
    /// The user that owns it.
    pub user: String,
    /// The agent: `main`, or a kind of sub-agent.
    pub agent: String,
    /// The topic, in one line.
    pub title: String,
    /// The dialect of its tools.
    pub dialect: String,
    /// The model.
    pub model: String,
    /// The directory it works in.
    pub workspace: String,
    /// The number of messages.
    pub messages: u64,
    /// The cost so far.
    pub spent: TokenUsage,
    /// The first message of the model's view, if older ones were summarised.
    pub view_from: Option<u64>,
    /// When it was created.
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
}

/// Tokens and cost of model requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Prompt tokens, including those read from or written to the provider's cache.
    pub prompt_tokens: u64,
    /// Answer tokens, including reasoning.
    pub completion_tokens: u64,
    /// Prompt tokens that the provider read from its cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Prompt tokens that the provider wrote to its cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// Answer tokens used for reasoning.
    #[serde(default)]
    pub reasoning_tokens: u64,
    /// US dollars, if the price is known.
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

/// The usage of one model answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// When the answer arrived.
    pub at: Timestamp,
    /// The tokens and the cost.
    pub spent: TokenUsage,
}

/// A filter for sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// The owner.
    pub user: Option<String>,
    /// The parent session.
    pub parent: Option<String>,
    /// Only sessions without a parent.
    pub top_level_only: bool,
    /// The workspace.
    pub workspace: Option<String>,
    /// The label.
    pub label: Option<String>,
    /// The number of sessions to skip.
    pub offset: u64,
    /// The maximum number of sessions.
    pub limit: u64,
}

/// New metadata of a session; `None` keeps the old value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionUpdate {
    /// Its title.
    pub title: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The first message of the model's view.
    pub view_from: Option<u64>,
}

/// The result of appending messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The number of the last message.
    pub last: u64,
    /// When they were added.
    pub at: Timestamp,
}

/// An inbox item: something for a session from a caller without its lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InboxItem {
    /// A message to append.
    Message {
        /// The author.
        role: MessageRole,
        /// The content.
        parts: Vec<MessagePart>,
    },
    /// Removes messages from this number on.
    Undo {
        /// The number of the first removed message.
        from: u64,
    },
}

impl InboxItem {
    /// A plain text message.
    #[must_use]
    pub fn text(role: MessageRole, text: impl Into<String>) -> Self {
        Self::Message { role, parts: vec![MessagePart::Text { text: text.into() }] }
    }
}

/// The items that moved from an inbox into its session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moved {
    /// The appended messages, with their numbers.
    pub messages: Vec<Message>,
    /// Whether older messages were removed.
    pub undone: bool,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its number in the session, from 1; the store assigns it.
    #[serde(default)]
    pub seq: u64,
    /// The author.
    pub role: MessageRole,
    /// The content.
    pub parts: Vec<MessagePart>,
    /// When it was stored.
    pub created: Timestamp,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageRole {
    /// The user, or a schedule or webhook on the user's behalf.
    User,
    /// The model.
    Assistant,
    /// The tools.
    Tool,
    /// Helve: a summary of older messages.
    System,
}

/// Why a message of the model ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum FinishReason {
    /// The model finished its answer.
    EndTurn,
    /// The model called tools.
    ToolUse,
    /// The turn was cancelled.
    Canceled,
    /// The answer reached the model's limit.
    Limit,
    /// The connection failed.
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

    /// Whether the message is complete, so that readers need no note about its end.
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
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning of the model.
    Reasoning {
        /// The text.
        thinking: String,
    },
    /// An item that only the same API and model can read: a signed or encrypted part of the reasoning. Helve sends it
    /// back unchanged, in its place, and only to them.
    Opaque {
        /// The API: `chat`, `anthropic`, `responses`, `gemini`.
        api: String,
        /// The model that created it.
        model: String,
        /// The item as the API sent it.
        data: serde_json::Value,
    },
    /// A tool call of the model.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// Its arguments as the model wrote them.
        input: String,
        /// Whether the call arrived completely.
        finished: bool,
    },
    /// The result of a tool call.
    ToolResult {
        /// The call's id.
        tool_call_id: String,
        /// The tool.
        name: String,
        /// The text of the reply.
        content: String,
        /// Whether it failed.
        is_error: bool,
    },
    /// How the message ended.
    Finish {
        /// Why.
        reason: FinishReason,
    },
    /// An image or another file.
    Binary {
        /// The path that it was read from.
        path: String,
        /// MIME type.
        mime_type: String,
        /// The content in base64.
        data: String,
    },
}

#[async_trait]
impl Sessions for NoStore {
    fn keeps_records(&self) -> bool {
        false
    }
    async fn claim_session(&self, session: &str, owner: &str, _: Duration) -> Result<Lease> {
        // This store writes nothing, so the lease needs no check.
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
