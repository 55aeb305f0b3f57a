//! The `Tool` trait: arguments that parse from JSON, and a function that runs with them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{AccessRequest, Call, Effects, PortSet, Reply, Result};

/// A tool: arguments that parse from JSON, and a function that runs with them.
///
/// The fields are the parameters; the model reads the doc comments of the struct and its fields. Built-in tools and
/// yours implement the same trait. `#[tool]` generates it from an async function.
pub trait Tool: DeserializeOwned + JsonSchema + Send + 'static {
    /// The name that the model calls, unless a dialect renames it.
    const NAME: &'static str;
    /// The effects that a call can have.
    const EFFECTS: Effects;
    /// The timeout of a call. A tool with its own timeout (a shell command) uses [`Duration::MAX`].
    const TIMEOUT: Duration = Duration::from_secs(120);
    /// The ports that a call requires. A session without one of them does not offer the tool.
    const NEEDS: PortSet = PortSet::NONE;
    /// The output of a call.
    type Output: Into<Reply> + Send;

    /// What a call with these arguments would access. `None`: the gate uses well-known argument names (`path`,
    /// `command`, `url`).
    fn access(&self) -> Option<AccessRequest> {
        None
    }

    /// Runs one call.
    fn run(self, call: &Call) -> impl Future<Output = Result<Self::Output>> + Send;
}
