//! `helve run` and `helve sessions`, with a model that follows a script.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use helve_script::{ScriptStep, ScriptedCall};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    desk::{Desk, Ran},
    model::Model,
};

fn events(ran: &Ran) -> Vec<Value> {
    ran.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|it| panic!("{it}: {line}"))).collect()
}

fn kinds(ran: &Ran) -> Vec<String> {
    let mut kinds: Vec<String> = events(ran).iter().map(|it| it["type"].as_str().unwrap().to_owned()).collect();
    kinds.dedup();
    kinds
}

#[test]
fn a_word_is_answered() {
    let model = Model::new([ScriptStep::text("Hello there.")]);
    let ran = model.desk().run(&["run", "hi"]);
    assert_eq!(ran.all(), (0, "Hello there.\n", ""));
    assert_eq!(model.violations(), Vec::<String>::new());
    assert_eq!(model.requests()[0]["model"], "scripted");
}

#[test]
fn the_task_comes_from_a_pipe() {
    let model =
        Model::new([ScriptStep::text("one").expect("from the pipe"), ScriptStep::text("two").expect("from the pipe")]);
    let desk = model.desk();
    assert_eq!(desk.fed(&["run"], "from the pipe\n").all(), (0, "one\n", ""));
    assert_eq!(desk.fed(&["run", "-"], "from the pipe\n").all(), (0, "two\n", ""));
    let ran = desk.fed(&["run"], "");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("there is no task"), "{}", ran.err);
    assert_eq!(desk.fed(&["run", "x", "--max-turns", "many"], "").code, 2);
}

