//! Explains what the gate would decide about a call, and why.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use helve_agent::SessionSpec;
use helve_contract::{Call, Effects, Session, Spec, ids};
use helve_engine::{Basis, Engine, Explanation, Mode, Outcome};
use helve_runtime::Caller;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{config::Settings, fault::CliError, print::escape_for_terminal, setup, workshop::HelveRuntime};

/// The call of a query: a command line, or a tool with its arguments.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    /// A command line for the dialect's tool for commands.
    pub(crate) command: Option<String>,
    /// A tool.
    pub(crate) tool: Option<String>,
    /// Its arguments.
    #[serde(default)]
    pub(crate) args: Value,
    /// The dialect; `None` for the configured one.
    pub(crate) dialect: Option<String>,
    /// The mode; `None` for the configured one, or the dialect's.
    #[serde(default, deserialize_with = "mode")]
    pub(crate) mode: Option<Mode>,
}

fn mode<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Mode>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    name.map(|name| name.parse().map_err(serde::de::Error::custom)).transpose()
}

impl Query {
    /// About a command line.
    pub(crate) fn command(line: String) -> Self {
        Self { command: Some(line), ..Self::default() }
    }

    /// About a call, with its arguments as JSON.
    pub(crate) fn call(tool: String, args: &str) -> Result<Self, CliError> {
        let args = serde_json::from_str(args).map_err(|error| {
            CliError::usage(format!(
                "the arguments are not JSON: {error}. Quote them, such as '{{\"path\":\"a.txt\"}}'"
            ))
        })?;
        Ok(Self { tool: Some(tool), args, ..Self::default() })
    }
}

/// The explanation, with the origins of the rules.
pub(crate) struct Explained {
    pub(crate) explanation: Explanation,
    pub(crate) dialect: String,
    /// The rules that decided, each with its setting and its location.
    pub(crate) rules: Vec<RuleOrigin>,
    /// The mode's place.
    mode_from: String,
    sandbox: Option<(String, String)>,
}

/// A rule and where it is written.
pub(crate) struct RuleOrigin {
    pub(crate) rule: String,
    setting: &'static str,
    from: String,
}

type EngineSession = (Arc<Engine>, Arc<Session>);

/// Answers queries. Keeps one engine for each dialect and mode, and never calls tools.
pub(crate) struct Explainer {
    caller: Caller,
    engines: Mutex<HashMap<(String, &'static str), EngineSession>>,
}

impl Explainer {
    /// An explainer whose sessions are made for this caller.
    pub(crate) fn new(caller: Caller) -> Self {
        Self { caller, engines: Mutex::default() }
    }

    /// What would happen to a call.
    pub(crate) async fn explain(&self, bench: &HelveRuntime, query: &Query) -> Result<Explained, CliError> {
        let settings = bench.settings();
        let name = query.dialect.as_deref().unwrap_or(settings.dialect());
        let dialect =
            helve_dialects::by_name(name).ok_or_else(|| CliError::usage(format!("there is no dialect `{name}`")))?;
        let configured = setup::mode(settings);
        let mode = query.mode.or(configured).unwrap_or(dialect.mode);
        let (engine, session) = self.session(bench, dialect.name, mode)?;
        let (tool, args) = match (&query.command, &query.tool) {
            (Some(command), None) => {
                let tool = command_tool(&engine).ok_or_else(|| {
                    CliError::usage(format!("the dialect {name} has no tool for commands here; name a tool"))
                })?;
                (tool, json!({ "command": command }))
            }
            (None, Some(tool)) if engine.find(tool).is_none() => {
                return Err(CliError::usage(crate::commands::call::missing_tool_message(tool, &engine)));
            }
            (None, Some(tool)) => (tool.clone(), if query.args.is_null() { json!({}) } else { query.args.clone() }),
            _ => return Err(CliError::usage("give either a command or a tool with its arguments")),
        };
        let explanation = engine.explain(&tool, args, &Call::new("policy", session)).await;
        let mode_from = match (query.mode, configured) {
            (Some(_), _) => "this question".to_owned(),
            (None, Some(_)) => origins(settings, "approval.mode"),
            (None, None) => format!("default of the dialect {name}"),
        };
        let executes = engine.find(&tool).is_some_and(|it| it.spec.effects.contains(Effects::EXECUTES));
        let sandbox = executes.then(|| {
            let level = settings.config.sandbox.level.as_str().to_owned();
            (level, origins(settings, "sandbox.level"))
        });
        let rules = rule_origins(settings, &explanation.basis);
        Ok(Explained { explanation, dialect: dialect.name.to_owned(), rules, mode_from, sandbox })
    }

