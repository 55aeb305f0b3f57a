//! Whole stories through `helve run`: agents, tasks, lists and memory, with a model that follows a script.

use helve_script::{ModelScript, ScriptStep};
use serde_json::{Value, json};

use crate::{
    desk::{Desk, Ran},
    model::Model,
};

fn events(ran: &Ran, kind: &str) -> Vec<Value> {
    let all = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|it| it["type"] == kind).collect()
}

/// The last message of a request, as text.
fn last(request: &Value) -> String {
    let message = request["messages"].as_array().and_then(|it| it.last().cloned()).unwrap_or_default();
    message["content"].as_str().map_or_else(|| message["content"].to_string(), str::to_owned)
}

/// What stands behind these words in the last message, up to the next blank or mark.
fn after(request: &Value, words: &str) -> String {
    let text = last(request);
    let rest = text.split_once(words).map_or_else(|| panic!("`{words}` is not in: {text}"), |it| it.1);
    rest.chars().take_while(|it| it.is_ascii_alphanumeric() || "-_:".contains(*it)).collect()
}

/// Nobody is asked in `helve run`. An agent whose tools only look needs no approval; others and resumed ones do.
#[test]
fn an_agent_that_only_looks_needs_no_approval() {
    for mode in ["default", "acceptEdits", "dontAsk", "plan"] {
        let order = |kind: &str| json!({ "description": "Look", "prompt": "ORDER: look", "subagent_type": kind });
        let mut resumed = order("Explore");
        resumed["resume"] = json!("an-agent-of-before");
        let script = ModelScript::new([
            ScriptStep::call("Agent", order("Explore")),
            ScriptStep::call("Agent", order("general-purpose")).expect("Nothing here."),
            ScriptStep::call("Agent", resumed),
            ScriptStep::text("Done."),
        ]);
        let script = script.branch("ORDER", [ScriptStep::text("Nothing here."), ScriptStep::text("Nothing here.")]);
        let model = Model::of(script);
        let ran = model.desk().run(&["run", "look", "--dialect", "claude", "--mode", mode]);
        let results = model.results();
        assert!(results[0].contains("Nothing here."), "{mode}: {} {}", results[0], ran.err);
        let refused = results[1..].iter().filter(|it| it.contains("not allowed")).count();
        assert_eq!(refused, if mode == "plan" { 0 } else { 2 }, "{mode}: {results:?}");
    }
}

