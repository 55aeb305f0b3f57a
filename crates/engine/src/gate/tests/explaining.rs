//! Tests that explanations agree with the gate and name the deciding rule.

use serde_json::{Value, json};

use super::stage::{CallFate, bash, call, edit, fetch, gate, grep, run_gate, write};
use crate::{
    commands::ProgramAllowlist,
    gate::{Basis, Gate, Mode, Outcome},
};

fn run(command: &str) -> Value {
    json!({ "command": command })
}

#[tokio::test]
async fn an_explanation_says_what_the_gate_does() {
    let sets: [&[&str]; 5] = [
        &[],
        &["-Bash(rm:*)", "+Bash(npm test:*)"],
        &["?Bash(git:*)", "+Bash", "-Edit(secret/**)"],
        &["+Edit(src/**)", "+WebFetch(domain:example.org)", "-Grep"],
        &["-Bash(touch:*)", "+Bash(echo:*)", "?WebFetch"],
    ];
    let lines =
        ["ls", "rm x", "npm test", "git status", "echo $x", "touch a; ls", "echo hi > .git/config", "sh -c 'rm x'"];
    let mut calls: Vec<_> = lines.iter().map(|line| (bash(), run(line))).collect();
    calls.push((edit(), json!({ "file_path": "src/a", "old_string": "a", "new_string": "b" })));
    calls.push((edit(), json!({ "file_path": "secret/a", "old_string": "a", "new_string": "b" })));
    calls.push((fetch(), json!({ "url": "https://example.org/" })));
    calls.push((grep(), json!({ "pattern": "x", "path": "." })));
    let mut seen = 0;
    for (_, mode) in Mode::ALL {
        for rules in sets {
            for (spec, args) in &calls {
                let explained = gate(mode, rules).explain(spec, args, &call()).await;
                let real = run_gate(gate(mode, rules), spec, args.clone()).await;
                let same = match real {
                    CallFate::Passed => explained.outcome == Outcome::Allow,
                    CallFate::Asked => explained.outcome == Outcome::Ask,
                    CallFate::Denied(_) => matches!(explained.outcome, Outcome::Deny | Outcome::Refuse),
                };
                assert!(same, "{mode:?} {rules:?} {args}: {real:?}, explained {explained:?}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 6 * 5 * 12);
}

#[tokio::test]
async fn an_explanation_names_what_decided() {
    let why = async |gate: Gate, args: Value| gate.explain(&bash(), &args, &call()).await;
    let rules = ["-Bash(rm:*)", "?Bash(git push:*)", "+Bash(npm test:*)", "+Bash(make)"];
    let said = async |line: &str| {
        let explained = why(gate(Mode::Default, &rules), run(line)).await;
        (explained.outcome.name(), explained.basis)
    };
    let rule = |text: &str| text.to_owned();
    assert_eq!(said("ls | wc -l").await, ("allow", Basis::ReadOnly));
    assert_eq!(said("timeout 5 rm x").await, ("deny", Basis::DenyRule { rule: rule("Bash(rm:*)"), certain: true }));
    assert_eq!(said("$x").await, ("ask", Basis::DenyRule { rule: rule("Bash(rm:*)"), certain: false }));
    assert_eq!(said("git push").await, ("ask", Basis::AskRule { rule: rule("Bash(git push:*)") }));
    let both = vec![rule("Bash(npm test:*)"), rule("Bash(make)")];
    assert_eq!(said("npm test a && make").await, ("allow", Basis::AllowRules { rules: both }));
    assert_eq!(said("python3 x").await, ("ask", Basis::Mode));
    assert_eq!(said("echo x > .git/config").await, ("refuse", Basis::Path { path: "/w/.git/config".into() }));
    assert_eq!(said("a\0b").await, ("refuse", Basis::InvalidCall));
    let names = ProgramAllowlist::new(vec!["ls".into()], vec!["npm".into()]).unwrap();
    assert_eq!(why(Gate::new(Mode::Open).program_allowlist(names), run("npm test")).await.basis, Basis::Programs);
    let plan = why(Gate::new(Mode::Plan), run("rm x")).await;
    assert_eq!((plan.outcome, plan.basis), (Outcome::Deny, Basis::Mode));

    let explained = why(gate(Mode::Default, &rules), run("npm test; ls; rm -r a")).await;
    let roles: Vec<_> = explained.commands.iter().map(|it| (it.text.as_str(), it.role)).collect();
    assert_eq!(roles, [("npm test", "runs"), ("ls", "reads"), ("rm -r a", "runs")]);
    assert_eq!(explained.commands[0].allowed_by.as_deref(), Some("Bash(npm test:*)"));

    let file = async |path: &str| {
        let args = json!({ "file_path": path, "content": "x" });
        Gate::new(Mode::Open).explain(&write(), &args, &call()).await
    };
    assert_eq!(file("a.rs").await.outcome, Outcome::Allow);
    for path in [".git/hooks/x", "/etc/passwd", "../x"] {
        let explained = file(path).await;
        assert_eq!(explained.outcome, Outcome::Refuse, "{path}");
        assert!(matches!(explained.basis, Basis::Path { .. }), "{path}");
    }
}
