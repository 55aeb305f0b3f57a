//! `spawn_agent`: an agent for a task or subtask of a planned run.

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Result, Tool,
    ports::{AgentOrder, WaitUntil},
    schemars,
    schemars::JsonSchema,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::artifacts::{AgentType, CallArtifacts, Subtask, check_file_name};

/// Starts an agent for a task or one of your subtasks, and returns at once. Type 2 may start type 1; type 3 types 1 and 2; a refinery 1 to 3; the executor all. A task that has an agent keeps it. Returns agentId and sandboxId.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct SpawnAgent {
    /// The type of agent
    #[serde(rename = "type")]
    pub kind: AgentType,
    /// A task such as "task-001", or a subtask such as "subtask-001"
    #[serde(rename = "taskId")]
    pub task_id: String,
    /// More: prompt, model, maxTurns
    #[serde(default)]
    pub config: Map<String, Value>,
}

impl Tool for SpawnAgent {
    const NAME: &'static str = "spawn_agent";
    const EFFECTS: Effects = Effects::SPAWNS;
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun, Port::Agents]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let role = call.session.role.as_deref().unwrap_or("executor");
        if !self.kind.may_be_started_by(role) {
            return Err(Error::denied(format!("an agent in the role {role} may not start one of type {}", self.kind)));
        }
        let room = CallArtifacts::for_call(call)?;
        let task = check_file_name("task", &self.task_id)?;
        for agent in call.agents().running(call).await {
            if agent.title == task {
                return Ok(json!({ "agentId": agent.id, "sandboxId": agent.id }));
            }
        }
        let parent = room.task_id().ok().map(str::to_owned);
        let (document, subtask) = task_document(&room, parent.as_deref(), task).await?;
        let order = AgentOrder {
            kind: Some(self.kind.role().into()),
            title: task.to_owned(),
            prompt: match self.config.get("prompt").and_then(Value::as_str) {
                Some(words) => format!("{document}\n\n{words}"),
                None => document,
            },
            model: self.config.get("model").and_then(Value::as_str).map(str::to_owned),
            max_turns: self.config.get("maxTurns").and_then(Value::as_u64).and_then(|it| u32::try_from(it).ok()),
            background: true,
            extra: json!({ "taskId": task, "config": self.config }),
            ..AgentOrder::default()
        };
        let report = call.agents().start(call, order).await?;
        if let Some(parent) = subtask {
            Subtask::assign(&room, &parent, task, "running", Some(&report.id)).await?;
        }
        Ok(json!({ "agentId": report.id, "sandboxId": report.id }))
    }
}

/// The task document for the agent, with the parent task of a subtask.
async fn task_document(room: &CallArtifacts<'_>, parent: Option<&str>, task: &str) -> Result<(String, Option<String>)> {
    if let Some(parent) = parent {
        let place = format!("{}/{task}.md", Subtask::dir(parent));
        if room.read_bytes(&place).await?.is_some() {
            return Ok((room.read_text(&place).await?, Some(parent.to_owned())));
        }
    }
    Ok((room.read_text(&format!("tasks/{task}.md")).await?, None))
}

/// The state of a subtask's agent, as the subtask list spells it; `None` if unknown.
pub(crate) async fn subtask_status(call: &Call, agent: &str) -> Result<Option<&'static str>> {
    let report = call.agents().report(call, agent, WaitUntil::Now).await?;
    Ok(report.map(|report| super::state_label(&report.status)))
}
