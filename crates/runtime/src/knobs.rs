//! Settings that a model can read, and the few that it can change until its session ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use helve_contract::{
    Call, Error, Result, async_trait, closest_names,
    ports::{PlanDecision, Question, Todo, User},
};
use serde_json::Value;

use crate::config::{SETTINGS, Settings};

/// The settings that a model can change: none extends its rights or budget.
const SETTABLE: [&str; 4] = ["model.name", "model.small", "theme", "chat.reasoning"];
/// Settings with secrets: canaries, and tables whose environments and headers may contain keys.
const SECRET: [&str; 5] = ["secrets.canaries", "mcp.servers", "plugins", "tools.plugins", "channels"];
/// The maximum number of sessions with changed settings.
const MAX_SESSIONS: usize = 1024;

/// The settings of one session.
#[derive(Default)]
pub struct RuntimeSettings {
    inner: Mutex<Inner>,
}

#[derive(Clone, Default)]
struct Inner {
    values: BTreeMap<&'static str, Value>,
    /// The keys that were set since the session began.
    changed: BTreeSet<&'static str>,
}

/// The full name of a setting; `model` is short for `model.name`.
fn full_name(name: &str) -> &str {
    if name == "model" { "model.name" } else { name }
}

impl RuntimeSettings {
    /// The values of the settings.
    pub fn new(settings: &Settings) -> Self {
        let shown = settings.all().filter(|(key, _)| !SECRET.contains(&key.name));
        let values = shown.map(|(key, setting)| (key.name, setting.value.clone())).collect();
        Self { inner: Mutex::new(Inner { values, changed: BTreeSet::new() }) }
    }

    /// A copy; changes to it do not affect the original.
    fn fork(&self) -> Self {
        Self { inner: Mutex::new(self.lock().clone()) }
    }

