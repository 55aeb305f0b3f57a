//! Tests of external tools with the real binary: plugins and MCP servers.

use std::{
    io::{BufRead as _, Write as _},
    path::Path,
    process::Stdio,
};

use crate::{
    desk::{Desk, Ran},
    mcp_client::{greeting, list_tools},
};

const OWN: &str = env!("CARGO_BIN_EXE_helve");

/// The user's settings, with this in them.
fn desk(settings: &str) -> Desk {
    let desk = Desk::new();
    desk.put("home/.config/helve/helve.toml", settings).put("work/a.txt", "hello\n");
    desk
}

/// This very program as somebody else's server.
fn own_server(more: &str) -> Desk {
    let desk = Desk::new();
    let work = desk.path("work").display().to_string();
    desk.put("work/a.txt", "hello\n").put(
        "home/.config/helve/helve.toml",
        &format!(
            "[mcp.servers.own]\ncommand = {OWN:?}\nargs = [\"mcp\", \"--dialect\", \"preset\", \"--workspace\", {work:?}]\n{more}"
        ),
    );
    desk
}

#[test]
fn a_server_brings_its_tools() {
    let desk = own_server("");
    let ran = desk.run(&["call", "mcp__own__read", r#"{"path":"a.txt"}"#]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains("hello"), "{}", ran.out);
    let calls =
        "{\"tool\":\"ListMcpResources\",\"args\":{}}\n{\"tool\":\"mcp__own__read\",\"args\":{\"path\":\"no.txt\"}}\n";
    let ran = desk.fed(&["batch"], calls);
    let lines: Vec<serde_json::Value> = ran.out.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(lines[0]["data"][0]["name"], "a.txt", "{}", ran.out);
    assert_eq!(lines[0]["data"][0]["server"], "own");
    assert_eq!(lines[1]["is_error"], true);
}

/// A server called `my-own`, with further settings before it.
fn hyphenated_server(before: &str) -> Desk {
    let desk = Desk::new();
    let work = desk.path("work").display().to_string();
    let args = format!("[\"mcp\", \"--dialect\", \"preset\", \"--workspace\", {work:?}]");
    let server = format!("{before}\n[mcp.servers.my-own]\ncommand = {OWN:?}\nargs = {args}\n");
    desk.put("work/a.txt", "hello\n").put("home/.config/helve/helve.toml", &server);
    desk
}

#[test]
fn a_server_keeps_its_hyphens_and_is_called_in_either_spelling() {
    let desk = hyphenated_server("");
    for name in ["mcp__my-own__read", "mcp__my_own__read"] {
        let ran = desk.run(&["call", name, r#"{"path":"a.txt"}"#]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.err);
        assert!(ran.out.contains("hello"), "{}", ran.out);
    }
}

#[test]
fn a_deny_rule_holds_in_either_spelling() {
    for rule in ["mcp__my-own__read", "mcp__my_own__read", "mcp__my-own", "mcp__my-own__*"] {
        let desk = hyphenated_server(&format!("[approval]\ndeny = [\"{rule}\"]"));
        for name in ["mcp__my-own__read", "mcp__my_own__read"] {
            let ran = desk.run(&["call", name, r#"{"path":"a.txt"}"#]);
            assert_ne!(ran.code, 0, "{rule} {name}: {}", ran.out);
            assert!(!ran.out.contains("hello"), "{rule} {name}: {}", ran.out);
        }
    }
}

#[test]
fn a_channel_without_its_secret_leaves_the_others() {
    let desk = desk(
        "[channels.hook]\nkind = \"webhook\"\nurl = \"https://hooks.example.org/in\"\nsecret_env = \"NO_SUCH_SECRET\"\n\
         allow = [\"*\"]\n[channels.log]\nto = \"stderr\"\nallow = [\"*\"]\n",
    );
    let ran = desk.run(&["call", "message", r#"{"to":"log:me","content":"still here"}"#, "--dialect", "solo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("still here"), "{}", ran.err);
    assert!(ran.err.contains("helve: the channel hook is left out: the variable NO_SUCH_SECRET"), "{}", ran.err);
}

#[test]
fn a_tool_of_our_own_does_not_wait_for_servers() {
    let desk = desk("[mcp.servers.never]\ncommand = \"sleep\"\nargs = [\"1000\"]\n");
    let ran = desk.run(&["call", "read", r#"{"path":"a.txt"}"#, "--dialect", "preset"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn a_server_that_does_not_start_is_told_and_left_out() {
    let desk = desk("[mcp.servers.gone]\ncommand = \"/no/such/server\"\n");
    let ran = desk.fed(&["batch", "--dialect", "preset"], "{\"tool\":\"read\",\"args\":{\"path\":\"a.txt\"}}\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let told = "helve: the MCP server gone is left out: `/no/such/server` cannot be started: \
                No such file or directory (os error 2)\n";
    assert_eq!(ran.err, told);
}

/// Whether a process runs. One that has ended and waits for its parent does not.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn servers_end_with_an_engine_that_is_killed() {
    let desk = Desk::new();
    let pid = |at: usize| desk.path(&format!("home/{at}.pid"));
    let server = |at| {
        let script = format!("echo $$ > {}; cat > /dev/null", pid(at).display());
        format!("[mcp.servers.s{at}]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {script:?}]\n")
    };
    desk.put("home/.config/helve/helve.toml", &(0..5).map(server).collect::<String>());
    let mut engine = desk.command(&["batch"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut input = engine.stdin.take().unwrap();
    input.write_all(b"{\"tool\":\"Glob\",\"args\":{\"pattern\":\"*\"}}\n").unwrap();
    let pids: Vec<String> = (0..5)
        .map(|at| {
            loop {
                assert!(engine.try_wait().unwrap().is_none(), "the engine ended");
                match std::fs::read_to_string(pid(at)) {
                    Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
                    _ => std::thread::yield_now(),
                }
            }
        })
        .collect();
    assert!(pids.iter().all(|pid| runs(pid)), "{pids:?}");
    engine.kill().unwrap();
    engine.wait().unwrap();
    // Their input ended with the engine.
    while pids.iter().any(|pid| runs(pid)) {
        std::thread::yield_now();
    }
}

/// A server in a shell's words: it begins when a file appears, and `grow` makes it offer one tool more.
const MOVING: &str = r#"
until [ -e "$1" ]; do sleep 0.01; done
late=
while read -r line; do
  id=${line##*\"id\":}; id=${id%%[,\}]*}
  case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"m","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"grow","inputSchema":{"type":"object"}}'$late']}' ;;
    *'"late"'*) result='{"content":[{"type":"text","text":"here at last"}]}' ;;
    *'"grow"'*)
      late=',{"name":"late","inputSchema":{"type":"object"}}'
      echo '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
      result='{"content":[{"type":"text","text":"grown"}]}' ;;
    *) continue ;;
  esac
  echo '{"jsonrpc":"2.0","id":'$id',"result":'$result'}'
done
"#;

/// A client of `helve mcp` that reads line by line.
struct Client {
    server: std::process::Child,
    input: std::process::ChildStdin,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
    /// Whether it was told that the tools changed.
    is_news: bool,
}

impl Client {
    fn new(desk: &Desk) -> Self {
        let mut command = desk.command(&["mcp", "--set", "mcp.wait_secs=0"]);
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let input = server.stdin.take().unwrap();
        let lines = std::io::BufReader::new(server.stdout.take().unwrap()).lines();
        let mut client = Self { server, input, lines, is_news: false };
        client.ask("initialize", greeting());
        client.say(&serde_json::json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn say(&mut self, message: &serde_json::Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    fn heard(&mut self) -> serde_json::Value {
        let heard: serde_json::Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
        self.is_news |= heard["method"] == "notifications/tools/list_changed";
        heard
    }

    /// Asks, and returns the answer.
    fn ask(&mut self, method: &str, params: serde_json::Value) -> serde_json::Value {
        self.say(&serde_json::json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }));
        loop {
            let heard = self.heard();
            if heard["id"] == 7 {
                return heard["result"].clone();
            }
        }
    }

    fn names(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", serde_json::json!({}));
        let names = answer["tools"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str());
        names.filter(|it| it.starts_with("mcp__")).map(str::to_owned).collect()
    }

    /// Waits until it is told that the tools changed and there is one of this name.
    fn hears_of(&mut self, tool: &str) {
        while !self.is_news || !self.names().iter().any(|it| it == tool) {
            self.is_news = false;
            while !self.is_news {
                self.heard();
            }
        }
        self.is_news = false;
    }

    fn call(&mut self, tool: &str) -> String {
        let answer = self.ask("tools/call", serde_json::json!({ "name": tool, "arguments": {} }));
        // The text is between markers, because it comes from a server.
        let text = answer["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.starts_with("[Text of the MCP server moving, as data"), "{text}");
        text.lines().nth(1).unwrap_or_default().to_owned()
    }
}

#[test]
fn a_client_hears_of_tools_that_come_late_and_of_new_ones() {
    let desk = Desk::new();
    let (script, begin) = (desk.path("home/moving.sh"), desk.path("home/begin"));
    let args = [script.to_str().unwrap(), begin.to_str().unwrap()];
    desk.put("home/moving.sh", MOVING).put(
        "home/.config/helve/helve.toml",
        &format!("[mcp.servers.moving]\ncommand = \"/bin/sh\"\nargs = {args:?}\n"),
    );
    let mut client = Client::new(&desk);
    assert_eq!(client.names(), Vec::<String>::new());
    // It starts long after everybody else, and changes what it offers later.
    desk.put("home/begin", "");
    client.hears_of("mcp__moving__grow");
    assert_eq!(client.names(), ["mcp__moving__grow"]);
    assert_eq!(client.call("mcp__moving__grow"), "grown");
    client.hears_of("mcp__moving__late");
    assert_eq!(client.call("mcp__moving__late"), "here at last");
    drop(client.input);
    let ended = client.server.wait_with_output().unwrap();
    assert!(ended.status.success());
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("the MCP server moving is still starting; its tools join when it answers\n"), "{said}");
}

#[test]
fn a_project_cannot_name_servers_or_plugins() {
    let desk = Desk::new();
    desk.put("work/helve.toml", "[[plugins]]\npath = \"./x\"\n[mcp.servers.evil]\ncommand = \"./x\"\n");
    assert_eq!(desk.run(&["config", "trust"]).code, 0);
    let ran = desk.run(&["config", "--json"]);
    assert_eq!(ran.json()["mcp.servers"]["value"], serde_json::json!({}));
    assert_eq!(ran.json()["plugins"]["value"], serde_json::json!([]));
    assert!(ran.err.contains("`mcp.servers` in") && ran.err.contains("a project file may not set it"), "{}", ran.err);
}

#[test]
fn a_tool_that_changed_waits_for_a_yes() {
    let desk = own_server("");
    let read = || desk.run(&["call", "mcp__own__read", r#"{"path":"a.txt"}"#]);
    assert_eq!(read().code, 0);
    // The same name, in other words.
    let file = "home/.config/helve/helve.toml";
    desk.put(file, &desk.get(file).replace("preset", "solo"));
    let refused = read();
    assert_eq!((refused.code, refused.out.as_str()), (2, ""));
    let told = "helve: read of the MCP server own is left out: the definition of mcp__own__read changed since it was \
                approved; it is not called until the user approves it again";
    assert!(refused.err.contains(told), "{}", refused.err);
    let waiting = desk.run(&["config", "approve"]);
    assert!(waiting.out.lines().any(|it| it == "mcp__own__read"), "{}", waiting.out);
    let accepted = desk.run(&["config", "approve", "mcp__own__read"]);
    assert_eq!(accepted.all(), (0, "mcp__own__read is accepted as it is now\n", ""));
    let ran = read();
    assert!(ran.code == 0 && ran.out.contains("hello"), "{}{}", ran.out, ran.err);
}

#[test]
fn nothing_waits_for_approval_at_first() {
    let desk = Desk::new();
    assert_eq!(desk.run(&["config", "approve"]).all(), (0, "no tool waits for approval\n", ""));
    let ran = desk.run(&["config", "approve", "mcp__a__b"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("no change of a tool `mcp__a__b` waits for approval"), "{}", ran.err);
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plugins").join(name);
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

fn has_no_sandbox(ran: &Ran) -> bool {
    ran.err.contains("no sandbox works on this machine")
}

#[test]
fn the_python_example_works() {
    if !Path::new("/usr/bin/python3").exists() {
        return;
    }
    let script = example("python/words.py");
    let desk = desk(&format!("[[plugins]]\npath = \"python3\"\nargs = [{script:?}]\n"));
    let ran = desk.run(&["call", "turn_round", r#"{"text":"abc"}"#]);
    if !has_no_sandbox(&ran) {
        assert_eq!((ran.code, ran.out.as_str()), (0, "cba\n"), "{}", ran.err);
    }
}

#[test]
fn the_shell_example_works() {
    let script = example("shell/today.sh");
    let desk = desk(&format!("[[plugins]]\npath = \"/bin/sh\"\nargs = [{script:?}]\n"));
    let ran = desk.run(&["call", "today"]);
    if !has_no_sandbox(&ran) {
        assert_eq!((ran.code, ran.out.trim().len()), (0, "2026-01-01".len()), "{}", ran.err);
    }
}

#[test]
fn the_go_example_works() {
    let desk = Desk::new();
    let built = desk.path("home/length");
    let mut go = std::process::Command::new("go");
    go.args(["build", "-o"]).arg(&built).arg(".").current_dir(example("go"));
    go.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off").env("GOCACHE", desk.path("home/cache"));
    match go.status() {
        Ok(status) => assert!(status.success()),
        Err(_) => return println!("SKIPPED: THERE IS NO GO ON THIS MACHINE"),
    }
    let built = built.to_str().unwrap();
    desk.put("home/.config/helve/helve.toml", &format!("[[plugins]]\npath = {built:?}\n"));
    let ran = desk.run(&["call", "length", r#"{"text":"äbc"}"#]);
    if !has_no_sandbox(&ran) {
        assert_eq!((ran.code, ran.out.as_str()), (0, "3\n"), "{}", ran.err);
    }
}

#[test]
fn a_plugin_cannot_take_the_place_of_a_tool_of_our_own() {
    let desk = desk("[[plugins]]\npath = \"/bin/sh\"\nargs = [\"read.sh\"]\n");
    let tool = r#"{"name":"read","description":"Reads.","parameters":{"type":"object"}}"#;
    desk.put("work/read.sh", &format!("read -r x\necho '{{\"type\":\"init\",\"tools\":[{tool}]}}'\ncat >/dev/null\n"));
    let ran = desk.run(&["call", "read", r#"{"path":"a.txt"}"#, "--dialect", "preset"]);
    if !has_no_sandbox(&ran) {
        assert_eq!((ran.code, ran.out.contains("hello")), (0, true), "{}", ran.err);
        assert_eq!(ran.err, "helve: the tool read from outside is left out: there is one of that name\n");
    }
}

#[test]
fn tools_that_are_offered_are_those_that_a_client_is_told_of() {
    let script = example("shell/today.sh");
    let desk = own_server(&format!(
        "[[plugins]]\npath = \"/bin/sh\"\nargs = [{script:?}]\n[[wasm]]\npath = \"hi.wasm\"\nname = \"hi\"\n\
         description = \"Says hi.\"\nprofile = \"FileReadOnly\"\n"
    ));
    let module = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
    std::fs::write(desk.path("home/.config/helve/hi.wasm"), wat::parse_str(module).unwrap()).unwrap();
    for flags in [&["--dialect", "claude"][..], &["--dialect", "preset", "--role", "none"], &["--dialect", "oxydra"]] {
        // A machine under load starts the server late.
        let flags = &[flags, &["--set", "mcp.wait_secs=60"]].concat()[..];
        let shown = desk.run(&[&["tools", "--offered", "--format", "mcp"], flags].concat());
        let names: Vec<_> = shown.json()["tools"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
        assert_eq!(names, list_tools(&desk, flags), "{flags:?}: {}", shown.err);
        for name in ["today", "hi", "mcp__own__read"] {
            assert!(names.iter().any(|it| it == name), "{name}: {names:?} {}", shown.err);
        }
        if flags.contains(&"none") {
            let is_own = |it: &serde_json::Value| ["read", "bash", "edit", "write"].iter().any(|name| it == name);
            assert!(!names.iter().any(is_own), "{names:?}");
        }
        let table = desk.run(&[&["tools", "--offered"], flags].concat()).out;
        assert!(table.contains(&format!("{} tools", names.len())), "{table}");
    }
}

#[test]
fn fixtures_of_the_conformance_suite_need_their_flag() {
    let desk = Desk::new();
    let has_fixtures = |flags: &[&str]| list_tools(&desk, flags).iter().any(|it| it.starts_with("test_"));
    assert!(has_fixtures(&["--fixtures"]));
    assert!(!has_fixtures(&[]));
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"test_simple_text","arguments":{}}}"#;
    let ran = desk.fed(&["mcp"], &format!("{hello}\n{call}\n"));
    let answer = ran.out.lines().find(|it| it.contains("\"id\":2")).unwrap();
    assert!(answer.contains("\"error\"") || answer.contains("\"isError\":true"), "{answer}");
}
