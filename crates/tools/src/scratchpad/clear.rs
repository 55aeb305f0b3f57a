//! `scratchpad_clear`: wipes the session's scratchpad.

use std::time::Duration;

use helve_contract::{Call, Effects, Port, PortSet, Reply, Result, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Wipes the session's scratchpad.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct Clear {}

/// Whether something stood there.
#[derive(Clone, Copy, Debug)]
pub struct Cleared(
    /// Whether something stood there.
    pub bool,
);

impl Tool for Clear {
    const NAME: &'static str = "scratchpad_clear";
    const EFFECTS: Effects = Effects::NOTES;
    const NEEDS: PortSet = PortSet::of(&[Port::Slates]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = Cleared;

    async fn run(self, call: &Call) -> Result<Cleared> {
        Ok(Cleared(call.session.wipe_slate(super::SLATE).await?))
    }
}

impl From<Cleared> for Reply {
    fn from(Cleared(cleared): Cleared) -> Self {
        let message = if cleared { "Scratchpad cleared." } else { "The scratchpad was empty already." };
        Self::json(json!({ "cleared": cleared, "message": message }))
    }
}
