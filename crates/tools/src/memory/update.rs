//! `memory_update`: replaces the text of a note.

use std::time::Duration;

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Reply, Result, Tool,
    ports::{NewNote, Note},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Replaces what a note says. It keeps its id and the time it was first saved.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct MemoryUpdateTool {
    /// Which note.
    pub id: String,
    /// What to remember instead.
    pub content: String,
    /// Labels instead of those it has.
    pub tags: Option<Vec<String>>,
}

/// The changed note.
#[derive(Clone, Debug)]
pub struct MemoryUpdateOutput(
    /// The note.
    pub Note,
);

impl Tool for MemoryUpdateTool {
    const NAME: &'static str = "memory_update";
    const EFFECTS: Effects = Effects::WRITES;
    const NEEDS: PortSet = PortSet::of(&[Port::Memory]);
    const TIMEOUT: Duration = Duration::from_secs(30);
    type Output = MemoryUpdateOutput;

    async fn run(self, call: &Call) -> Result<MemoryUpdateOutput> {
        let user = super::owner(call)?;
        super::check_content(&self.content)?;
        let tags = self.tags.as_deref().map(super::tags::normalize_tags).transpose()?;
        if let Some(told) = call.session.taint.describe() {
            return Err(Error::failed(format!(
                "{told} came into this conversation, so no note is changed in it; save a new one, which the user can let go"
            )));
        }
        let note = NewNote { text: self.content, tags, ..NewNote::default() };
        let updated = call.store().update_note(user, &self.id, &note).await?;
        updated.map(MemoryUpdateOutput).ok_or_else(|| super::not_found(&self.id))
    }
}

impl From<MemoryUpdateOutput> for Reply {
    fn from(MemoryUpdateOutput(note): MemoryUpdateOutput) -> Self {
        Self::json(json!({ "note_id": note.id, "message": "Note updated." }))
    }
}
