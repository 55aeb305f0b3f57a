//! `create_task`: writes the document of one task.

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Result, Tool, ports::ExpectedVersion, schemars, schemars::JsonSchema,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    room::{self, CallArtifacts},
    task::TaskFrontMatter,
};

/// Writes a task document: YAML front matter (id, title, type 1|2|3|refinery, dependencies, acceptance_criteria, estimated_complexity small|medium|large), then `## Description`, `## Context` and `## Instructions`. Returns its path.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct CreateTask {
    /// As in the front matter and in the graph, such as "task-001"
    #[serde(rename = "taskId")]
    pub task_id: String,
    /// The whole document
    pub content: String,
}

impl Tool for CreateTask {
    const NAME: &'static str = "create_task";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let room = CallArtifacts::for_call(call)?;
        let id = room::check_task_id(&self.task_id)?;
        let task = TaskFrontMatter::parse(&self.content)?.front;
        if task.id != id {
            return Err(Error::failed(format!(
                "the front matter says id `{}`, and the call `{id}`; they must agree",
                task.id
            )));
        }
        room.require_planning().await?;
        let path = room.write(&format!("tasks/{id}.md"), self.content.as_bytes(), ExpectedVersion::Any).await?;
        Ok(json!({ "path": path }))
    }
}
