//! `helve forge run`: a whole plan over a real repository, with a scripted model for every agent.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use helve_script::{ModelScript, ScriptStep, StreamFault};
use serde_json::{Value, json};

use crate::{desk::Desk, model::Model};

/// What an agent has said so far decides what it says next, so that a second attempt finds the same model.
fn lane(words: &str, answer: impl Fn(usize, &str) -> ScriptStep + Send + Sync + 'static) -> (String, ScriptStep) {
    let step = ScriptStep::computed(move |request| {
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let said = messages.iter().filter(|it| it["role"] == "assistant").count();
        let first = messages.iter().find(|it| it["role"] == "user").map(|it| it["content"].to_string());
        answer(said, &first.unwrap_or_default())
    });
    (words.to_owned(), step.repeat(u32::MAX))
}

fn walkthrough(status: &str, more: Value) -> ScriptStep {
    let mut told = json!({ "status": status, "confidence": 0.9, "summary": "Did what was asked." });
    told.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    ScriptStep::call("emit_walkthrough", json!({ "walkthrough": told }))
}

fn bash(command: impl Into<String>) -> ScriptStep {
    ScriptStep::call("bash", json!({ "command": command.into() }))
}

/// A worker runs a command, tells of it, and ends.
fn worker(task: &'static str, command: impl Into<String>) -> (String, ScriptStep) {
    let command = command.into();
    lane(&format!("Your task is {task}."), move |said, _| match said {
        0 => bash(&command).with_text(format!("I begin {task}.")),
        1 => walkthrough("completed", json!({ "risks": ["parts/t1.txt may be missing"] })),
        _ => ScriptStep::text("Done."),
    })
}

/// Writes a part, and commits it.
fn part(task: &str) -> String {
    format!("mkdir -p parts && echo {task} > parts/{task}.txt && git add --all && git commit --quiet -m 'Add {task}'")
}

/// The story's model: eight tasks, two refineries, one conflict, one change of the plan, and perhaps one silence.
pub(crate) fn story(silent: bool) -> ModelScript {
    let lanes = [
        worker("t1", part("t1")),
        // It leaves its work uncommitted.
        worker("t2", "mkdir -p parts && echo t2 > parts/t2.txt && echo two >> list.txt"),
        worker("t3", format!("echo three >> list.txt && git commit --quiet -am 'List three' && {}", part("t3"))),
        lane("Your task is t4.", move |said, first| match said {
            0 if silent && first.contains("forge/t4/1") => ScriptStep::text("Hm").fault(StreamFault::StallAfter(1)),
            0 => bash(part("t4")),
            1 => walkthrough("completed", json!({})),
            _ => ScriptStep::text("Done."),
        }),
        refinery("r1", &["t1", "t2", "t3", "t4"], true),
        worker("t5", part("t5")),
        worker("t6", part("t6")),
        lane("Your task is t7.", move |said, first| match said {
            0 if silent && first.contains("forge/t7/1") => walkthrough("failed", json!({})),
            0 => bash(part("t7")),
            1 if silent && first.contains("forge/t7/1") => ScriptStep::text("I cannot."),
            1 => walkthrough("completed", json!({})),
            _ => ScriptStep::text("Done."),
        }),
        worker("t8", "test -f parts/t5.txt && echo t8 > parts/t8.txt"),
        worker("t9", part("t9")),
        refinery("r2", &["t6", "t7", "t8"], false),
        lane("Merging the branch", |said, _| match said {
            0 => bash(
                "grep -v -e '^<<<<<<<' -e '^=======' -e '^>>>>>>>' list.txt | sort > list.new; mv list.new list.txt",
            ),
            _ => ScriptStep::text("Kept both lines."),
        }),
        lane("A follow-up of", |said, _| match said {
            0 => bash("echo names > names.txt"),
            1 => walkthrough("completed", json!({})),
            _ => ScriptStep::text("Mended."),
        }),
        lane("A run is under way", |said, _| match said {
            0 => ScriptStep::call("read_task", json!({ "taskId": "t5" })),
            _ => ScriptStep::text(
                json!({
                    "addedNodes": [{ "id": "t9", "type": "task", "agentType": 1, "dependencies": ["r1"] }],
                    "addedEdges": [{ "from": "t9", "to": "r2" }],
                    "tasks": { "t9": document("t9", "1", &["r1"]) },
                })
                .to_string(),
            ),
        }),
    ];
    lanes.into_iter().fold(ModelScript::default(), |script, (words, step)| script.branch(&words, [step]))
}

