//! `helve mcp install`: an entry in another program's settings.

use serde_json::{Value, json};

use crate::desk::Desk;

#[test]
fn shows_asks_and_keeps_the_old_file() {
    let desk = Desk::new();
    let old = "{\n  \"theme\": \"dark\"\n}\n";
    desk.put("home/.claude.json", old);
    let ran = desk.run(&["mcp", "install", "claude-code", "--dialect", "solo"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("+  \"mcpServers\": {") && ran.err.contains("nothing was written"), "{:?}", ran.all());
    assert_eq!(desk.get("home/.claude.json"), old);

    let ran = desk.run(&["mcp", "install", "claude-code", "--dialect", "solo", "--yes"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let new: Value = serde_json::from_str(&desk.get("home/.claude.json")).unwrap();
    assert_eq!(new["theme"], "dark");
    let entry = &new["mcpServers"]["helve"];
    assert_eq!((&entry["type"], &entry["args"]), (&json!("stdio"), &json!(["mcp", "--dialect", "solo"])));
    assert_eq!(desk.get("home/.claude.json.before-helve-1"), old);
    let ran = desk.run(&["mcp", "install", "claude-code", "--dialect", "solo", "--yes"]);
    assert_eq!(ran.all(), (0, "DESK/home/.claude.json has this entry already\n", ""));
}

#[test]
fn makes_the_file_of_each_client() {
    let desk = Desk::new();
    for (client, file) in [
        ("codex", "home/.codex/config.toml"),
        ("opencode", "home/.config/opencode/opencode.json"),
        ("cursor", "home/.cursor/mcp.json"),
        ("vscode", "work/.vscode/mcp.json"),
        ("zed", "home/.config/zed/settings.json"),
    ] {
        let ran = desk.run(&["mcp", "install", client, "--yes"]);
        assert_eq!(ran.code, 0, "{client}: {}", ran.err);
        assert!(desk.get(file).contains("helve"), "{client}");
    }
}

#[test]
fn leaves_comments_alone() {
    let desk = Desk::new();
    let old = "{\n  // mine\n  \"vim_mode\": true\n}\n";
    desk.put("home/.config/zed/settings.json", old);
    let ran = desk.run(&["mcp", "install", "zed", "--yes"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("Add this by hand:") && ran.err.contains("context_servers"), "{}", ran.err);
    assert_eq!(desk.get("home/.config/zed/settings.json"), old);
}

#[test]
fn many_at_once_follow_each_other() {
    let desk = Desk::new();
    desk.put("home/.cursor/mcp.json", "{\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }\n  }\n}\n");
    let roles = ["captain", "type1", "type2", "type3", "refinery", "executor"];
    std::thread::scope(|scope| {
        for role in roles {
            let desk = &desk;
            scope.spawn(move || {
                let ran = desk.run(&["mcp", "install", "cursor", "--dialect", "forge", "--role", role, "--yes"]);
                assert_eq!(ran.code, 0, "{role}: {}", ran.err);
            });
        }
    });
    let new: Value = serde_json::from_str(&desk.get("home/.cursor/mcp.json")).unwrap();
    assert_eq!(new["mcpServers"]["other"]["command"], "x");
    // Every version but the last one is kept, the first one among them; none of them is half.
    let kept: Vec<Value> = (1..=roles.len())
        .map(|at| serde_json::from_str(&desk.get(&format!("home/.cursor/mcp.json.before-helve-{at}"))).unwrap())
        .collect();
    let role = |it: &Value| it["mcpServers"]["helve"]["args"][4].as_str().map(str::to_owned);
    let mut seen: Vec<_> = kept.iter().chain([&new]).filter_map(role).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["captain", "executor", "refinery", "type1", "type2", "type3"]);
}
