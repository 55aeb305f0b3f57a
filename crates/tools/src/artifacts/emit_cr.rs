//! `emit_cr`: requests a change of the plan; nothing new starts before the decision.

use helve_contract::{Call, Effects, Error, Port, PortSet, Result, Tool, schemars, schemars::JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    change::{ChangeRequest, ChangeRequestStatus},
    front::FrontMatterDocument,
    room::CallArtifacts,
};

/// Asks for a change of the plan, because something is missing or wrong in it. No new task begins until it is decided. Returns its id.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct EmitCr {
    /// In a line
    pub title: String,
    /// What is the matter
    pub description: String,
    /// Why the plan must change
    pub reason: String,
    /// What to add to the plan, in Markdown
    #[serde(rename = "suggestedChanges")]
    pub suggested_changes: Option<String>,
}

impl Tool for EmitCr {
    const NAME: &'static str = "emit_cr";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let room = CallArtifacts::for_call(call)?;
        for (name, text) in [("title", &self.title), ("description", &self.description), ("reason", &self.reason)] {
            if text.trim().is_empty() {
                return Err(Error::invalid_argument(name, "must not be empty"));
            }
        }
        let suggested = self.suggested_changes.unwrap_or_default();
        let front = ChangeRequest {
            id: String::new(),
            title: self.title,
            emitted_by: call.session.name().to_owned(),
            emitted_at: call.now(),
            status: ChangeRequestStatus::Pending,
            reason: self.reason.clone(),
            affected_tasks: room.task_id().map(|task| vec![task.to_owned()]).unwrap_or_default(),
            suggested_changes: suggested.clone(),
        };
        let proposed = if suggested.trim().is_empty() { "None yet." } else { suggested.trim() };
        let body = format!(
            "## Description\n\n{}\n\n## Impact Assessment\n\n{}\n\n## Proposed Resolution\n\n{proposed}",
            self.description.trim(),
            self.reason.trim()
        );
        Ok(json!({ "crId": ChangeRequest::add(&room, FrontMatterDocument { front, body }).await? }))
    }
}
