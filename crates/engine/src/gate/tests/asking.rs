//! Tests of approval prompts and decisions.

use std::{sync::Arc, time::Duration};

use helve_contract::{Call, Error, async_trait};
use serde_json::json;

use super::stage::{ScriptedApprover, bash, call, edit, fetch, gate};
use crate::gate::{ApprovalDecision, ApprovalRequest, Approver, Gate, Mode, Refused, ShownSize};

fn run(command: &str) -> serde_json::Value {
    json!({ "command": command })
}

#[tokio::test]
async fn a_question_shows_what_will_really_run() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::AllowOnce);
    let gate = Gate::new(Mode::Default).approver(clerk.clone());
    let line = format!("echo hi{}; timeout 5 r''m $'\\x78' \u{202e}", " ".repeat(60));
    gate.authorize(&bash(), &run(&line), &call()).await.unwrap();
    let question = clerk.last();
    assert_eq!(question.summary, "echo hi⟨60 spaces⟩; timeout 5 r''m $'\\x78' \\u{202e}");
    assert_eq!(question.commands, ["echo hi", "timeout 5 rm x '\\u{202e}'", "rm x '\\u{202e}'"]);
    assert_eq!(question.cwd.as_deref(), Some("/w"));
    assert_eq!(question.reason, "the command may change things");
    assert_eq!(question.session_grant, "`rm x '\\u{202e}'` exactly, in /w");
}

#[tokio::test]
async fn an_edit_comes_with_its_diff() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::AllowOnce);
    let gate = Gate::new(Mode::Default).approver(clerk.clone());
    let args = json!({"file_path": "a.rs", "old_string": "one\ntwo", "new_string": "three"});
    gate.authorize(&edit(), &args, &call()).await.unwrap();
    let question = clerk.last();
    assert_eq!(
        (question.summary.as_str(), question.paths.as_slice()),
        ("Edit /w/a.rs", ["/w/a.rs".to_owned()].as_slice())
    );
    assert_eq!(question.diff.as_deref(), Some("-one\n-two\n+three"));
    assert_eq!(question.session_grant, "every call of Edit");
}

#[tokio::test]
async fn a_question_leaves_nothing_out() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::AllowOnce);
    let gate = Gate::new(Mode::Default).approver(clerk.clone());
    let hidden = format!("x = 1{}; os.system('P')", " ".repeat(400));
    let long = format!("{}tail", "y".repeat(5000));
    let edits = json!([{ "oldStr": hidden, "newStr": long }]);
    let args = json!({ "file_path": "a.rs", "edits": edits, "note": "\u{202e}z", "force": true });
    let seen = |question: &ApprovalRequest| question.diff.clone().unwrap_or_default();
    gate.authorize(&edit(), &args, &call()).await.unwrap();
    let question = clerk.last();
    assert_eq!(seen(&question), format!("-x = 1⟨400 spaces⟩; os.system('P')\n+{long}"));
    let mut arguments: Vec<_> = question.arguments.iter().map(|it| (it.name.as_str(), it.text.as_str())).collect();
    arguments.sort_unstable();
    assert_eq!(arguments, [("force", "true"), ("note", "\\u{202e}z")]);
    let empty = json!({ "file_path": "a", "content": format!("a\n{}b", " \n".repeat(60)) });
    gate.authorize(&edit(), &empty, &call()).await.unwrap();
    assert_eq!(seen(&clerk.last()), "+a\n+⟨60 empty lines⟩\n+b");
    let same = json!({ "file_path": "a", "content": "a", "other": "b\r\nc" });
    gate.authorize(&edit(), &same, &call()).await.unwrap();
    assert_eq!(seen(&clerk.last()), "+a");
    assert_eq!(clerk.last().arguments[0].text, "b\\r\nc");
    let patch = json!({ "file_path": "a", "patch": format!("+++ a\n{}", "+z\n".repeat(500)) });
    gate.authorize(&edit(), &patch, &call()).await.unwrap();
    assert_eq!(seen(&clerk.last()).lines().count(), 501);
}

#[test]
fn what_is_not_shown_at_first_is_marked_with_its_length() {
    let size = ShownSize { lines: 2, columns: 5 };
    assert_eq!(size.shorten("abcde\nb"), ("abcde\nb".to_owned(), false));
    let (text, is_cut) = size.shorten(&format!("{}\nb\nccc\ndd", "a".repeat(4125)));
    assert_eq!((text.as_str(), is_cut), ("aaaaa… 4,120 more characters\nb\n… 2 more lines, 5 more characters", true));
}

