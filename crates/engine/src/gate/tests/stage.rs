//! Test support: tools, a call, and a scripted approver.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use helve_contract::{
    Call, Effects, Error, PathRules, PathStyle, PortSet, Ports, Root, Session, Spec, Workspace, async_trait,
    ports::NoHost,
};
use serde_json::{Value, json};

use crate::{
    gate::{ApprovalDecision, ApprovalRequest, Approver, Gate, Mode, Refused, Rule},
    policy::protected_path_rules,
};

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallFate {
    Passed,
    Asked,
    Denied(String),
}

/// Answers every prompt the same way and records it.
pub(super) struct ScriptedApprover {
    answer: ApprovalDecision,
    pub(super) heard: Mutex<Vec<ApprovalRequest>>,
}

impl ScriptedApprover {
    pub(super) fn answering(answer: ApprovalDecision) -> Arc<Self> {
        Arc::new(Self { answer, heard: Mutex::new(Vec::new()) })
    }

    pub(super) fn count(&self) -> usize {
        self.heard.lock().unwrap().len()
    }

    pub(super) fn last(&self) -> ApprovalRequest {
        self.heard.lock().unwrap().last().cloned().expect("a question was put")
    }
}

#[async_trait]
impl Approver for ScriptedApprover {
    async fn request_approval(&self, question: &ApprovalRequest, _: &Call) -> ApprovalDecision {
        self.heard.lock().unwrap().push(question.clone());
        self.answer.clone()
    }
}

pub(super) fn rule(text: &str) -> Rule {
    Rule::parse(text).unwrap()
}

/// A gate with these rules: `+` allows, `?` asks, `-` denies.
pub(super) fn gate(mode: Mode, rules: &[&str]) -> Gate {
    rules.iter().fold(Gate::new(mode), |gate, text| match text.split_at(1) {
        ("+", text) => gate.allow(rule(text)),
        ("?", text) => gate.ask(rule(text)),
        ("-", text) => gate.deny(rule(text)),
        _ => panic!("{text} has no sign"),
    })
}

pub(super) fn spec(name: &str, effects: Effects, fields: &[&str]) -> Spec {
    let properties: serde_json::Map<_, _> =
        fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
    Spec {
        name: name.to_owned(),
        aliases: Vec::new(),
        rule_names: Vec::new(),
        annotations: None,
        description: String::new(),
        input_schema: json!({"type": "object", "properties": properties}),
        output_schema: None,
        effects,
        tier: None,
        timeout: Duration::from_secs(1),
        needs: PortSet::NONE,
        profile: None,
        access: None,
    }
}

pub(super) fn bash() -> Spec {
    spec("Bash", Effects::READS | Effects::WRITES | Effects::EXECUTES, &["command"])
}

pub(super) fn write() -> Spec {
    Spec {
        aliases: vec!["FileWrite".into()],
        ..spec("Write", Effects::READS | Effects::WRITES, &["file_path", "content"])
    }
}

pub(super) fn edit() -> Spec {
    spec("Edit", Effects::READS | Effects::WRITES, &["file_path", "old_string", "new_string"])
}

pub(super) fn grep() -> Spec {
    spec("Grep", Effects::READS, &["pattern", "path"])
}

pub(super) fn fetch() -> Spec {
    spec("WebFetch", Effects::NETWORK, &["url"])
}

/// Whether a call is allowed, prompts, or is denied.
pub(super) async fn run_gate(gate: Gate, spec: &Spec, args: Value) -> CallFate {
    let clerk = ScriptedApprover::answering(ApprovalDecision::Deny("asked".into()));
    let gate = gate.approver(clerk.clone());
    match gate.authorize(spec, &args, &call()).await {
        Ok(()) => CallFate::Passed,
        Err(Refused { error: Error::Denied(_), .. }) if clerk.count() > 0 => CallFate::Asked,
        Err(error) => CallFate::Denied(error.to_string()),
    }
}

/// The same for a command line.
pub(super) async fn command(gate: Gate, line: &str) -> CallFate {
    run_gate(gate, &bash(), json!({ "command": line })).await
}

pub(super) fn call() -> Call {
    let workspace = Workspace::new([Root::writable("/w")], PathRules::new(protected_path_rules()), PathStyle::Relative);
    let ports = Ports::new(Arc::new(NoHost));
    Call::new("call-1", Arc::new(Session::new("session-1", workspace, ports)))
}
