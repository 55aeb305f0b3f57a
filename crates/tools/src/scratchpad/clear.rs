//! `scratchpad_clear`: clears the session's scratchpad.

use std::time::Duration;

use helve_contract::{Call, Effects, Port, PortSet, Reply, Result, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Wipes the session's scratchpad.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct ScratchpadClearTool {}

/// Whether the scratchpad had content.
#[derive(Clone, Copy, Debug)]
pub struct ScratchpadClearOutput(
    /// Whether the scratchpad had content.
    pub bool,
);

impl Tool for ScratchpadClearTool {
    const NAME: &'static str = "scratchpad_clear";
    const EFFECTS: Effects = Effects::SESSION_STATE;
    const NEEDS: PortSet = PortSet::of(&[Port::Slates]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = ScratchpadClearOutput;

    async fn run(self, call: &Call) -> Result<ScratchpadClearOutput> {
        Ok(ScratchpadClearOutput(call.session.wipe_slate(super::STATE_KEY).await?))
    }
}

impl From<ScratchpadClearOutput> for Reply {
    fn from(ScratchpadClearOutput(cleared): ScratchpadClearOutput) -> Self {
        let message = if cleared { "Scratchpad cleared." } else { "The scratchpad was empty already." };
        Self::json(json!({ "cleared": cleared, "message": message }))
    }
}
