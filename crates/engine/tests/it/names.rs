//! Tests of tool selection and name lookup.

use helve_contract::{Effects, Entry, Reply};
use helve_engine::BuildError;
use serde_json::{Value, json};

use crate::house::{builder, call, dialect, engine};

async fn said(name: &str) -> String {
    engine().run(name, json!({ "text": "hi", "command": "hi" }), call()).await.text
}

#[tokio::test]
async fn a_name_may_be_spelt_loosely() {
    for name in ["Say", "Speak", "say", "SAY", "functions.Say", " Say "] {
        assert_eq!(said(name).await, "hi", "{name}");
    }
}

#[tokio::test]
async fn an_unknown_name_says_where_to_go() {
    let seen =
        [said("Sayy").await, said("execute_shell").await, said("bash").await, said("frobnicate").await, said("").await];
    assert_eq!(
        seen,
        [
            "Tool not found: Sayy. Did you mean `Say`?",
            "Tool not found: execute_shell. To run commands here, use `Run`.",
            "Tool not found: bash. To run commands here, use `Run`.",
            "Tool not found: frobnicate. The tools are Say, Put, Run.",
            "Tool not found: (no name). The tools are Say, Put, Run.",
        ]
    );
}

#[tokio::test]
async fn a_tool_that_is_turned_off_is_told_apart() {
    let engine = builder().role("quiet").build().unwrap();
    let reply = engine.run("Put", json!({}), call()).await;
    assert_eq!(reply.text, "Tool not found: Put. It is turned off in this session. The tools are Say.");
    assert!(reply.is_error);
}

#[test]
fn roles_and_lists_choose_the_tools() {
    let names = |builder: helve_engine::EngineBuilder| -> Vec<String> {
        builder.build().unwrap().specs().map(|spec| spec.name.clone()).collect()
    };
    let text = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    assert_eq!(names(builder()), ["Say", "Put", "Run"]);
    assert_eq!(names(builder().role("all").exclude(text(&["p*"]))), ["Say", "Run"]);
    assert_eq!(names(builder().only(text(&["Speak", "Run"]))), ["Say", "Run"]);
    assert_eq!(names(builder().only(text(&["Say"])).exclude(text(&["Speak"]))), [""; 0]);
}

fn extra(name: &str, schema: Value) -> Entry {
    let run = |_, _| Box::pin(async { Ok(Reply::from("mine")) }) as futures::future::BoxFuture<'static, _>;
    dialect().tools[0].clone().map_spec(|_| ()).spec.as_ref().clone().pipe(|mut spec| {
        spec.name = name.into();
        spec.aliases.clear();
        spec.effects = Effects::NONE;
        spec.input_schema = schema;
        Entry::dynamic(spec, run)
    })
}

trait Pipe: Sized {
    fn pipe<T>(self, into: impl FnOnce(Self) -> T) -> T {
        into(self)
    }
}
impl<T> Pipe for T {}

#[test]
fn what_is_wrong_is_told_at_build() {
    let seen = [
        builder().role("loud").build(),
        builder().tool(extra("Say", json!({}))).build(),
        builder().tool(extra("no dash", json!({}))).build(),
        builder().tool(extra("New", json!({ "properties": { "a": { "type": "strin" } } }))).build(),
        builder().replace(extra("New", json!({}))).build(),
    ]
    .map(|built| built.err().unwrap());
    let [role, twice, name, BuildError::InvalidSchema { tool, .. }, replaced] = &seen else { panic!("{seen:?}") };
    assert_eq!(
        [role.to_string(), twice.to_string(), name.to_string(), tool.clone(), replaced.to_string()],
        [
            "the dialect tiny has no role `loud`; it has quiet, all",
            "there are two tools called `Say`; rename one, or ask for it to be replaced",
            "`no dash` cannot be a tool's name: 1 to 64 letters, digits, `_` and `-` are allowed",
            "New",
            "there is no tool `New` to replace",
        ]
    );
}

/// A tool that answers with its own name.
fn named(name: &str, rule_names: &[&str]) -> Entry {
    let own = name.to_owned();
    let spec = extra(name, json!({})).spec.as_ref().clone().pipe(|mut spec| {
        spec.rule_names = rule_names.iter().map(|it| (*it).to_owned()).collect();
        spec
    });
    Entry::dynamic(spec, move |_, _| {
        let own = own.clone();
        Box::pin(async move { Ok(Reply::from(own)) })
    })
}

