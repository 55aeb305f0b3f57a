//! `read_task`: a task's document.

use helve_contract::{Call, Effects, Port, PortSet, Result, Tool, schemars, schemars::JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::room::{self, CallArtifacts};

/// Reads a task's document.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ReadTask {
    /// Such as "task-001"
    #[serde(rename = "taskId")]
    pub task_id: String,
}

impl Tool for ReadTask {
    const NAME: &'static str = "read_task";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let id = room::check_task_id(&self.task_id)?;
        Ok(json!({ "content": CallArtifacts::for_call(call)?.read_text(&format!("tasks/{id}.md")).await? }))
    }
}