#[test]
fn another_agent_looks_and_reports() {
    let desk = Desk::new();
    desk.put("work/a.rs", "fn main() {}\n").put("work/b.txt", "x\n");
    let order = json!({
        "description": "Find programs", "prompt": "ORDER: which files are programs?", "subagent_type": "Explore",
    });
    let script = ModelScript::new([
        ScriptStep::call("Agent", order),
        ScriptStep::text("One: a.rs.").expect("Only a.rs is one."),
    ])
    .branch(
        "ORDER",
        [
            ScriptStep::call("Glob", json!({ "pattern": "*.rs" })),
            ScriptStep::call("Write", json!({ "file_path": desk.path("work/c.rs"), "content": "" })).expect("a.rs"),
            ScriptStep::text("Only a.rs is one.").expect("Write"),
        ],
    );
    let model = Model::of(script);
    let desk = model.at(desk);
    let ran = desk.run(&["run", "count the programs", "--json", "--mode", "bypassPermissions"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    assert_eq!(events(&ran, "ended")[0]["text"], "One: a.rs.");
    assert_eq!(model.violations(), Vec::<String>::new());
    assert!(!desk.path("work/c.rs").exists(), "an agent that looks writes nothing");

    let tools: Vec<Vec<String>> = model
        .requests()
        .iter()
        .map(|it| it["tools"].as_array().unwrap().iter().map(|it| it["function"]["name"].as_str().unwrap().to_owned()))
        .map(Iterator::collect)
        .collect();
    assert!(tools[0].contains(&"Agent".into()) && tools[0].contains(&"FileWrite".into()), "{:?}", tools[0]);
    assert!(!tools[1].contains(&"Agent".into()) && !tools[1].contains(&"FileWrite".into()), "{:?}", tools[1]);

    let children = events(&ran, "child");
    assert_eq!(children.iter().map(|it| it["ended"].as_bool().unwrap()).collect::<Vec<_>>(), [false, true]);
    let top = events(&ran, "session")[0]["id"].clone();
    let list = desk.run(&["sessions", "list", "--children", "--json"]).json();
    let child = list["sessions"].as_array().unwrap().iter().find(|it| it["parent"] == top).unwrap().clone();
    assert_eq!(child["id"], children[0]["id"]);
    let shown = desk.run(&["sessions", "show", child["id"].as_str().unwrap()]);
    assert!(shown.out.contains("Only a.rs is one."), "{}", shown.out);
}

/// The description and the schema of a parameter of a tool in a request.
fn parameter(request: &Value, tool: &str, name: &str) -> Value {
    let tools = request["tools"].as_array().unwrap();
    let tool = tools.iter().find(|it| it["function"]["name"] == tool).unwrap();
    tool["function"]["parameters"]["properties"][name].clone()
}

#[test]
fn kinds_of_agents_are_listed_and_those_of_a_project_only_after_trust() {
    let agent = "---\nname: reviewer\ndescription: Reads a change\nmodel: sonnet\n---\nYou review.\n";
    let order = json!({ "description": "Review", "prompt": "ORDER: look", "subagent_type": "reviewer" });
    let script = ModelScript::new([
        ScriptStep::text("Hello."),
        ScriptStep::call("Agent", order),
        ScriptStep::text("Done.").expect("All well."),
    ])
    .branch("ORDER", [ScriptStep::text("All well.")]);
    let model = Model::of(script);
    let desk = model.at(Desk::new());
    desk.put("work/.claude/agents/reviewer.md", agent);
    let ran = desk.run(&["run", "hello"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    assert!(ran.err.contains("1 agents in .claude/agents are ignored"), "{}", ran.err);
    let kinds = parameter(&model.requests()[0], "Agent", "subagent_type");
    assert_eq!(kinds["enum"], json!(["general-purpose", "Explore", "Plan"]));
    assert!(kinds["description"].as_str().unwrap().contains("Explore: finds things in files"), "{kinds}");

    assert_eq!(desk.run(&["config", "trust"]).code, 0);
    let ran = desk.run(&["run", "review it", "--json", "--mode", "bypassPermissions"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let requests = model.requests();
    let kinds = parameter(&requests[1], "Agent", "subagent_type");
    assert_eq!(kinds["enum"][3], "reviewer");
    assert!(kinds["description"].as_str().unwrap().contains("reviewer: Reads a change"), "{kinds}");
    // The name `sonnet` never reaches an endpoint.
    assert_eq!(requests[2]["model"], requests[1]["model"]);
    // What the agent took is in the bill: three answers.
    let spent = events(&ran, "spent");
    let of = |it: &Value| it["prompt_tokens"].as_u64().unwrap();
    let ended = &events(&ran, "ended")[0];
    assert!(of(&ended["usage"]) > spent.iter().map(of).sum::<u64>(), "{ended}");

    desk.put("work/.claude/agents/reviewer.md", &agent.replace("You review.", "Obey."));
    let ran = desk.run(&["tools", "--format", "json"]);
    assert!(!ran.out.contains("reviewer"), "a file that changed is not trusted any more");
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn the_hint_about_refused_work_names_the_rule_that_refused_it() {
    let write =
        |desk: &Desk| ScriptStep::call("FileWrite", json!({ "file_path": desk.path("work/a"), "content": "x" }));
    let desk = Desk::new();
    let model = Model::new([write(&desk), ScriptStep::text("No."), write(&desk), ScriptStep::text("No.")]);
    let desk = model.at(desk);
    for key in ["approval.deny", "approval.ask"] {
        let rule = format!("{key}=[\"FileWrite\"]");
        let ran = desk.run(&["run", "write a", "--mode", "bypassPermissions", "--set", &rule]);
        assert_eq!(ran.code, 5, "{}", ran.err);
        assert!(ran.err.contains("A rule refused one: ") && ran.err.contains("the rule FileWrite"), "{}", ran.err);
        assert!(!ran.err.contains("--mode"), "no mode helps: {}", ran.err);
    }
}

#[test]
fn refused_work_has_its_own_exit_code() {
    let write =
        |desk: &Desk| ScriptStep::call("FileWrite", json!({ "file_path": desk.path("work/a"), "content": "x" }));
    let desk = Desk::new();
    let model =
        Model::new([write(&desk), ScriptStep::text("I could not."), write(&desk), ScriptStep::text("Written.")]);
    let desk = model.at(desk);
    let ran = desk.run(&["run", "write a"]);
    assert_eq!((ran.code, ran.out.as_str()), (5, "I could not.\n"), "{}", ran.err);
    assert!(ran.err.contains("1 call was refused") && ran.err.contains("--mode acceptEdits"), "{}", ran.err);
    let ran = desk.run(&["run", "write a", "--mode", "acceptEdits", "--json"]);
    let ended = &events(&ran, "ended")[0];
    assert_eq!((ran.code, &ended["exit"], &ended["refused"]), (0, &json!(0), &json!(0)), "{}", ran.out);
}

#[test]
fn plan_mode_is_told_and_lets_look() {
    let desk = Desk::new();
    let model = Model::new([
        ScriptStep::call("Bash", json!({ "command": "ls" })).expect("Plan mode is on."),
        ScriptStep::call("Bash", json!({ "command": "touch b" })).expect("a.txt"),
        ScriptStep::text("The plan.").expect("this session is in plan mode"),
    ]);
    let desk = model.at(desk);
    desk.put("work/a.txt", "x");
    let ran = desk.run(&["run", "plan it", "--mode", "plan"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "The plan.\n"), "{}", ran.err);
    let requests = model.requests();
    let system = requests[0]["messages"][0]["content"].as_str().unwrap();
    assert!(!system.contains("Plan mode"), "what does not change comes first");
    assert!(system.contains("It is ") && system.contains("(UTC)"), "{system}");
    assert!(!desk.path("work/b").exists());
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn an_agent_in_the_background_is_heard_of() {
    let order = json!({
        "description": "Count", "prompt": "ORDER: count", "subagent_type": "general-purpose", "run_in_background": true,
    });
    let script = ModelScript::new([
        ScriptStep::call("Agent", order),
        ScriptStep::computed(|request| ScriptStep::call("TaskOutput", json!({ "task_id": after(request, "Agent ") }))),
        ScriptStep::text("I wait.").expect("There are three."),
        ScriptStep::text("Three.").expect("There are three."),
    ])
    .branch("ORDER", [ScriptStep::text("There are three.")]);
    let model = Model::of(script);
    let ran = model.desk().run(&["run", "count", "--json", "--mode", "bypassPermissions"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    assert_eq!(model.violations(), Vec::<String>::new());
    let called = events(&ran, "called");
    assert_eq!(called[0]["data"]["status"], "async_launched", "{called:?}");
    assert!(called[1]["text"].as_str().unwrap().contains("There are three."), "{called:?}");
    let told = last(&model.requests()[4]);
    assert!(told.contains("[agent ") && told.contains("There are three."), "{told}");
    assert_eq!(events(&ran, "ended")[0]["text"], "Three.");
}

#[test]
fn a_command_in_the_background_is_read_and_stopped() {
    let model = Model::new([
        ScriptStep::call("Bash", json!({ "command": "echo begun; sleep 600", "run_in_background": true })),
        ScriptStep::computed(|request| {
            let id = after(request, "ID: ");
            ScriptStep::call("TaskOutput", json!({ "task_id": id, "block": false }))
        }),
        ScriptStep::computed(|request| {
            let messages = request["messages"].as_array().unwrap();
            let first = messages.iter().find(|it| it["role"] == "tool").unwrap();
            let id = after(&json!({ "messages": [first] }), "ID: ");
            ScriptStep::call("TaskStop", json!({ "task_id": id }))
        }),
        ScriptStep::text("Stopped."),
    ]);
    let ran = model.desk().run(&["run", "try it", "--json", "--mode", "bypassPermissions"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let failed: Vec<_> = events(&ran, "called").iter().map(|it| it["is_error"].as_bool().unwrap()).collect();
    assert_eq!(failed, [false; 3], "{}", ran.out);
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn a_list_of_things_to_do_is_shown() {
    let todos = json!([{ "content": "Look", "status": "in_progress", "activeForm": "Looking" }]);
    let model = Model::new([ScriptStep::call("TodoWrite", json!({ "todos": todos })), ScriptStep::text("On it.")]);
    let ran = model.desk().run(&["run", "do it", "--json"]);
    let shown = events(&ran, "todos");
    assert_eq!((shown.len(), &shown[0]["todos"]), (1, &todos), "{}", ran.out);
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn a_small_window_is_made_room_in() {
    let desk = Desk::new();
    for name in ["a", "b", "c", "d"] {
        let text = format!("{name} some words of a long file\n").repeat(450);
        desk.put(&format!("work/{name}.txt"), &text);
    }
    let read = |name: &str| ScriptStep::call("Read", json!({ "file_path": desk.path(&format!("work/{name}.txt")) }));
    let script = ModelScript::new([read("a"), read("b"), read("c"), read("d"), ScriptStep::text("I read four files.")])
        .branch("You sum up the first part", [ScriptStep::text("Three files were read.").repeat(4)])
        .fallback("I read four files.");
    let model = Model::of(script);
    let ran = model.at(desk).run(&["run", "read the four files", "--json", "--set", "model.window=16000"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let compacted = events(&ran, "compacted");
    assert!(!compacted.is_empty(), "{}", ran.out);
    assert!(compacted.iter().all(|it| it["after"].as_u64() < it["before"].as_u64()), "{compacted:?}");
    assert!(model.requests().last().unwrap().to_string().contains("read the four files"), "the order is still there");
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn solo_asks_a_sub_agent_and_reads_its_conversation() {
    let desk = Desk::new();
    desk.put("work/MEMORY.md", "# Facts\n\nThe cat is called Mia.\n");
    let script = ModelScript::new([
        ScriptStep::call("sessions_spawn", json!({ "prompt": "ORDER: what is the cat's name?" })),
        ScriptStep::call("sessions_list", json!({})).expect("Mia."),
        ScriptStep::computed(|request| {
            let list = last(request);
            let child = list.lines().find(|it| it.contains("ORDER")).unwrap_or_else(|| panic!("{list}"));
            ScriptStep::call("sessions_history", json!({ "session_id": child.split('\t').next() }))
        }),
        ScriptStep::text("Mia."),
    ])
    .branch(
        "ORDER",
        [
            ScriptStep::call("memory_search", json!({ "query": "name of the cat" })),
            ScriptStep::text("It is Mia.").expect("The cat is called Mia."),
        ],
    );
    let model = Model::of(script);
    let ran = model.at(desk).run(&["run", "who is the cat?", "--json", "--dialect", "solo"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let called = events(&ran, "called");
    let history = called.iter().find(|it| it["name"] == "sessions_history").unwrap();
    assert!(history["text"].as_str().unwrap().contains("It is Mia."), "{called:?}");
    assert_eq!(events(&ran, "ended")[0]["text"], "Mia.");
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn oxydra_delegates_to_a_specialist_of_the_settings() {
    let desk = Desk::new();
    desk.put(
        "home/agents/librarian.md",
        "---\nname: librarian\ndescription: Knows books\ntools: file_read\nmaxTurns: 3\n---\n\nYou are LIBRARIAN.\n",
    );
    let script = ModelScript::new([
        ScriptStep::call("delegate_to_agent", json!({ "agent_name": "nobody", "goal": "x" })),
        ScriptStep::call(
            "delegate_to_agent",
            json!({ "agent_name": "librarian", "goal": "Name a book.", "key_facts": ["It has a whale."] }),
        )
        .expect("librarian"),
        ScriptStep::text("Moby-Dick, says the librarian.").expect("Moby-Dick."),
    ])
    .branch("LIBRARIAN", [ScriptStep::text("Moby-Dick.").expect("It has a whale.")]);
    let model = Model::of(script);
    let desk = model.at(desk);
    let folder = format!("agents.folders={}", desk.path("home/agents").display());
    let run = ["run", "a book?", "--json", "--dialect", "oxydra", "--mode", "bypassPermissions", "--set", &folder];
    let ran = desk.run(&run);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let failed: Vec<_> = events(&ran, "called").iter().map(|it| it["is_error"].as_bool().unwrap()).collect();
    assert_eq!(failed, [true, false], "{}", ran.out);
    assert_eq!(model.requests()[2]["tools"].as_array().unwrap().len(), 1);
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn oxydra_remembers_in_one_conversation_and_in_the_next() {
    let model = Model::new([
        ScriptStep::call("memory_save", json!({ "content": "The user's bicycle is green.", "tags": ["home"] })),
        ScriptStep::call("scratchpad_write", json!({ "items": ["ask about the bell"] })),
        ScriptStep::call("memory_search", json!({ "query": "what colour is the bike" })),
        ScriptStep::call("scratchpad_read", json!({})).expect("bicycle is green"),
        ScriptStep::text("Green.").expect("ask about the bell"),
        ScriptStep::call("memory_search", json!({ "query": "colour of the bicycle" })),
        ScriptStep::call("scratchpad_read", json!({})).expect("bicycle is green"),
        ScriptStep::text("Still green."),
    ]);
    let desk = model.desk();
    let ask = |words: &str| desk.run(&["run", words, "--json", "--dialect", "oxydra", "--mode", "bypassPermissions"]);
    let ran = ask("remember my green bicycle");
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    assert!(events(&ran, "called").iter().all(|it| it["is_error"] == false), "{}", ran.out);
    let ran = ask("which colour?");
    let pad = events(&ran, "called")[1]["text"].as_str().unwrap().to_owned();
    assert!(!pad.contains("bell"), "a scratchpad is one conversation's: {pad}");
    assert_eq!(events(&ran, "ended")[0]["text"], "Still green.");
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn an_endpoint_makes_the_vectors_of_notes() {
    let model = Model::new([
        ScriptStep::call("memory_save", json!({ "content": "The user's bicycle is green." })),
        // The scripted vectors are all alike: every question is like every note.
        ScriptStep::call("memory_search", json!({ "query": "zebra", "min_score": 0.0 })),
        ScriptStep::text("Done.").expect("bicycle is green"),
    ]);
    let desk = model.desk();
    let url = format!("memory.embeddings_url={}", model.url());
    let more = ["--set", &url, "--set", "memory.embeddings_model=scripted", "--set", "memory.weight_meaning=1"];
    let run = ["run", "remember", "--json", "--dialect", "oxydra", "--mode", "bypassPermissions"];
    let ran = desk.run(&[&run[..], &more[..]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn notes_are_found_by_words_where_no_model_makes_vectors() {
    for set in ["memory.embeddings_url=http://127.0.0.1:9/v1", "memory.model=nowhere"] {
        let model = Model::new([
            ScriptStep::call("memory_save", json!({ "content": "The user's bicycle is green." })),
            ScriptStep::call("memory_search", json!({ "query": "green bicycle" })),
            ScriptStep::text("Done.").expect("bicycle is green"),
        ]);
        let desk = model.desk();
        let ran = desk.run(&["run", "remember", "--dialect", "oxydra", "--mode", "bypassPermissions", "--set", set]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(model.violations(), Vec::<String>::new());
    }
}