#[tokio::test]
async fn an_underscore_is_taken_for_a_hyphen() {
    let tools = [
        named("mcp__my-files__get-sum", &[]),
        // Without their signs these two are spelt alike.
        named("mcp__a-b__c", &[]),
        named("mcp__a__b-c", &[]),
        // These two differ in signs only.
        named("mcp__s__x_y", &[]),
        named("mcp__s__x-y_00112233", &["mcp__s__x-y"]),
        named("mcp__s__cut_44556677", &["mcp__s__a_long_name_that_was_cut", "mcp__s__x_y"]),
    ];
    let engine = tools.into_iter().fold(builder(), helve_engine::EngineBuilder::tool).build().unwrap();
    for (called, ran) in [
        ("mcp__my-files__get-sum", "mcp__my-files__get-sum"),
        ("mcp__my_files__get_sum", "mcp__my-files__get-sum"),
        ("mcp__my_files__get-sum", "mcp__my-files__get-sum"),
        ("mcp__a_b__c", "mcp__a-b__c"),
        ("mcp__a__b_c", "mcp__a__b-c"),
        ("mcp__s__x_y", "mcp__s__x_y"),
        ("mcp__s__x-y", "mcp__s__x-y_00112233"),
        ("mcp__s__x_y_00112233", "mcp__s__x-y_00112233"),
        ("mcp__s__a_long_name_that_was_cut", "mcp__s__cut_44556677"),
    ] {
        assert_eq!(engine.run(called, "{}", call()).await.text, ran, "{called}");
    }
}

#[test]
fn lists_know_tools_in_every_spelling() {
    let text = |name: &str| vec![name.to_owned()];
    let seen = |builder: helve_engine::EngineBuilder| -> usize {
        let tools = [named("mcp__my-files__get-sum", &[]), named("mcp__s__cut_44", &["mcp__s__long-name"])];
        let engine = tools.into_iter().fold(builder, helve_engine::EngineBuilder::tool).build().unwrap();
        engine.specs().filter(|spec| spec.name.starts_with("mcp__")).count()
    };
    for name in ["mcp__my-files__get-sum", "mcp__my_files__get_sum", "mcp__my-files", "mcp__my_files__*"] {
        assert_eq!(seen(builder().exclude(text(name))), 1, "{name}");
        assert_eq!(seen(builder().only(text(name))), 1, "{name}");
    }
    assert_eq!(seen(builder().exclude(text("mcp__s__long_name"))), 1);
    assert_eq!(seen(builder().exclude(text("mcp__s"))), 1);
}

#[tokio::test]
async fn a_tool_of_your_own_joins_or_replaces() {
    let engine =
        builder().role("quiet").tool(extra("Mine", json!(null))).replace(extra("Say", json!({}))).build().unwrap();
    let names: Vec<String> = engine.specs().map(|spec| spec.name.clone()).collect();
    assert_eq!(names, ["Say", "Mine"]);
    assert_eq!(engine.run("Say", "", call()).await.text, "mine");
    assert_eq!(engine.run("Mine", r#"{"anything": 1}"#, call()).await.text, "mine");
}

#[tokio::test]
async fn tools_from_outside_come_and_go() {
    let engine = builder().role("quiet").exclude(vec!["Bad*".into()]).tool(extra("Mine", json!({}))).build().unwrap();
    let mut news = engine.tool_changes();
    let names = || engine.specs().map(|spec| spec.name.clone()).collect::<Vec<_>>();
    let before = names();

    // Disabled tools stay out, and an unchanged list causes no notification.
    let same = vec![extra("Mine", json!({})), extra("BadOne", json!({}))];
    assert_eq!(engine.replace_external_tools(same), Ok(false));
    assert_eq!(names(), before);

    assert_eq!(engine.replace_external_tools(vec![extra("Late", json!({}))]), Ok(true));
    assert!(news.changed().await);
    assert_eq!(engine.run("Late", "{}", call()).await.text, "mine");
    assert!(engine.run("Mine", "{}", call()).await.text.contains("Mine"), "it is told that it is gone");
    assert_eq!(names().last().map(String::as_str), Some("Late"));

    // An invalid list is refused completely, and the previous one stays.
    let twice = vec![extra("Say", json!({}))];
    assert_eq!(engine.replace_external_tools(twice), Err(BuildError::Duplicate("Say".into())));
    assert!(engine.get("Late").is_some());
}
