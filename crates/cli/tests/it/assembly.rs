//! Every surface assembles its sessions in the same way: agents, summaries, secrets and time limits are the same in
//! `helve call`, `helve mcp` and `helve run`.

use helve_script::Step;
use serde_json::{Value, json};

use crate::{desk::Desk, model::Model};

/// The replies of `helve mcp` to calls of tools, in order.
fn over_mcp(desk: &Desk, args: &[&str], calls: &[(&str, Value)]) -> Vec<Value> {
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let mut lines = vec![hello, json!({"jsonrpc": "2.0", "method": "notifications/initialized"})];
    for (id, (name, args)) in calls.iter().enumerate() {
        let params = json!({ "name": name, "arguments": args });
        lines.push(json!({"jsonrpc": "2.0", "id": id + 1, "method": "tools/call", "params": params}));
    }
    let input = lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n") + "\n";
    let all: Vec<&str> = ["mcp"].iter().chain(args).copied().collect();
    let ran = desk.fed(&all, &input);
    let mut replies: Vec<Value> = ran.out.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    replies.retain(|it| it["id"].as_u64().is_some_and(|id| id > 0));
    replies.sort_by_key(|it| it["id"].as_u64());
    assert_eq!(replies.len(), calls.len(), "{} {}", ran.out, ran.err);
    replies.into_iter().map(|it| it["result"].clone()).collect()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

#[test]
fn a_sub_agent_works_over_mcp_and_from_the_command_line() {
    let order = json!({ "description": "look", "prompt": "Look around.", "subagent_type": "general-purpose" });
    let model = Model::new([Step::text("The agent looked.").expect("Look around.")]);
    let result = &over_mcp(&model.desk(), &["--dialect", "claude"], &[("Agent", order.clone())])[0];
    assert!(text(result).contains("The agent looked."), "{result}");

    let model = Model::new([Step::text("The agent looked.").expect("Look around.")]);
    let ran = model.desk().run(&["call", "Agent", &order.to_string(), "--dialect", "claude"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    assert!(ran.out.contains("The agent looked."), "{}", ran.out);

    let model = Model::new([Step::text("The child found it.").expect("Find it.")]);
    let spawn = json!({ "message": "Find it.", "task": "Find it.", "prompt": "Find it." });
    let ran = model.desk().run(&["call", "sessions_spawn", &spawn.to_string(), "--dialect", "solo"]);
    assert!(ran.out.contains("The child found it."), "{} {}", ran.out, ran.err);
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

/// The names that `tools/list` of `helve mcp` has.
fn listed(desk: &Desk, args: &[&str]) -> Vec<String> {
    let lines = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
    ];
    let input = lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n") + "\n";
    let all: Vec<&str> = ["mcp"].iter().chain(args).copied().collect();
    let ran = desk.fed(&all, &input);
    let replies: Vec<Value> = ran.out.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let list = replies.iter().find(|it| it["id"] == 2).unwrap_or_else(|| panic!("{} {}", ran.out, ran.err));
    list["result"]["tools"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_cannot_work_is_not_offered() {
    let desk = Desk::new();
    let names = listed(&desk, &["--dialect", "oxydra"]);
    for absent in ["attachment_save", "send_media", "delegate_to_agent"] {
        assert!(!names.iter().any(|it| it == absent), "{absent} is listed: {names:?}");
    }
    assert!(names.iter().any(|it| it == "memory_save") && names.iter().any(|it| it == "schedule_create"), "{names:?}");
    let model = Model::new([]);
    let names = listed(&model.desk(), &["--dialect", "oxydra"]);
    assert!(names.iter().any(|it| it == "delegate_to_agent"), "{names:?}");

    let off = ["--dialect", "oxydra", "--set", "memory.enabled=false", "--set", "schedule.enabled=false"];
    let names = listed(&desk, &off);
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
