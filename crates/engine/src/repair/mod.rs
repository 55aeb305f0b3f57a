//! Repairs invalid JSON from models.
//!
//! Valid JSON is parsed unchanged. Other input goes through one lenient pass in linear time, which records each repair
//! and its risk: [`Risk::Harmless`] if only the syntax was wrong, [`Risk::Guess`] if a value may mean something else,
//! [`Risk::Truncated`] if the text ends inside a value.

mod around;
mod bare;
mod quoted;
mod reader;
mod strict;

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The maximum length of arguments.
const MAX_INPUT_BYTES: usize = 32 << 20;

/// How a repair may have changed the meaning, in increasing order of danger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// Not at all: only the syntax was wrong.
    Harmless,
    /// A value may differ from the intended one.
    Guess,
    /// The text ends inside a value. Such a call must not run.
    Truncated,
}

/// One thing that was repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentRepair {
    /// What was wrong.
    pub what: Cow<'static, str>,
    /// How it may have changed the meaning.
    pub risk: Risk,
}

/// A value and the repairs needed to parse it.
#[derive(Clone, Debug, PartialEq)]
pub struct Repaired {
    /// The value.
    pub value: Value,
    /// The repairs, each once, in source order.
    pub repairs: Vec<ArgumentRepair>,
}

impl Repaired {
    /// The highest risk of all repairs.
    pub fn risk(&self) -> Risk {
        self.repairs.iter().map(|mend| mend.risk).max().unwrap_or(Risk::Harmless)
    }
}

/// Parses a value and repairs it if necessary. The error says why it cannot be parsed.
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

/// The repairs so far, each kind once.
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

/// Whether a character looks like whitespace but is not JSON whitespace.
fn is_whitespace_like(it: char) -> bool {
    it.is_whitespace() || helve_contract::invisible(it).is_some()
}

#[cfg(test)]
mod tests;
