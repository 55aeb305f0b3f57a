//! Sessions and sub-agents in `solo`.

use helve_contract::Reply;
use helve_tools::sessions as room;
use schemars::JsonSchema;
use serde::Deserialize;

/// The tools of a sub-agent: all are read-only.
pub(super) const SUBAGENT_TOOLS: &[&str] = &["read", "grep", "glob", "ls", "memory_search", "memory_get"];

/// Tells which agent and model speak here.
#[derive(Deserialize, JsonSchema)]
pub(super) struct AgentsListArgs {}

/// Lists sessions, the last used first: id, title, messages, times.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SessionsListArgs {
    /// 20 if left out
    limit: Option<u64>,
}

/// Shows the last messages of a session, one a line.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SessionsHistoryArgs {
    session_id: String,
    /// 50 if left out
    limit: Option<usize>,
}

/// Sends a message to another session.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SessionsSendArgs {
    session_id: String,
    content: String,
}

/// Runs a sub-agent that can only read and search, and returns its answer. It knows only the prompt.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SessionsSpawnArgs {
    prompt: String,
}

/// Lists sub-agents at work.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SubagentsArgs {}

/// Tells this session's id, messages, tokens and cost.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SessionsStatusArgs {}

impl From<AgentsListArgs> for room::AgentsListTool {
    fn from(AgentsListArgs {}: AgentsListArgs) -> Self {
        Self {}
    }
}

impl From<SessionsListArgs> for room::SessionsListTool {
    fn from(SessionsListArgs { limit }: SessionsListArgs) -> Self {
        Self { limit }
    }
}

impl From<SessionsHistoryArgs> for room::SessionsHistoryTool {
    fn from(SessionsHistoryArgs { session_id, limit }: SessionsHistoryArgs) -> Self {
        Self { id: session_id, limit }
    }
}

impl From<SessionsSendArgs> for room::SessionsSendTool {
    fn from(SessionsSendArgs { session_id, content }: SessionsSendArgs) -> Self {
        Self { id: session_id, text: content }
    }
}

impl From<SessionsSpawnArgs> for room::SessionsSpawnTool {
    fn from(SessionsSpawnArgs { prompt }: SessionsSpawnArgs) -> Self {
        Self { prompt, tools: SUBAGENT_TOOLS.iter().map(|&name| name.to_owned()).collect(), timeout: None }
    }
}

impl From<SubagentsArgs> for room::SubagentsTool {
    fn from(SubagentsArgs {}: SubagentsArgs) -> Self {
        Self {}
    }
}

impl From<SessionsStatusArgs> for room::SessionsStatusTool {
    fn from(SessionsStatusArgs {}: SessionsStatusArgs) -> Self {
        Self {}
    }
}

/// The room's own words are this dialect's.
pub(super) fn render_plain(out: impl Into<Reply>) -> Reply {
    out.into()
}
