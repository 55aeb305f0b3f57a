//! Checks that approval prompts show every text of a call, in every dialect.

use std::sync::{Arc, Mutex};

use helve_contract::{
    Call, Effects, Spec, async_trait,
    serde_json::{Value, json},
};
use helve_engine::{ApprovalDecision, ApprovalRequest, Approver, Engine, Gate, Mode};

use crate::ports::bare;

/// Denies and records the prompt.
#[derive(Default)]
struct Keeper(Mutex<Option<ApprovalRequest>>);

#[async_trait]
impl Approver for Keeper {
    async fn request_approval(&self, question: &ApprovalRequest, _: &Call) -> ApprovalDecision {
        *self.0.lock().unwrap() = Some(question.clone());
        ApprovalDecision::Deny("no".into())
    }
}

/// Valid arguments for a schema, with a unique text in every string. Returns the texts too.
fn filled(schema: &Value, name: &str, texts: &mut Vec<String>) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        return values[0].clone();
    }
    for choice in ["anyOf", "oneOf"] {
        if let Some(first) = schema[choice].as_array().and_then(|it| it.iter().find(|it| it["type"] != "null")) {
            return filled(first, name, texts);
        }
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().find_map(|it| it.as_str().filter(|it| *it != "null")),
        kind => kind.as_str(),
    };
    match kind {
        Some("object") => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields.map(|(key, value)| (key.clone(), filled(value, &format!("{name}-{key}"), texts))).collect()
        }
        Some("array") => json!([filled(&schema["items"], &format!("{name}-item"), texts)]),
        Some("integer" | "number") => json!(schema["minimum"].as_i64().unwrap_or(1).max(1)),
        Some("boolean") => json!(true),
        _ => {
            let text = format!("text{}of{name}", texts.len());
            texts.push(text.clone());
            // An address must be valid, so that the gate checks its host.
            if name.ends_with("url") { json!(format!("https://example.org/{text}")) } else { json!(text) }
        }
    }
}

fn changes(spec: &Spec) -> bool {
    let effects = [Effects::WRITES, Effects::EXECUTES, Effects::DESTROYS, Effects::SENDS, Effects::NETWORK];
    effects.iter().any(|it| spec.effects.contains(*it))
}

/// Everything that a prompt shows.
fn shown(question: &ApprovalRequest) -> String {
    let arguments = question.arguments.iter().map(|it| format!("{}: {}", it.name, it.text));
    let parts = [question.summary.clone(), question.diff.clone().unwrap_or_default()];
    let lists = question.commands.iter().chain(&question.paths).chain(&question.cwd).cloned();
    parts.into_iter().chain(arguments).chain(lists).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn every_text_of_a_call_is_in_its_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let top = std::fs::canonicalize(folder.path()).unwrap();
    let (mut asked, mut missing) = (0, Vec::new());
    for dialect in helve_dialects::all() {
        let session = bare(&dialect, &top);
        for entry in dialect.tools.iter().filter(|it| changes(&it.spec)) {
            let keeper = Arc::new(Keeper::default());
            let rule = helve_engine::Rule::parse(&entry.spec.name).unwrap();
            let gate = Gate::new(Mode::Default).ask(rule).approver(keeper.clone());
            let mut builder = Engine::builder(dialect.clone()).gate(gate);
            if dialect.name == "preset" {
                builder = builder.role("all");
            }
            let engine = builder.build().unwrap();
            let name = format!("{}.{}", dialect.name, entry.spec.name);
            let mut texts = Vec::new();
            let args = filled(&entry.spec.input_schema, "", &mut texts);
            let reply = engine.run(&entry.spec.name, args, Call::new("1", session.clone())).await;
            let Some(question) = keeper.0.lock().unwrap().take() else {
                // A role may lack the tool; then nothing runs.
                assert!(reply.is_error, "{name} ran without a question: {}", reply.text);
                missing.push(format!("{name}: not asked: {}", reply.text));
                continue;
            };
            asked += 1;
            let shown = shown(&question);
            let left_out = texts.iter().filter(|text| !shown.contains(text.as_str()));
            missing.extend(left_out.map(|text| format!("{name}: {text} is not in {shown}")));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(asked > 50, "{asked}");
}
