//! Conversations and sub-agents in `solo`.

use helve_contract::Reply;
use helve_tools::sessions as room;
use schemars::JsonSchema;
use serde::Deserialize;

/// The tools of a sub-agent: it looks, and changes nothing.
pub(super) const SUB: &[&str] = &["read", "grep", "glob", "ls", "memory_search", "memory_get"];

/// Tells which agent and model speak here.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Agents {}

/// Lists sessions, the last used first: id, title, messages, times.
#[derive(Deserialize, JsonSchema)]
pub(super) struct List {
    /// 20 if left out
    limit: Option<u64>,
}

/// Shows the last messages of a session, one a line.
#[derive(Deserialize, JsonSchema)]
pub(super) struct History {
    session_id: String,
    /// 50 if left out
    limit: Option<usize>,
}

/// Sends a message to another session.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Send {
    session_id: String,
    content: String,
}

/// Runs a sub-agent that can only read and search, and returns its answer. It knows only the prompt.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Spawn {
    prompt: String,
}

/// Lists sub-agents at work.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Subagents {}

/// Tells this session's id, messages, tokens and cost.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Status {}

impl From<Agents> for room::Agents {
    fn from(Agents {}: Agents) -> Self {
        Self {}
    }
}

impl From<List> for room::List {
    fn from(List { limit }: List) -> Self {
        Self { limit }
    }
}

impl From<History> for room::History {
    fn from(History { session_id, limit }: History) -> Self {
        Self { id: session_id, limit }
    }
}

impl From<Send> for room::Send {
    fn from(Send { session_id, content }: Send) -> Self {
        Self { id: session_id, text: content }
    }
}

impl From<Spawn> for room::Spawn {
    fn from(Spawn { prompt }: Spawn) -> Self {
        Self { prompt, tools: SUB.iter().map(|&name| name.to_owned()).collect(), timeout: None }
    }
}

impl From<Subagents> for room::Running {
    fn from(Subagents {}: Subagents) -> Self {
        Self {}
    }
}

impl From<Status> for room::Status {
    fn from(Status {}: Status) -> Self {
        Self {}
    }
}

/// The room's own words are this dialect's.
pub(super) fn plain(out: impl Into<Reply>) -> Reply {
    out.into()
}
