//! Redacts secrets from everything that leaves the engine.
//!
//! One scan searches for the keywords and prefixes of secrets; only their context is examined further. Text without
//! secrets costs this scan and no copy. Ids, hashes and ordinary code stay.

mod decode;
mod forms;
mod rules;
mod value;

use std::borrow::Cow;

use helve_contract::{Event, Reply, ReplyFormat};
use serde_json::Value;

use forms::Needle;

/// The replacement of a secret.
pub(crate) const REDACTED: &str = "[REDACTED]";
/// Shorter texts would match everywhere.
const MIN_SECRET_LEN: usize = 4;

/// Finds and redacts secrets.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    shapes: bool,
    /// Registered secrets in all usual forms, the longest first.
    secrets: Vec<String>,
    /// Canaries: worthless values that the model sees. An attempt to send one is reported.
    canaries: Vec<String>,
    /// What may not leave the machine, and whether it is a canary.
    egress_needles: Vec<(Needle, Leak)>,
}

/// What a call tried to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leak {
    /// A registered secret.
    Secret,
    /// The canary of this number, counted from 1.
    Canary(usize),
}

impl Leak {
    /// In words.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Secret => "a registered secret".to_owned(),
            Self::Canary(number) => format!("canary {number}"),
        }
    }
}

impl Redactor {
    /// Redacts keys, tokens, passwords and private keys by their form.
    pub fn standard() -> Self {
        Self { shapes: true, ..Self::default() }
    }

    /// Redacts nothing.
    pub fn disabled() -> Self {
        Self::default()
    }

    /// Redacts the standard forms and these texts. Ignores texts of fewer than 4 bytes.
    pub fn with_secrets(secrets: Vec<String>) -> Self {
        let kept: Vec<String> = secrets.into_iter().filter(|it| it.trim().len() >= MIN_SECRET_LEN).collect();
        let needles = kept.iter().map(|it| (Needle::new(it.trim()), Leak::Secret)).collect();
        let mut secrets: Vec<String> = kept.iter().flat_map(|it| forms::encoded_forms(it)).collect();
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        secrets.dedup();
        Self { shapes: true, secrets, egress_needles: needles, ..Self::default() }
    }

    /// Adds canaries, which may be seen but not sent. Ignores texts of fewer than 8 bytes.
    #[must_use]
    pub fn with_canaries(mut self, canaries: &[String]) -> Self {
        let long = canaries.iter().map(|it| it.trim()).enumerate().filter(|(_, it)| it.len() >= 8);
        for (at, canary) in long {
            self.egress_needles.push((Needle::new(canary), Leak::Canary(at + 1)));
            self.canaries.extend(forms::encoded_forms(canary));
        }
        self
    }

    /// A secret or canary in these arguments that may not leave the machine, in any known form.
    pub(crate) fn find_leak(&self, args: &Value) -> Option<Leak> {
        if self.egress_needles.is_empty() { None } else { forms::find_encoded(args, &self.egress_needles).copied() }
    }

    /// The value for records: without secrets and canaries.
    pub(crate) fn redacted(&self, mut value: Value) -> Value {
        if self.find_leak(&value).is_some() {
            self.redact_value(&mut value);
            replace_in_value(&mut value, &self.canaries);
            if self.find_leak(&value).is_some() {
                return Value::String("[withheld: a secret was in it]".into());
            }
        } else {
            self.redact_value(&mut value);
        }
        value
    }

    /// The event without secrets.
    pub(crate) fn event(&self, event: &Event) -> Event {
        event.with_data(&self.redacted(event.data()))
    }

    /// Whether a value can be recorded unchanged.
    pub(crate) fn is_recordable(&self, value: &Value) -> bool {
        self.find_leak(value).is_none() && self.has_no_secret(value)
    }

    fn has_no_secret(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => matches!(self.redact_text(text), Cow::Borrowed(_)),
            Value::Array(items) => items.iter().all(|it| self.has_no_secret(it)),
            Value::Object(map) => map.iter().all(|(key, it)| match it {
                Value::String(text) if self.shapes && value::is_secret_under(key, text) => false,
                it => self.has_no_secret(it),
            }),
            _ => true,
        }
    }

    /// Removes canaries from a redacted value before it is recorded: models see them, records must not contain them.
    pub(crate) fn remove_canaries(&self, value: &mut Value) {
        if !self.canaries.is_empty() {
            replace_in_value(value, &self.canaries);
        }
    }

    /// The text without secrets; the same text if there are none.
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = Cow::Owned(text.replace(secret.as_str(), REDACTED));
            }
        }
        if self.shapes
            && let Some(clean) = rules::redact_secrets(&text)
        {
            text = Cow::Owned(clean);
        }
        text
    }

    /// Redacts secrets in all texts of a value; returns whether there were any.
    pub fn redact_value(&self, value: &mut Value) -> bool {
        let mut any = false;
        match value {
            Value::String(text) => any = self.redact_string(text),
            Value::Array(items) => items.iter_mut().for_each(|it| any |= self.redact_value(it)),
            Value::Object(map) => map.iter_mut().for_each(|(key, it)| any |= self.redact_field(key, it)),
            _ => {}
        }
        any
    }

    /// Redacts secrets in the text, data and remarks of a reply.
    pub(crate) fn redact_reply(&self, reply: &mut Reply) {
        if !self.shapes && self.secrets.is_empty() {
            return;
        }
        let changed = reply.data.as_mut().is_some_and(|data| self.redact_value(data));
        match &reply.data {
            Some(data) if reply.format == ReplyFormat::Json => {
                if changed {
                    reply.text = data.to_string();
                }
            }
            _ => _ = self.redact_string(&mut reply.text),
        }
        self.redact_string(&mut reply.before);
        self.redact_string(&mut reply.after);
        if let Some(saved) = &mut reply.saved {
            self.redact_string(&mut saved.text);
        }
        for note in reply.notes.iter_mut().chain(&mut reply.model_notes).chain(&mut reply.repairs) {
            self.redact_string(note);
        }
    }

    fn redact_field(&self, key: &str, value: &mut Value) -> bool {
        match value {
            Value::String(text) if self.shapes && value::is_secret_under(key, text) => {
                REDACTED.clone_into(text);
                true
            }
            value => self.redact_value(value),
        }
    }

    fn redact_string(&self, text: &mut String) -> bool {
        match self.redact_text(text) {
            Cow::Borrowed(_) => false,
            Cow::Owned(clean) => {
                *text = clean;
                true
            }
        }
    }
}

fn replace_in_value(value: &mut Value, texts: &[String]) {
    match value {
        Value::String(string) => {
            for text in texts.iter().filter(|it| !it.is_empty()) {
                if string.contains(text.as_str()) {
                    *string = string.replace(text.as_str(), REDACTED);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|it| replace_in_value(it, texts)),
        Value::Object(map) => map.values_mut().for_each(|it| replace_in_value(it, texts)),
        _ => {}
    }
}

#[cfg(test)]
mod forms_tests;
#[cfg(test)]
mod tests;
