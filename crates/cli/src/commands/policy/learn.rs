//! Derives rules from the record of a session: the narrowest ones that allow what a person approved.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::Path,
};

use helve_contract::events::{ToolCall, ToolResult};
use helve_engine::{Basis, Explanation, Mode, Outcome};
use serde_json::Value;

use super::explain::{Explainer, Query};
use crate::{fault::CliError, print::escape_for_terminal, workshop::HelveRuntime};

/// The maximum size of a record.
const MAX_RECORD: u64 = 256 << 20;

/// A call in a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordedCall {
    tool: String,
    args: Value,
    /// Whether a rule or a person refused it.
    is_refused: bool,
}

/// A rule for `approval.allow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) rule: String,
    /// The number of calls of the session that it allows.
    calls: usize,
    /// What it allows.
    grants: String,
}

/// What a record gives.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Learned {
    pub(super) proposals: Vec<Proposal>,
    /// The number of calls that are already allowed.
    passing: usize,
    /// Calls for which there is no rule, with the reason.
    left_out: BTreeMap<String, String>,
}

/// Reads the calls of a record that have a result.
pub(super) fn read(file: &Path) -> Result<Vec<RecordedCall>, CliError> {
    let wrong = |error: &dyn std::fmt::Display| CliError::failed(format!("cannot read {}: {error}", file.display()));
    if fs::metadata(file).map_err(|error| wrong(&error))?.len() > MAX_RECORD {
        return Err(wrong(&format!("it has more than {} MiB", MAX_RECORD >> 20)));
    }
    let text = fs::read(file).map_err(|error| wrong(&error))?;
    Ok(calls(&String::from_utf8_lossy(&text)))
}

fn calls(record: &str) -> Vec<RecordedCall> {
    let mut open: HashMap<(String, String), RecordedCall> = HashMap::new();
    let mut found = Vec::new();
    for event in record.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let data = &event["data"];
        let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
        let key = (text("agentId"), text("callId"));
        if event["type"] == ToolCall::INFO.name {
            let call = RecordedCall { tool: text("tool"), args: data["args"].clone(), is_refused: false };
            open.insert(key, call);
        } else if event["type"] == ToolResult::INFO.name {
            let is_refused = data["denied"] == true;
            found.extend(open.remove(&key).map(|call| RecordedCall { is_refused, ..call }));
        }
    }
    found
}

/// Checks each call against the current settings and suggests rules for those that need approval.
pub(super) async fn learn(bench: &HelveRuntime, explainer: &Explainer, calls: &[RecordedCall], mode: Mode) -> Learned {
    let mut learned = Learned::default();
    let mut proposals: Vec<Proposal> = Vec::new();
    let mut refused = BTreeSet::new();
    for call in calls {
        let query =
            Query { tool: Some(call.tool.clone()), args: call.args.clone(), mode: Some(mode), ..Query::default() };
        let explanation = match explainer.explain(bench, &query).await {
            Ok(explained) => explained.explanation,
            Err(error) => {
                learned.left_out.insert(shown(call), error.to_string());
                continue;
            }
        };
        if call.is_refused {
            learned.left_out.insert(shown(call), "it was refused in the session".to_owned());
            refused.extend(explanation.suggested_rules);
            continue;
        }
        match reason_against(&explanation) {
            None if explanation.outcome == Outcome::Allow => learned.passing += 1,
            None => {
                for rule in &explanation.suggested_rules {
                    match proposals.iter_mut().find(|it| it.rule == *rule) {
                        Some(known) => known.calls += 1,
                        None => {
                            let grants = granted_by(rule, &explanation);
                            proposals.push(Proposal { rule: rule.clone(), calls: 1, grants });
                        }
                    }
                }
            }
            Some(why) => _ = learned.left_out.insert(shown(call), why),
        }
    }
    // A rule must not allow a refused call, even if a similar call was approved.
    for proposal in proposals.extract_if(.., |it| refused.contains(&it.rule)) {
        let why = "a call that the rule covers was refused in the session".to_owned();
        learned.left_out.insert(proposal.rule, why);
    }
    learned.proposals = proposals;
    learned
}

/// Why no rule is proposed for a call.
fn reason_against(explanation: &Explanation) -> Option<String> {
    match (explanation.outcome, &explanation.basis) {
        (Outcome::Allow, _) => None,
        (Outcome::Deny | Outcome::Refuse, _) => Some(explanation.why.clone()),
        (Outcome::Ask, Basis::DenyRule { .. } | Basis::AskRule { .. } | Basis::UntrustedContent) => {
            Some(format!("{}; an allow rule does not change that", explanation.why))
        }
        (Outcome::Ask, _) if explanation.suggested_rules.is_empty() => {
            Some("no rule can name it: part of it is known only when it runs".to_owned())
        }
        (Outcome::Ask, _) => None,
    }
}

