//! `memory_delete`: forgets a note.

use std::time::Duration;

use helve_contract::{Call, Effects, Port, PortSet, Reply, Result, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Forgets a note for good.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Delete {
    /// Which note.
    pub id: String,
}

/// A note that is gone.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// Its id.
    pub id: String,
}

impl Tool for Delete {
    const NAME: &'static str = "memory_delete";
    const EFFECTS: Effects = Effects::WRITES.and(Effects::DESTROYS);
    const NEEDS: PortSet = PortSet::of(&[Port::Memory]);
    const TIMEOUT: Duration = Duration::from_secs(30);
    type Output = Deleted;

    async fn run(self, call: &Call) -> Result<Deleted> {
        let user = super::owner(call)?;
        if !call.store().forget_note(user, &self.id).await? {
            return Err(super::not_found(&self.id));
        }
        Ok(Deleted { id: self.id })
    }
}

impl From<Deleted> for Reply {
    fn from(Deleted { id }: Deleted) -> Self {
        Self::json(json!({ "message": format!("Note {id} deleted.") }))
    }
}