    fn session(&self, bench: &HelveRuntime, dialect: &str, mode: Mode) -> Result<EngineSession, CliError> {
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (dialect.to_owned(), mode.name());
        if let Some((engine, session)) = engines.get(&key) {
            return Ok((engine.clone(), session.clone()));
        }
        let need = SessionSpec {
            id: ids::new_id(),
            label: Some(format!("policy-{dialect}-{}", mode.name())),
            dialect: Some(dialect.to_owned()),
            mode: Some(mode),
            ..SessionSpec::default()
        };
        let opened = bench.session(need).caller(self.caller.clone()).build()?;
        engines.insert(key, (opened.engine.clone(), opened.session.clone()));
        Ok((opened.engine, opened.session))
    }
}

/// The tool of a dialect that runs a command line.
fn command_tool(engine: &Engine) -> Option<String> {
    let runs_line = |spec: &Spec| {
        let takes = spec.input_schema.pointer("/properties/command").is_some();
        let needs = spec.input_schema["required"].as_array().is_some_and(|it| it.iter().any(|name| name == "command"));
        takes && needs && spec.effects.contains(Effects::EXECUTES)
    };
    engine.specs().find(|spec| runs_line(spec)).map(|spec| spec.name.clone())
}

fn origins(settings: &Settings, key: &str) -> String {
    let from: Vec<_> = settings.origins(key).iter().map(ToString::to_string).collect();
    if from.is_empty() { "default".to_owned() } else { from.join(", ") }
}

/// Where the rules that decided are written.
fn rule_origins(settings: &Settings, basis: &Basis) -> Vec<RuleOrigin> {
    let setting = match basis {
        Basis::DenyRule { .. } => "approval.deny",
        Basis::AskRule { .. } => "approval.ask",
        Basis::AllowRules { .. } => "approval.allow",
        Basis::Programs => {
            let from = origins(settings, "tools.shell.deny");
            return vec![RuleOrigin { rule: "the list of programs".to_owned(), setting: "tools.shell", from }];
        }
        _ => return Vec::new(),
    };
    let from = |rule: &str| {
        let item = settings.item_origin(setting, &Value::from(rule));
        item.map_or_else(|| origins(settings, setting), ToString::to_string)
    };
    basis.rules().into_iter().map(|rule| RuleOrigin { rule: rule.to_owned(), setting, from: from(rule) }).collect()
}

impl Explained {
    /// All of it as JSON.
    pub(crate) fn json(&self) -> Value {
        let mut json = serde_json::to_value(&self.explanation).unwrap_or_default();
        json["dialect"] = self.dialect.clone().into();
        json["mode_from"] = self.mode_from.clone().into();
        let rules = self.rules.iter().map(|it| json!({ "rule": it.rule, "setting": it.setting, "from": it.from }));
        json["rules"] = rules.collect();
        json["sandbox"] = match &self.sandbox {
            Some((level, from)) => json!({ "level": level, "from": from }),
            None => Value::Null,
        };
        if let Some(question) = &self.explanation.question {
            json["question"] = json!({
                "summary": question.summary, "grant": question.session_grant, "broader": question.broader,
            });
        }
        json
    }

    /// All of it for people.
    pub(crate) fn text(&self) -> String {
        let it = &self.explanation;
        let mut lines = vec![format!("{}: {}", it.outcome.name(), escape_for_terminal(&it.why))];
        for rule in &self.rules {
            lines.push(format!(
                "  rule     {} ({}, from {})",
                escape_for_terminal(&rule.rule),
                rule.setting,
                rule.from
            ));
        }
        if self.rules.is_empty() {
            lines.push(format!("  rule     none; {}", basis_text(&it.basis)));
        }
        lines.push(format!("  tool     {} ({})", it.tool, self.dialect));
        lines.push(format!("  mode     {} (from {})", it.mode, self.mode_from));
        if let Some((level, from)) = &self.sandbox {
            lines.push(format!("  sandbox  {level} (from {from})"));
        }
        for command in &it.commands {
            let rule = command.allowed_by.as_ref().map(|rule| format!(", allowed by {rule}")).unwrap_or_default();
            lines.push(format!("  command  {} [{}{rule}]", escape_for_terminal(&command.text), command.role));
        }
        for why in &it.unclear {
            lines.push(format!("  unclear  {}", escape_for_terminal(why)));
        }
        for path in &it.paths {
            let why = path.refused.as_ref().map(|why| format!(": refused, {why}")).unwrap_or_default();
            lines.push(format!("  {:8} {}{}", path.access, escape_for_terminal(&path.path), escape_for_terminal(&why)));
        }
        if let Some(host) = &it.host {
            lines.push(format!("  host     {}", escape_for_terminal(host)));
        }
        if !it.suggested_rules.is_empty() {
            let rules = it.suggested_rules.join(", ");
            lines.push(format!("  allow    with {} in approval.allow", escape_for_terminal(&rules)));
        }
        if let Some(broader) = it.question.as_ref().and_then(|it| it.broader.as_ref()) {
            lines.push(format!("  broader  {}", escape_for_terminal(broader)));
        }
        lines.join("\n")
    }

    /// Whether this is the outcome, decided by this rule where one is named.
    pub(super) fn agrees(&self, outcome: Outcome, rule: Option<&str>) -> bool {
        self.explanation.outcome == outcome && rule.is_none_or(|rule| self.rules.iter().any(|it| it.rule == rule))
    }
}

fn basis_text(basis: &Basis) -> &'static str {
    match basis {
        Basis::ReadOnly => "a call that only reads passes in this mode",
        Basis::Path { .. } => "the path decides",
        Basis::UntrustedContent => "untrusted content came in before (policy.taint)",
        Basis::InvalidCall => "the call is not valid",
        Basis::Secret => "the arguments contain a registered secret",
        _ => "the mode decides",
    }
}
