//! Settings that a model may see while it works, and the few that it may change until the conversation ends.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use helve_contract::{Error, Result, nearest};
use serde_json::Value;

use crate::config::{KEYS, Settings};

/// What a model may change: nothing that widens what it may do or spend.
const CHANGEABLE: [&str; 3] = ["model.name", "model.small", "chat.reasoning"];
/// What a model need not know: where keys are, and who else is reached.
const HIDDEN: [&str; 8] = [
    "secrets.canaries",
    "model.key_env",
    "scrub.secrets_env",
    "mcp.servers",
    "plugins",
    "tools.plugins",
    "host_commands.key",
    "state_dir",
];

/// The settings of a conversation.
pub struct Knobs {
    values: Mutex<BTreeMap<&'static str, Value>>,
}

impl Knobs {
    /// As the settings say.
    pub fn new(settings: &Settings) -> Self {
        let shown = settings.all().filter(|(key, _)| !HIDDEN.contains(&key.name));
        Self { values: Mutex::new(shown.map(|(key, setting)| (key.name, setting.value.clone())).collect()) }
    }

    /// A setting, if there is one of this name that may be seen.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// A setting that is text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name)?.as_str().map(str::to_owned)
    }

    /// Changes a setting that may be changed; the value before and the one now.
    pub fn set(&self, name: &str, value: Value) -> Result<(Value, Value)> {
        let Some(key) = KEYS.iter().find(|key| key.name == name && CHANGEABLE.contains(&key.name)) else {
            let near = nearest(name, CHANGEABLE).first().map(|it| format!("; did you mean {it}?")).unwrap_or_default();
            return Err(Error::failed(format!(
                "`{name}` cannot be changed from here{near} Only these can: {}. Ask the user to change others",
                CHANGEABLE.join(", ")
            )));
        };
        let value = match value {
            Value::String(text) => key.kind.parse(&text),
            value => key.kind.check(value),
        };
        let value = value.map_err(|why| Error::failed(format!("`{name}` {why}")))?;
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let before = values.insert(key.name, value.clone()).unwrap_or_default();
        Ok((before, value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_that_guards_can_be_changed() {
        let knobs = Knobs { values: Mutex::default() };
        let guards = [
            "approval.",
            "policy.",
            "sandbox.",
            "paths.",
            "secrets.",
            "scrub.",
            "roots",
            "web.",
            "mcp.",
            "host",
            "tools.",
        ];
        for key in KEYS.iter() {
            let changed = knobs.set(key.name, json!("x")).is_ok();
            assert!(!changed || !guards.iter().any(|guard| key.name.starts_with(guard)), "{}", key.name);
        }
        assert!(knobs.set("model.base_url", json!("http://evil.example/")).is_err());
        assert!(HIDDEN.contains(&"secrets.canaries"), "a bait that is known is none");
    }
}
