//! Reading the JSON that models send, which is not always JSON.
use serde_json::Value;
use std::borrow::Cow;

/// What a mend may have done to the meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// Nothing: only the spelling was wrong.
    Harmless,
    /// A value may mean something else than what was sent.
    Guess,
    /// The end is missing in the middle of a value.
    Cut,
}

/// One thing that was mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mend {
    /// What it was.
    pub what: Cow<'static, str>,
    /// What it may have done to the meaning.
    pub risk: Risk,
}

/// A value, and what had to be mended to read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mended {
    /// The value.
    pub value: Value,
    /// What was mended.
    pub mends: Vec<Mend>,
}

/// Reads JSON.
pub fn mend(text: &str) -> Result<Mended, String> {
    if text.trim().is_empty() { return Ok(Mended { value: serde_json::json!({}), mends: Vec::new() }) }
    serde_json::from_str(text).map(|value| Mended { value, mends: Vec::new() }).map_err(|it| it.to_string())
}
