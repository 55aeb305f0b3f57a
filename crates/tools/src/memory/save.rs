//! `memory_save`: saves a note.

use std::time::Duration;

use helve_contract::{
    Call, Effects, Port, PortSet, Reply, Result, Tool,
    ports::{NewNote, Note, NoteOrigin},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Keeps a note for later conversations.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct MemorySaveTool {
    /// What to remember.
    pub content: String,
    /// Labels to find it by.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// A note that is kept.
#[derive(Clone, Debug)]
pub struct MemorySaveOutput(
    /// The note.
    pub Note,
);

impl Tool for MemorySaveTool {
    const NAME: &'static str = "memory_save";
    const EFFECTS: Effects = Effects::WRITES;
    const NEEDS: PortSet = PortSet::of(&[Port::Memory]);
    const TIMEOUT: Duration = Duration::from_secs(30);
    type Output = MemorySaveOutput;

    async fn run(self, call: &Call) -> Result<MemorySaveOutput> {
        let user = super::owner(call)?;
        super::check_content(&self.content)?;
        let tags = super::tags::normalize_tags(&self.tags)?;
        let note = NewNote { text: self.content, tags: Some(tags), origin: super::origin(call) };
        Ok(MemorySaveOutput(call.store().save_note(user, &note).await?))
    }
}

impl From<MemorySaveOutput> for Reply {
    fn from(MemorySaveOutput(note): MemorySaveOutput) -> Self {
        let message = match &note.origin {
            NoteOrigin::Untrusted(place) if note.is_quarantined => format!(
                "Note saved, but held back: text from {place} came into this conversation, so memory_search finds the \
                 note only after the user lets it go with `helve memory release {}`.",
                note.id
            ),
            _ => "Note saved.".to_owned(),
        };
        Self::json(json!({ "note_id": note.id, "message": message }))
    }
}