/// A refinery merges, repairs what conflicts, tests, and one asks for more.
fn refinery(task: &'static str, sources: &'static [&'static str], asks: bool) -> (String, ScriptStep) {
    let step = ScriptStep::computed(move |request| {
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let first = messages.iter().find(|it| it["role"] == "user").map(|it| it["content"].to_string());
        let first = first.unwrap_or_default();
        let branch = |task: &str| branch_of(&first, task);
        let all: Vec<String> = sources.iter().map(|it| branch(it)).chain(branch_if(&first, "t9")).collect();
        let merge =
            || ScriptStep::call("merge_branches", json!({ "sourceBranches": all, "targetBranch": branch(task) }));
        let last = messages.last().map(|it| it["content"].as_str().unwrap_or_default().to_owned()).unwrap_or_default();
        let has_called = |name: &str| request["messages"].to_string().contains(&format!("\"name\":\"{name}\""));
        if !has_called("merge_branches") {
            return merge();
        }
        if last.contains("\"conflicts\"") {
            let told: Value = serde_json::from_str(&last).unwrap();
            let args = json!({ "conflictFiles": told["conflicts"], "sourceBranch": told["branch"], "targetBranch": branch(task) });
            return ScriptStep::call("fix_conflict", args);
        }
        if last.contains("agentId") {
            return merge();
        }
        if last == r#"{"success":true}"# {
            return ScriptStep::call("run_tests", json!({ "command": "sh test.sh" }));
        }
        if asks && !has_called("emit_cr") {
            assert!(last.contains("\"passed\":true"), "{last}");
            let why = json!({ "title": "A ninth part", "description": "It is missing.", "reason": "Nobody wrote it." });
            return ScriptStep::call("emit_cr", why);
        }
        if !has_called("emit_walkthrough") {
            return walkthrough("completed", json!({ "confidence": 0.5, "followups": ["Fix the names"] }));
        }
        ScriptStep::text("Merged.")
    });
    (format!("Your task is {task}: merge"), step.repeat(u32::MAX))
}

/// The branch of a task that a refinery was told of.
fn branch_if(words: &str, task: &str) -> Option<String> {
    let start = words.find(&format!("forge/{task}/"))?;
    Some(words[start..].chars().take_while(|it| it.is_ascii_alphanumeric() || *it == '/').collect())
}

fn branch_of(words: &str, task: &str) -> String {
    branch_if(words, task).unwrap_or_else(|| panic!("no branch of {task} in {words}"))
}

fn document(id: &str, kind: &str, dependencies: &[&str]) -> String {
    format!(
        "---\nid: {id}\ntitle: Part {id}\ntype: {kind}\ndependencies: {}\nacceptance_criteria:\n  - it is there\n\
         estimated_complexity: small\n---\n## Description\nWrite the part.\n## Context\nA list of parts.\n## Instructions\nWrite it.\n",
        json!(dependencies)
    )
}

