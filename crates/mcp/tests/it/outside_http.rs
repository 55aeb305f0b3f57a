//! MCP client tests over HTTP.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use helve_contract::Call;
use helve_engine::Engine;
use helve_mcp::client::{McpClientConfig, McpDirs, McpServers, ServerStatus, Transport};
use serde_json::{Value, json};

use crate::dialect::{dialect, session, unframed};

/// A request: its first line, its headers in small letters, its body.
struct Asked {
    line: String,
    headers: BTreeMap<String, String>,
    body: Value,
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut from = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let headers: BTreeMap<String, String> = lines[1..]
        .iter()
        .filter_map(|it| it.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some(Asked { line: lines[0].clone(), headers, body: serde_json::from_slice(&body).unwrap_or_default() })
}

/// Serves every request on a connection of its own.
fn serve(answer: impl Fn(Asked, TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || {
                if let Some(asked) = read(&stream) {
                    answer(asked, stream);
                }
            });
        }
    });
    format!("http://{at}")
}

fn send(mut stream: &TcpStream, status: &str, more: &str, body: &str) {
    let length = body.len();
    _ = write!(stream, "HTTP/1.1 {status}\r\n{more}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
}

fn result(asked: &Value) -> Value {
    let result = match asked["method"].as_str().unwrap() {
        "initialize" => json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": {} }),
        "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
        _ => json!({ "content": [{ "type": "text", "text": asked["params"]["arguments"]["text"] }] }),
    };
    json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result })
}

async fn connected(transport: Transport) -> (tempfile::TempDir, McpServers) {
    let folder = tempfile::tempdir().unwrap();
    let servers = McpServers::start(vec![McpClientConfig::new("far", transport)], McpDirs::new(folder.path()));
    servers.wait_started(Duration::from_secs(60)).await;
    (folder, servers)
}

async fn echo(servers: &McpServers) -> String {
    let engine = servers.entries().into_iter().fold(Engine::builder(dialect()), helve_engine::EngineBuilder::tool);
    let call = Call::new("c", session());
    unframed(engine.build().unwrap().run("mcp__far__echo", json!({ "text": "hello" }), call).await).text
}

#[tokio::test]
async fn a_streamable_server_is_used_in_its_session() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let url = serve(move |asked, stream| {
        let header = |name: &str| asked.headers.get(name).cloned().unwrap_or_default();
        let method = asked.body["method"].as_str().unwrap_or_default().to_owned();
        log.lock().unwrap().push(format!(
            "{} {method} {} {} {}",
            asked.line.split(' ').next().unwrap(),
            header("mcp-session-id"),
            header("mcp-protocol-version"),
            header("x-key")
        ));
        let json = "content-type: application/json\r\n";
        match method.as_str() {
            "initialize" => {
                send(&stream, "200 OK", &format!("{json}Mcp-Session-Id: s-1\r\n"), &result(&asked.body).to_string());
            }
            "notifications/initialized" => send(&stream, "202 Accepted", "", ""),
            "" => send(&stream, "405 Method Not Allowed", "", ""),
            _ => {
                let body = format!(": hi\n\nevent: message\nid: 1\ndata: {}\n\n", result(&asked.body));
                send(&stream, "200 OK", "content-type: text/event-stream\r\n", &body);
            }
        }
    });
    let headers = BTreeMap::from([("X-Key".to_owned(), "k".to_owned())]);
    let (_folder, servers) = connected(Transport::Http { url, headers }).await;
    assert_eq!(servers.reports()[0].status, ServerStatus::Connected);
    assert_eq!(echo(&servers).await, "hello");
    let mut seen = seen.lock().unwrap().clone();
    // The server's own stream is asked for at some time beside these.
    seen.retain(|it| it != "GET  s-1 2025-06-18 k");
    seen.sort();
    assert_eq!(
        seen,
        [
            "POST initialize   k",
            "POST notifications/initialized s-1 2025-06-18 k",
            "POST tools/call s-1 2025-06-18 k",
            "POST tools/list s-1 2025-06-18 k",
        ]
    );
}

