//! A scripted server, good or bad: this test program, started again.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, Write, stdin, stdout},
    path::{Path, PathBuf},
    process::exit,
};

use helve_mcp::client::{McpClientConfig, Transport};
use serde_json::{Value, json};

/// How the fake server is started; it keeps its files in a directory.
pub(crate) fn settings(name: &str, folder: &Path, mode: &str) -> McpClientConfig {
    let args = ["--ignored", "--exact", "fake_server::serve", "--nocapture", "--test-threads=1"];
    let env = [("FAKE_DIR", folder.to_str().unwrap()), ("FAKE_MODE", mode)];
    McpClientConfig::new(
        name,
        Transport::Stdio {
            command: env::current_exe().unwrap().to_str().unwrap().to_owned(),
            args: args.map(str::to_owned).into(),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect::<BTreeMap<_, _>>(),
            cwd: None,
        },
    )
}

#[test]
#[ignore = "the other end of the pipe, started by the stories"]
fn serve() {
    let Some(folder) = env::var_os("FAKE_DIR").map(PathBuf::from) else { return };
    let mut fake = Fake { folder, waiting: Value::Null, log: Vec::new(), grown: false };
    // The harness has begun a line.
    println!();
    match env::var("FAKE_MODE").unwrap().as_str() {
        "dead" => {
            eprintln!("no database here");
            exit(3);
        }
        "noisy" => {
            println!(
                "[db] Connected\n{{\"half\": \n{{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{{}}}}\n17\n\u{1b}[2J"
            );
            println!("{{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{{}}}}");
            eprintln!("{}", "chatter ".repeat(40_000));
        }
        "mute" => loop {
            Fake::next();
        },
        _ => {}
    }
    loop {
        let message = Fake::next();
        fake.handle(&message);
    }
}

struct Fake {
    folder: PathBuf,
    waiting: Value,
    log: Vec<String>,
    grown: bool,
}

impl Fake {
    fn next() -> Value {
        let mut line = String::new();
        if stdin().lock().read_line(&mut line).unwrap() == 0 {
            exit(0);
        }
        serde_json::from_str(&line).unwrap()
    }

    fn send(message: &Value) {
        let mut out = stdout().lock();
        writeln!(out, "{message}").unwrap();
        out.flush().unwrap();
    }

    fn handle(&mut self, message: &Value) {
        let (method, params) = (message["method"].as_str().unwrap_or_default(), &message["params"]);
        let result = match method {
            "initialize" => json!({
                "protocolVersion": "2025-03-26",
                "capabilities": { "tools": { "listChanged": true }, "resources": {} },
                "serverInfo": { "name": "fake", "version": "1" },
            }),
            "tools/list" => self.page(params),
            "tools/call" => return self.call(&message["id"], params),
            "resources/list" => json!({ "resources": [
                { "uri": "note://1", "name": "Note\u{200b}", "mimeType": "text/plain", "description": "A note." },
                { "uri": "blob://1", "name": "Blob" },
            ] }),
            "resources/read" if params["uri"] == "note://1" => {
                json!({ "contents": [{ "uri": "note://1", "mimeType": "text/plain", "text": "remember\u{1b}[2J" }] })
            }
            "resources/read" if params["uri"] == "blob://1" => {
                json!({ "contents": [{ "uri": "blob://1", "mimeType": "image/png", "blob": "iVBORw==" }] })
            }
            "resources/read" => {
                let error = json!({ "code": -32002, "message": "no such resource" });
                return Self::send(&json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }));
            }
            "ping" => json!({}),
            _ => {
                let cancelled = method == "notifications/cancelled" && params["requestId"] == self.waiting;
                self.log.push(if cancelled { "cancelled".to_owned() } else { method.to_owned() });
                return;
            }
        };
        Self::send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
    }

    /// The tools, in two pages.
    fn page(&self, params: &Value) -> Value {
        let described = fs::read_to_string(self.folder.join("description")).unwrap_or("Says it back.".into());
        let text = json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] });
        let tool = |name: &str| json!({ "name": name, "description": "Does it.", "inputSchema": { "type": "object" } });
        if params["cursor"].is_null() {
            let annotations = json!({ "readOnlyHint": true });
            let echo =
                json!({ "name": "echo", "description": described, "inputSchema": text, "annotations": annotations });
            return json!({ "tools": [echo, tool("a-b"), tool("a_b")], "nextCursor": "more" });
        }
        let names = [
            "fail", "refuse", "count", "wait", "log", "crash", "flood", "picture", "shape", "link", "grow", "ask",
            "twice",
        ];
        let mut tools: Vec<Value> = names.into_iter().map(tool).collect();
        tools.push(json!({ "name": "far", "inputSchema": { "$ref": "https://evil.example/x.json" } }));
        if self.grown {
            tools.push(tool("late"));
        }
        json!({ "tools": tools })
    }

    fn call(&mut self, id: &Value, params: &Value) {
        let text = |words: &str| json!({ "content": [{ "type": "text", "text": words }] });
        let answer = |result: Value| Self::send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
        match params["name"].as_str().unwrap() {
            "echo" => answer(text(params["arguments"]["text"].as_str().unwrap())),
            "fail" => answer(json!({ "content": [{ "type": "text", "text": "it broke" }], "isError": true })),
            "refuse" => {
                Self::send(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32602, "message": "not so" } }));
            }
            "count" => {
                for step in 1..=3 {
                    let params = json!({
                        "progressToken": params["_meta"]["progressToken"], "progress": step, "total": 3, "message": "step",
                    });
                    Self::send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }));
                }
                answer(text("counted"));
            }
            "wait" => {
                self.waiting = id.clone();
                let params =
                    json!({ "progressToken": params["_meta"]["progressToken"], "progress": 1, "message": "waiting" });
                Self::send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }));
            }
            "log" => answer(text(&self.log.join(","))),
            "crash" => {
                eprintln!("out of cheese");
                exit(3);
            }
            "flood" => answer(text(&"x".repeat(9 << 20))),
            "picture" => answer(json!({ "content": [
                { "type": "image", "mimeType": "image/jpeg", "data": "iVBORw==" },
                { "type": "image", "mimeType": "image/png", "data": "PHN2Zz4=" },
            ] })),
            "shape" => answer(json!({ "content": [], "structuredContent": { "sum": 3 } })),
            "link" => answer(json!({ "content": [
                { "type": "resource_link", "uri": "note://1", "name": "Note" },
                { "type": "resource", "resource": { "uri": "note://2", "text": "inside" } },
            ] })),
            "grow" => {
                self.grown = true;
                Self::send(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
                answer(text("grown"));
            }
            "ask" => {
                let mut heard = Vec::new();
                for method in ["ping", "roots/list", "sampling/createMessage", "elicitation/create"] {
                    Self::send(&json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": {} }));
                    let said = Self::next();
                    heard.push(if said["error"].is_null() {
                        said["result"].to_string()
                    } else {
                        said["error"]["code"].to_string()
                    });
                }
                answer(text(&heard.join(" ")));
            }
            "twice" => {
                answer(text("first"));
                answer(text("second"));
            }
            name @ ("a-b" | "a_b") => answer(text(&format!("ran {name}"))),
            _ => answer(text("late indeed")),
        }
    }
}
