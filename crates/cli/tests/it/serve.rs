//! `helve serve`: who is let in, what each address answers, and how it ends.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use helve_script::{ScriptStep, StreamFault};
use helve_web::channels::sign;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use crate::{
    desk::{Desk, mode},
    model::Model,
};

/// A server that says where it is.
pub(crate) struct Site {
    child: Child,
    pub(crate) said: BufReader<std::process::ChildStderr>,
    /// Address and port.
    pub(crate) at: String,
    token: String,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|it| it.split_once(": "));
        lines.find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Site {
    pub(crate) fn open(desk: &Desk) -> Self {
        Self::listening(desk, "127.0.0.1:0")
    }

    fn listening(desk: &Desk, at: &str) -> Self {
        Self::start(desk.command(&["serve", "--http", at]))
    }

    /// A server by this command.
    pub(crate) fn start(mut command: std::process::Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let line = line_with(&mut said, "?token=");
        let (at, token) = line.trim().split_once("http://").unwrap().1.split_once("/?token=").unwrap();
        Self { at: at.to_owned(), token: token.to_owned(), child, said }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Asks again and again until the answer is as wanted.
    pub(crate) fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = self.get(path);
            if answer.status == 200 && wanted(&answer.json()) {
                return answer.json();
            }
            assert!(Instant::now() < end, "{path}: {answer:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The questions that wait, once there are this many.
    pub(crate) fn pending(&self, count: usize) -> Vec<Value> {
        let board = self.until("/api/approvals", |it| it["pending"].as_array().unwrap().len() == count);
        board["pending"].as_array().unwrap().clone()
    }

    /// Sends bytes as they are.
    fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A server that has heard enough may close before all is said.
        _ = stream.write_all(request);
        let mut bytes = Vec::new();
        _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or_default();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn with(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.raw(self.request(method, path, headers, body).as_bytes())
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text.push_str(&format!("Host: {}\r\n", self.at));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        format!("{text}\r\n{body}")
    }

    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.with("GET", path, &[("Authorization", &self.bearer())], "")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.with("POST", path, &[("Authorization", &self.bearer()), ("Content-Type", "application/json")], body)
    }

    /// The first words of an MCP client, and then one request of its session: the answers to both.
    pub(crate) fn mcp(&self, method: &str, params: &Value) -> [Answer; 2] {
        let bearer = self.bearer();
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        let own = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {} });
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": own }).to_string();
        let hello = self.with("POST", "/mcp", &headers, &hello);
        let session = ("Mcp-Session-Id", hello.header("mcp-session-id").unwrap());
        let asked = json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": params }).to_string();
        let answer = self.with("POST", "/mcp", &[headers.as_slice(), &[session]].concat(), &asked);
        [hello, answer]
    }

    /// Ends it as a service manager does; the exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

pub(crate) fn line_with(said: &mut impl BufRead, mark: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "it ended without {mark}");
        if line.contains(mark) {
            return line;
        }
    }
}

