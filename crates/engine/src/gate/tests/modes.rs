//! Tests of what each mode allows.

use helve_contract::{Effects, Refusal, Spec, Tier};
use serde_json::json;

use super::stage::{CallFate, bash, command, edit, fetch, gate, grep, run_gate, spec, write};
use crate::gate::{Gate, Mode, ModeSwitch};

/// One letter a tool (grep, write, a plain `ls`, `npm test`, a fetch, an agent, a question): passes, asked, denied.
async fn row(mode: Mode, rules: &[&str]) -> String {
    let calls = [
        (grep(), json!({"pattern": "x"})),
        (write(), json!({"file_path": "a", "content": "x"})),
        (bash(), json!({"command": "ls"})),
        (bash(), json!({"command": "npm test"})),
        (fetch(), json!({"url": "https://example.com"})),
        (spec("Agent", Effects::SPAWNS, &["prompt"]), json!({"prompt": "x"})),
        (spec("AskUserQuestion", Effects::BLOCKS, &["question"]), json!({"question": "x"})),
    ];
    let mut letters = String::new();
    for (spec, args) in calls {
        letters.push(match run_gate(gate(mode, rules), &spec, args).await {
            CallFate::Passed => 'p',
            CallFate::Asked => 'a',
            CallFate::Denied(_) => 'd',
        });
    }
    letters
}

#[tokio::test]
async fn each_mode_in_one_row() {
    assert_eq!(row(Mode::Default, &[]).await, "papaaap");
    assert_eq!(row(Mode::AcceptEdits, &[]).await, "pppaaap");
    assert_eq!(row(Mode::Plan, &[]).await, "pdpdppp");
    assert_eq!(row(Mode::DontAsk, &[]).await, "pdpdddp");
    assert_eq!(row(Mode::BypassPermissions, &[]).await, "ppppppp");
    assert_eq!(row(Mode::Open, &[]).await, "ppppppp");
}

#[tokio::test]
async fn deny_holds_in_every_mode() {
    for (_, mode) in Mode::ALL {
        let fate = command(gate(mode, &["-Bash(npm:*)", "+Bash", "?Bash"]), "npm test").await;
        assert!(matches!(fate, CallFate::Denied(_)), "{mode:?}: {fate:?}");
    }
}

#[tokio::test]
async fn deny_beats_plan_beats_ask_beats_allow() {
    assert_eq!(row(Mode::Open, &["+Bash", "?Bash"]).await, "ppaappp");
    assert_eq!(row(Mode::Default, &["+Bash", "+Write", "+WebFetch", "+Agent"]).await, "ppppppp");
    assert_eq!(row(Mode::Plan, &["+Bash", "+Write"]).await, "pdpdppp");
    assert_eq!(row(Mode::DontAsk, &["+Bash(npm test)", "?Grep"]).await, "ddppddp");
}

#[tokio::test]
async fn a_tier_can_make_a_tool_graver_but_not_lighter() {
    let send = Spec { tier: Some(Tier::ReadOnly), ..spec("send_media", Effects::READS | Effects::NETWORK, &["path"]) };
    assert_eq!(run_gate(Gate::new(Mode::Default), &send, json!({"path": "a"})).await, CallFate::Asked);
    let grave = Spec { tier: Some(Tier::Privileged), ..grep() };
    assert_eq!(run_gate(Gate::new(Mode::Default), &grave, json!({"pattern": "a"})).await, CallFate::Asked);
}

#[tokio::test]
async fn a_headless_denial_says_how_to_allow_it() {
    let denied = |mode, spec: Spec, args| async move {
        let gate = Gate::new(mode);
        gate.authorize(&spec, &args, &super::stage::call()).await.unwrap_err().to_string()
    };
    assert_eq!(
        denied(Mode::Default, bash(), json!({"command": "cd x && npm run 'a b'"})).await,
        "not allowed, because the command may change things, and there is nobody to ask here. The user can allow it with \
         the rules Bash(cd x), Bash(npm run 'a b'), or run where questions can be answered"
    );
    assert_eq!(
        denied(Mode::DontAsk, edit(), json!({"file_path": "a", "old_string": "x", "new_string": "y"})).await,
        "not allowed, because Edit can change things (writes), and in this mode nobody is asked. The user can allow it \
         with the rule Edit, or run where questions can be answered"
    );
    assert_eq!(
        denied(Mode::Plan, bash(), json!({"command": "npm test"})).await,
        "this session is in plan mode, and the command may change things. Only reads, searches and commands that change \
         nothing are allowed until the user has approved the plan"
    );
}

