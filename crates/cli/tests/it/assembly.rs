//! Checks that every command assembles its sessions in the same way: agents, summaries, secrets and timeouts are equal
//! in `helve call`, `helve mcp` and `helve run`.

use helve_script::ScriptStep;
use serde_json::json;

use crate::{
    desk::Desk,
    mcp_client::{call_tools, exchange, list_tools, text},
    model::Model,
};

#[test]
fn a_sub_agent_works_over_mcp_and_from_the_command_line() {
    let order = json!({ "description": "look", "prompt": "Look around.", "subagent_type": "general-purpose" });
    let model = Model::new([ScriptStep::text("The agent looked.").expect("Look around.")]);
    let result = &call_tools(&model.desk(), &["--dialect", "claude"], &[("Agent", order.clone())])[0];
    assert!(text(result).contains("The agent looked."), "{result}");

    let model = Model::new([ScriptStep::text("The agent looked.").expect("Look around.")]);
    let ran = model.desk().run(&["call", "Agent", &order.to_string(), "--dialect", "claude"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    assert!(ran.out.contains("The agent looked."), "{}", ran.out);

    let model = Model::new([ScriptStep::text("The child found it.").expect("Find it.")]);
    let spawn = json!({ "message": "Find it.", "task": "Find it.", "prompt": "Find it." });
    let ran = model.desk().run(&["call", "sessions_spawn", &spawn.to_string(), "--dialect", "solo"]);
    assert!(ran.out.contains("The child found it."), "{} {}", ran.out, ran.err);
}

#[test]
fn a_session_over_mcp_hears_how_to_follow_an_agent_in_the_background() {
    let order = json!({
        "description": "count", "prompt": "Count.", "subagent_type": "general-purpose", "run_in_background": true,
        "name": "counter",
    });
    let model = Model::new([ScriptStep::text("Three files.").expect("Count.")]);
    let output = json!({ "task_id": "counter", "block": true });
    let calls = [("Agent", order.clone()), ("TaskOutput", output)];
    let results = call_tools(&model.desk(), &["--dialect", "claude"], &calls);
    let started = text(&results[0]);
    assert!(started.contains("No message comes when it has ended: read the output of task"), "{started}");
    assert!(text(&results[1]).contains("Three files."), "{}", results[1]);

    // The process of `helve call` ends with the call, and an agent with it.
    let model = Model::new([]);
    let ran = model.desk().run(&["call", "Agent", &order.to_string(), "--dialect", "claude"]);
    assert!(ran.code == 1 && ran.out.contains("would end with this call"), "{} {}", ran.out, ran.err);
    assert_eq!(model.requests().len(), 0);
}

#[test]
fn a_client_hears_of_plan_mode() {
    let instructions = |args: &[&str]| {
        let hello = exchange(&Desk::new(), args, &[]).remove(0);
        hello["instructions"].as_str().unwrap().to_owned()
    };
    let plan = instructions(&["--dialect", "claude", "--set", "approval.mode=plan"]);
    assert!(plan.contains("Plan mode is on.") && plan.contains("show it with ExitPlanMode"), "{plan}");
    let solo = instructions(&["--dialect", "solo", "--set", "approval.mode=plan"]);
    assert!(solo.contains("Plan mode is on.") && !solo.contains("ExitPlanMode"), "{solo}");
    assert!(!instructions(&["--dialect", "claude"]).contains("Plan mode"));
}

#[test]
fn the_list_of_agents_names_the_configured_model() {
    let model = Model::new([]);
    let desk = model.desk();
    let listed = call_tools(&desk, &["--dialect", "solo"], &[("agents_list", json!({}))]).remove(0);
    assert!(text(&listed).contains("model=scripted"), "{listed}");
    let ran = desk.run(&["call", "agents_list", "{}", "--dialect", "solo"]);
    assert!(ran.out.contains("model=scripted"), "{}", ran.out);
    let ran = Desk::new().run(&["call", "agents_list", "{}", "--dialect", "solo"]);
    assert!(ran.out.contains("model=unknown"), "{}", ran.out);
}

#[test]
fn keys_that_helve_finds_by_itself_do_not_leave() {
    for name in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "EXA_API_KEY", "BRAVE_API_KEY", "TAVILY_API_KEY"] {
        let key = "k3y-0f-s0me-pr0vider-77aa";
        let desk = Desk::new().env(name, key);
        let fetch = json!({ "url": format!("https://example.org/?q={key}"), "prompt": "x" }).to_string();
        let ran = desk.run(&["call", "WebFetch", &fetch, "--dialect", "claude"]);
        assert!(ran.code == 1 && ran.out.contains("secret"), "{name}: {} {}", ran.out, ran.err);
        desk.put("work/a.txt", &format!("the key is {key}\n"));
        let read = desk.run(&["call", "read", r#"{"path":"a.txt"}"#, "--dialect", "preset"]);
        assert!(read.code == 0 && !read.out.contains(key), "{name}: {}", read.out);
    }
    // Variables that settings name: of a channel, and of an MCP server.
    let desk = Desk::new().env("HOOK_KEY", "wh-secret-123456789").env("HUB_TOKEN", "hub-token-987654321");
    desk.put(
        "home/.config/helve/helve.toml",
        "[channels.ops]\nkind = \"webhook\"\nurl = \"https://example.org/x\"\nsecret_env = \"HOOK_KEY\"\nallow = [\"*\"]\n\
         [mcp.servers.hub]\nurl = \"http://127.0.0.1:9/mcp\"\nenabled = false\n\
         headers = { Authorization = \"Bearer ${HUB_TOKEN}\" }\n",
    );
    desk.put("work/a.txt", "wh-secret-123456789 and hub-token-987654321\n");
    let read = desk.run(&["call", "read", r#"{"path":"a.txt"}"#, "--dialect", "preset"]);
    assert_eq!(read.code, 0, "{} {}", read.out, read.err);
    assert!(!read.out.contains("wh-secret") && !read.out.contains("hub-token"), "{}", read.out);
}

#[test]
fn a_time_limit_changes_no_wording() {
    let desk = Desk::new();
    let call = |more: &[&str]| {
        let args = ["call", "shell_exec", r#"{"command":"echo out; exit 3"}"#, "--dialect", "oxydra"];
        desk.run(&args.iter().chain(more).copied().collect::<Vec<_>>()).out
    };
    let plain = call(&[]);
    assert!(plain.starts_with("Tool execution failed: "), "{plain}");
    assert_eq!(call(&["--set", "tools.shell.command_timeout_secs=7"]), plain);
    let slow = desk.run(&[
        "call",
        "shell_exec",
        r#"{"command":"sleep 60"}"#,
        "--dialect",
        "oxydra",
        "--set",
        "tools.shell.command_timeout_secs=1",
    ]);
    assert!(slow.code == 1 && slow.out.contains("1 s"), "{}", slow.out);
}

#[test]
fn what_cannot_work_is_not_offered() {
    let desk = Desk::new();
    let names = list_tools(&desk, &["--dialect", "oxydra"]);
    for absent in ["attachment_save", "send_media", "delegate_to_agent"] {
        assert!(!names.iter().any(|it| it == absent), "{absent} is listed: {names:?}");
    }
    assert!(names.iter().any(|it| it == "memory_save") && names.iter().any(|it| it == "schedule_create"), "{names:?}");
    let model = Model::new([]);
    let names = list_tools(&model.desk(), &["--dialect", "oxydra"]);
    assert!(names.iter().any(|it| it == "delegate_to_agent"), "{names:?}");

    let off = ["--dialect", "oxydra", "--set", "memory.enabled=false", "--set", "schedule.enabled=false"];
    let names = list_tools(&desk, &off);
    assert!(!names.iter().any(|it| it.starts_with("memory_") || it.starts_with("schedule_")), "{names:?}");
    assert!(names.iter().any(|it| it == "scratchpad_write"), "{names:?}");
}

#[test]
fn the_limit_of_replies_is_a_setting() {
    let desk = Desk::new();
    desk.put("work/long.txt", &"0123456789abcdef\n".repeat(4_000));
    let read = |more: &[&str]| {
        let args = ["call", "file_read", r#"{"path":"/shared/long.txt"}"#, "--dialect", "oxydra"];
        desk.run(&args.iter().chain(more).copied().collect::<Vec<_>>()).out
    };
    let (usual, small) = (read(&[]), read(&["--set", "tools.max_output_bytes=2048"]));
    assert!(usual.len() > 12_000 && usual.len() < 20_000, "{}", usual.len());
    assert!(small.len() > 1_000 && small.len() < 2_700, "{}", small.len());
    assert!(small.contains("original size: 68,000 bytes"), "{small}");
}
