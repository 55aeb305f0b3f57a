//! Which tools a session offers, why it withholds others, and what it would decide about a call.

use std::sync::Arc;

use async_trait::async_trait;
use helve_contract::{
    Call, CapabilityProfile, Effects, Entry, PathRules, PathStyle, Port, PortSet, Ports, Reply, Root, Session,
};
use helve_contract::{Workspace, ports::NoHost};
use helve_engine::{
    ApprovalDecision, ApprovalRequest, Approver, Decision, Dialect, Engine, ExternalRow, Gate, Mode, NotOffered, Role,
    Rule, TaintPolicy,
};
use serde_json::{Value, json};

use crate::house::{Ear, call, dialect, spec};

const SERVERS: PortSet = PortSet::of(&[Port::McpServers]);

fn text_tool(name: &str, effects: Effects, needs: &[Port]) -> Entry {
    let schema = json!({ "type": "object", "properties": { "command": { "type": "string" } } });
    let spec = helve_contract::Spec { needs: PortSet::of(needs), ..spec(name, effects, schema) };
    Entry::dynamic(spec, |_, _| Box::pin(async { Ok(Reply::from("ran")) }))
}

/// `Say`, `Put` and `Run` of the house, `Ask` that needs a user, and a row that another crate supplies.
fn with_ports() -> Dialect {
    let mut dialect = dialect();
    dialect.tools.push(text_tool("Ask", Effects::BLOCKS, &[Port::User]));
    dialect.external = &[ExternalRow { name: "Resources", about: "Lists resources.", needs: SERVERS }];
    dialect
}

fn statuses(engine: &Engine) -> Vec<String> {
    let said = |offered: Result<(), NotOffered>| offered.map_or_else(|why| why.to_string(), |()| "offered".to_owned());
    engine.statuses().into_iter().map(|it| format!("{}: {}", it.name, said(it.offered))).collect()
}

#[tokio::test]
async fn a_tool_without_its_port_is_listed_with_the_reason_and_not_offered() {
    let engine = Engine::builder(with_ports()).available(PortSet::NONE).exclude(vec!["Run".into()]).build().unwrap();
    let mcp = "no MCP servers are configured. Add a table `[mcp.servers.NAME]`.";
    let user = "nobody can be asked here. Use `helve chat`, `helve serve`, or an MCP client with elicitation.";
    assert_eq!(
        statuses(&engine),
        [
            "Say: offered".to_owned(),
            "Put: offered".to_owned(),
            "Run: `tools.disable` names it, or a setting turns it off".to_owned(),
            format!("Ask: {user}"),
            format!("Resources: {mcp}"),
        ]
    );
    assert_eq!(engine.specs().map(|it| it.name.clone()).collect::<Vec<_>>(), ["Say", "Put"]);
    assert_eq!([engine.is_offered("Say"), engine.is_offered("Speak"), engine.is_offered("Ask")], [true, true, false]);
    for (name, why) in [("Ask", user), ("resources", mcp)] {
        let reply = engine.run(name, json!({}), call()).await;
        assert_eq!(reply.text, format!("Tool not found: {name}. It is not offered in this session: {why}"));
    }
}

#[test]
fn a_supplied_row_and_an_available_port_are_offered() {
    let imported = text_tool("Resources", Effects::READS, &[]);
    let engine = Engine::builder(with_ports()).available(PortSet::of(&[Port::User])).tool(imported).build().unwrap();
    let offered: Vec<_> =
        engine.statuses().iter().map(|it| (it.name.clone(), it.offered.is_ok(), it.imported)).collect();
    assert_eq!(offered[3..], [("Ask".to_owned(), true, false), ("Resources".to_owned(), true, true)]);
}

#[test]
fn a_role_decides_about_imported_tools() {
    for (imports, names) in [(true, vec!["Say", "Mine"]), (false, vec!["Say"])] {
        let mut dialect = dialect();
        dialect.roles = if imports {
            &[Role { name: "r", tools: &["Say"], imports: true }]
        } else {
            &[Role { name: "r", tools: &["Say"], imports: false }]
        };
        let engine = Engine::builder(dialect).role("r").tool(text_tool("Mine", Effects::READS, &[])).build().unwrap();
        assert_eq!(engine.specs().map(|it| it.name.clone()).collect::<Vec<_>>(), names);
        engine.replace_external_tools(vec![text_tool("Mine", Effects::READS, &[])]).unwrap();
        assert_eq!(engine.specs().map(|it| it.name.clone()).collect::<Vec<_>>(), names);
    }
}

struct Yes;

#[async_trait]
impl Approver for Yes {
    async fn request_approval(&self, _: &ApprovalRequest, _: &Call) -> ApprovalDecision {
        ApprovalDecision::AllowForSession
    }
}

