//! Planning: any tool on the session in memory that plans are drafted in. Nothing of it reaches the world.

use std::time::Duration;

use helve_contract::{Call, Effects, Port, PortSet, Result, Tool, schemars, schemars::JsonSchema};
use serde::Deserialize;

/// A tool that works on the draft instead of the workspace.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Draft<T>(pub T);

impl<T: Tool> Tool for Draft<T> {
    const NAME: &'static str = T::NAME;
    /// Whatever it does, it does to the draft.
    const EFFECTS: Effects =
        if T::EFFECTS.is_read_only() { Effects::READS } else { Effects::READS.and(Effects::WRITES) };
    const NEEDS: PortSet = PortSet::of(&[Port::Draft]);
    const TIMEOUT: Duration = T::TIMEOUT;
    type Output = T::Output;

    async fn run(self, call: &Call) -> Result<Self::Output> {
        self.0.run(&call.drafting()?).await
    }
}