    /// A setting. `None` if the name is unknown or the value is secret.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.lock().values.get(full_name(name)).cloned()
    }

    /// A setting that was changed since the session started, else `None`.
    fn changed(&self, name: &str) -> Option<Value> {
        let inner = self.lock();
        inner.changed.get(full_name(name)).and_then(|key| inner.values.get(key)).cloned()
    }

    /// A setting that is text.
    pub fn get_str(&self, name: &str) -> Option<String> {
        self.get(name)?.as_str().map(str::to_owned)
    }

    /// Records the resolved model, if the settings name none.
    pub fn found_model(&self, name: &str) {
        let mut inner = self.lock();
        let model = inner.values.entry("model.name").or_default();
        if model.is_null() {
            *model = name.into();
        }
    }

    /// Sets a value; returns the old and the new one. For other keys, the error says how a person changes them.
    pub fn set(&self, name: &str, value: Value) -> Result<(Value, Value)> {
        let full = full_name(name);
        let Some(key) = SETTINGS.iter().find(|key| key.name == full && SETTABLE.contains(&key.name)) else {
            return Err(not_settable(name));
        };
        let value = match value {
            Value::String(text) => key.value_type.parse(&text),
            value => key.value_type.check(value),
        };
        let value = value.map_err(|why| Error::failed(format!("`{name}` {why}")))?;
        let mut inner = self.lock();
        inner.changed.insert(key.name);
        let before = inner.values.insert(key.name, value.clone()).unwrap_or_default();
        Ok((before, value))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_settable(name: &str) -> Error {
    let names = "model, model.small, theme, chat.reasoning";
    let shown: String = name.chars().take(64).collect();
    let shown = shown.escape_debug();
    if SETTINGS.iter().any(|key| key.name == full_name(name)) {
        return Error::failed(format!(
            "`{shown}` cannot be set from a session; only {names} can. Ask the user to start helve with \
             `--set {shown}=VALUE`, or to set it in the file that `helve config path` prints"
        ));
    }
    let near = closest_names(name, SETTINGS.iter().map(|key| key.name));
    let near = near.first().map(|it| format!(" Did you mean `{it}`?")).unwrap_or_default();
    Error::failed(format!("there is no setting `{shown}`.{near} Settable here: {names}"))
}

/// The settings of many sessions: each has its own changes.
pub struct SessionKnobs {
    base: RuntimeSettings,
    changed: Mutex<BTreeMap<String, Arc<RuntimeSettings>>>,
    /// Why a model set by a session would not be used; `None` if it would.
    unused_model: Box<dyn Fn() -> Option<&'static str> + Send + Sync>,
}

impl SessionKnobs {
    /// The settings of all sessions. `unused_model`: why a model set by a session would not be used.
    pub fn new(settings: &Settings, unused_model: impl Fn() -> Option<&'static str> + Send + Sync + 'static) -> Self {
        Self { base: RuntimeSettings::new(settings), changed: Mutex::default(), unused_model: Box::new(unused_model) }
    }

    /// The initial settings of every session.
    pub fn base(&self) -> &RuntimeSettings {
        &self.base
    }

    /// A setting of a session.
    pub fn get(&self, session: &str, name: &str) -> Option<Value> {
        match self.lock().get(session) {
            Some(knobs) => knobs.get(name),
            None => self.base.get(name),
        }
    }

    /// A setting of a session that is text.
    pub fn text(&self, session: &str, name: &str) -> Option<String> {
        self.get(session, name)?.as_str().map(str::to_owned)
    }

    /// A setting that this session, or the program for all sessions, has changed.
    pub fn changed(&self, session: &str, name: &str) -> Option<Value> {
        let own = self.lock().get(session).cloned();
        own.and_then(|knobs| knobs.changed(name)).or_else(|| self.base.changed(name))
    }

    /// Sets a value for all sessions; returns the old and the new one.
    pub fn set_for_all(&self, name: &str, value: Value) -> Result<(Value, Value)> {
        self.refuse_unused(name)?;
        self.base.set(name, value)
    }

    /// Refuses a setting that would have no effect, with the reason.
    fn refuse_unused(&self, name: &str) -> Result<()> {
        if !full_name(name).starts_with("model.") || !SETTABLE.contains(&full_name(name)) {
            return Ok(());
        }
        match (self.unused_model)() {
            Some(why) => Err(Error::failed(format!("`{name}` was not set: {why}"))),
            None => Ok(()),
        }
    }

    /// Sets a value for one session; returns the old and the new one.
    pub fn set(&self, session: &str, name: &str, value: Value) -> Result<(Value, Value)> {
        self.refuse_unused(name)?;
        let mut changed = self.lock();
        if !changed.contains_key(session) && changed.len() >= MAX_SESSIONS {
            changed.pop_first();
        }
        let knobs = changed.entry(session.to_owned()).or_insert_with(|| Arc::new(self.base.fork())).clone();
        drop(changed);
        knobs.set(name, value)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<RuntimeSettings>>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A user port that handles settings and forwards everything else.
pub struct SettingsUser {
    inner: Arc<dyn User>,
    knobs: Arc<SessionKnobs>,
}

impl SettingsUser {
    /// `inner` answers everything but settings.
    pub fn new(inner: Arc<dyn User>, knobs: Arc<SessionKnobs>) -> Self {
        Self { inner, knobs }
    }
}

#[async_trait]
impl User for SettingsUser {
    fn is_available(&self) -> bool {
        self.inner.is_available()
    }
    fn has_settings(&self) -> bool {
        true
    }
    async fn ask(&self, call: &Call, questions: &[Question]) -> Result<BTreeMap<String, String>> {
        self.inner.ask(call, questions).await
    }
    async fn show_todos(&self, call: &Call, todos: &[Todo]) {
        self.inner.show_todos(call, todos).await;
    }
    async fn is_planning(&self, call: &Call) -> bool {
        self.inner.is_planning(call).await
    }
    async fn approve_plan(&self, call: &Call, plan: &str) -> Result<PlanDecision> {
        self.inner.approve_plan(call, plan).await
    }
    async fn setting(&self, call: &Call, name: &str) -> Result<Option<Value>> {
        Ok(self.knobs.get(&call.session.id, name))
    }
    async fn set_setting(&self, call: &Call, name: &str, value: Value) -> Result<Value> {
        self.knobs.set(&call.session.id, name, value).map(|(before, _)| before)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_that_guards_can_be_changed() {
        let knobs = RuntimeSettings::default();
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
        for key in SETTINGS.iter() {
            let changed = knobs.set(key.name, json!("x")).is_ok();
            assert!(!changed || !guards.iter().any(|guard| key.name.starts_with(guard)), "{}", key.name);
        }
        assert!(knobs.set("model.base_url", json!("http://evil.example/")).is_err());
        assert!(SECRET.contains(&"secrets.canaries"), "a bait that is known is none");
    }

    #[test]
    fn every_settable_key_exists_and_has_an_alias_or_its_own_name() {
        let knobs = RuntimeSettings::default();
        for (name, value) in [
            ("model", json!("qwen3")),
            ("model.name", json!("qwen3")),
            ("model.small", json!("tiny")),
            ("theme", json!("dark")),
            ("chat.reasoning", json!("true")),
        ] {
            knobs.set(name, value).unwrap();
        }
        assert_eq!(knobs.get("model"), Some(json!("qwen3")));
        assert_eq!(knobs.get("chat.reasoning"), Some(json!(true)));
        assert!(knobs.set("theme", json!("loud")).is_err());
        let told = |name: &str| knobs.set(name, json!("x")).unwrap_err().to_string();
        assert!(told("sandbox.level").contains("`--set sandbox.level=VALUE`"));
        assert!(told("sandbox.leval").contains("Did you mean `sandbox.level`?"));
    }
}
