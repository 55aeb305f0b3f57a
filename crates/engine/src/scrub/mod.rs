//! Taking secrets out of what leaves the engine.
//!
//! One scan looks for the few words and prefixes that a secret can stand behind; only there is looked closer. Clean
//! text costs that scan and no copy. Ids, hashes and ordinary code stay: what is taken out has to look like a secret.

mod decode;
mod forms;
mod rules;
mod value;

use std::borrow::Cow;

use helve_contract::{Event, Form, Reply};
use serde_json::Value;

use forms::Needle;

/// What stands in place of a secret.
pub(crate) const REDACTED: &str = "[REDACTED]";
/// Shorter texts would be found everywhere.
const SHORTEST: usize = 4;

/// What is taken for a secret.
#[derive(Clone, Debug, Default)]
pub struct Scrub {
    shapes: bool,
    /// Texts that are secret whatever they look like, in every usual form, the longest first.
    secrets: Vec<String>,
    /// Baits: worthless, seen by the model, and told of when it tries to send them.
    canaries: Vec<String>,
    /// What may not leave, and whether it is a bait.
    needles: Vec<(Needle, Leak)>,
}

/// What was about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leak {
    /// A registered secret.
    Secret,
    /// The canary of this number, counted from 1.
    Canary(usize),
}

impl Leak {
    /// In words.
    pub(crate) fn told(self) -> String {
        match self {
            Self::Secret => "a registered secret".to_owned(),
            Self::Canary(number) => format!("canary {number}"),
        }
    }
}

impl Scrub {
    /// The shapes of keys, tokens, passwords and private keys.
    pub fn standard() -> Self {
        Self { shapes: true, ..Self::default() }
    }

    /// Nothing at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// The standard shapes, and these texts wherever they appear. Texts of fewer than 4 bytes are left aside.
    pub fn with_secrets(secrets: Vec<String>) -> Self {
        let kept: Vec<String> = secrets.into_iter().filter(|it| it.trim().len() >= SHORTEST).collect();
        let needles = kept.iter().map(|it| (Needle::new(it.trim()), Leak::Secret)).collect();
        let mut secrets: Vec<String> = kept.iter().flat_map(|it| forms::written(it)).collect();
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        secrets.dedup();
        Self { shapes: true, secrets, needles, ..Self::default() }
    }

    /// The same, with baits that may be seen but not sent. Texts of fewer than 8 bytes are left aside.
    #[must_use]
    pub fn with_canaries(mut self, canaries: &[String]) -> Self {
        let long = canaries.iter().map(|it| it.trim()).enumerate().filter(|(_, it)| it.len() >= 8);
        for (at, canary) in long {
            self.needles.push((Needle::new(canary), Leak::Canary(at + 1)));
            self.canaries.extend(forms::written(canary));
        }
        self
    }

    /// What in these arguments may not leave the machine, in the forms that are known.
    pub(crate) fn leak(&self, args: &Value) -> Option<Leak> {
        if self.needles.is_empty() { None } else { forms::carried(args, &self.needles).copied() }
    }

    /// The value as it may be recorded: without secrets, and without baits.
    pub(crate) fn cleaned(&self, mut value: Value) -> Value {
        if self.leak(&value).is_some() {
            self.value(&mut value);
            replace_in(&mut value, &self.canaries);
            if self.leak(&value).is_some() {
                return Value::String("[withheld: a secret was in it]".into());
            }
        } else {
            self.value(&mut value);
        }
        value
    }

    /// The event without secrets.
    pub(crate) fn event(&self, event: &Event) -> Event {
        event.with_data(&self.cleaned(event.data()))
    }

    /// Whether a value may be recorded as it is.
    pub(crate) fn is_clean(&self, value: &Value) -> bool {
        self.leak(value).is_none() && self.holds_no_secret(value)
    }

    fn holds_no_secret(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => matches!(self.text(text), Cow::Borrowed(_)),
            Value::Array(items) => items.iter().all(|it| self.holds_no_secret(it)),
            Value::Object(map) => map.iter().all(|(key, it)| match it {
                Value::String(text) if self.shapes && value::is_secret_under(key, text) => false,
                it => self.holds_no_secret(it),
            }),
            _ => true,
        }
    }

    /// Takes baits out of a scrubbed value before it is recorded: a model sees them, a record does not keep them.
    pub(crate) fn take_baits(&self, value: &mut Value) {
        if !self.canaries.is_empty() {
            replace_in(value, &self.canaries);
        }
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
        self.string(&mut reply.before);
        self.string(&mut reply.after);
        if let Some(saved) = &mut reply.saved {
            self.string(&mut saved.text);
        }
        for note in reply.notes.iter_mut().chain(&mut reply.model_notes).chain(&mut reply.repairs) {
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

fn replace_in(value: &mut Value, texts: &[String]) {
    match value {
        Value::String(string) => {
            for text in texts.iter().filter(|it| !it.is_empty()) {
                if string.contains(text.as_str()) {
                    *string = string.replace(text.as_str(), REDACTED);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|it| replace_in(it, texts)),
        Value::Object(map) => map.values_mut().for_each(|it| replace_in(it, texts)),
        _ => {}
    }
}

#[cfg(test)]
mod forms_tests;
#[cfg(test)]
mod tests;
