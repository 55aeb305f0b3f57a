//! Identities: repositories, users, processes and tenants with the same labels share nothing.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use helve_contract::ids;
use helve_script::{ModelScript, ScriptStep};
use serde_json::{Value, json};

use crate::{desk::Desk, model::Model};

fn git(repo: &Path, args: &[&str]) -> String {
    let done = Command::new("git").args(args).current_dir(repo).env("HOME", repo).output().unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// A repository with one file.
fn repository(desk: &Desk, name: &str, secret: &str) {
    desk.put(&format!("{name}/README"), secret);
    let repo = desk.path(name);
    git(&repo, &["init", "--quiet", "--initial-branch=main"]);
    git(&repo, &["add", "--all"]);
    git(&repo, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "--quiet", "-m", "Begin"]);
}

/// A plan with one task, `only`.
fn plan(desk: &Desk, folder: &str, label: &str) {
    let document = "---\nid: only\ntitle: Copy\ntype: 1\ndependencies: []\nacceptance_criteria:\n  - it is there\n\
                    estimated_complexity: small\n---\n## Description\nCopy it.\n## Context\nA file.\n## Instructions\nCopy.\n";
    desk.put(&format!("{folder}/tasks/only.md"), document);
    let nodes = json!([{ "id": "only", "type": "task", "agentType": 1, "dependencies": [] }]);
    desk.put(&format!("{folder}/dag.json"), &json!({ "runId": label, "nodes": nodes }).to_string());
}

/// An agent that copies README, waits until `together` sessions are at this point, and ends.
fn copying(together: usize) -> ModelScript {
    let here: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let step = ScriptStep::computed(move |request| {
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let said: Vec<&Value> = messages.iter().filter(|it| it["role"] == "assistant").collect();
        let has_called = |name: &str| said.iter().any(|it| it.to_string().contains(&format!("\"name\":\"{name}\"")));
        if said.is_empty() {
            return ScriptStep::call(
                "bash",
                json!({ "command": "cat README; cp README copy.txt; date +%s%N > stamp.txt; echo mine > /tmp/own" }),
            );
        }
        let result = messages.iter().find(|it| it["role"] == "tool").map(|it| it["content"].to_string());
        let mut here = here.lock().unwrap();
        here.insert(result.unwrap_or_default());
        if has_called("emit_walkthrough") {
            ScriptStep::text("Done.")
        } else if here.len() < together && said.len() < 40 {
            ScriptStep::call("bash", json!({ "command": format!("sleep 0.1; echo waits {}", said.len()) }))
        } else {
            let told = json!({ "status": "completed", "confidence": 0.9, "summary": "Copied." });
            ScriptStep::call("emit_walkthrough", json!({ "walkthrough": told }))
        }
    });
    ModelScript::default().branch("Your task is only.", [step.repeat(u32::MAX)])
}

/// The id of the run that has this label.
fn run_id(repo: &Path, label: &str) -> String {
    let id = fs::read_link(repo.join(".forge/artifacts").join(label)).unwrap().to_str().unwrap().to_owned();
    assert!(ids::is_id(&id), "{id}");
    id
}

