//! Protection against untrusted content, from the settings: redaction, secrets that may not leave, and the taint
//! policy.

use std::collections::BTreeSet;

use helve_agent::model;
use helve_contract::{Session, Taint};
use helve_engine::{EngineBuilder, Gate, Redactor, ShellNetwork, TaintPolicy};
use helve_web::search::SearchProvider;
use serde_json::Value;

use crate::{
    config::{HostKind, SandboxLevelSetting, SandboxNetwork, Settings, TaintPolicySetting, TaintUntil},
    fault::CliError,
    state,
};

/// Adds redaction and the sources of untrusted content to an engine builder.
pub fn guarded(settings: &Settings, builder: EngineBuilder) -> EngineBuilder {
    let policy = &settings.config.policy;
    builder
        .redactor(redactor(settings))
        .trust_tools(policy.trusted.clone())
        .untrusted_files(&policy.untrusted)
        .shell_network(shell_network(settings))
}

/// Adds the taint policy of the settings to a gate.
pub fn with_taint_policy(settings: &Settings, gate: Gate) -> Gate {
    gate.taint_policy(taint_policy(settings))
}

/// Gives a session its taint record and its salt.
pub fn init_taint(settings: &Settings, session: &mut Session) -> Result<(), CliError> {
    session.taint = match (taint_policy(settings), settings.config.policy.taint_until) {
        (TaintPolicy::Off, _) => Taint::disabled(),
        (_, TaintUntil::Message) => Taint::until_next_user_message(),
        _ => Taint::new(),
    };
    session.salt = state::random_id()?;
    Ok(())
}

fn taint_policy(settings: &Settings) -> TaintPolicy {
    match settings.config.policy.taint {
        TaintPolicySetting::Auto => TaintPolicy::Auto,
        TaintPolicySetting::Off => TaintPolicy::Off,
        TaintPolicySetting::Ask => TaintPolicy::Ask,
        TaintPolicySetting::Deny => TaintPolicy::Deny,
    }
}

/// What is redacted from replies, and what may not leave the machine.
fn redactor(settings: &Settings) -> Redactor {
    let canaries = &settings.config.secrets.canaries;
    if !settings.config.scrub.enabled {
        return Redactor::disabled().with_canaries(canaries);
    }
    let secrets = secret_variables(settings).into_iter().filter_map(|name| std::env::var(name).ok()).collect();
    Redactor::with_secrets(secrets).with_canaries(canaries)
}

/// Every variable whose value Helve reads as a key: those of known model and search providers, those that a setting
/// names (`key_env`, `secret_env`, `password_env` at any depth), and those that `${NAME}` inserts.
fn secret_variables(settings: &Settings) -> BTreeSet<String> {
    let known = model::key_variables().chain(SearchProvider::ALL.iter().filter_map(|it| it.key_variable()));
    let mut names: BTreeSet<String> = known.map(str::to_owned).collect();
    names.insert("HELVE_MCP_TOKEN".to_owned());
    names.extend(settings.config.scrub.secrets_env.iter().cloned());
    for (key, setting) in settings.given() {
        collect(key, &setting.value, &mut names);
    }
    names
}

/// Adds the variables that a setting names.
fn collect(key: &str, value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if key.ends_with("_env") => _ = names.insert(text.clone()),
        Value::String(text) => {
            let filled = text.split("${").skip(1).filter_map(|it| it.split_once('}'));
            names.extend(filled.map(|(name, _)| name.to_owned()));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(key, item, names)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| collect(key, value, names)),
        _ => {}
    }
}

/// Whether commands can send data out of the machine.
fn shell_network(settings: &Settings) -> ShellNetwork {
    let config = &settings.config;
    let offline = config.sandbox.network == SandboxNetwork::Off
        && !matches!(config.sandbox.level, SandboxLevelSetting::None | SandboxLevelSetting::External)
        && !config.host_commands.enabled
        && match config.host.kind {
            HostKind::Local => true,
            HostKind::Docker => config.host.docker.network == "none",
            HostKind::Ssh | HostKind::E2b => false,
        };
    if offline { ShellNetwork::Offline } else { ShellNetwork::Online }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_are_found_at_any_depth() {
        let mut names = BTreeSet::new();
        collect("channels", &json!({"ops": {"kind": "webhook", "secret_env": "HOOK_KEY", "url": "x"}}), &mut names);
        let server = json!({"env": {"TOKEN": "${GH_TOKEN}"}, "headers": {"Authorization": "Bearer ${A}${B}"}});
        collect("mcp.servers", &json!({ "hub": server }), &mut names);
        collect("plugins", &json!([{"path": "p", "env": {"K": "${open"}}]), &mut names);
        collect("model.key_env", &json!("MODEL_KEY"), &mut names);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["A", "B", "GH_TOKEN", "HOOK_KEY", "MODEL_KEY"]);
    }
}
