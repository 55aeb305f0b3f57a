//! `scratchpad_read`: returns the session's scratchpad.

use std::time::Duration;

use helve_contract::{Call, Effects, Port, PortSet, Reply, Result, Tool, jiff::Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Reads the session's scratchpad.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct ScratchpadReadTool {}

/// The content of a scratchpad.
#[derive(Clone, Debug)]
pub struct ScratchpadReadOutput {
    /// Whose it is.
    pub session: String,
    /// Its items.
    pub items: Vec<String>,
    /// When it was written.
    pub updated: Option<Timestamp>,
}

impl Tool for ScratchpadReadTool {
    const NAME: &'static str = "scratchpad_read";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::Slates]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = ScratchpadReadOutput;

    async fn run(self, call: &Call) -> Result<ScratchpadReadOutput> {
        let session = call.session.id.clone();
        let slate = call.store().get_state(&session, super::STATE_KEY).await?;
        let updated = slate.as_ref().map(|it| it.updated);
        let items = slate.and_then(|it| serde_json::from_value(it.value).ok()).unwrap_or_default();
        Ok(ScratchpadReadOutput { session, items, updated })
    }
}

impl From<ScratchpadReadOutput> for Reply {
    fn from(pad: ScratchpadReadOutput) -> Self {
        Self::json(json!({
            "session_id": pad.session,
            "items": pad.items,
            "updated_at": pad.updated.map(|it| it.to_string()),
            "item_count": pad.items.len(),
        }))
    }
}
