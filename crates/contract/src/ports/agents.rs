//! The `Agents` port: sub-agents that a call starts with a subset of its rights.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::{sessions::TokenUsage, set::Port, tasks::WaitUntil};
use crate::{Call, Error, Media, Result};

/// The supervisor of agents. A child gets a subset of its parent's tools, roots and budget, and is cancelled with it.
#[async_trait]
pub trait Agents: Send + Sync {
    /// Whether this session can start agents.
    fn is_available(&self) -> bool {
        true
    }
    /// The kinds of agents that this session can start.
    fn kinds(&self) -> Vec<AgentKind>;
    /// Whether this session gets a message when a background agent ends. Sessions that another program drives get none;
    /// their calls poll the agent's state.
    fn reports_end(&self) -> bool {
        true
    }
    /// Whether an agent of this kind (`None`: the default kind) would have only read-only tools. The gate still checks
    /// its calls one by one.
    fn is_read_only(&self, _call: &Call, _kind: Option<&str>) -> bool {
        false
    }
    /// Starts an agent. In the foreground this returns when the agent has ended; in the background at once.
    async fn start(&self, call: &Call, order: SubAgentRequest) -> Result<AgentReport>;
    /// The running agents that this session started.
    async fn running(&self, call: &Call) -> Vec<AgentReport>;
    /// The state of an agent of this session, after a wait. `None` if the id is unknown.
    async fn report(&self, call: &Call, id: &str, until: WaitUntil) -> Result<Option<AgentReport>>;
    /// Stops an agent of this session. `None` if the id is unknown.
    async fn stop(&self, call: &Call, id: &str) -> Result<Option<AgentReport>>;
    /// Delivers a message to another session of the same user, and wakes that session if this process can run it.
    /// `None`: the session is not open here and cannot be opened here. The caller has checked the owner.
    async fn send_message(&self, call: &Call, session: &str, text: &str) -> Result<Option<Delivery>>;
    /// The model of this session's agent, and whether the agent is in a turn. An implementation that drives the agent
    /// returns [`Activity::Active`] during a call of that agent.
    async fn current(&self, call: &Call) -> Result<CurrentAgent>;
}

/// How a message to another session was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A turn is running there; it reads the message next.
    Running,
    /// The session was idle; a turn starts with the message.
    Woken,
    /// The session is open and idle; it reads the message at its next turn.
    Waiting,
}

/// Which configured time limit applies to an agent whose request has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeLimit {
    /// No limit.
    #[default]
    Unlimited,
    /// The limit of a delegated goal.
    Delegate,
    /// The limit of a spawned session.
    Spawn,
}

/// A kind of agent that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentKind {
    /// Its name: `Explore`, `researcher`.
    pub name: String,
    /// What it is for.
    pub description: String,
}

/// A request to start an agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubAgentRequest {
    /// The kind; `None` for the dialect's default.
    pub kind: Option<String>,
    /// The task for the agent.
    pub prompt: String,
    /// A short title of the task.
    pub title: String,
    /// A name for this agent.
    pub name: Option<String>,
    /// A model other than the default.
    pub model: Option<String>,
    /// The id of a stopped or ended agent to resume.
    pub resume: Option<String>,
    /// Whether the caller continues immediately.
    pub background: bool,
    /// The maximum number of model turns.
    pub max_turns: Option<u32>,
    /// The maximum cost in US dollars.
    pub max_cost: Option<f64>,
    /// The timeout; `None` applies `limit`.
    pub timeout: Option<Duration>,
    /// The configured limit to use where `timeout` is `None`.
    pub limit: TimeLimit,
    /// The name of an approval mode; never less strict than the caller's.
    pub mode: Option<String>,
    /// Facts that the agent must know.
    pub facts: Vec<String>,
    /// Restricts the agent to these tools.
    pub tools: Option<Vec<String>>,
    /// Further fields of the dialect, such as a task or a branch.
    pub extra: Value,
}

/// The state of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentReport {
    /// Its id, which is also the id of its session.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// A short title of its task.
    pub title: String,
    /// Running, or how it ended.
    pub status: AgentStatus,
    /// Its final message, or its text so far.
    pub text: String,
    /// Images and other media that it returned.
    pub media: Vec<Media>,
    /// The model that it uses.
    pub model: String,
    /// The number of model turns.
    pub turns: u32,
    /// The number of tool calls.
    pub tool_calls: u32,
    /// The tokens and the cost.
    pub usage: TokenUsage,
    /// The running time.
    pub elapsed: Duration,
    /// The file with its transcript, as the model can name it.
    pub transcript_file: Option<String>,
}

/// The status of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentStatus {
    /// It runs.
    Running,
    /// It finished its task.
    Done,
    /// It failed, for this reason.
    Failed(String),
    /// It was stopped.
    Stopped,
}

/// The agent of this session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurrentAgent {
    /// Its name.
    pub name: String,
    /// Its model; `None` if another program drives the agent and no model is configured here.
    pub model: Option<String>,
    /// Whether it is in a turn.
    pub activity: Activity,
}

/// Whether an agent is in a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    /// It is in a turn. This applies to every agent whose tool call is being served.
    Active,
    /// It waits for the next message.
    Idle,
    /// Another program drives it and does not report its state.
    #[default]
    Unknown,
}

impl Activity {
    /// The name of the state: `active`, `idle`, `unknown`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Idle => "idle",
            Self::Unknown => "unknown",
        }
    }
}

/// No agents, for a session without an agent loop.
pub struct NoAgents;

#[async_trait]
impl Agents for NoAgents {
    fn is_available(&self) -> bool {
        false
    }
    fn kinds(&self) -> Vec<AgentKind> {
        Vec::new()
    }
    async fn start(&self, _: &Call, _: SubAgentRequest) -> Result<AgentReport> {
        Err(Error::failed(format!("{}; do the work yourself", Port::Agents.why_missing())))
    }
    async fn running(&self, _: &Call) -> Vec<AgentReport> {
        Vec::new()
    }
    async fn report(&self, _: &Call, _: &str, _: WaitUntil) -> Result<Option<AgentReport>> {
        Ok(None)
    }
    async fn stop(&self, _: &Call, _: &str) -> Result<Option<AgentReport>> {
        Ok(None)
    }
    async fn send_message(&self, _: &Call, _: &str, _: &str) -> Result<Option<Delivery>> {
        Ok(None)
    }
    async fn current(&self, call: &Call) -> Result<CurrentAgent> {
        Ok(CurrentAgent { name: call.session.agent.clone(), model: None, activity: Activity::Unknown })
    }
}
