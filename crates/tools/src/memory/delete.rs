//! `memory_delete`: deletes a note.

use std::time::Duration;

use helve_contract::{Call, Effects, Port, PortSet, Reply, Result, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Forgets a note for good.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct MemoryDeleteTool {
    /// Which note.
    pub id: String,
}

/// A note that is gone.
#[derive(Clone, Debug)]
pub struct MemoryDeleteOutput {
    /// Its id.
    pub id: String,
}

impl Tool for MemoryDeleteTool {
    const NAME: &'static str = "memory_delete";
    const EFFECTS: Effects = Effects::WRITES.union(Effects::DESTROYS);
    const NEEDS: PortSet = PortSet::of(&[Port::Memory]);
    const TIMEOUT: Duration = Duration::from_secs(30);
    type Output = MemoryDeleteOutput;

    async fn run(self, call: &Call) -> Result<MemoryDeleteOutput> {
        let user = super::owner(call)?;
        if !call.store().delete_note(user, &self.id).await? {
            return Err(super::not_found(&self.id));
        }
        Ok(MemoryDeleteOutput { id: self.id })
    }
}

impl From<MemoryDeleteOutput> for Reply {
    fn from(MemoryDeleteOutput { id }: MemoryDeleteOutput) -> Self {
        Self::json(json!({ "message": format!("Note {id} deleted.") }))
    }
}