/// What a rule allows, in words.
fn granted_by(rule: &str, explanation: &Explanation) -> String {
    let content = rule.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    match content {
        None => format!("every call of {rule}, with any arguments"),
        Some(content) if explanation.host.is_some() => {
            format!("every address of {}", content.strip_prefix("domain:").unwrap_or(content))
        }
        Some(content) if !explanation.commands.is_empty() => match content.strip_suffix(":*") {
            Some(words) => format!("every `{words}` command with any further arguments, at the top of the workspace"),
            None => format!("the command `{content}` with exactly these words, at the top of the workspace"),
        },
        Some(content) => format!("the file {content}, with any content"),
    }
}

fn shown(call: &RecordedCall) -> String {
    let text = call.args["command"].as_str().map_or_else(|| call.args.to_string(), str::to_owned);
    let short: String = text.chars().take(100).collect();
    escape_for_terminal(&format!("{} {short}{}", call.tool, if short.len() < text.len() { " …" } else { "" }))
        .into_owned()
}

impl Learned {
    /// The proposal for people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if self.proposals.is_empty() {
            text += "No rule is needed or possible.\n";
        }
        for Proposal { rule, calls, grants } in &self.proposals {
            text += &format!(
                "{}\n    grants: {}\n    calls in this session: {calls}\n",
                escape_for_terminal(rule),
                escape_for_terminal(grants)
            );
        }
        text += &format!("{} more calls pass without a rule.\n", self.passing);
        if !self.left_out.is_empty() {
            text += "No rule is proposed for:\n";
        }
        for (call, why) in &self.left_out {
            text += &format!("    {call}\n        {}\n", escape_for_terminal(why));
        }
        text
    }

    /// The rules.
    pub(super) fn rules(&self) -> Vec<String> {
        self.proposals.iter().map(|it| it.rule.clone()).collect()
    }
}

/// The text of a TOML settings file with rules added to `approval.allow`. The error says what to do manually.
pub(super) fn with_rules(old: &str, rules: &[String]) -> Result<String, String> {
    let list = || {
        let lines = rules.iter().map(|rule| format!("  {},\n", toml::Value::String(rule.clone())));
        lines.collect::<Vec<_>>().concat()
    };
    let lines = format!("allow = [\n{}]\n", list());
    let table: toml::Table = old.parse().map_err(|error| format!("it is not TOML: {error}"))?;
    let new = match table.get("approval") {
        None => {
            let gap = if old.is_empty() || old.ends_with("\n\n") { "" } else { "\n" };
            let end = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
            format!("{old}{end}{gap}[approval]\n{lines}")
        }
        Some(approval) if approval.get("allow").is_none() && old.lines().any(|line| line.trim() == "[approval]") => {
            let add = |line: &str| {
                if line.trim() == "[approval]" { format!("{line}\n{lines}") } else { format!("{line}\n") }
            };
            old.lines().map(add).collect()
        }
        Some(_) => return Err(format!("it has rules in `approval.allow` already. Add these lines there:\n{}", list())),
    };
    let mut wanted = table;
    let approval = wanted.entry("approval").or_insert_with(|| toml::Table::new().into());
    if let Some(approval) = approval.as_table_mut() {
        let rules = rules.iter().cloned().map(toml::Value::String).collect();
        approval.insert("allow".into(), toml::Value::Array(rules));
    }
    match new.parse::<toml::Table>() {
        Ok(read) if read == wanted => Ok(new),
        _ => Err(format!("its form is not understood. Add these lines to `[approval]`:\n{lines}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_those_with_a_result() {
        let record = r#"{"type":"tool.call","data":{"agentId":"main","callId":"1","tool":"Bash","args":{"command":"make"}}}
not a line
{"type":"tool.call","data":{"agentId":"main","callId":"2","tool":"Bash","args":{"command":"rm x"}}}
{"type":"tool.result","data":{"agentId":"main","callId":"2","tool":"Bash","denied":true}}
{"type":"tool.result","data":{"agentId":"main","callId":"1","tool":"Bash"}}
{"type":"tool.call","data":{"agentId":"main","callId":"3","tool":"Bash","args":{"command":"late"}}}"#;
        let found = calls(record);
        let seen: Vec<_> = found.iter().map(|it| (it.args["command"].as_str().unwrap(), it.is_refused)).collect();
        assert_eq!(seen, [("rm x", true), ("make", false)]);
    }

    #[test]
    fn settings_keep_what_is_in_them() {
        let rules = ["Bash(make)".to_owned(), "Write(a \"b\".txt)".to_owned()];
        for old in ["", "# mine\nuser = \"me\"", "[approval]\nmode = \"default\"\n[web]\nenabled = false\n"] {
            let new = with_rules(old, &rules).unwrap();
            let read: toml::Table = new.parse().unwrap();
            assert_eq!(read["approval"]["allow"].as_array().unwrap().len(), 2, "{new}");
            assert!(old.lines().all(|line| new.contains(line)), "{new}");
        }
        for old in ["[approval]\nallow = [\"Bash(ls)\"]\n", "approval = { mode = \"default\" }\n", "x = "] {
            assert!(with_rules(old, &rules).is_err(), "{old}");
        }
    }
}
