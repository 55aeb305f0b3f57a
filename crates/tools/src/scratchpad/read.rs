//! `scratchpad_read`: what stands on the session's scratchpad.

use std::time::Duration;

use helve_contract::{Call, Effects, Port, PortSet, Reply, Result, Tool, jiff::Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Reads the session's scratchpad.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct Read {}

/// What stands on a scratchpad.
#[derive(Clone, Debug)]
pub struct Pad {
    /// Whose it is.
    pub session: String,
    /// Its items.
    pub items: Vec<String>,
    /// When it was written.
    pub updated: Option<Timestamp>,
}

impl Tool for Read {
    const NAME: &'static str = "scratchpad_read";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::Slates]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = Pad;

    async fn run(self, call: &Call) -> Result<Pad> {
        let session = call.session.id.clone();
        let slate = call.store().slate(&session, super::SLATE).await?;
        let updated = slate.as_ref().map(|it| it.updated);
        let items = slate.and_then(|it| serde_json::from_value(it.value).ok()).unwrap_or_default();
        Ok(Pad { session, items, updated })
    }
}

impl From<Pad> for Reply {
    fn from(pad: Pad) -> Self {
        Self::json(json!({
            "session_id": pad.session,
            "items": pad.items,
            "updated_at": pad.updated.map(|it| it.to_string()),
            "item_count": pad.items.len(),
        }))
    }
}
