//! `scratchpad_*`: what the session works on right now.

use helve_tools::scratchpad;
use schemars::JsonSchema;
use serde::Deserialize;

/// Reads the session's scratchpad.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Read {}

/// Replaces the session's scratchpad with these working items.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Write {
    /// 1 to 32, each at most 240 characters
    #[schemars(length(min = 1, max = 32), inner(length(max = 240)))]
    items: Vec<String>,
}

/// Clears the session's scratchpad.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Clear {}

impl From<Read> for scratchpad::Read {
    fn from(Read {}: Read) -> Self {
        Self {}
    }
}

impl From<Write> for scratchpad::Write {
    fn from(Write { items }: Write) -> Self {
        Self { items }
    }
}

impl From<Clear> for scratchpad::Clear {
    fn from(Clear {}: Clear) -> Self {
        Self {}
    }
}