#[tokio::test]
async fn a_streamable_server_tells_of_new_tools_on_its_own_stream() {
    let grown = Arc::new(AtomicBool::new(false));
    let (now, open) = (grown.clone(), Arc::new(Mutex::new(None::<TcpStream>)));
    let streams = open.clone();
    let url = serve(move |asked, mut stream| {
        let json = "content-type: application/json\r\n";
        match asked.body["method"].as_str() {
            None => {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: hi\n\n";
                stream.write_all(head.as_bytes()).unwrap();
                *streams.lock().unwrap() = Some(stream);
            }
            Some("tools/list") if now.load(Ordering::Relaxed) => {
                let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
                let result = json!({ "tools": [tool("echo"), tool("late")] });
                let answer = json!({ "jsonrpc": "2.0", "id": asked.body["id"], "result": result });
                send(&stream, "200 OK", json, &answer.to_string());
            }
            Some(_) if asked.body["id"].is_null() => send(&stream, "202 Accepted", "", ""),
            Some(_) => send(&stream, "200 OK", json, &result(&asked.body).to_string()),
        }
    });
    let (_folder, servers) = connected(Transport::Http { url, headers: BTreeMap::new() }).await;
    let names = || servers.entries().iter().map(|it| it.spec.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(), ["mcp__far__echo"]);
    let mut news = servers.subscribe();
    grown.store(true, Ordering::Relaxed);
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    let told = async {
        // The stream is asked for at some time after the first answers.
        while open.lock().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        write!(open.lock().unwrap().as_mut().unwrap(), "data: {changed}\n\n").unwrap();
        while names().len() < 2 {
            news.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.unwrap();
    assert_eq!(names(), ["mcp__far__echo", "mcp__far__late"]);
}

#[tokio::test]
async fn a_server_that_is_up_late_is_found_and_used() {
    let up = Arc::new(AtomicBool::new(false));
    let now = up.clone();
    let url = serve(move |asked, stream| {
        let json = "content-type: application/json\r\n";
        match asked.body["method"].as_str() {
            _ if !now.load(Ordering::Relaxed) => send(&stream, "503 Service Unavailable", "", ""),
            None => send(&stream, "405 Method Not Allowed", "", ""),
            Some(_) if asked.body["id"].is_null() => send(&stream, "202 Accepted", "", ""),
            Some(_) => send(&stream, "200 OK", json, &result(&asked.body).to_string()),
        }
    });
    let (_folder, servers) = connected(Transport::Http { url, headers: BTreeMap::new() }).await;
    let mut news = servers.subscribe();
    assert!(matches!(servers.reports()[0].status, ServerStatus::Failed(_)));
    up.store(true, Ordering::Relaxed);
    let found = async {
        while servers.reports()[0].status != ServerStatus::Connected {
            news.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.unwrap();
    assert_eq!(echo(&servers).await, "hello");
}

#[tokio::test]
async fn an_older_server_answers_by_its_stream() {
    let open: Arc<Mutex<Option<TcpStream>>> = Arc::default();
    let url = serve(move |asked, mut stream| {
        let mut open = open.lock().unwrap();
        if asked.line.starts_with("GET") {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\ndata: /post?s=1\n\n";
            stream.write_all(head.as_bytes()).unwrap();
            *open = Some(stream);
            return;
        }
        assert!(asked.line.starts_with("POST /post?s=1 "));
        send(&stream, "202 Accepted", "", "");
        if !asked.body["id"].is_null() {
            write!(open.as_mut().unwrap(), "data: {}\n\n", result(&asked.body)).unwrap();
        }
    });
    let (_folder, servers) = connected(Transport::Sse { url: format!("{url}/sse"), headers: BTreeMap::new() }).await;
    assert_eq!(servers.reports()[0].status, ServerStatus::Connected);
    assert_eq!(echo(&servers).await, "hello");
}

#[tokio::test]
async fn a_server_that_leads_elsewhere_is_not_followed() {
    let elsewhere = serve(|_, _| panic!("nobody is led here"));
    let url =
        serve(move |_, stream| send(&stream, "307 Temporary Redirect", &format!("location: {elsewhere}\r\n"), ""));
    let (_folder, servers) = connected(Transport::Http { url, headers: BTreeMap::new() }).await;
    let why = "answered with an error: it leads elsewhere (307 Temporary Redirect), which is not followed (307)";
    assert_eq!(servers.reports()[0].status, ServerStatus::Failed(why.into()));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let transport = Transport::Http { url: format!("http://127.0.0.1:{port}/mcp?token=x"), headers: BTreeMap::new() };
    let (_folder, servers) = connected(transport).await;
    let ServerStatus::Failed(why) = &servers.reports()[0].status else { panic!("it is not there") };
    assert!(why.starts_with("cannot be reached") && !why.contains("token"), "{why}");
}
