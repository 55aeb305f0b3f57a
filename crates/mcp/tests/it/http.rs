//! Clients that come over HTTP.

use std::{sync::Arc, time::Duration};

use helve_mcp::{HttpConfig, serve_http};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::web::{Site, Web};

const NEWEST: &str = "2025-11-25";

#[test]
fn shakes_hands_and_answers() {
    let site = Site::open();
    let mut web = Web::at(site.at);
    let hello = web.hello(NEWEST, &json!({}));
    assert_eq!((hello.status, &hello.json["result"]["protocolVersion"]), (200, &json!(NEWEST)));
    let id = hello.header("mcp-session-id").unwrap();
    assert!(id.len() == 32 && id.chars().all(|it| it.is_ascii_hexdigit()), "{id}");

    let said = web.ask("tools/call", json!({ "name": "echo", "arguments": { "text": "hi" } }));
    assert_eq!((said.status, said.header("content-type")), (200, Some("application/json")));
    assert_eq!(said.json["result"]["content"][0]["text"], "hi");
    let eager = web.with("Accept", "text/event-stream, application/json").call(7, "echo").event().unwrap();
    assert_eq!((eager.0.ends_with("-0"), eager.1), (true, Value::Null));
    let unknown = web.ask("no/such", json!({}));
    assert_eq!((unknown.status, &unknown.json["error"]["code"]), (200, &json!(-32601)));
}

#[test]
fn lets_nobody_in_without_the_token() {
    let site = Site::with(HttpConfig { tokens: vec!["alpha".into(), "beta".into()], ..HttpConfig::default() });
    let open = Web::at(site.at);
    for web in [open.with("Authorization", None), open.with("Authorization", "Bearer alph")] {
        let refused = web.ask("initialize", json!({}));
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
        assert_eq!(web.request("GET").status, 401);
        assert_eq!(web.request("DELETE").status, 401);
    }
    let mut alpha = open.with("Authorization", "Bearer alpha");
    assert_eq!(alpha.hello(NEWEST, &json!({})).status, 200);
    assert_eq!(alpha.ask("ping", json!({})).status, 200);
    // A session is the caller's own: for another it does not exist, and its name alone opens nothing.
    let beta = alpha.with("Authorization", "Bearer beta");
    assert_eq!(beta.ask("ping", json!({})).status, 404);
    assert_eq!(beta.with("Last-Event-ID", "0-0").request("GET").status, 404);
    assert_eq!(beta.request("DELETE").status, 404);
    assert_eq!(alpha.with("Authorization", None).ask("ping", json!({})).status, 401);
    assert_eq!(alpha.ask("ping", json!({})).status, 200);
}

#[test]
fn refuses_strange_names_and_pages() {
    let site = Site::open();
    let web = Web::at(site.at);
    for other in [web.with("Host", "evil.tld"), web.with("Host", None), web.with("Origin", "https://evil.tld")] {
        assert_eq!(other.ask("initialize", json!({})).status, 403);
    }
    assert_eq!(web.with("Origin", "null").request("GET").status, 403);
    assert_eq!(web.with("Origin", "null").request("OPTIONS").status, 403);
    assert_eq!(web.with("Content-Type", "text/plain").ask("initialize", json!({})).status, 415);
    assert_eq!(web.with("Accept", "text/html").ask("initialize", json!({})).status, 406);
    let options = web.request("OPTIONS");
    assert_eq!((options.status, options.header("access-control-allow-origin")), (405, None));
}

#[test]
fn wants_a_session_that_it_knows() {
    let site = Site::open();
    let web = Web::at(site.at);
    assert_eq!(web.ask("tools/list", json!({})).status, 400);
    assert_eq!(web.request("GET").status, 400);
    let stranger = web.with("Mcp-Session-Id", "00000000000000000000000000000000");
    assert_eq!(stranger.ask("tools/list", json!({})).status, 404);
    let garbage = web.send("POST", b"{nonsense").whole();
    assert_eq!((garbage.status, &garbage.json["error"]["code"]), (400, &json!(-32700)));
    let known = site.client(NEWEST);
    let future = known.with("MCP-Protocol-Version", "2099-01-01").ask("tools/list", json!({}));
    assert_eq!(future.status, 400);
    let elsewhere = known.with("Last-Event-ID", "99-1").request("GET");
    assert_eq!(elsewhere.status, 400);
}

#[test]
fn tells_of_progress_in_a_stream() {
    let site = Site::open();
    let mut flow = site.client(NEWEST).call(5, "count");
    let (first, nothing) = flow.event().unwrap();
    assert_eq!((first.ends_with("-0"), nothing), (true, Value::Null));
    let events: Vec<_> = std::iter::from_fn(|| flow.event()).collect();
    let said: Vec<_> = events.iter().map(|(_, it)| it["params"]["message"].as_str().unwrap_or("answer")).collect();
    assert_eq!(said, ["one", "two", "three", "answer"]);
    assert_eq!(events[3].1["id"], 5);
    assert_eq!(events.iter().map(|(id, _)| id.split_once('-').unwrap().1).collect::<Vec<_>>(), ["1", "2", "3", "4"]);

    // Older clients would take an event without data for a message.
    let (_, first) = site.client("2025-06-18").call(5, "count").event().unwrap();
    assert_eq!(first["params"]["message"], "one");
}

