//! Checks that every row declares the ports that it needs.

use std::sync::Arc;

use helve_contract::{
    Call, PathRules, Port, PortSet, Ports, Root, Session, Workspace,
    serde_json::{Value, json},
};
use helve_dialects::all;
use helve_engine::{Engine, Gate, Mode};
use helve_hosts::LocalHost;

/// The error of the store without a file.
const NOTHING_KEPT: &str = "nothing is kept between calls";

/// A session in an empty directory; all ports except the host are placeholders.
pub(crate) fn bare(dialect: &helve_engine::Dialect, folder: &std::path::Path) -> Arc<Session> {
    let workspace =
        Workspace::new([Root::writable(folder).with_name("shared")], PathRules::default(), dialect.path_style);
    Arc::new(Session::new("bare", workspace, Ports::new(Arc::new(LocalHost::new()))))
}

/// Valid arguments for a schema: the first permitted value of each required field.
fn arguments(schema: &Value, folder: &str) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|it| it.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let names = required.iter().filter_map(Value::as_str);
            names
                .map(|name| {
                    let value = arguments(&schema["properties"][name], folder);
                    let is_path = name.ends_with("path");
                    (name.to_owned(), if is_path { json!(format!("{folder}/f")) } else { value })
                })
                .collect::<helve_contract::serde_json::Map<_, _>>()
                .into()
        }
        Some("array") => {
            let least = schema["minItems"].as_u64().unwrap_or(1).max(1);
            (0..least).map(|_| arguments(&schema["items"], folder)).collect()
        }
        Some("integer" | "number") => schema["minimum"].as_i64().unwrap_or(1).max(1).into(),
        Some("boolean") => true.into(),
        _ => "x".into(),
    }
}

#[test]
fn placeholders_are_not_available() {
    let folder = tempfile::tempdir().unwrap();
    let session = bare(&helve_dialects::solo(), folder.path());
    assert_eq!(session.available(), PortSet::NONE);
}

/// Runs every tool in a session without ports. A row without declared needs must not fail for lack of a port.
#[tokio::test]
async fn a_row_that_uses_a_port_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let top = std::fs::canonicalize(folder.path()).unwrap();
    std::fs::write(top.join("f"), "x\n").unwrap();
    for dialect in all() {
        let session = bare(&dialect, &top);
        let tools = dialect.tools.clone();
        let mut builder = Engine::builder(dialect.clone()).gate(Gate::new(Mode::Open));
        if dialect.name == "preset" {
            builder = builder.role("all");
        }
        let engine = builder.build().unwrap();
        for tool in tools {
            let spec = &tool.spec;
            let here = if dialect.name == "oxydra" { "/shared".to_owned() } else { top.display().to_string() };
            let args = arguments(&spec.input_schema, &here);
            let reply = engine.run(&spec.name, args.clone(), Call::new("1", session.clone())).await;
            let lacks = Port::ALL.iter().any(|port| reply.text.contains(port.why_missing()));
            let lacks = lacks || reply.text.contains(NOTHING_KEPT);
            let name = format!("{}.{}", dialect.name, spec.name);
            assert!(!lacks || !spec.needs.is_empty(), "{name} needs a port: {}", reply.text);
            // It takes one of two parameters; a schema cannot express that in a form that every provider accepts.
            let excepted = name == "claude.TaskStop";
            assert!(excepted || !reply.text.contains("missing required"), "{name} {args}: {}", reply.text);
        }
        let offered = Engine::builder(dialect.clone()).available(session.available());
        let offered = if dialect.name == "preset" { offered.role("all") } else { offered }.build().unwrap();
        for spec in offered.specs() {
            assert!(spec.needs.is_empty(), "{}.{} is offered without its ports", dialect.name, spec.name);
        }
    }
}

/// The ports of each row; rows that are not listed need none.
#[test]
fn the_ports_of_the_rows() {
    let rows: Vec<String> = all()
        .iter()
        .flat_map(|dialect| {
            dialect.tools.iter().filter(|tool| !tool.spec.needs.is_empty()).map(|tool| {
                let needs: Vec<_> = tool.spec.needs.iter().map(Port::name).collect();
                format!("{}.{}: {}", dialect.name, tool.spec.name, needs.join(", "))
            })
        })
        .collect();
    let named = |name: &str| rows.iter().find(|row| row.starts_with(&format!("{name}:"))).map(String::as_str);
    assert_eq!(named("claude.Agent"), Some("claude.Agent: agents"));
    assert_eq!(named("claude.AskUserQuestion"), Some("claude.AskUserQuestion: user"));
    assert_eq!(named("oxydra.attachment_save"), Some("oxydra.attachment_save: attachments"));
    assert_eq!(named("forge.plan_bash"), Some("forge.plan_bash: draft"));
    assert_eq!(named("forge.spawn_agent"), Some("forge.spawn_agent: agents, forge_run"));
    assert_eq!(named("solo.read"), None);
}