#[tokio::test]
async fn plan_mode_lets_commands_and_pages_be_read_and_nothing_else() {
    for line in ["git log --oneline", "ls -la | head", "git status && git diff", "cat a | grep b"] {
        assert_eq!(command(gate(Mode::Plan, &[]), line).await, CallFate::Passed, "{line}");
    }
    for line in ["git commit -m x", "ls > a", "ls && rm a", "git log $(rm a)", "env"] {
        assert!(matches!(command(gate(Mode::Plan, &[]), line).await, CallFate::Denied(_)), "{line}");
    }
    let fetched = json!({"url": "https://example.com"});
    assert_eq!(run_gate(gate(Mode::Plan, &["?WebFetch"]), &fetch(), fetched.clone()).await, CallFate::Asked);
    assert_eq!(run_gate(gate(Mode::Plan, &[]).asking_web_in_plan(), &fetch(), fetched).await, CallFate::Asked);
    for effects in
        [Effects::NETWORK | Effects::SENDS, Effects::NETWORK | Effects::WRITES, Effects::SPAWNS | Effects::WRITES]
    {
        let fate = run_gate(gate(Mode::Plan, &[]), &spec("x", effects, &["to"]), json!({"to": "a"})).await;
        assert!(matches!(fate, CallFate::Denied(_)), "{effects:?}");
    }
}

#[tokio::test]
async fn rules_approved_with_a_plan_hold_until_they_are_taken_back() {
    let call = super::stage::call();
    let run = async |mode, rules: &[&str], line: &str| {
        let gate = gate(mode, rules);
        gate.authorize(&bash(), &json!({ "command": line }), &call).await.is_ok()
    };
    assert!(!run(Mode::Default, &[], "cargo test").await);
    call.session.set_plan_rules(vec!["Bash(cargo test:*)".to_owned(), "Bash".to_owned(), "Write".to_owned()]);
    assert!(run(Mode::Default, &[], "cargo test -p store").await);
    assert!(!run(Mode::Default, &[], "cargo test && rm a").await);
    assert!(!run(Mode::Default, &[], "npm test").await);
    assert!(!run(Mode::Default, &["-Bash(cargo:*)"], "cargo test").await);
    assert!(!run(Mode::Default, &["?Bash(cargo:*)"], "cargo test").await);
    assert!(!run(Mode::Plan, &[], "cargo test").await);
    let args = json!({"file_path": "a", "content": "x"});
    assert!(gate(Mode::Default, &[]).authorize(&write(), &args, &call).await.is_err());
    call.session.set_plan_rules(Vec::new());
    assert!(!run(Mode::Default, &[], "cargo test").await);
}

#[tokio::test]
async fn a_refusal_says_what_kind_it_is() {
    let why = async |mode, rules: &[&str]| {
        let gate = gate(mode, rules);
        gate.authorize(&bash(), &json!({"command": "npm test"}), &super::stage::call()).await.unwrap_err().why
    };
    assert_eq!(why(Mode::Default, &[]).await, Refusal::Approval);
    assert_eq!(why(Mode::DontAsk, &[]).await, Refusal::Approval);
    assert_eq!(why(Mode::Open, &["-Bash"]).await, Refusal::Rule);
    assert_eq!(why(Mode::Open, &["?Bash"]).await, Refusal::AskRule);
    assert_eq!(why(Mode::BypassPermissions, &["?Bash(npm:*)"]).await, Refusal::AskRule);
    assert_eq!(why(Mode::Plan, &[]).await, Refusal::PlanMode);
}

#[test]
fn modes_have_names() {
    assert_eq!("acceptEdits".parse(), Ok(Mode::AcceptEdits));
    assert_eq!(Mode::BypassPermissions.name(), "bypassPermissions");
    assert!("yolo".parse::<Mode>().unwrap_err().contains("default, acceptEdits, plan"));
}

#[test]
fn of_two_modes_the_stricter_is_taken() {
    let order = [Mode::Plan, Mode::DontAsk, Mode::Default, Mode::AcceptEdits, Mode::BypassPermissions, Mode::Open];
    for (at, strict) in order.iter().enumerate() {
        for loose in &order[at..] {
            assert_eq!((strict.stricter(*loose), loose.stricter(*strict)), (*strict, *strict));
        }
    }
}

#[tokio::test]
async fn an_approved_plan_ends_the_mode_that_only_looks() {
    let switch = ModeSwitch::new(Mode::AcceptEdits);
    let args = json!({"file_path": "a", "old_string": "x", "new_string": "y"});
    let edits = async || run_gate(Gate::new(switch.clone()), &edit(), args.clone()).await;
    assert_eq!((switch.end_plan(), edits().await), (None, CallFate::Passed));
    switch.set(Mode::Plan);
    switch.set(Mode::Plan);
    assert!(matches!(edits().await, CallFate::Denied(_)));
    assert_eq!(
        (switch.end_plan(), switch.get(), edits().await),
        (Some(Mode::AcceptEdits), Mode::AcceptEdits, CallFate::Passed)
    );
    assert_eq!(ModeSwitch::new(Mode::Plan).end_plan(), Some(Mode::Default));
}