/// A repository with a first commit, and the plan beside it.
pub(crate) fn repository(desk: &Desk) {
    desk.put("work/list.txt", "one\n").put("work/README", "Parts.\n");
    desk.put(
        "work/test.sh",
        "set -e\nfor f in parts/*.txt; do test \"$(cat $f)\" = \"$(basename $f .txt)\"; done\n! grep '^<<<' list.txt\n",
    );
    git(desk, &["init", "--quiet", "--initial-branch=main"]);
    git(desk, &["add", "--all"]);
    git(desk, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "--quiet", "-m", "Begin"]);
    let mut nodes = Vec::new();
    let plan: [(&str, &str, &[&str]); 10] = [
        ("t1", "1", &[]),
        ("t2", "2", &[]),
        ("t3", "1", &[]),
        ("t4", "3", &[]),
        ("r1", "refinery", &["t1", "t2", "t3", "t4"]),
        ("t5", "1", &["r1"]),
        ("t6", "1", &["r1"]),
        ("t7", "2", &["r1"]),
        ("t8", "1", &["t5"]),
        ("r2", "refinery", &["t6", "t7", "t8"]),
    ];
    for (id, kind, dependencies) in plan {
        desk.put(&format!("plan/tasks/{id}.md"), &document(id, kind, dependencies));
        let what = if kind == "refinery" { "refinery" } else { "task" };
        let kind = kind.parse::<u8>().map_or_else(|_| json!(kind), |it| json!(it));
        nodes.push(json!({ "id": id, "type": what, "agentType": kind, "dependencies": dependencies }));
    }
    desk.put("plan/specs/parts.md", "# Parts\n");
    desk.put("plan/dag.json", &json!({ "runId": "story", "nodes": nodes }).to_string());
}

