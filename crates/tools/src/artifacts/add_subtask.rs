//! `add_subtask`: adds an item to the agent's subtask list.

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Result, Tool, ports::ExpectedVersion, schemars, schemars::JsonSchema,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    front::FrontMatterDocument,
    room::{self, CallArtifacts},
};

/// Adds a subtask to the list of your task. The list is kept; read_subtasks shows it. Returns its id.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct AddSubtask {
    /// In a line
    pub title: String,
    /// What to do
    pub description: String,
    /// The type of agent for it: 1 (default) or 2
    #[serde(rename = "type")]
    #[schemars(range(min = 1, max = 2))]
    pub kind: Option<u8>,
}

/// The front matter of a subtask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subtask {
    /// `subtask-` and a number.
    pub id: String,
    /// The task it belongs to.
    pub parent_task: String,
    /// A one-line title.
    pub title: String,
    /// The type of agent for it.
    #[serde(rename = "type")]
    pub kind: u8,
    /// `pending`, `running`, `completed` or `failed`.
    pub status: String,
    /// The agent that works on it.
    pub assigned_agent: Option<String>,
}

impl Subtask {
    /// The directory of a task's subtasks.
    #[must_use]
    pub fn dir(task: &str) -> String {
        format!("{task}/subtasks")
    }

    /// Sets the state and the agent of a subtask.
    pub async fn assign(
        room: &CallArtifacts<'_>,
        task: &str,
        id: &str,
        status: &str,
        agent: Option<&str>,
    ) -> Result<()> {
        let place = format!("{}/{}.md", Self::dir(task), room::check_file_name("subtask", id)?);
        let (text, version) = room.versioned_text(&place).await?;
        let mut document: FrontMatterDocument<Self> = FrontMatterDocument::parse(&text, "subtask")?;
        status.clone_into(&mut document.front.status);
        document.front.assigned_agent = agent.map(str::to_owned);
        room.write(&place, document.to_markdown()?.as_bytes(), version).await?;
        Ok(())
    }
}

impl Tool for AddSubtask {
    const NAME: &'static str = "add_subtask";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let room = CallArtifacts::for_call(call)?;
        let task = room::check_task_id(room.task_id()?)?;
        let kind = self.kind.unwrap_or(1);
        if !(1..=2).contains(&kind) {
            return Err(Error::invalid_argument("type", "must be 1 or 2"));
        }
        if self.title.trim().is_empty() {
            return Err(Error::invalid_argument("title", "must not be empty"));
        }
        let taken = room.list_names(&Subtask::dir(task)).await?;
        let number = |name: &String| name.strip_prefix("subtask-")?.strip_suffix(".md")?.parse::<u32>().ok();
        let last = taken.iter().filter_map(number).max().unwrap_or(0);
        for number in last + 1..last + 100 {
            let id = format!("subtask-{number:03}");
            let front = Subtask {
                id: id.clone(),
                parent_task: task.to_owned(),
                title: self.title.clone(),
                kind,
                status: "pending".into(),
                assigned_agent: None,
            };
            let text = FrontMatterDocument { front, body: format!("## Description\n\n{}", self.description.trim()) }
                .to_markdown()?;
            match room.write(&format!("{}/{id}.md", Subtask::dir(task)), text.as_bytes(), ExpectedVersion::Absent).await
            {
                Ok(_) => return Ok(json!({ "subtaskId": id })),
                Err(Error::VersionConflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::failed("no number is free for the subtask; try again"))
    }
}
