//! Checks that a long-running server does not leak memory, descriptors or child processes.
//!
//! `HELVE_CALLS` and `HELVE_CONNECTS` say how long; what runs with every change is short.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
};

use serde_json::{Value, json};

use crate::desk::Desk;

/// What memory may grow by: heaps settle late, and a leak of a few bytes a call is far beyond it in a long run.
const SLACK_KB: u64 = 6 * 1024;

fn count(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(usual)
}

/// What a process holds.
#[derive(Debug)]
struct Holds {
    memory_kb: u64,
    descriptors: usize,
    children: usize,
}

impl Holds {
    fn of(server: &Child) -> Self {
        let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
        // Not the pages of its code, which are let go and come back.
        let resident = status.lines().find_map(|it| it.strip_prefix("RssAnon:")).unwrap();
        let (parent, open) = (server.id().to_string(), format!("/proc/{}/fd", server.id()));
        let stats =
            fs::read_dir("/proc").unwrap().filter_map(|it| fs::read_to_string(it.ok()?.path().join("stat")).ok());
        let is_child = |stat: &String| stat.rsplit_once(") ").and_then(|it| it.1.split(' ').nth(1)) == Some(&parent);
        Self {
            memory_kb: resident.trim().trim_end_matches(" kB").parse().unwrap(),
            // A file that it reads just now is gone at the next look; one that is never closed is there at each.
            descriptors: (0..10).map(|_| fs::read_dir(&open).unwrap().count()).min().unwrap(),
            children: stats.filter(is_child).count(),
        }
    }

    /// The same as before, but for what heaps keep.
    fn is_still(&self, before: &Self) {
        assert_eq!((self.descriptors, self.children), (before.descriptors, before.children), "{before:?} {self:?}");
        assert!(self.memory_kb <= before.memory_kb + SLACK_KB, "{before:?} {self:?}");
    }
}

fn hello() -> Value {
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {} });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
}

fn call(id: usize) -> Value {
    let params = json!({ "name": "read", "arguments": { "path": "a.txt" } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

#[test]
fn calls_over_a_pipe_leave_nothing() {
    let calls = count("HELVE_CALLS", 2_000);
    let desk = Desk::new();
    desk.put("work/a.txt", "hello\n");
    let mut command = desk.command(&["mcp", "--dialect", "preset"]);
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = server.stdin.take().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    writeln!(input, "{}", hello()).unwrap();
    lines.next().unwrap().unwrap();
    let mut before = None;
    for first in (0..calls).step_by(50) {
        let questions: String = (first..first + 50).map(|id| call(id).to_string() + "\n").collect();
        input.write_all(questions.as_bytes()).unwrap();
        for _ in 0..50 {
            let answer = lines.next().unwrap().unwrap();
            assert!(answer.contains("hello"), "{answer}");
        }
        if first >= calls / 4 {
            before.get_or_insert_with(|| Holds::of(&server));
        }
    }
    Holds::of(&server).is_still(&before.unwrap());
    drop(input);
    assert!(server.wait().unwrap().success());
}

/// A connection that is kept, and its session.
struct Visit {
    stream: BufReader<TcpStream>,
    at: String,
    session: String,
}

impl Visit {
    fn new(at: &str) -> Self {
        let stream = BufReader::new(TcpStream::connect(at).unwrap());
        let mut visit = Self { stream, at: at.to_owned(), session: String::new() };
        visit.session = visit.ask("POST", &hello().to_string()).0;
        visit
    }

    /// The session that the answer names, and its body.
    fn ask(&mut self, verb: &str, body: &str) -> (String, String) {
        let session =
            if self.session.is_empty() { String::new() } else { format!("Mcp-Session-Id: {}\r\n", self.session) };
        let request = format!(
            "{verb} /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{session}\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
            self.at,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut named, mut length, mut is_chunked) = (String::new(), 0, false);
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let line = line.trim().to_lowercase();
            if line.is_empty() {
                break;
            }
            match line.split_once(": ") {
                Some(("mcp-session-id", value)) => value.clone_into(&mut named),
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("transfer-encoding", _)) => is_chunked = true,
                _ => {}
            }
        }
        let mut body = Vec::new();
        while is_chunked {
            let mut size = String::new();
            self.stream.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let from = body.len();
            body.resize(from + size + 2, 0);
            self.stream.read_exact(&mut body[from..]).unwrap();
            body.truncate(from + size);
            is_chunked = size > 0;
        }
        if length > 0 {
            body.resize(length, 0);
            self.stream.read_exact(&mut body).unwrap();
        }
        (named, String::from_utf8(body).unwrap())
    }

    fn call(&mut self, id: usize) {
        let answer = self.ask("POST", &call(id).to_string()).1;
        assert!(answer.contains("hello"), "{answer}");
    }
}

#[test]
fn connections_and_calls_over_http_leave_nothing() {
    let (connects, calls) = (count("HELVE_CONNECTS", 200), count("HELVE_CALLS", 1_000));
    let desk = Desk::new();
    desk.put("work/a.txt", "hello\n");
    let mut command = desk.command(&["mcp", "--dialect", "preset", "--http", "127.0.0.1:0", "--no-auth"]);
    let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(server.stderr.take().unwrap()).lines();
    let at = said.find_map(|line| Some(line.unwrap().split_once("http://")?.1.replace("/mcp", ""))).unwrap();
    let mut before = None;
    for visits in 0..connects {
        let mut visit = Visit::new(&at);
        visit.call(1);
        visit.ask("DELETE", "");
        drop(visit);
        if visits >= connects / 4 && before.is_none() {
            before = Some(settled(&server));
        }
    }
    let mut visit = Visit::new(&at);
    (0..calls).for_each(|id| visit.call(id));
    drop(visit);
    settled(&server).is_still(&before.unwrap());
    server.kill().unwrap();
    server.wait().unwrap();
}

/// What a server holds when connections that ended are gone.
fn settled(server: &Child) -> Holds {
    let mut last = Holds::of(server);
    loop {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = Holds::of(server);
        if now.descriptors >= last.descriptors {
            return last;
        }
        last = now;
    }
}