pub(crate) fn git(desk: &Desk, args: &[&str]) -> String {
    let done = Command::new("git").args(args).current_dir(desk.path("work")).env("HOME", desk.path("home")).output();
    let done = done.unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// The record of the run, whose numbers have no gap.
fn events(desk: &Desk) -> Vec<Value> {
    let text = desk.get("work/.forge/runs/story/events.ndjson");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<u64> = events.iter().map(|it| it["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    for event in &events {
        let keys: BTreeSet<&str> = event.as_object().unwrap().keys().map(String::as_str).collect();
        let all = BTreeSet::from(["eventId", "seq", "timestamp", "type", "runId", "taskId", "attemptId", "data"]);
        assert!(
            keys.is_subset(&all)
                && helve_contract::ids::is_id(event["runId"].as_str().unwrap())
                && event["data"].is_object(),
            "{event}"
        );
    }
    events
}

/// Nothing is left: no work tree, no process, no lock.
fn nothing_is_left(desk: &Desk) {
    let left: Vec<_> =
        fs::read_dir(desk.path("work/.forge/worktrees")).unwrap().flatten().map(|it| it.path()).collect();
    assert!(left.is_empty(), "{left:?}");
    let here = desk.path("").display().to_string();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let found = processes(&here);
        if found.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        std::thread::yield_now();
    }
    let locks = Command::new("find").args([&here, "-name", "*.lock", "-path", "*/.git/*"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&locks.stdout), "");
}

/// Processes that work beneath a directory.
fn processes(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir("/proc").unwrap().flatten().filter(|it| it.file_name().to_string_lossy().parse::<u32>().is_ok())
    {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let dir = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        if line.contains(folder) || dir.starts_with(folder) {
            found.push(line);
        }
    }
    found
}

/// What every ending of the story has in common.
pub(crate) fn well_ended(desk: &Desk) -> String {
    let parts: Vec<String> = (1..=9).map(|at| format!("parts/t{at}.txt")).collect();
    let files = git(desk, &["ls-tree", "-r", "--name-only", "main", "--", "parts"]);
    assert_eq!(files.lines().collect::<Vec<_>>(), parts);
    assert_eq!(desk.get("work/list.txt"), "one\nthree\ntwo\n");
    let tested = Command::new("sh").arg("test.sh").current_dir(desk.path("work")).output().unwrap();
    assert!(tested.status.success());
    assert_eq!(git(desk, &["status", "--porcelain"]), "");
    let state: Value = serde_json::from_str(&desk.get("work/.forge/artifacts/story/run-state.json")).unwrap();
    assert_eq!((&state["status"], &state["completedTasks"]), (&json!("completed"), &json!(11)));
    let events = events(desk);
    let last = events.last().unwrap();
    assert_eq!((&state["lastEventId"], &state["lastEventSeq"]), (&last["eventId"], &last["seq"]));
    let mut merged: BTreeMap<String, u64> = BTreeMap::new();
    for event in &events {
        let (data, seq) = (&event["data"], event["seq"].as_u64().unwrap());
        if event["type"] == "tool.call" && data["args"]["status"] == "MERGED" {
            merged.entry(data["args"]["taskId"].as_str().unwrap().to_owned()).or_insert(seq);
        }
        if event["type"] == "task.started" {
            let task = data["taskId"].as_str().unwrap();
            assert!(!merged.contains_key(task), "{task} was begun again after it was merged");
        }
    }
    assert_eq!(merged.len(), 11);
    nothing_is_left(desk);
    git(desk, &["rev-parse", "main^{tree}"])
}

#[test]
fn a_plan_becomes_a_merged_main() {
    let model = Model::of(story(true));
    let desk = model.desk();
    repository(&desk);
    // On a slow machine others may seem silent too, and are tried again as well.
    let ran = desk.run(&["forge", "run", "../plan", "--stale-after", "10"]);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (0, ""),
        "{}\n{}",
        ran.out,
        desk.get("work/.forge/runs/story/events.ndjson")
    );
    assert!(ran.out.contains("story: completed, 11 of 11 merged\n"), "{}", ran.out);
    assert!(ran.out.contains("a follow-up waits on `forge/followup-r2.1.1/1`: look at it"), "{}", ran.out);
    well_ended(&desk);
    assert_eq!(model.violations(), Vec::<String>::new());

    let events = events(&desk);
    let of =
        |kind: &str| -> Vec<&Value> { events.iter().filter(|it| it["type"] == kind).map(|it| &it["data"]).collect() };
    assert!(of("task.stale").iter().any(|it| it["taskId"] == "t4"));
    assert!(of("task.retried").contains(&&json!({ "taskId": "t4", "attemptId": "2", "branch": "forge/t4/2" })));
    assert_eq!(of("cr.emitted"), [&json!({ "crId": "cr-001", "title": "A ninth part", "emittedBy": "story-r1-1" })]);
    assert_eq!(of("run.completed").len(), 1);
    let conflicts: Vec<_> = of("refinery.merged").iter().map(|it| it["conflicts"].clone()).collect();
    assert_eq!(conflicts, [json!(["list.txt"]), json!([])]);
    let aside = git(&desk, &["show", "forge/followup-r1.1.1/1:names.txt"]);
    assert_eq!((aside.as_str(), of("followup.spawned").len(), of("followup.ended").len()), ("names\n", 2, 2));
    told_as_agreed(&events);
    let log = git(&desk, &["log", "--format=%s", "main"]);
    for line in [
        "Add t1",
        "forge(t2): take over the work of attempt 1",
        "List three",
        "Merge branch 'forge/t3/1' into forge/r1/1",
        "Add t9",
        "Begin",
    ] {
        assert!(log.lines().any(|it| it == line), "{line} is not in\n{log}");
    }
    let status = desk.run(&["forge", "status", "story"]);
    assert!(
        status.out.starts_with("story: completed, 11 of 11 merged\n  MERGED      t1  (type 1)\n"),
        "{}",
        status.out
    );
}