#[tokio::test]
async fn a_question_proposes_the_narrowest_rule_and_it_is_enough() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::AllowOnce);
    for (line, rules, broader) in [
        ("npm test -- a", "Bash(npm test:*)", "download code and run it"),
        ("git commit -m x", "Bash(git commit:*)", "push"),
        ("git push origin", "Bash(git push origin)", "push"),
        ("python3 a.py", "Bash(python3 a.py)", "any other program"),
        ("rm -r x && ls && cargo test", "Bash(rm -r x), Bash(cargo test:*)", "delete any file"),
        ("echo 'a b' | tee f", "Bash(tee f)", "`tee` command"),
    ] {
        let asked = Gate::new(Mode::Default).approver(clerk.clone());
        asked.authorize(&bash(), &run(line), &call()).await.unwrap();
        let question = clerk.last();
        assert_eq!(question.rules.join(", "), rules, "{line}");
        assert!(question.broader.as_ref().is_some_and(|it| it.contains(broader)), "{line}: {:?}", question.broader);
        let count = clerk.count();
        let allows: Vec<String> = question.rules.iter().map(|it| format!("+{it}")).collect();
        let allows: Vec<&str> = allows.iter().map(String::as_str).collect();
        gate(Mode::Default, &allows).approver(clerk.clone()).authorize(&bash(), &run(line), &call()).await.unwrap();
        assert_eq!(clerk.count(), count, "{line}");
    }
    for unclear in ["rm $x", "echo `id`", "make > f"] {
        Gate::new(Mode::Default).approver(clerk.clone()).authorize(&bash(), &run(unclear), &call()).await.unwrap();
        assert_eq!(clerk.last().rules, [""; 0], "{unclear}");
    }
    let args = json!({ "file_path": "src/a.rs", "old_string": "a", "new_string": "b" });
    Gate::new(Mode::Default).approver(clerk.clone()).authorize(&edit(), &args, &call()).await.unwrap();
    assert_eq!(clerk.last().rules, ["Edit(src/a.rs)"]);
    let page = json!({ "url": "https://example.org/a" });
    Gate::new(Mode::Default).approver(clerk.clone()).authorize(&fetch(), &page, &call()).await.unwrap();
    assert_eq!(clerk.last().rules, ["WebFetch(domain:example.org)"]);
}

#[tokio::test]
async fn a_question_about_a_file_names_the_program_that_runs_it() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::AllowOnce);
    let gate = Gate::new(Mode::Default).approver(clerk.clone());
    for (path, end) in [
        (".envrc", "; /w/.envrc is run by direnv in the user's shell when the folder is entered"),
        (".github/workflows/ci.yml", "; /w/.github/workflows/ci.yml is run by GitHub Actions after a push"),
        ("a.rs", ""),
    ] {
        gate.authorize(&edit(), &json!({"file_path": path, "old_string": "a", "new_string": "b"}), &call())
            .await
            .unwrap();
        let why = clerk.last().reason;
        assert!(why.ends_with(end) && why.contains(" is run by ") != end.is_empty(), "{path}: {why}");
    }
}

#[tokio::test]
async fn once_is_once() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::AllowOnce);
    let gate = Gate::new(Mode::Default).approver(clerk.clone());
    for _ in 0..2 {
        gate.authorize(&bash(), &run("git diff"), &call()).await.unwrap();
    }
    assert_eq!(clerk.count(), 2);
}

#[tokio::test]
async fn a_yes_for_the_session_covers_the_like_and_no_more() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::AllowForSession);
    let gate = Gate::new(Mode::Default).approver(clerk.clone());
    gate.authorize(&bash(), &run("git diff --stat && rm a"), &call()).await.unwrap();
    assert_eq!(clerk.last().session_grant, "`git diff` with any names, and the options --stat, `rm a` exactly, in /w");
    let mut asked = Vec::new();
    for line in [
        "git diff",
        "git diff --stat src | head",
        "rm a",
        "git diff --output=PWN",
        "git push",
        "rm b",
        "rm a > f",
        "rm a; ls $x",
    ] {
        let before = clerk.count();
        gate.authorize(&bash(), &run(line), &call()).await.unwrap();
        if clerk.count() > before {
            asked.push(line);
        }
    }
    assert_eq!(asked, ["git diff --output=PWN", "git push", "rm b", "rm a > f", "rm a; ls $x"]);
}

#[tokio::test]
async fn what_is_not_understood_is_granted_to_the_letter() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::AllowForSession);
    let gate = Gate::new(Mode::Default).approver(clerk.clone());
    for line in ["rm $x", "rm $x", "rm  $x"] {
        gate.authorize(&bash(), &run(line), &call()).await.unwrap();
    }
    assert_eq!(clerk.count(), 2);
}

