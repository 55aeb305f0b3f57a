//! `/api/policy`: what is asked, what is refused, and what the walls are.

use serde_json::{Map, Value, json};

use super::site::Site;
use crate::setup;

/// Rules by what they say.
const RULES: [(&str, &str); 3] = [("deny", "approval.deny"), ("ask", "approval.ask"), ("allow", "approval.allow")];

impl Site {
    /// What holds for calls, and the last that were refused.
    pub(super) fn policy(&self) -> Value {
        let settings = self.bench.settings();
        let configured = setup::mode(settings);
        let dialects: Map<String, Value> = helve_dialects::all()
            .into_iter()
            .map(|it| {
                let mode = configured.unwrap_or(it.mode);
                (it.name.to_owned(), json!({ "mode": mode.name(), "configured": configured.is_some() }))
            })
            .collect();
        let from = |key: &str| {
            let found = settings.all().find(|(it, _)| it.name == key).map(|(_, setting)| &setting.from);
            found.into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let rules: Vec<_> = RULES
            .iter()
            .flat_map(|(verdict, key)| settings.list(key).into_iter().map(move |rule| (verdict, key, rule)))
            .map(|(verdict, key, rule)| json!({ "verdict": verdict, "rule": rule, "from": from(key) }))
            .collect();
        let value = |key: &str| settings.all().find(|(it, _)| it.name == key).map(|(_, setting)| setting.value.clone());
        json!({
            "dialects": dialects,
            "rules": rules,
            "paths": {
                "deny_read": settings.list("paths.deny_read"), "deny_write": settings.list("paths.deny_write"),
            },
            "protected": helve_engine::PROTECTED,
            "programs": {
                "enabled": settings.flag("tools.shell.enabled"), "allow": settings.list("tools.shell.allow"),
                "deny": settings.list("tools.shell.deny"),
            },
            "sandbox": {
                "level": value("sandbox.level"), "network": value("sandbox.network"),
                "allow_hosts": settings.list("sandbox.allow_hosts"), "readable": value("sandbox.readable"),
                "writable": value("sandbox.writable"), "memory_mb": value("sandbox.memory_mb"),
            },
            "patience_secs": self.bench.patience().as_secs(),
            "denied": self.hub.denied(),
        })
    }
}
