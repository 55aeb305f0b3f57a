//! `mark_task_status`: changes a task's state if the transition is allowed.

use helve_contract::{Call, Effects, Error, Port, PortSet, Result, Tool, schemars, schemars::JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    room::{self, CallArtifacts},
    status::TaskStatus,
    walkthrough::Walkthrough,
};

/// Moves a task: PENDING → RUNNING (all it waits for is MERGED) → DONE (with a walkthrough), FAILED or STALE; DONE → MERGE_READY → MERGED; FAILED or STALE → PENDING (next attempt). Anything else is refused; the same state again changes nothing.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct MarkTaskStatus {
    /// Such as "task-001"
    #[serde(rename = "taskId")]
    pub task_id: String,
    /// Where it goes
    pub status: TaskStatus,
}

impl Tool for MarkTaskStatus {
    const NAME: &'static str = "mark_task_status";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let room = CallArtifacts::for_call(call)?;
        let task = room::check_task_id(&self.task_id)?;
        let dag = room.dag().await?;
        let now = call.now();
        if self.status == TaskStatus::Done {
            let node = room.status(&dag).await?.node(task)?.clone();
            let told = room.read_bytes(&Walkthrough::path(task, node.current_attempt)).await?.is_some();
            if node.status == TaskStatus::Running && !told {
                return Err(Error::failed(format!(
                    "`{task}` has no walkthrough of attempt {}; an agent that ends without one has FAILED",
                    node.current_attempt
                )));
            }
        }
        let from = room.update_status(&dag, |status| status.transition(&dag, task, self.status, now)).await?;
        Ok(json!({ "success": true, "previousStatus": from.to_string() }))
    }
}
