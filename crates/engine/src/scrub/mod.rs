//! Taking secrets out of what leaves the engine.
//!
//! One scan looks for the few words and prefixes that a secret can stand behind; only there is looked closer. Clean
//! text costs that scan and no copy. Ids, hashes and ordinary code stay: what is taken out has to look like a secret.

mod rules;
mod value;

use std::borrow::Cow;

use helve_contract::{Form, Reply};
use serde_json::Value;

/// What stands in place of a secret.
pub(crate) const REDACTED: &str = "[REDACTED]";
/// Shorter texts would be found everywhere.
const SHORTEST: usize = 4;

/// What is taken for a secret.
#[derive(Clone, Debug, Default)]
pub struct Scrub {
    shapes: bool,
    /// Texts that are secret whatever they look like, the longest first.
    secrets: Vec<String>,
}

impl Scrub {
    /// The shapes of keys, tokens, passwords and private keys.
    pub fn standard() -> Self {
        Self { shapes: true, secrets: Vec::new() }
    }

    /// Nothing at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// The standard shapes, and these texts wherever they appear. Texts of fewer than 4 bytes are left aside.
    pub fn with_secrets(secrets: Vec<String>) -> Self {
        let mut secrets: Vec<String> = secrets.into_iter().filter(|it| it.trim().len() >= SHORTEST).collect();
        secrets.sort_by_key(|it| std::cmp::Reverse(it.len()));
        secrets.dedup();
        Self { shapes: true, secrets }
    }

    /// The text without secrets; the same text if there are none.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = Cow::Owned(text.replace(secret.as_str(), REDACTED));
            }
        }
        if self.shapes
            && let Some(clean) = rules::scrubbed(&text)
        {
            text = Cow::Owned(clean);
        }
        text
    }

    /// Takes secrets out of all texts in a value; says whether there were any.
    pub fn value(&self, value: &mut Value) -> bool {
        let mut any = false;
        match value {
            Value::String(text) => any = self.string(text),
            Value::Array(items) => items.iter_mut().for_each(|it| any |= self.value(it)),
            Value::Object(map) => map.iter_mut().for_each(|(key, it)| any |= self.field(key, it)),
            _ => {}
        }
        any
    }

    /// Takes secrets out of the words, the data and the remarks of a reply.
    pub(crate) fn reply(&self, reply: &mut Reply) {
        if !self.shapes && self.secrets.is_empty() {
            return;
        }
        let changed = reply.data.as_mut().is_some_and(|data| self.value(data));
        match &reply.data {
            Some(data) if reply.form == Form::Json => {
                if changed {
                    reply.text = data.to_string();
                }
            }
            _ => _ = self.string(&mut reply.text),
        }
        for note in &mut reply.notes {
            self.string(note);
        }
    }

    fn field(&self, key: &str, value: &mut Value) -> bool {
        match value {
            Value::String(text) if self.shapes && value::is_secret_under(key, text) => {
                REDACTED.clone_into(text);
                true
            }
            value => self.value(value),
        }
    }

    fn string(&self, text: &mut String) -> bool {
        match self.text(text) {
            Cow::Borrowed(_) => false,
            Cow::Owned(clean) => {
                *text = clean;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests;