#[tokio::test]
async fn a_yes_to_the_mode_is_no_yes_to_a_rule_and_no_yes_elsewhere() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::AllowForSession);
    let gate = gate(Mode::Default, &["?Bash(cargo test secret)"]).approver(clerk.clone());
    for line in ["cargo test a", "cargo test b", "cargo test secret", "cargo test secret"] {
        gate.authorize(&bash(), &run(line), &call()).await.unwrap();
    }
    assert_eq!(clerk.count(), 2);
    for url in ["https://a.com/1", "https://a.com/2", "https://b.com/1"] {
        gate.authorize(&fetch(), &json!({ "url": url }), &call()).await.unwrap();
    }
    assert_eq!(clerk.count(), 4);
}

#[tokio::test]
async fn another_session_is_asked_anew() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::AllowForSession);
    let gate = Gate::new(Mode::Default).approver(clerk.clone());
    let args = json!({"file_path": "a", "old_string": "x", "new_string": "y"});
    gate.authorize(&edit(), &args, &call()).await.unwrap();
    let first = call();
    let other = helve_contract::Session::new("session-2", first.session.workspace.clone(), first.session.ports.clone());
    gate.authorize(&edit(), &args, &Call::new("call-2", Arc::new(other))).await.unwrap();
    assert_eq!(clerk.count(), 2);
}

#[tokio::test]
async fn the_reason_reaches_the_model_and_nagging_ends() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::Deny("use the staging server".into()));
    let gate = Gate::new(Mode::Default).approver(clerk.clone());
    let mut said = Vec::new();
    for _ in 0..3 {
        said.push(gate.authorize(&bash(), &run("deploy"), &call()).await.unwrap_err().to_string());
    }
    assert_eq!(said[..2], ["the user refused this call: use the staging server"; 2]);
    assert!(said[2].starts_with("the user refused this same call before and is not asked again"), "{}", said[2]);
    assert_eq!(clerk.count(), 2);
}

#[tokio::test]
async fn nobody_reads_a_hundred_questions() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::AllowOnce);
    let gate = Gate::new(Mode::Default).approver(clerk.clone());
    let mut refused = 0;
    for at in 0..100 {
        refused += usize::from(gate.authorize(&bash(), &run(&format!("deploy {at}")), &call()).await.is_err());
    }
    assert_eq!((clerk.count(), refused), (30, 70));
}

#[tokio::test]
async fn side_by_side_calls_are_one_question() {
    let clerk = ScriptedApprover::answering(ApprovalDecision::AllowForSession);
    let gate = Gate::new(Mode::Default).approver(clerk.clone());
    let (call, spec, args) = (call(), bash(), run("cargo test"));
    let all = (0..8).map(|_| gate.authorize(&spec, &args, &call));
    assert!(futures::future::join_all(all).await.into_iter().all(|it| it.is_ok()));
    assert_eq!(clerk.count(), 1);
}

/// Never answers.
struct Silent;

#[async_trait]
impl Approver for Silent {
    async fn request_approval(&self, _: &ApprovalRequest, _: &Call) -> ApprovalDecision {
        std::future::pending().await
    }
}

/// Panics.
struct Broken;

#[async_trait]
impl Approver for Broken {
    async fn request_approval(&self, _: &ApprovalRequest, _: &Call) -> ApprovalDecision {
        panic!("the terminal is gone")
    }
}

#[tokio::test]
async fn silence_and_failure_are_a_no() {
    let silent = Gate::new(Mode::Default).approver(Arc::new(Silent)).approval_timeout(Duration::from_millis(20));
    let said = silent.authorize(&bash(), &run("deploy"), &call()).await.unwrap_err();
    assert_eq!(said.to_string(), "the user did not answer within 0 s, so the call was not made");
    let broken = Gate::new(Mode::Default).approver(Arc::new(Broken));
    let said = broken.authorize(&bash(), &run("deploy"), &call()).await.unwrap_err();
    assert_eq!(said.to_string(), "the question to the user failed, so the call was not made; try something else");
}

#[tokio::test]
async fn a_cancelled_call_stops_waiting() {
    let gate = Gate::new(Mode::Default).approver(Arc::new(Silent));
    let call = call();
    call.cancel.cancel();
    assert!(matches!(
        gate.authorize(&bash(), &run("deploy"), &call).await,
        Err(Refused { error: Error::Cancelled, .. })
    ));
}