/// Every type of event that this story can have is there, and each has its fields.
fn told_as_agreed(events: &[Value]) {
    let agreed: [(&str, &[&str]); 28] = [
        ("run.started", &["repoUrl", "dagHash"]),
        ("run.paused", &["reason", "crId"]),
        ("run.resumed", &["crId", "overlayId"]),
        ("run.completed", &["totalCompleted", "totalFailed", "duration"]),
        ("captain.message", &["content", "role"]),
        ("captain.tool_call", &["toolName", "args"]),
        ("captain.tool_result", &["toolName", "result"]),
        ("plan.finalized", &["totalTasks", "totalRefineries", "specCount"]),
        ("task.scheduled", &["taskId", "agentType"]),
        ("task.started", &["taskId", "agentId", "sandboxId", "branch"]),
        ("task.heartbeat", &["taskId", "agentId", "uptimeSeconds"]),
        ("task.progress", &["taskId", "content", "contentType"]),
        ("task.completed", &["taskId", "walkthroughPath"]),
        ("task.failed", &["taskId", "error", "canRetry"]),
        ("task.stale", &["taskId", "lastHeartbeat", "threshold"]),
        ("task.retried", &["taskId", "attemptId", "branch"]),
        ("tool.call", &["agentId", "callId", "tool", "toolName", "args", "params"]),
        ("tool.result", &["agentId", "callId", "tool", "toolName", "result", "isError"]),
        ("artifact.written", &["path", "type"]),
        ("branch.pushed", &["taskId", "branch", "ref"]),
        ("refinery.started", &["taskId", "dependencyCount"]),
        ("refinery.merged", &["taskId", "mergedBranches", "conflicts"]),
        ("cr.emitted", &["crId", "title", "emittedBy"]),
        ("review.low_confidence", &["taskId", "confidence"]),
        ("task.risk", &["taskId", "risk"]),
        ("task.followup", &["taskId", "followup", "urgent"]),
        ("followup.spawned", &["taskId", "followupId", "followup", "agentId", "agentType", "branch"]),
        ("followup.ended", &["taskId", "followupId", "branch", "error"]),
    ];
    for (kind, fields) in agreed {
        let found: Vec<&Value> = events.iter().filter(|it| it["type"] == kind).collect();
        assert!(!found.is_empty(), "no {kind}");
        for event in found {
            let data = event["data"].as_object().unwrap();
            assert!(fields.iter().all(|field| data.contains_key(*field)), "{event}");
        }
    }
    let kinds: BTreeSet<&str> = events
        .iter()
        .filter(|it| it["type"] == "artifact.written")
        .map(|it| it["data"]["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, BTreeSet::from(["cr", "dag", "spec", "task", "walkthrough"]));
}

#[test]
fn a_task_that_always_fails_is_given_up() {
    let (words, step) = lane("Your task is only.", |said, _| match said {
        0 => walkthrough("failed", json!({})),
        _ => ScriptStep::text("I cannot."),
    });
    let model = Model::of(ModelScript::default().branch(&words, [step]));
    let desk = model.desk();
    desk.put("work/README", "Begin.\n").put("plan/tasks/only.md", &document("only", "1", &[]));
    git(&desk, &["init", "--quiet", "--initial-branch=main"]);
    git(&desk, &["add", "--all"]);
    git(&desk, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "--quiet", "-m", "Begin"]);
    let nodes = json!([{ "id": "only", "type": "task", "agentType": 1, "dependencies": [] }]);
    desk.put("plan/dag.json", &json!({ "runId": "story", "nodes": nodes }).to_string());
    let ran = desk.run(&["forge", "run", "../plan"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("only has used all of its attempts"), "{}", ran.out);
    let events = events(&desk);
    let exhausted: Vec<_> = events.iter().filter(|it| it["type"] == "task.exhausted").map(|it| &it["data"]).collect();
    assert_eq!(exhausted, [&json!({ "taskId": "only", "attempts": 4, "finalStatus": "FAILED" })]);
    let failed = events.iter().filter(|it| it["type"] == "task.failed").map(|it| &it["data"]["canRetry"]);
    assert_eq!(failed.collect::<Vec<_>>(), [true, true, true, false]);
    nothing_is_left(&desk);
}

#[test]
fn an_agent_that_could_do_nothing_is_not_believed() {
    let model = Model::of(ModelScript::default().branch("Your task is only.", [worker("only", part("only")).1]));
    let desk = model.desk();
    desk.put("work/README", "Begin.\n").put("plan/tasks/only.md", &document("only", "1", &[]));
    git(&desk, &["init", "--quiet", "--initial-branch=main"]);
    git(&desk, &["add", "--all"]);
    git(&desk, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "--quiet", "-m", "Begin"]);
    let nodes = json!([{ "id": "only", "type": "task", "agentType": 1, "dependencies": [] }]);
    desk.put("plan/dag.json", &json!({ "runId": "story", "nodes": nodes }).to_string());
    let ran = desk.run(&["forge", "run", "../plan", "--set", "approval.deny=bash"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let events = events(&desk);
    let failed = events.iter().filter(|it| it["type"] == "task.failed").map(|it| it["data"]["error"].to_string());
    let said = failed.collect::<Vec<_>>();
    let words = "the agent says that it is done, but none of its calls (1) went well";
    assert!(said.len() == 4 && said.iter().all(|it| it.contains(words)), "{said:?}");
    nothing_is_left(&desk);
}

/// A captain that drafts and asks, and when the session goes on looks at its draft and writes the plan.
fn captain() -> ModelScript {
    let nodes = json!([{ "id": "one", "type": "task", "agentType": 1, "dependencies": [] }]);
    let (words, step) = lane("Plan the parts", move |said, _| match said {
        0 => ScriptStep::call("plan_write", json!({ "path": "notes/parts.md", "content": "one part\n" })),
        1 => {
            ScriptStep::call("plan_bash", json!({ "command": "ln -s /etc/passwd notes/link; wc -l < notes/parts.md" }))
        }
        2 => ScriptStep::text("What is the part called?"),
        3 => ScriptStep::call(
            "plan_bash",
            json!({ "command": "grep -q one notes/parts.md && echo its name is one >> notes/parts.md" }),
        ),
        4 => ScriptStep::call("create_spec", json!({ "filename": "parts.md", "content": "# Parts\n" })),
        5 => ScriptStep::call("create_task", json!({ "taskId": "one", "content": document("one", "1", &[]) })),
        6 => ScriptStep::call("set_dag", json!({ "dag": { "nodes": nodes.clone() } })),
        _ => ScriptStep::text("There is a plan."),
    });
    ModelScript::default().branch(&words, [step])
}

#[test]
fn a_draft_is_taken_up_again_and_written_out() {
    let model = Model::of(captain());
    let desk = model.desk();
    repository(&desk);
    let first = desk.run(&["forge", "plan", "--run", "story", "Plan the parts"]);
    assert_eq!(first.code, 0, "{}{}", first.out, first.err);
    assert!(first.out.contains("story has no graph yet"), "{}", first.out);
    let second = desk.run(&["forge", "plan", "--run", "story", "It is called one"]);
    assert_eq!(second.code, 0, "{}{}", second.out, second.err);
    assert!(second.out.contains("story: 1 tasks and 0 refineries"), "{}", second.out);

    let out = desk.path("out").display().to_string();
    let export = desk.run(&["forge", "plan", "export", "story", &out]);
    assert_eq!((export.code, export.err.as_str()), (0, ""), "{}", export.out);
    assert_eq!(desk.get("out/notes/parts.md"), "one part\nits name is one\n");
    // Links are left out, and nothing is replaced without a word.
    assert!(!desk.path("out/notes/link").exists());
    desk.put("out/notes/parts.md", "mine\n");
    let again = desk.run(&["forge", "plan", "export", "story", &out]);
    assert_eq!((again.code, desk.get("out/notes/parts.md").as_str()), (1, "mine\n"));
    assert!(again.err.contains("notes/parts.md is there already"), "{}", again.err);
    assert_eq!(desk.run(&["forge", "plan", "export", "story", &out, "--force"]).code, 0);
    assert_eq!(desk.get("out/notes/parts.md"), "one part\nits name is one\n");
    // A link that leads elsewhere is not followed.
    desk.put("elsewhere/there", "");
    fs::create_dir_all(desk.path("trap")).unwrap();
    std::os::unix::fs::symlink(desk.path("elsewhere"), desk.path("trap/notes")).unwrap();
    let trap = desk.path("trap").display().to_string();
    assert_eq!(desk.run(&["forge", "plan", "export", "story", &trap, "--force"]).code, 1);
    assert!(!desk.path("elsewhere/parts.md").exists());

    let events = events(&desk);
    let finalized = events.iter().find(|it| it["type"] == "plan.finalized").unwrap();
    assert_eq!(finalized["data"], json!({ "totalTasks": 1, "totalRefineries": 0, "specCount": 1 }));
    let written = events.iter().filter(|it| it["type"] == "artifact.written").map(|it| &it["data"]["type"]);
    assert_eq!(written.collect::<Vec<_>>(), ["spec", "task", "dag"]);
    let said = events.iter().find(|it| it["type"] == "captain.message").unwrap();
    assert_eq!(said["data"], json!({ "content": "What is the part called?", "role": "assistant" }));
}

/// A number from a seed: xorshift.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn an_executor_that_is_killed_is_followed_by_another() {
    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse().ok());
    let kills: u64 = number("HELVE_KILLS").unwrap_or(8);
    let mut seed: u64 = number("HELVE_SEED").unwrap_or(0x9e37_79b9_7f4a_7c15);
    let (mut killed, mut trees) = (0, BTreeSet::new());
    while killed < kills {
        let model = Model::of(story(false));
        let desk = model.desk();
        repository(&desk);
        for _ in 0..=kills.min(8) {
            let what = if desk.path("work/.forge/artifacts/story/dag.json").exists() { "story" } else { "../plan" };
            let mut command = desk.command(&["forge", "run", what]);
            let said = desk.path("said");
            let out = fs::File::create(&said).unwrap();
            let mut child = command.stdin(Stdio::null()).stderr(out.try_clone().unwrap()).stdout(out).spawn().unwrap();
            let end = Instant::now() + Duration::from_millis(next(&mut seed) % 3_000);
            let mut ended = None;
            while ended.is_none() && (killed >= kills || Instant::now() < end) {
                std::thread::sleep(Duration::from_millis(5));
                ended = child.try_wait().unwrap();
            }
            if let Some(status) = ended {
                assert!(status.success(), "{status}: {}", fs::read_to_string(said).unwrap());
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            killed += 1;
        }
        let ran = desk.run(&["forge", "run", "story"]);
        assert_eq!(ran.code, 0, "after {killed} kills: {}{}", ran.out, ran.err);
        trees.insert(well_ended(&desk));
    }
    assert_eq!(trees.len(), 1, "every ending is the same");
}

#[test]
fn many_work_trees_commit_at_once_and_nothing_is_lost() {
    let number = |name: &str, usual: usize| std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(usual);
    let (trees, commits) = (number("HELVE_WORKTREES", 4), number("HELVE_COMMITS", 10));
    let (_, step) = lane("", move |said, first| match said {
        0 => {
            let told = first.split("Your task is ").nth(1).unwrap_or_default();
            let task = told.split('.').next().unwrap_or_default();
            bash(format!(
                "for n in $(seq {commits}); do echo $n > {task}-$n.txt && git add --all && git commit --quiet -m \"{task} $n\" || exit 1; done"
            ))
        }
        1 => walkthrough("completed", json!({})),
        _ => ScriptStep::text("Done."),
    });
    let model = Model::of(ModelScript::default().branch("Your task is w", [step]));
    let desk = model.desk();
    desk.put("work/README", "Begin.\n");
    git(&desk, &["init", "--quiet", "--initial-branch=main"]);
    git(&desk, &["add", "--all"]);
    git(&desk, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "--quiet", "-m", "Begin"]);
    let mut nodes = Vec::new();
    for at in 0..trees {
        let id = format!("w{at}");
        desk.put(&format!("plan/tasks/{id}.md"), &document(&id, "1", &[]));
        nodes.push(json!({ "id": id, "type": "task", "agentType": 1, "dependencies": [] }));
    }
    desk.put("plan/dag.json", &json!({ "runId": "story", "nodes": nodes }).to_string());
    let ran = desk.run(&["forge", "run", "../plan", "--parallel", "16"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let log = git(&desk, &["log", "--no-merges", "--format=%s", "main"]);
    assert_eq!(log.lines().collect::<BTreeSet<_>>().len(), trees * commits + 1);
    assert_eq!(git(&desk, &["ls-files"]).lines().count(), trees * commits + 1);
    assert_eq!(events(&desk).iter().filter(|it| it["type"] == "task.failed").count(), 0);
    nothing_is_left(&desk);
}
