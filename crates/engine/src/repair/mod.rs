//! Reading the JSON that models send, which is not always JSON.
//!
//! Valid JSON is read as it is. Anything else goes through one lenient pass, in linear time, that notes each mend and
//! how far it can be trusted: [`Risk::Harmless`] where only the spelling was wrong, [`Risk::Guess`] where a value may
//! mean something else, [`Risk::Truncated`] where the text ends in the middle of one.

mod around;
mod bare;
mod quoted;
mod reader;
mod strict;

use std::borrow::Cow;

use serde_json::{Map, Value};

/// Longer arguments are not read at all.
const MAX_INPUT_BYTES: usize = 32 << 20;

/// What a mend may have done to the meaning. The order is the order of danger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// Nothing: only the spelling was wrong.
    Harmless,
    /// A value may mean something else than what was sent.
    Guess,
    /// The text ends in the middle of a value. Never good for running anything.
    Truncated,
}

/// One thing that was mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentRepair {
    /// What was the matter.
    pub what: Cow<'static, str>,
    /// What the mend may have done to the meaning.
    pub risk: Risk,
}

/// A value, and what had to be mended to read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Repaired {
    /// The value.
    pub value: Value,
    /// What was mended, each thing once, in the order of the text.
    pub repairs: Vec<ArgumentRepair>,
}

impl Repaired {
    /// How far the whole can be trusted.
    pub fn risk(&self) -> Risk {
        self.repairs.iter().map(|mend| mend.risk).max().unwrap_or(Risk::Harmless)
    }
}

/// Reads a value from a text, mending what can be mended. The error says why there is nothing to read.
pub fn repair_json(text: &str) -> Result<Repaired, String> {
    if text.len() > MAX_INPUT_BYTES {
        return Err(format!("{} bytes are more than the {MAX_INPUT_BYTES} that are read", text.len()));
    }
    if let Some(mended) = strict::parse_strict(text) {
        return Ok(mended);
    }
    let mut mends = RepairLog(Vec::new());
    let value =
        if text.trim().is_empty() { Value::Object(Map::new()) } else { around::parse_embedded(text, &mut mends)? };
    Ok(Repaired { value, repairs: mends.0 })
}

/// The mends so far, each kind once.
struct RepairLog(Vec<ArgumentRepair>);

impl RepairLog {
    fn add(&mut self, risk: Risk, what: impl Into<Cow<'static, str>>) {
        let what = what.into();
        if self.0.len() < 16 && !self.0.iter().any(|it| it.what == what && it.risk == risk) {
            self.0.push(ArgumentRepair { what, risk });
        } else if self.0.len() >= 16
            && let Some(last) = self.0.last_mut()
        {
            last.risk = last.risk.max(risk);
        }
    }

    fn harmless(&mut self, what: &'static str) {
        self.add(Risk::Harmless, what);
    }

    fn guess(&mut self, what: &'static str) {
        self.add(Risk::Guess, what);
    }

    fn truncated(&mut self, what: &'static str) {
        self.add(Risk::Truncated, what);
    }
}

/// Blank in the eyes of a reader, if not of the standard.
fn is_whitespace_like(it: char) -> bool {
    it.is_whitespace() || helve_contract::invisible(it).is_some()
}

#[cfg(test)]
mod tests;