#[test]
fn a_broken_stream_goes_on_where_it_was() {
    let site = Site::with(HttpConfig { reconnect_grace: Duration::from_secs(60), ..HttpConfig::default() });
    let web = site.client(NEWEST);
    let mut flow = web.call(9, "gated");
    flow.event().unwrap();
    let (place, before) = flow.event().unwrap();
    assert_eq!(before["params"]["message"], "before");
    drop(flow);

    let mut back = web.with("Accept", "text/event-stream");
    back.headers.push(("Last-Event-ID".into(), place));
    let mut flow = back.send("GET", b"");
    flow.head();
    site.gate.add_permits(1);
    assert_eq!(flow.event().unwrap().1["params"]["message"], "after");
    assert_eq!(flow.event().unwrap().1["result"]["content"][0]["text"], "through");
    assert!(flow.event().is_none());
    // Once more, for whoever missed the end.
    let mut flow = back.send("GET", b"");
    assert_eq!(flow.event().unwrap().1["params"]["message"], "after");
}

#[test]
fn a_client_that_leaves_cancels_its_calls() {
    let site = Site::with(HttpConfig { reconnect_grace: Duration::from_millis(1), ..HttpConfig::default() });
    let web = site.client(NEWEST);
    // In a stream, after a while in which it could have come back.
    let mut flow = web.call(1, "watched");
    assert_eq!(site.sees(), "started");
    flow.event().unwrap();
    assert_eq!(flow.event().unwrap().1["params"]["message"], "watching");
    drop(flow);
    assert_eq!(site.sees(), "cancelled");
    // Before anything was said: at once.
    let flow = web.with("Accept", "application/json").call(2, "watched");
    assert_eq!(site.sees(), "started");
    drop(flow);
    assert_eq!(site.sees(), "cancelled");
    assert_eq!(web.ask("ping", json!({})).status, 200);
}

#[test]
fn a_cancelled_call_ends_its_stream() {
    let site = Site::open();
    let web = site.client(NEWEST);
    let mut flow = web.call(3, "watched");
    assert_eq!(site.sees(), "started");
    flow.event().unwrap();
    flow.event().unwrap();
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 3 } });
    assert_eq!(web.post(&cancel).status, 202);
    assert_eq!(site.sees(), "cancelled");
    assert!(flow.event().is_none());
}

#[test]
fn a_session_ends_when_its_client_says_so() {
    let site = Site::open();
    let web = site.client(NEWEST);
    let mut flow = web.call(1, "watched");
    assert_eq!(site.sees(), "started");
    flow.event().unwrap();
    let mut general = web.with("Accept", "text/event-stream").send("GET", b"");
    general.head();
    assert_eq!(web.request("DELETE").status, 204);
    let mut seen = [site.sees(), site.sees()];
    seen.sort_unstable();
    assert_eq!(seen, ["cancelled", "closed"]);
    assert!(general.event().is_none());
    assert_eq!(web.ask("ping", json!({})).status, 404);
    assert_eq!(web.request("DELETE").status, 404);
}

#[test]
fn there_is_room_for_so_much_and_no_more() {
    let site = Site::with(HttpConfig { max_body_bytes: 1000, max_sessions: 1, ..HttpConfig::default() });
    let web = site.client(NEWEST);
    let large = web.ask("tools/call", json!({ "name": "echo", "arguments": { "text": "x".repeat(2000) } }));
    assert_eq!(large.status, 413);
    assert_eq!(Web::at(site.at).hello(NEWEST, &json!({})).status, 503);
    assert_eq!(web.request("DELETE").status, 204);
    assert_eq!(Web::at(site.at).hello(NEWEST, &json!({})).status, 200);
}

/// A request that does not end.
fn half_request(at: std::net::SocketAddr) -> std::net::TcpStream {
    use std::io::Write as _;
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: x\r\nX-Slow: ").unwrap();
    stream
}

/// Whether the server closes a connection, with or without a word.
fn is_closed(mut stream: std::net::TcpStream) -> bool {
    use std::io::Read as _;
    stream
        .read_to_end(&mut Vec::new())
        .map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |_| true)
}

#[test]
fn a_head_that_does_not_come_ends_the_connection() {
    let options =
        HttpConfig { tokens: vec!["alpha".into()], head_timeout: Duration::from_millis(20), ..HttpConfig::default() };
    let site = Site::with(options);
    assert!(is_closed(half_request(site.at)));
}

#[test]
fn clients_with_a_token_are_served_beside_any_number_of_half_requests() {
    let options = HttpConfig { tokens: vec!["alpha".into()], max_connections: 16, ..HttpConfig::default() };
    let site = Site::with(options);
    let held: Vec<_> = (0..100).map(|_| half_request(site.at)).collect();
    for _ in 0..20 {
        let mut client = Web::at(site.at).with("Authorization", "Bearer alpha");
        assert_eq!(client.hello("2025-11-25", &json!({})).status, 200);
    }
    let first = held.into_iter().next().unwrap();
    assert!(is_closed(first), "the oldest of them made room");
}