fn events(repo: &Path, label: &str) -> Vec<Value> {
    let text = fs::read_to_string(repo.join(".forge/runs").join(label).join("events.ndjson")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn two_repositories_run_plans_with_the_same_label_at_the_same_time() {
    let secrets = ["secret of repository A", "secret of repository B"];
    let model = Model::of(copying(2));
    let desk = model.desk();
    let repos = ["one", "two"];
    for (repo, secret) in repos.into_iter().zip(secrets) {
        repository(&desk, repo, secret);
    }
    plan(&desk, "plan", "story");
    thread::scope(|scope| {
        let runs = repos.map(|repo| {
            let (desk, place) = (&desk, desk.path(repo).display().to_string());
            scope.spawn(move || desk.run(&["forge", "run", "../plan", "--workspace", &place]))
        });
        for run in runs {
            let ran = run.join().unwrap();
            assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
            assert!(ran.out.contains("story: completed, 1 of 1 merged"), "{}", ran.out);
        }
    });
    let mut seen = BTreeSet::new();
    for (repo, secret) in repos.into_iter().zip(secrets) {
        let path = desk.path(repo);
        assert_eq!(git(&path, &["show", "main:copy.txt"]), secret);
        let id = run_id(&path, "story");
        let events = events(&path, "story");
        assert!(events.iter().all(|it| it["runId"] == id.as_str()), "{events:?}");
        let started = events.iter().find(|it| it["type"] == "task.started").unwrap();
        assert_eq!(started["data"]["agentLabel"], "story-only-1");
        let agent = started["data"]["agentId"].as_str().unwrap();
        assert!(ids::is_id(agent), "{agent}");
        let status = desk.run(&["forge", "status", &id[24..], "--json", "--workspace", &path.display().to_string()]);
        assert_eq!((&status.json()["runId"], &status.json()["label"]), (&json!(id), &json!("story")));
        assert!(seen.insert(id) && seen.insert(agent.to_owned()));
        let calls: Vec<&Value> = events.iter().filter(|it| it["type"] == "tool.call").collect();
        let distinct: BTreeSet<String> = calls.iter().map(|it| it["data"]["callId"].to_string()).collect();
        assert_eq!(distinct.len(), calls.len(), "calls share an id: {calls:?}");
    }
    // No session has heard of the other repository, and no directory is left that both could have used.
    for request in model.requests() {
        let text = request.to_string();
        assert!(!secrets.iter().all(|it| text.contains(it)), "{text}");
    }
    assert_eq!(model.violations(), Vec::<String>::new());
    let left: Vec<_> = fs::read_dir(desk.path("home/.local/state/helve/tmp")).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn two_users_of_one_repository_share_no_run_and_no_branch() {
    let model = Model::of(copying(1));
    let desk = model.desk();
    repository(&desk, "work", "shared file");
    plan(&desk, "plan", "story");
    plan(&desk, "plan2", "other");
    let run = |user: &str, args: &[&str]| desk.run(&[args, &["--user", user]].concat());
    let ran = run("ann", &["forge", "run", "../plan"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let refused = run("bob", &["forge", "run", "../plan"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(
        refused.err.contains("another user of this repository has a run with the label `story`"),
        "{}",
        refused.err
    );
    assert_eq!(run("bob", &["forge", "run", "story"]).code, 2);
    assert_eq!(run("bob", &["forge", "run", &run_id(&desk.path("work"), "story")]).code, 2);
    let ran = run("bob", &["forge", "run", "../plan2"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    for (user, mine, other) in [("ann", "story", "other"), ("bob", "other", "story")] {
        let listed = run(user, &["forge", "status"]).out;
        assert!(listed.contains(mine) && !listed.contains(other), "{user}: {listed}");
    }
    // The second run has a task of the same name, and takes the next free branch without losing an attempt.
    let branches = git(&desk.path("work"), &["branch", "--list", "--format=%(refname:short)", "forge*"]);
    let want = ["forge/only/1", "forge/only/2", "forge-run/other", "forge-run/story"];
    assert_eq!(branches.lines().collect::<BTreeSet<_>>(), BTreeSet::from(want));
    let status = run("bob", &["forge", "status", "other", "--json"]).json();
    let task = &status["tasks"]["only"];
    assert_eq!((&task["currentAttempt"], &task["maxAttempts"]), (&json!(2), &json!(5)));
    // Files of a session stay with its user.
    let call = |user: &str, tool: &str, args: &str| run(user, &["call", tool, args, "--dialect", "oxydra"]);
    assert_eq!(call("ann", "file_write", r#"{"path":"/tmp/own.txt","content":"of ann"}"#).code, 0);
    assert_ne!(call("bob", "file_read", r#"{"path":"/tmp/own.txt"}"#).code, 0);
    assert!(call("ann", "file_read", r#"{"path":"/tmp/own.txt"}"#).out.contains("of ann"));
}

#[test]
fn processes_that_plan_at_once_get_runs_and_conversations_of_their_own() {
    let captain = ScriptStep::computed(|request| {
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let asked = messages.iter().filter(|it| it["role"] == "user").count();
        ScriptStep::text(format!("I heard {asked} message."))
    });
    let model = Model::of(ModelScript::default().branch("You are the captain", [captain.repeat(u32::MAX)]));
    let desk = model.desk();
    repository(&desk, "work", "shared file");
    thread::scope(|scope| {
        let plans: Vec<_> = (0..4).map(|_| scope.spawn(|| desk.run(&["forge", "plan", "What is here?"]))).collect();
        for plan in plans {
            let ran = plan.join().unwrap();
            assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
            assert!(ran.out.contains("I heard 1 message."), "{}", ran.out);
        }
    });
    let labels = ["plan-1", "plan-2", "plan-3", "plan-4"];
    let distinct: BTreeSet<_> = labels.iter().map(|label| run_id(&desk.path("work"), label)).collect();
    assert_eq!(distinct.len(), 4);
    // A repository that begins anew does not find the old session, nor a branch of an old run.
    git(&desk.path("work"), &["branch", "forge-run/plan-1"]);
    fs::remove_dir_all(desk.path("work/.forge")).unwrap();
    let ran = desk.run(&["forge", "plan", "What is here?"]);
    assert!(ran.out.contains("I heard 1 message.") && ran.out.contains("plan-2 has no graph yet"), "{}", ran.out);
    let again = desk.run(&["forge", "plan", "And now?", "--run", "plan-2"]);
    assert!(again.out.contains("I heard 2 message."), "{}", again.out);
}

#[test]
fn processes_in_one_workspace_have_temporary_folders_of_their_own() {
    let written = Arc::new(AtomicUsize::new(0));
    let step = ScriptStep::computed(move |request| {
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let said = messages.iter().filter(|it| it["role"] == "assistant").count();
        let first = messages.iter().find(|it| it["role"] == "user").map(|it| it["content"].to_string());
        let name = if first.unwrap_or_default().contains("first") { "first" } else { "second" };
        let has_read = messages.iter().any(|it| it.to_string().contains("\"name\":\"file_read\""));
        if said == 0 {
            return ScriptStep::call(
                "file_write",
                json!({ "path": "/tmp/own.txt", "content": format!("of the {name}") }),
            );
        }
        if said == 1 {
            written.fetch_add(1, Ordering::SeqCst);
        }
        if has_read {
            let last = messages.last().map(|it| it["content"].to_string()).unwrap_or_default();
            ScriptStep::text(format!("It says: {last}"))
        } else if written.load(Ordering::SeqCst) < 2 && said < 40 {
            ScriptStep::call("file_list", json!({ "path": format!("/shared/{said}") }))
        } else {
            ScriptStep::call("file_read", json!({ "path": "/tmp/own.txt" }))
        }
    });
    let model = Model::of(ModelScript::default().branch("I am the", [step.repeat(u32::MAX)]));
    let desk = model.desk();
    for at in 0..40 {
        fs::create_dir(desk.path("work").join(at.to_string())).unwrap();
    }
    thread::scope(|scope| {
        let runs = ["first", "second"].map(|name| {
            let desk = &desk;
            let words = format!("I am the {name}.");
            let args = ["--dialect", "oxydra", "--mode", "bypassPermissions"];
            (name, scope.spawn(move || desk.run(&[&["run", words.as_str()][..], &args].concat())))
        });
        for (name, run) in runs {
            let ran = run.join().unwrap();
            assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
            assert!(ran.out.contains(&format!("of the {name}")), "{name}: {}", ran.out);
        }
    });
}

#[test]
fn a_tenant_sees_nothing_of_another() {
    let model = Model::new([ScriptStep::text("Hello.")]);
    let desk = model.desk();
    let of = |tenant: &str, args: &[&str]| desk.run(&[args, &["--tenant", tenant]].concat());
    let call = |tenant: &str, tool: &str, args: &str| of(tenant, &["call", tool, args, "--dialect", "oxydra"]);
    assert_eq!(call("acme", "memory_save", r#"{"content":"the plumber comes on Tuesday"}"#).code, 0);
    assert_eq!(call("acme", "file_write", r#"{"path":"/tmp/own.txt","content":"of acme"}"#).code, 0);
    let create = r#"{"goal":"water the ferns","cadence_type":"cron","cadence_value":"0 9 * * *"}"#;
    let made = call("acme", "schedule_create", create);
    assert_eq!(made.code, 0, "{}{}", made.out, made.err);
    assert_eq!(of("acme", &["run", "Hello?"]).code, 0);
    let numbers: [&[&str]; 3] =
        [&["memory", "list", "--json"], &["schedule", "list", "--json"], &["sessions", "list", "--json"]];
    let count = |it: &Value| it.as_array().or_else(|| it["sessions"].as_array()).unwrap().len();
    for args in numbers {
        assert_eq!(count(&of("acme", args).json()), 1, "{args:?}");
        assert_eq!(count(&of("other", args).json()), 0, "{args:?}");
        assert_eq!(count(&desk.run(args).json()), 0, "{args:?}");
    }
    let found = |tenant: &str| call(tenant, "memory_search", r#"{"query":"plumber"}"#).out;
    assert!(found("acme").contains("Tuesday") && !found("other").contains("Tuesday"));
    assert_ne!(call("other", "file_read", r#"{"path":"/tmp/own.txt"}"#).code, 0);
    assert_eq!(of("other", &["run", "x", "--continue"]).code, 2);
    // The environment names a tenant as well, and the files of one are in its own directory.
    let listed = desk.command(numbers[0]).env("HELVE_STORE_TENANT", "acme").output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("Tuesday"));
    let state = desk.path("home/.local/state/helve");
    for name in ["runs", "spill", "tmp", "vault"] {
        assert!(state.join("tenants/acme").join(name).is_dir(), "{name}");
        assert!(!state.join(name).exists(), "{name} of the default tenant");
    }
    for name in ["../acme", "a/b", "", ".x", "a b"] {
        let ran = of(name, &["sessions", "list"]);
        assert!(ran.code == 2 && ran.err.contains("a tenant name: 1 to 64 letters"), "{name:?}: {}", ran.err);
    }
}
