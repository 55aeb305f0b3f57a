//! `read_walkthrough`: an agent's report about its work.

use helve_contract::{Call, Effects, Error, Fence, Port, PortSet, Result, Tool, schemars, schemars::JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    room::{self, CallArtifacts},
    walkthrough::Walkthrough,
};

/// Reads the walkthrough of a task: of this attempt, or of the last one that has one.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ReadWalkthrough {
    /// Such as "task-001"
    #[serde(rename = "taskId")]
    pub task_id: String,
    /// A number; the latest if left out
    #[serde(rename = "attemptId")]
    pub attempt_id: Option<String>,
}

impl Tool for ReadWalkthrough {
    const NAME: &'static str = "read_walkthrough";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let room = CallArtifacts::for_call(call)?;
        let task = room::check_task_id(&self.task_id)?;
        let attempt = match &self.attempt_id {
            Some(text) => parse_attempt(text)?,
            None => Walkthrough::latest_attempt(&room, task)
                .await?
                .ok_or_else(|| Error::failed(format!("no attempt at `{task}` has a walkthrough yet")))?,
        };
        let content = room.read_text(&Walkthrough::path(task, attempt)).await?;
        Ok(json!({ "content": content, "origin": Fence::field_label(&format!("the agent of {task}")) }))
    }
}

/// An attempt's number, from its digits.
pub(super) fn parse_attempt(text: &str) -> Result<u32> {
    let digits = !text.is_empty() && text.chars().all(|it| it.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && *number > 0);
    number.ok_or_else(|| Error::failed(format!("Invalid attemptId `{}`; it is a number from 1", text.escape_debug())))
}
