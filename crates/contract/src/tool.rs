//! A tool: arguments that parse from JSON, and what to do with them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{AccessRequest, Call, Effects, PortSet, Reply, Result};

/// Arguments that parse from JSON, and what to do with them.
///
/// The fields are the parameters; doc comments on the struct and on its fields are what the model reads.
/// Built-in tools and yours implement the same trait; `#[tool]` writes it from a plain async function.
pub trait Tool: DeserializeOwned + JsonSchema + Send + 'static {
    /// What the model calls, unless a dialect gives it another name.
    const NAME: &'static str;
    /// What a call can do to the world.
    const EFFECTS: Effects;
    /// How long a call may take. A tool that keeps its own clock (a shell command) says [`Duration::MAX`].
    const TIMEOUT: Duration = Duration::from_secs(120);
    /// The ports that a call cannot do without. A session that lacks one does not offer the tool.
    const NEEDS: PortSet = PortSet::NONE;
    /// What comes back.
    type Output: Into<Reply> + Send;

    /// What a call with these arguments would use. `None`: the gate looks for well-known argument names (`path`,
    /// `command`, `url`) instead.
    fn access(&self) -> Option<AccessRequest> {
        None
    }

    /// Runs one call.
    fn run(self, call: &Call) -> impl Future<Output = Result<Self::Output>> + Send;
}