#[test]
fn a_session_that_nobody_uses_is_forgotten() {
    let site = Site::with(HttpConfig { idle_timeout: Duration::from_millis(1), ..HttpConfig::default() });
    let hello = json!({ "protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {} });
    let said = Web::at(site.at).ask("initialize", hello);
    assert_eq!(said.status, 200);
    assert_eq!(site.sees(), "closed");
    let mut late = Web::at(site.at);
    late.headers.push(("Mcp-Session-Id".into(), said.header("mcp-session-id").unwrap().to_owned()));
    assert_eq!(late.ask("ping", json!({})).status, 404);
}

#[test]
fn asks_the_user_over_the_stream_of_the_call() {
    let site = Site::open();
    let mut web = Web::at(site.at);
    web.hello(NEWEST, &json!({ "elicitation": {} }));
    let mut flow = web.call(4, "wipe_out");
    flow.event().unwrap();
    let (_, asked) = flow.event().unwrap();
    assert_eq!(asked["method"], "elicitation/create");
    let yes = json!({ "action": "accept", "content": { "decision": "once" } });
    assert_eq!(web.post(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": yes })).status, 202);
    assert_eq!(flow.event().unwrap().1["result"]["content"][0]["text"], "gone");
}

#[test]
fn the_newest_revision_needs_no_session() {
    let site = Site::with(HttpConfig { reconnect_grace: Duration::from_secs(60), ..HttpConfig::default() });
    let web = Web::at(site.at).with("MCP-Protocol-Version", "2026-07-28");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "echo", "arguments": { "text": "hi" }, "_meta": meta });
    let call = web.with("Mcp-Method", "tools/call");
    let said = call.with("Mcp-Name", "echo").ask("tools/call", params.clone());
    assert_eq!((said.status, &said.json["result"]["content"][0]["text"]), (200, &json!("hi")));
    assert_eq!(said.header("mcp-session-id"), None);
    for other in [call.with("Mcp-Name", "draw"), call.with("Mcp-Name", None), web.with("Mcp-Method", "ping")] {
        let refused = other.ask("tools/call", params.clone());
        assert_eq!((refused.status, &refused.json["error"]["code"]), (400, &json!(-32020)));
        assert_eq!(refused.json["id"], 1);
    }
    let gone = web.with("Mcp-Method", "ping").ask("ping", json!({ "_meta": meta }));
    assert_eq!((gone.status, &gone.json["error"]["code"]), (404, &json!(-32601)));
    let bare = web.with("Mcp-Method", "tools/list").ask("tools/list", json!({}));
    assert_eq!((bare.status, &bare.json["error"]["code"]), (400, &json!(-32602)));
    assert_eq!(web.request("GET").status, 405);

    // Nobody comes back for the rest of a stream here: who leaves has given up.
    let mut meta = meta;
    meta["progressToken"] = "t".into();
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "watched", "_meta": meta },
    });
    let mut flow = call.with("Mcp-Name", "watched").send("POST", message.to_string().as_bytes());
    let (id, first) = flow.event().unwrap();
    assert_eq!((id.as_str(), &first["params"]["message"]), ("", &json!("watching")));
    assert_eq!(site.sees(), "started");
    drop(flow);
    assert_eq!(site.sees(), "cancelled");
}

#[test]
fn a_thousand_calls_at_once() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(4096).min(4096);
    _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    let calls = ((most as usize).saturating_sub(200) / 2).min(1000);

    let site = Site::open();
    let web = site.client(NEWEST);
    let head = web.headers.iter().fold(String::new(), |head, (name, value)| head + name + ": " + value + "\r\n");
    let at = site.at;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut answers = runtime.block_on(async move {
        let mut open = Vec::new();
        for id in 0..calls {
            let params = json!({ "name": "echo", "arguments": { "text": format!("text {id}") } });
            let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string();
            let length = body.len();
            let mut stream = tokio::net::TcpStream::connect(at).await.unwrap();
            let request =
                format!("POST /mcp HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n{head}\r\n{body}");
            open.push(async move {
                stream.write_all(request.as_bytes()).await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                let message: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
                assert_eq!(message["result"]["content"][0]["text"], format!("text {}", message["id"]));
                message["id"].as_u64().unwrap()
            });
        }
        futures::future::join_all(open).await
    });
    answers.sort_unstable();
    assert_eq!(answers, (0..calls as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn is_not_open_to_other_machines_without_a_token() {
    struct Nobody;
    #[helve_contract::async_trait]
    impl helve_mcp::McpSessionFactory for Nobody {
        async fn open(&self) -> std::io::Result<Arc<helve_mcp::McpService>> {
            Err(std::io::Error::other("nobody"))
        }
        async fn close(&self, _: Arc<helve_mcp::McpService>) {}
    }
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let refused = serve_http(listener, Arc::new(Nobody), HttpConfig::default(), std::future::pending()).await;
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
}
