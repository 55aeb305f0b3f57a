//! `/api/policy`: the approval mode, refusals, the sandbox, and explanations of decisions.

use serde_json::{Map, Value, json};

use super::{routes::parse_body, say::ApiError, site::AppState};
use crate::{commands::policy::Query, setup};

impl AppState {
    /// What would happen to a call, and which rule decides. Nothing runs.
    pub(super) async fn explain_policy(&self, body: &[u8]) -> Result<Value, ApiError> {
        let query: Query = parse_body(body)?;
        let explained = self.explainer.explain(&self.runtime, &query).await;
        explained.map(|it| it.json()).map_err(|fault| ApiError::bad_request(fault.to_string()))
    }

    /// What holds for calls, and the last that were refused.
    pub(super) fn policy(&self) -> Value {
        let settings = self.runtime.settings();
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
            "protected": helve_engine::PROTECTED_PATHS,
            "programs": {
                "enabled": config.tools.shell.enabled, "allow": config.tools.shell.allow,
                "deny": config.tools.shell.deny,
            },
            "sandbox": {
                "level": config.sandbox.level, "network": config.sandbox.network,
                "allow_hosts": config.sandbox.allow_hosts, "readable": config.sandbox.readable,
                "writable": config.sandbox.writable, "memory_mb": config.sandbox.memory_mb,
            },
            "patience_secs": self.runtime.approval_timeout().as_secs(),
            "denied": self.event_bus.recent_denials(),
        })
    }
}
