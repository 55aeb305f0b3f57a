//! `read_subtasks`: the agent's subtask list.

use helve_contract::{Call, Effects, Port, PortSet, Result, Tool, schemars, schemars::JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    add_subtask::Subtask,
    front::{FrontMatterDocument, section},
    room::{self, CallArtifacts},
};
use crate::agents::spawn_agent::subtask_status;

/// Reads the subtasks of your task, and how each stands.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ReadSubtasks {}

impl Tool for ReadSubtasks {
    const NAME: &'static str = "read_subtasks";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let room = CallArtifacts::for_call(call)?;
        let folder = Subtask::dir(room::check_task_id(room.task_id()?)?);
        let mut subtasks = Vec::new();
        for name in room.list_names(&folder).await?.iter().filter(|name| name.strip_suffix(".md").is_some()) {
            let FrontMatterDocument { front, body }: FrontMatterDocument<Subtask> =
                FrontMatterDocument::parse(&room.read_text(&format!("{folder}/{name}")).await?, "subtask")?;
            let status = current_status(call, &room, &front).await?;
            subtasks.push(json!({
                "subtaskId": front.id,
                "title": front.title,
                "description": section(&body, "Description").unwrap_or_default(),
                "type": front.kind,
                "status": status,
            }));
        }
        Ok(json!({ "subtasks": subtasks }))
    }
}

/// The state of a subtask. Saves it if the agent has ended since.
async fn current_status(call: &Call, room: &CallArtifacts<'_>, subtask: &Subtask) -> Result<String> {
    let Some(agent) = subtask.assigned_agent.as_deref().filter(|_| subtask.status == "running") else {
        return Ok(subtask.status.clone());
    };
    let word = match subtask_status(call, agent).await? {
        Some("running") => return Ok(subtask.status.clone()),
        Some("completed") => "completed",
        // Its parent process is gone, and the agent with it.
        _ => "failed",
    };
    Subtask::assign(room, &subtask.parent_task, &subtask.id, word, Some(agent)).await?;
    Ok(word.to_owned())
}