#[tokio::test]
async fn a_decision_is_known_before_the_call() {
    let gate = |mode| Gate::new(mode).deny(Rule::parse("Run(rm:*)").unwrap());
    let decide = |gate: Gate, name: &str, args: Value| {
        Engine::builder(dialect()).gate(gate).build().unwrap().decide(name, args, &call())
    };
    let say = json!({ "text": "hi" });
    assert_eq!(decide(gate(Mode::Default), "Say", say.clone()), Decision::Allowed);
    let put = json!({ "file_path": "f", "content": "hi" });
    let asked = decide(gate(Mode::Default).approver(Arc::new(Yes)), "Put", put.clone());
    assert!(matches!(&asked, Decision::Asked { why } if why.contains("can change things")), "{asked:?}");
    for (gate, name, args, word) in [
        (gate(Mode::Default), "Put", put.clone(), "nobody to ask"),
        (gate(Mode::DontAsk).approver(Arc::new(Yes)), "Put", put.clone(), "nobody is asked"),
        (gate(Mode::Open), "Run", json!({ "command": "rm x" }), "denied by the rule"),
        (gate(Mode::Open), "Nosuch", json!({}), "Tool not found"),
        (gate(Mode::Open), "Say", json!({}), "text"),
    ] {
        let denied = decide(gate, name, args);
        assert!(matches!(&denied, Decision::Denied { why } if why.contains(word)), "{name}: {denied:?}");
    }
    let engine = Engine::builder(dialect()).gate(gate(Mode::Default).approver(Arc::new(Yes))).build().unwrap();
    assert!(!engine.run("Put", put.clone(), call()).await.is_error);
    assert_eq!(engine.decide("Put", put, &call()), Decision::Allowed);
}

#[tokio::test]
async fn a_profile_narrows_the_workspace_and_is_on_record() {
    let mut dialect = dialect();
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    dialect.tools = [
        ("Look", Some(CapabilityProfile::FileReadOnly)),
        ("Change", Some(CapabilityProfile::FileReadWrite)),
        ("Any", None),
    ]
    .into_iter()
    .map(|(name, profile)| {
        let spec = helve_contract::Spec { profile, ..spec(name, Effects::READS, schema.clone()) };
        Entry::dynamic(spec, |args, call| {
            Box::pin(async move {
                let path = args["path"].as_str().unwrap_or_default();
                Ok(format!("{} {}", call.check_read(path).is_ok(), call.check_write(path).is_ok()).into())
            })
        })
    })
    .collect();
    let ear = Ear::default();
    let engine = Engine::builder(dialect).events(ear.events()).build().unwrap();
    let roots = [Root::writable("/s").with_name("shared"), Root::readable("/v").with_name("vault")];
    let workspace = Workspace::new(roots, PathRules::default(), PathStyle::Virtual);
    let session = Arc::new(Session::new("s", workspace, Ports::new(Arc::new(NoHost))));
    let mut seen = Vec::new();
    for name in ["Look", "Change", "Any"] {
        for path in ["/shared/f", "/vault/f"] {
            let reply = engine.run(name, json!({ "path": path }), Call::new("1", session.clone())).await;
            seen.push(format!("{name} {path} {}", reply.text));
        }
    }
    assert_eq!(
        seen,
        [
            "Look /shared/f true false",
            "Look /vault/f true false",
            "Change /shared/f true true",
            "Change /vault/f false false",
            "Any /shared/f true true",
            "Any /vault/f true false",
        ]
    );
    let heard = ear.heard();
    let calls = heard.iter().filter(|it| it["type"] == "tool.call").map(|it| it["data"]["profile"].clone());
    let named = ["FileReadOnly", "FileReadOnly", "FileReadWrite", "FileReadWrite"].map(Value::from);
    assert_eq!(calls.collect::<Vec<_>>(), [named.as_slice(), &[Value::Null, Value::Null]].concat());
}

/// Reading a resource of an MCP server: not asked, unless the operator wants everything asked that goes out.
#[test]
fn reading_that_sends_its_address_is_not_asked() {
    let decide = |gate: Gate, tainted: bool| {
        let mut dialect = dialect();
        dialect.tools = vec![text_tool("ReadResource", Effects::READS | Effects::SENDS, &[])];
        let call = call();
        if tainted {
            call.session.taint.add_origin("https://page.example/");
        }
        Engine::builder(dialect).gate(gate).build().unwrap().decide("ReadResource", json!({}), &call)
    };
    assert_eq!(decide(Gate::new(Mode::Default), false), Decision::Allowed);
    assert_eq!(decide(Gate::new(Mode::Plan), false), Decision::Allowed);
    assert_eq!(decide(Gate::new(Mode::Default), true), Decision::Allowed);
    let strict = decide(Gate::new(Mode::Default).taint_policy(TaintPolicy::Deny), true);
    assert!(matches!(strict, Decision::Denied { .. }), "{strict:?}");
}
