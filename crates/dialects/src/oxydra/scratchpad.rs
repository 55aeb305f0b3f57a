//! `scratchpad_*`: the working notes of the session.

use helve_tools::scratchpad;
use schemars::JsonSchema;
use serde::Deserialize;

/// Reads the session's scratchpad.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ScratchpadReadArgs {}

/// Replaces the session's scratchpad with these working items.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ScratchpadWriteArgs {
    /// 1 to 32, each at most 240 characters
    #[schemars(length(min = 1, max = 32), inner(length(max = 240)))]
    items: Vec<String>,
}

/// Clears the session's scratchpad.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ScratchpadClearArgs {}

impl From<ScratchpadReadArgs> for scratchpad::ScratchpadReadTool {
    fn from(ScratchpadReadArgs {}: ScratchpadReadArgs) -> Self {
        Self {}
    }
}

impl From<ScratchpadWriteArgs> for scratchpad::ScratchpadWriteTool {
    fn from(ScratchpadWriteArgs { items }: ScratchpadWriteArgs) -> Self {
        Self { items }
    }
}

impl From<ScratchpadClearArgs> for scratchpad::ScratchpadClearTool {
    fn from(ScratchpadClearArgs {}: ScratchpadClearArgs) -> Self {
        Self {}
    }
}