#[test]
fn a_small_repository_is_read_edited_and_tested() {
    let desk = Desk::new();
    desk.put("work/add.sh", "echo $(( $1 - $2 ))\n")
        .put("work/test.sh", "test \"$(sh add.sh 2 3)\" = 5 && echo passed\n");
    let file = desk.path("work/add.sh");
    let model = Model::new([
        ScriptStep::call("Read", json!({ "file_path": file })),
        ScriptStep::call("Edit", json!({ "file_path": file, "old_string": "$1 - $2", "new_string": "$1 + $2" })),
        ScriptStep::call("Bash", json!({ "command": "sh test.sh" })).expect("$1 + $2"),
        ScriptStep::text("Fixed.").expect("passed"),
    ]);
    let desk = model.at(desk);
    let ran = desk.run(&["run", "make the test pass", "--mode", "bypassPermissions"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Fixed.\n"), "{}", ran.err);
    assert_eq!(desk.get("work/add.sh"), "echo $(( $1 + $2 ))\n");
    let lines: Vec<&str> = ran.err.lines().map(|it| it.split("  ").next().unwrap()).collect();
    assert_eq!(lines[0], "✓ FileRead DESK/work/add.sh".replace("FileRead", "Read"), "{}", ran.err);
    assert!(ran.err.contains("+echo $(( $1 + $2 ))"), "the diff is shown: {}", ran.err);
    assert!(ran.err.contains("✓ Bash sh test.sh  exit 0"), "{}", ran.err);
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn a_bad_call_is_answered_and_mended() {
    let desk = Desk::new();
    desk.put("work/a.txt", "words\n");
    let file = desk.path("work/a.txt");
    let model = Model::new([
        ScriptStep::call("Read", json!({ "path_of_file": file })),
        ScriptStep::call("Raed", json!({ "file_path": file })).expect("file_path"),
        ScriptStep::call("Read", json!({ "file_path": file })),
        ScriptStep::text("It says words."),
    ]);
    let ran = model.at(desk).run(&["run", "what is in a.txt?", "--json"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let all = events(&ran);
    let failed: Vec<bool> =
        all.iter().filter(|it| it["type"] == "called").map(|it| it["is_error"].as_bool().unwrap()).collect();
    assert_eq!(failed, [true, true, false]);
    assert_eq!(kinds(&ran)[0], "session");
    let end = all.last().unwrap();
    assert_eq!(
        (&end["type"], &end["ended"], &end["text"], &end["calls"], &end["exit"]),
        (&json!("ended"), &json!("done"), &json!("It says words."), &json!(3), &json!(0))
    );
    assert_eq!(end["usage"]["prompt_tokens"], 40);
}

#[test]
fn nobody_is_asked_in_a_run() {
    let desk = Desk::new();
    let file = desk.path("work/new.txt");
    let question = json!({ "questions": [{
        "question": "Which?", "header": "Which",
        "options": [{ "label": "a", "description": "" }, { "label": "b", "description": "" }],
    }] });
    let model = Model::new([
        ScriptStep::calls([ScriptedCall::new("Write", json!({ "file_path": file, "content": "x" }))]),
        ScriptStep::call("AskUserQuestion", question),
        ScriptStep::text("I could not."),
    ]);
    let ran = model.at(desk).run(&["run", "write it"]);
    assert_eq!((ran.code, ran.out.as_str()), (5, "I could not.\n"), "{}", ran.err);
    let seen = model.results();
    assert!(
        seen[0].contains("there is nobody to ask here") && seen[0].contains("can allow it with the rule FileWrite"),
        "{}",
        seen[0]
    );
    assert!(seen[1].contains("nobody can be asked here"), "{}", seen[1]);
    assert!(!file.exists());
}

#[test]
fn a_plan_changes_nothing() {
    let desk = Desk::new();
    let file = desk.path("work/new.txt");
    let model = Model::new([
        ScriptStep::call("Write", json!({ "file_path": file, "content": "x" })),
        ScriptStep::call("ExitPlanMode", json!({})).with_text("1. write the file"),
        ScriptStep::text("The plan: write the file."),
    ]);
    let ran = model.at(desk).run(&["run", "plan it", "--mode", "plan"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let seen = model.results();
    assert!(seen[0].contains("this session is in plan mode"), "{}", seen[0]);
    assert!(seen[1].contains("nobody can approve a plan here"), "{}", seen[1]);
    assert!(!file.exists());
}

#[test]
fn every_end_has_its_code() {
    let look = || ScriptStep::call("Glob", json!({ "pattern": "*" }));
    let model = Model::new([look(), look(), look()]);
    let ran = model.desk().run(&["run", "x", "--max-turns", "2"]);
    assert_eq!(ran.code, 3, "{}", ran.err);

    let model = Model::new([look().repeat(40)]);
    let ran = model.desk().run(&["run", "x"]);
    assert_eq!(ran.code, 4, "{}", ran.err);

    let model = Model::new([ScriptStep::status(401, r#"{"error":{"message":"bad key"}}"#)]);
    let ran = model.desk().run(&["run", "x"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("401") || ran.err.contains("key"), "{}", ran.err);

    let ran = Desk::new().run(&["run", "x", "--set", "model.base_url=http://127.0.0.1:9/v1", "--model", "m"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
}

#[test]
fn a_project_cannot_send_the_conversation_elsewhere() {
    let model = Model::new([ScriptStep::text("mine")]);
    let desk = model.desk();
    desk.put("work/helve.toml", "[model]\nbase_url = \"http://127.0.0.1:9/v1\"\nkey_env = \"HOME\"\n");
    assert_eq!(desk.run(&["config", "trust"]).code, 0);
    let ran = desk.run(&["run", "hi"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "mine\n"), "{}", ran.err);
    assert!(ran.err.contains("`model.base_url` in DESK/work/helve.toml is ignored"), "{}", ran.err);
}

#[test]
fn an_interrupt_stops_the_turn_and_keeps_the_history() {
    let model =
        Model::new([ScriptStep::call("Bash", json!({ "command": "sleep 60" })), ScriptStep::text("on with it")]);
    let desk = model.desk();
    let mut child = desk
        .command(&["run", "wait", "--json", "--mode", "bypassPermissions"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.find(|it| it.as_ref().unwrap().contains("\"calling\"")).unwrap().unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let end: Value = serde_json::from_str(&lines.last().unwrap().unwrap()).unwrap();
    assert_eq!((&end["type"], &end["ended"]), (&json!("ended"), &json!("cancelled")));
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let ran = desk.run(&["run", "--continue", "go on"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "on with it\n"), "{}", ran.err);
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn a_killed_run_goes_on() {
    let model = Model::new([ScriptStep::call("Bash", json!({ "command": "sleep 60" })), ScriptStep::text("done now")]);
    let desk = model.desk();
    let mut child = desk
        .command(&["run", "first words", "--json", "--mode", "bypassPermissions"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.find(|it| it.as_ref().unwrap().contains("\"calling\"")).unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = desk.run(&["run", "--continue"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "done now\n"), "{}", ran.err);
    assert_eq!(model.violations(), Vec::<String>::new());
    assert!(model.results()[0].contains("interrupted"), "{:?}", model.results());

    let other = desk.command(&["run", "--session", "f", "x"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(other.status.code(), Some(2));
}

#[test]
fn a_session_in_use_names_its_process() {
    let model = Model::new([ScriptStep::call("Bash", json!({ "command": "sleep 60" }))]);
    let desk = model.desk();
    let mut child = desk
        .command(&["run", "wait", "--json", "--mode", "bypassPermissions"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.find(|it| it.as_ref().unwrap().contains("\"calling\"")).unwrap().unwrap();
    let second = desk.run(&["run", "--continue", "me too"]);
    assert_eq!(second.code, 1, "{}", second.err);
    assert!(second.err.contains(&format!("is in use by process {} on ", child.id())), "{}", second.err);
    assert!(second.err.contains("then retry"), "{}", second.err);
    let deleted = desk.run(&["sessions", "delete", "0"]);
    assert!(deleted.code != 0 && deleted.err.contains("is in use by process"), "{}", deleted.err);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn conversations_are_listed_shown_exported_and_deleted() {
    let model = Model::new([
        ScriptStep::call("Glob", json!({ "pattern": "*.txt" })),
        ScriptStep::text("Nothing \x1b[2Jhere."),
        ScriptStep::text("Second."),
    ]);
    let desk = model.desk();
    assert_eq!(desk.run(&["run", "look for text files"]).code, 0);
    assert_eq!(desk.run(&["run", "another task"]).code, 0);

    let ran = desk.run(&["sessions", "list", "--json"]);
    let list = ran.json();
    assert_eq!(list["total"], 2);
    let of = |at: usize, key: &str| list["sessions"][at][key].as_str().unwrap().to_owned();
    assert_eq!((of(0, "title"), of(1, "title")), ("another task".to_owned(), "look for text files".to_owned()));
    let id = of(1, "id");

    let ran = desk.run(&["sessions", "list"]);
    assert!(ran.out.lines().nth(2).unwrap().contains(&id), "{}", ran.out);
    let ran = desk.run(&["sessions", "show", &id[24..]]);
    assert!(ran.out.contains("Nothing \\x1b[2Jhere.") && ran.out.contains("→ Glob *.txt"), "{}", ran.out);

    let ran = desk.run(&["sessions", "export", &id, "--jsonl"]);
    let lines: Vec<Value> = ran.out.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!((lines[0]["type"].as_str(), lines[0]["session"]["id"].as_str()), (Some("session"), Some(id.as_str())));
    assert_eq!(lines[1]["message"]["parts"][0]["text"], "look for text files");
    let whole = desk.run(&["sessions", "export", &id]).json();
    assert_eq!(whole["messages"].as_array().unwrap().len(), lines.len() - 1);

    assert_eq!(desk.run(&["sessions", "delete", &id]).code, 0);
    let ran = desk.run(&["sessions", "show", &id]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("there is no conversation"), "{}", ran.err);
    assert_eq!(desk.run(&["sessions", "list", "--json"]).json()["total"], 1);
}