#[test]
fn only_the_token_opens() {
    let desk = Desk::new();
    let site = Site::open(&desk);
    let file = desk.path("home/.local/state/helve/serve.token");
    assert_eq!((mode(&file), std::fs::read_to_string(&file).unwrap()), (0o600, format!("{}\n", site.token)));

    let health = site.with("GET", "/health", &[], "");
    assert_eq!((health.status, health.body.as_str()), (200, r#"{"status":"ok"}"#));
    for path in [
        "/metrics",
        "/events",
        "/api/tools",
        "/api/sessions",
        "/api/sessions/x",
        "/api/schedules",
        "/api/memory",
        "/api/doctor",
        "/api/policy",
        "/api/approvals",
        "/api/tasks",
        "/api/tasks/x",
        "/api/schedules/x/runs",
        "/api/jobs",
        "/api/forge",
        "/api/forge/x",
    ] {
        let answer = site.with("GET", path, &[], "");
        assert_eq!((answer.status, &answer.json()["code"]), (401, &json!("unauthorized")), "{path}");
    }
    assert_eq!(site.with("POST", "/api/call", &[("Content-Type", "application/json")], "{}").status, 401);
    for (method, path) in [
        ("POST", "/api/approvals/x"),
        ("POST", "/api/sessions"),
        ("POST", "/api/sessions/x/messages"),
        ("POST", "/api/sessions/x/stop"),
        ("POST", "/api/tasks/x/stop"),
        ("POST", "/api/schedules/x"),
        ("POST", "/api/jobs/x/retry"),
        ("POST", "/api/jobs/x/cancel"),
        ("POST", "/api/memory"),
        ("PUT", "/api/memory/x"),
        ("DELETE", "/api/memory/x"),
        ("POST", "/api/memory/x/release"),
        ("POST", "/api/forge/x/run"),
        ("POST", "/api/forge/x/cancel"),
        ("POST", "/api/forge/x/requests/y"),
    ] {
        let json = ("Content-Type", "application/json");
        let bearer = site.bearer();
        assert_eq!(site.with(method, path, &[json], "{}").status, 401, "{path}");
        // Whoever has the token is still refused where another page made the browser ask.
        for wrong in [("Host", "evil.example"), ("Origin", "http://evil.example"), ("Origin", "null")] {
            let answer = site.with(method, path, &[("Authorization", &bearer), json, wrong], "{}");
            assert_eq!((answer.status, &answer.json()["code"]), (403, &json!("forbidden")), "{path} {wrong:?}");
        }
    }
    assert_eq!(site.with("POST", "/mcp", &[("Content-Type", "application/json")], "{}").status, 401);
    assert_eq!(site.with("GET", "/", &[], "").status, 401);
    assert_eq!(site.with("GET", "/?token=guess", &[], "").status, 401);

    let bearer = site.bearer();
    let wrong = |name, value| site.with("GET", "/api/sessions", &[("Authorization", &bearer), (name, value)], "");
    for answer in [wrong("Host", "evil.example"), wrong("Origin", "http://evil.example"), wrong("Origin", "null")] {
        assert_eq!((answer.status, &answer.json()["code"]), (403, &json!("forbidden")));
    }

    let (token, at) = (site.token.clone(), site.at.clone());
    assert_eq!(site.stop(), Some(0));
    let again = Site::open(&desk);
    assert_eq!(again.token, token);
    assert_ne!(again.at, at);
    assert_eq!(again.stop(), Some(0));
}

#[test]
fn the_address_with_the_token_leads_to_the_page() {
    let desk = Desk::new();
    let site = Site::open(&desk);
    let opened = site.with("GET", &format!("/?token={}", site.token), &[], "");
    assert_eq!((opened.status, opened.header("location")), (303, Some("/")));
    let cookie = opened.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Strict") && !cookie.contains(&site.token), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();

    let page = site.with("GET", "/", &[("Cookie", cookie)], "");
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").unwrap();
    let nonce = policy.split_once("'nonce-").unwrap().1.split('\'').next().unwrap();
    assert!(policy.starts_with("default-src 'self'; script-src 'nonce-"), "{policy}");
    assert_eq!(page.body.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    assert!(!page.body.contains("{script}") && !page.body.contains("innerHTML") && !page.body.contains("https://"));

    assert_eq!(site.with("GET", "/api/sessions", &[("Cookie", cookie)], "").status, 200);
    // Another port of this machine is the same site, but no page of ours.
    let elsewhere = site.with("GET", "/api/sessions", &[("Cookie", cookie), ("Sec-Fetch-Site", "same-site")], "");
    assert_eq!(elsewhere.status, 401);
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn a_call_is_heard_and_counted() {
    let desk = Desk::new();
    desk.put("work/a.txt", "over HTTP\n");
    let site = Site::open(&desk);
    let mut stream = site.connect();
    let listen = site.request("GET", "/events", &[("Authorization", &site.bearer())], "");
    stream.write_all(listen.as_bytes()).unwrap();
    let mut events = BufReader::new(stream);
    line_with(&mut events, "keepalive");

    let body = json!({ "dialect": "solo", "tool": "read", "args": { "path": "a.txt" } });
    let called = site.post("/api/call", &body.to_string());
    assert_eq!(called.status, 200, "{called:?}");
    let reply = called.json();
    assert_eq!(
        (&reply["is_error"], &reply["dialect"], &reply["tool"]),
        (&json!(false), &json!("solo"), &json!("read"))
    );
    assert!(reply["text"].as_str().unwrap().contains("over HTTP"), "{reply}");

    let began: Value = serde_json::from_str(&line_with(&mut events, "tool.call")).unwrap();
    let ended: Value = serde_json::from_str(&line_with(&mut events, "tool.result")).unwrap();
    assert_eq!((&began["at"], &began["dialect"], &began["data"]["tool"]), (&json!(1), &json!("solo"), &json!("read")));
    assert_eq!((&ended["at"], &ended["data"]["isError"]), (&json!(2), &json!(false)));

    let rest = site.get("/events?after=1&follow=false");
    assert!(rest.body.contains("\"tool.result\"") && !rest.body.contains("\"tool.call\""), "{rest:?}");
    let bearer = site.bearer();
    let headers = [("Authorization", bearer.as_str()), ("Accept", "text/event-stream")];
    let told = site.with("GET", "/events?follow=false", &headers, "");
    assert_eq!(told.header("content-type"), Some("text/event-stream"));
    assert!(told.body.contains("id: 2\ndata: {"), "{told:?}");
    let metrics = site.get("/metrics").body;
    assert!(metrics.contains("helve_calls_total{tool=\"read\",outcome=\"ok\"} 1\n"), "{metrics}");
    assert_eq!(site.stop(), Some(0));
    // Who only listens does not hold up the end.
    let mut left = String::new();
    _ = events.read_to_string(&mut left);
}

#[test]
fn one_that_listens_everywhere_tells_an_address_that_answers() {
    let desk = Desk::new();
    let site = Site::listening(&desk, "0.0.0.0:0");
    assert!(site.at.starts_with("127.0.0.1:"), "{}", site.at);
    assert_eq!(site.get("/api/approvals").status, 200);
    let named = site.with("GET", "/health", &[("Host", "other.example")], "");
    assert_eq!(named.status, 403, "{named:?}");
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn mcp_is_there_too() {
    let desk = Desk::new();
    let site = Site::open(&desk);
    let [hello, list] = site.mcp("tools/list", &json!({}));
    assert!(hello.body.contains("\"serverInfo\":{\"name\":\"helve\""), "{hello:?}");
    assert!(list.body.contains("\"name\":\"FileRead\""), "{list:?}");
    assert!(site.get("/metrics").body.contains("\nhelve_sessions 1\n"));
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn every_address_answers_as_documented() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(folder.join("../../docs/openapi.json")).unwrap();
    let api: Value = serde_json::from_str(&text).unwrap();
    let desk = Desk::new();
    let site = Site::open(&desk);
    for (path, methods) in api["paths"].as_object().unwrap() {
        let real = path.replace("{id}", "none").replace("{name}", "none").replace("{run}", "none");
        let real = if path == "/events" { "/events?follow=false".to_owned() } else { real };
        for method in ["get", "post", "delete", "put"] {
            let answer = match method {
                "get" => site.get(&real),
                _ => {
                    let bearer = site.bearer();
                    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
                    site.with(&method.to_uppercase(), &real, &headers, "{}")
                }
            };
            let documented = &methods[method]["responses"][answer.status.to_string()];
            match methods[method].is_object() {
                true => assert!(documented.is_object(), "{method} {path}: {answer:?}"),
                false if path == "/mcp" => assert!((400..500).contains(&answer.status), "{method} {path}: {answer:?}"),
                false => {
                    assert_eq!(answer.status, 405, "{method} {path}");
                    assert!(answer.header("allow").is_some() && answer.json()["code"] == "method_not_allowed");
                }
            }
        }
    }
    let tools = site.get("/api/tools?dialect=claude").json();
    let read = tools["dialects"][0]["tools"].as_array().unwrap().iter().find(|it| it["name"] == "FileRead").unwrap();
    assert!(read["tokens"].as_u64().unwrap() > 20 && read["parameters"]["properties"]["file_path"].is_object());
    assert_eq!(site.get("/api/tools?dialect=x").status, 400);
    assert_eq!(site.get("/api/doctor").json()["checks"][0]["name"], "kernel");
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn nonsense_is_refused() {
    let desk = Desk::new();
    let site = Site::open(&desk);
    assert_eq!(site.get("/nothing").json()["code"], "not_found");
    assert_eq!(site.get("/api/sessions/a/b").status, 404);
    for path in ["/api/sessions?most=many", "/events?after=-1", "/events?follow=perhaps", "/api/sessions/x?most=%ff"] {
        assert!([400, 404].contains(&site.get(path).status), "{path}");
    }
    for body in
        ["", "{", "[]", "null", "{}", r#"{"tool":1}"#, r#"{"tool":"read","args":[]}"#, r#"{"tool":"read","x":1}"#]
    {
        let answer = site.post("/api/call", body);
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("bad_request")), "{body}");
    }
    assert_eq!(site.post("/api/call", r#"{"tool":"nothing"}"#).status, 404);
    assert_eq!(site.post("/api/call", r#"{"tool":"read","dialect":"x"}"#).status, 400);
    assert_eq!(site.with("POST", "/api/call", &[("Authorization", &site.bearer())], "{}").status, 415);
    assert_eq!(site.post("/api/call", &" ".repeat((1 << 20) + 1)).status, 413);

    let bearer = site.bearer();
    let long = "x".repeat(1 << 20);
    let refused = site.with("GET", "/api/sessions", &[("Authorization", &bearer), ("X-Long", &long)], "");
    // The rest of the head is not read: the connection may be gone before the answer is.
    assert!([431, 0].contains(&refused.status), "{refused:?}");
    assert_eq!(site.raw(b"\x00\x01\x02\r\n\r\n").status, 400);
    assert_eq!(site.raw(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").status, 403);
    let deep = format!("{{\"tool\":\"read\",\"args\":{}{}}}", "{\"a\":".repeat(5000), "}".repeat(5000));
    assert_eq!(site.post("/api/call", &deep).status, 400);
    assert_eq!(site.with("GET", "/health", &[], "").status, 200);
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn the_end_takes_what_runs_along() {
    let desk = Desk::new();
    let site = Site::open(&desk);
    let command = "sleep 1000 & echo $! > pid; wait";
    let body = json!({ "tool": "Bash", "args": { "command": command, "run_in_background": true } });
    let called = site.post("/api/call", &body.to_string());
    assert_eq!(called.json()["is_error"], false, "{called:?}");
    let pid = (0..6000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        desk.get("work/pid").trim().parse::<i32>().ok()
    });
    assert!(pid.is_some());
    let children = || {
        let tasks = format!("/proc/{0}/task/{0}/children", site.child.id());
        std::fs::read_to_string(tasks).unwrap_or_default()
    };
    let before: Vec<i32> = children().split_whitespace().filter_map(|it| it.parse().ok()).collect();
    assert_eq!(site.stop(), Some(0));
    for pid in before {
        assert!(test_kill_process(Pid::from_raw(pid).unwrap()).is_err(), "{pid} is still there");
    }
}

#[test]
fn a_hook_needs_its_signature_and_a_model() {
    let secret = "0123456789abcdef";
    let hooked = |desk: Desk| desk.env("HELVE_HOOKS", "build=BUILD_SECRET").env("BUILD_SECRET", secret);
    let signed = sign(secret.as_bytes(), b"the build broke");
    let headers = [("X-Webhook-Signature", signed.as_str())];

    let desk = hooked(Desk::new()).env("HELVE_MODEL_BASE_URL", "http://127.0.0.1:1/v1");
    let mut site = Site::open(&desk);
    line_with(&mut site.said, "no model");
    assert_eq!(site.with("POST", "/hooks/build", &headers, "the build broke").status, 503);
    assert_eq!(site.with("POST", "/hooks/build", &[], "the build broke").status, 401);
    assert_eq!(site.with("POST", "/hooks/build", &headers, "it broke").status, 401);
    assert_eq!(site.with("POST", "/hooks/other", &headers, "the build broke").status, 404);
    assert_eq!(site.stop(), Some(0));

    let model = Model::new([ScriptStep::text("I shall look at it.")]);
    let desk = hooked(model.desk());
    let mut site = Site::open(&desk);
    line_with(&mut site.said, "schedules run with");
    let taken = site.with("POST", "/hooks/build", &headers, "the build broke");
    assert_eq!((taken.status, &taken.json()["status"]), (202, &json!("accepted")));
    let told = (0..6000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let answer = site.get("/api/sessions/hook:build");
        answer.body.contains("I shall look at it.").then(|| answer.json())
    });
    let told = told.unwrap();
    assert_eq!(told["messages"][0]["parts"][0]["text"], "[webhook:build] the build broke");
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn what_was_taken_in_is_kept_at_the_end() {
    let secret = "0123456789abcdef";
    let thinks = || ScriptStep::text("Let me think").fault(StreamFault::StallAfter(1));
    // The first post goes on after the restart, and the second one has its turn.
    let model = Model::new([thinks(), thinks(), ScriptStep::text("Good."), ScriptStep::text("Better.")]);
    let desk = model.desk().env("HELVE_HOOKS", "build=BUILD_SECRET").env("BUILD_SECRET", secret);
    let mut site = Site::open(&desk);
    line_with(&mut site.said, "schedules run with");
    // Both sessions are in the middle of a turn; more comes for each.
    for words in ["the first", "the second"] {
        let signed = sign(secret.as_bytes(), words.as_bytes());
        let taken = site.with("POST", "/hooks/build", &[("X-Webhook-Signature", signed.as_str())], words);
        assert_eq!(taken.status, 202, "{taken:?}");
    }
    site.until("/api/sessions/hook:build", |it| it["session"]["running"] == true);
    let begun = site.post("/api/sessions", r#"{"message":"paint it"}"#).json();
    let session = format!("/api/sessions/{}", begun["session"].as_str().unwrap());
    assert_eq!(site.post(&format!("{session}/messages"), r#"{"message":"in blue"}"#).status, 202);
    assert_eq!(site.stop(), Some(0));

    let site = Site::open(&desk);
    site.until("/api/jobs?state=done", |it| it["total"] == 2);
    for (path, all) in
        [("/api/sessions/hook:build", ["the first", "the second"]), (session.as_str(), ["paint it", "in blue"])]
    {
        let told = site.get(path).json()["messages"].to_string();
        assert!(all.iter().all(|it| told.matches(it).count() == 1), "{told}");
    }
    assert_eq!(site.stop(), Some(0));
}
