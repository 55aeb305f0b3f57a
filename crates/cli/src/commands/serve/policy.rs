//! `/api/policy`: what is asked, what is refused, what the sandbox is, and what the rules say about a call.

use serde_json::{Map, Value, json};

use super::{routes::parsed, say::No, site::Site};
use crate::{commands::policy::Query, setup};

impl Site {
    /// What would happen to a call, and which rule decides. Nothing runs.
    pub(super) async fn explain_policy(&self, body: &[u8]) -> Result<Value, No> {
        let query: Query = parsed(body)?;
        let explained = self.explainer.explain(&self.bench, &query).await;
        explained.map(|it| it.json()).map_err(|fault| No::bad(fault.to_string()))
    }

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
        let from = |key: &str| settings.origins(key).iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let config = &settings.config;
        let rules: Vec<_> = [
            ("deny", "approval.deny", &config.approval.deny),
            ("ask", "approval.ask", &config.approval.ask),
            ("allow", "approval.allow", &config.approval.allow),
        ]
        .into_iter()
        .flat_map(|(verdict, key, rules)| rules.iter().map(move |rule| (verdict, key, rule)))
        .map(|(verdict, key, rule)| json!({ "verdict": verdict, "rule": rule, "from": from(key) }))
        .collect();
        json!({
            "dialects": dialects,
            "rules": rules,
            "paths": {
                "deny_read": config.paths.deny_read, "deny_write": config.paths.deny_write,
            },
            "protected": helve_engine::PROTECTED,
            "programs": {
                "enabled": config.tools.shell.enabled, "allow": config.tools.shell.allow,
                "deny": config.tools.shell.deny,
            },
            "sandbox": {
                "level": config.sandbox.level, "network": config.sandbox.network,
                "allow_hosts": config.sandbox.allow_hosts, "readable": config.sandbox.readable,
                "writable": config.sandbox.writable, "memory_mb": config.sandbox.memory_mb,
            },
            "patience_secs": self.bench.patience().as_secs(),
            "denied": self.hub.denied(),
        })
    }
}
