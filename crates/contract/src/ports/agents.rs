//! Other agents: started by a call, with a part of its rights.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::{sessions::TokenUsage, set::Port, tasks::WaitUntil};
use crate::{Call, Error, Media, Result};

/// The supervisor of agents. A child's tools, roots and budget are a part of its parent's, and cancel reaches it.
#[async_trait]
pub trait Agents: Send + Sync {
    /// Whether agents can be started at all.
    fn is_available(&self) -> bool {
        true
    }
    /// The agents that can be started here, by name.
    fn kinds(&self) -> Vec<AgentKind>;
    /// Whether this session gets a message when an agent in the background ends. A session that another program drives
    /// gets none: its calls ask how the agent stands.
    fn reports_end(&self) -> bool {
        true
    }
    /// Whether an agent of this kind (`None`: the plain one) would have only tools that change nothing here. Its calls
    /// are judged one by one all the same.
    fn is_read_only(&self, _call: &Call, _kind: Option<&str>) -> bool {
        false
    }
    /// Starts an agent. In the foreground this returns when it has ended; in the background at once.
    async fn start(&self, call: &Call, order: SubAgentRequest) -> Result<AgentReport>;
    /// The agents that this session started and that still run.
    async fn running(&self, call: &Call) -> Vec<AgentReport>;
    /// How an agent of this session stands, after a wait. `None`: there is none of this id.
    async fn report(&self, call: &Call, id: &str, until: WaitUntil) -> Result<Option<AgentReport>>;
    /// Stops an agent of this session. `None`: there is none of this id.
    async fn stop(&self, call: &Call, id: &str) -> Result<Option<AgentReport>>;
    /// Gives a message to another conversation of the same user, and wakes it where this process can run it. `None`:
    /// the conversation is not open here and cannot be opened here. The caller has checked whose it is.
    async fn send_message(&self, call: &Call, session: &str, text: &str) -> Result<Option<Delivery>>;
    /// The model of the agent that this session belongs to, and whether it is in a turn. An implementation that drives
    /// the agent answers [`Activity::Active`] during a call of that agent.
    async fn current(&self, call: &Call) -> Result<CurrentAgent>;
}

/// What became of a message to another conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A turn runs there; it reads the message next.
    Running,
    /// It was idle; a turn begins with the message.
    Woken,
    /// It is open and idle; it reads the message at its next turn.
    Waiting,
}

/// Which configured time limit holds for an agent whose order names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeLimit {
    /// None.
    #[default]
    Unlimited,
    /// The limit of a delegated goal.
    Delegate,
    /// The limit of a spawned session.
    Spawn,
}

/// An agent that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentKind {
    /// Its name: `Explore`, `researcher`.
    pub name: String,
    /// What it is for.
    pub description: String,
}

/// What an agent is to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubAgentRequest {
    /// Which kind; `None`: the dialect's plain one.
    pub kind: Option<String>,
    /// What to do.
    pub prompt: String,
    /// The same in a few words.
    pub title: String,
    /// A name of its own.
    pub name: Option<String>,
    /// Another model.
    pub model: Option<String>,
    /// A stopped or ended agent to go on with.
    pub resume: Option<String>,
    /// Whether the caller goes on at once.
    pub background: bool,
    /// Turns of the model at most.
    pub max_turns: Option<u32>,
    /// US dollars at most.
    pub max_cost: Option<f64>,
    /// Time at most; `None`: what `limit` stands for.
    pub timeout: Option<Duration>,
    /// The configured limit that holds where `timeout` is `None`.
    pub limit: TimeLimit,
    /// An approval mode by name; never looser than the caller's.
    pub mode: Option<String>,
    /// Facts that the agent must know.
    pub facts: Vec<String>,
    /// Only these tools.
    pub tools: Option<Vec<String>>,
    /// More, by dialect: a task, a branch.
    pub extra: Value,
}

/// How an agent stands.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentReport {
    /// Its id, which is also its session's.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// What it does, in a few words.
    pub title: String,
    /// Running, or how it ended.
    pub status: AgentStatus,
    /// Its last words, or what it has said so far.
    pub text: String,
    /// Pictures and the like that it sent.
    pub media: Vec<Media>,
    /// The model that spoke.
    pub model: String,
    /// Turns of the model.
    pub turns: u32,
    /// Calls of tools.
    pub tool_calls: u32,
    /// What it cost.
    pub usage: TokenUsage,
    /// How long it ran.
    pub elapsed: Duration,
    /// The file that holds what it did, as the model can name it.
    pub transcript_file: Option<String>,
}

/// How an agent stands, in a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentStatus {
    /// It runs.
    Running,
    /// It did its work.
    Done,
    /// It did not; why.
    Failed(String),
    /// It was stopped.
    Stopped,
}

/// The agent that speaks in this session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurrentAgent {
    /// Its name.
    pub name: String,
    /// Its model; `None` where another program drives the agent and no model is configured here.
    pub model: Option<String>,
    /// Whether it is in a turn.
    pub activity: Activity,
}

/// Whether an agent is in a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    /// It is in a turn. This holds for every agent whose own tool call is being served.
    Active,
    /// It waits for the next message.
    Idle,
    /// Another program drives it and does not say.
    #[default]
    Unknown,
}

impl Activity {
    /// The status in a word: `active`, `idle`, `unknown`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Idle => "idle",
            Self::Unknown => "unknown",
        }
    }
}

/// No agents: for a session that nobody's loop drives.
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
