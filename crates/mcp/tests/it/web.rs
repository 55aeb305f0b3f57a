//! A server on a port of this machine, and a client that writes HTTP by hand.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use futures::FutureExt;
use helve_contract::{Call, Effects, Entry, Error, Session, async_trait};
use helve_engine::{Engine, Gate, Mode};
use helve_mcp::{ElicitApprover, HttpConfig, McpServerConfig, McpService, McpSessionFactory, serve_http};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore};

use crate::dialect::{dialect, session, spec};

/// A server, and what can be seen of it from behind.
pub(crate) struct Site {
    pub(crate) at: SocketAddr,
    /// Says a word for each call of `watched` that started or was cancelled, and for each session that ended.
    pub(crate) seen: mpsc::Receiver<&'static str>,
    /// Lets one call of `gated` go on.
    pub(crate) gate: Arc<Semaphore>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct House {
    engine: Arc<Engine>,
    options: McpServerConfig,
    seen: Mutex<mpsc::Sender<&'static str>>,
}

#[async_trait]
impl McpSessionFactory for House {
    async fn open(&self) -> std::io::Result<Arc<McpService>> {
        let session: Arc<Session> = session();
        Ok(Arc::new(McpService::new(self.engine.clone(), session, self.options.clone())))
    }

    async fn close(&self, _: Arc<McpService>) {
        _ = self.seen.lock().unwrap().send("closed");
    }
}

impl Site {
    pub(crate) fn open() -> Self {
        Self::with(HttpConfig::default())
    }

    pub(crate) fn with(options: HttpConfig) -> Self {
        let (tell, seen) = mpsc::channel();
        let gate = Arc::new(Semaphore::new(0));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (at_send, at) = mpsc::channel();
        let behind = gate.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                at_send.send(listener.local_addr().unwrap()).unwrap();
                let house = house(tell, behind);
                let stop = async {
                    _ = stopped.await;
                };
                serve_http(listener, Arc::new(house), options, stop).await.unwrap();
            });
            runtime.shutdown_background();
        });
        Self { at: at.recv().unwrap(), seen, gate, stop: Some(stop), thread: Some(thread) }
    }

    /// The next thing that is seen from behind.
    pub(crate) fn sees(&self) -> &'static str {
        self.seen.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// A client that has shaken hands.
    pub(crate) fn client(&self, revision: &str) -> Web {
        let mut web = Web::at(self.at);
        web.hello(revision, &json!({}));
        web
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.stop.take());
        _ = self.thread.take().unwrap().join();
    }
}

/// Rings when the call is over.
struct Bell(mpsc::Sender<&'static str>);

impl Drop for Bell {
    fn drop(&mut self) {
        _ = self.0.send("cancelled");
    }
}

fn house(tell: mpsc::Sender<&'static str>, gate: Arc<Semaphore>) -> House {
    let none = json!({ "type": "object", "properties": {} });
    let ears = Mutex::new(tell.clone());
    let watched =
        Entry::dynamic(spec("watched", "Tells when it is cancelled.", &none, Effects::READS), move |_, call| {
            // An engine lets go of a call that is cancelled, wherever it is.
            let bell = Bell(ears.lock().unwrap().clone());
            _ = bell.0.send("started");
            async move {
                call.report_progress("watching");
                call.cancel.cancelled().await;
                drop(bell);
                Err(Error::Cancelled)
            }
            .boxed()
        });
    let gated = Entry::dynamic(spec("gated", "Waits for the gate.", &none, Effects::READS), move |_, call: Call| {
        let gate = gate.clone();
        async move {
            call.report_progress("before");
            gate.acquire().await.unwrap().forget();
            call.report_progress("after");
            Ok("through".into())
        }
        .boxed()
    });
    let mut dialect = dialect();
    dialect.tools.extend([watched, gated]);
    let approver = Arc::new(ElicitApprover::new());
    let gate = Gate::new(Mode::Default).approver(approver.clone());
    let engine = Arc::new(Engine::builder(dialect).gate(gate).build().unwrap());
    House {
        engine,
        options: McpServerConfig { elicit: Some(approver), ..McpServerConfig::default() },
        seen: Mutex::new(tell),
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) json: Value,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|it| it.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A client.
pub(crate) struct Web {
    at: SocketAddr,
    pub(crate) headers: Vec<(String, String)>,
}

impl Web {
    pub(crate) fn at(at: SocketAddr) -> Self {
        let headers = [
            ("Host", at.to_string()),
            ("Content-Type", "application/json".into()),
            ("Accept", "application/json, text/event-stream".into()),
        ];
        Self { at, headers: headers.map(|(name, value)| (name.to_owned(), value)).into() }
    }

    /// The same client with another header, or without one.
    pub(crate) fn with(&self, name: &str, value: impl Into<Option<&'static str>>) -> Self {
        let mut headers = self.headers.clone();
        headers.retain(|(key, _)| key != name);
        headers.extend(value.into().map(|value| (name.to_owned(), value.to_owned())));
        Self { at: self.at, headers }
    }

    pub(crate) fn hello(&mut self, revision: &str, capabilities: &Value) -> Heard {
        let params = json!({
            "protocolVersion": revision, "capabilities": capabilities, "clientInfo": { "name": "test", "version": "0" },
        });
        let heard = self.ask("initialize", params);
        if let Some(session) = heard.header("mcp-session-id") {
            self.headers.push(("Mcp-Session-Id".into(), session.to_owned()));
            self.headers.push(("MCP-Protocol-Version".into(), revision.to_owned()));
            assert_eq!(self.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).status, 202);
        }
        heard
    }

    pub(crate) fn ask(&self, method: &str, params: Value) -> Heard {
        self.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
    }

    pub(crate) fn post(&self, message: &Value) -> Heard {
        self.send("POST", message.to_string().as_bytes()).whole()
    }

    pub(crate) fn request(&self, method: &str) -> Heard {
        self.send(method, b"").whole()
    }

    /// Calls a tool and reads what is said as it comes.
    pub(crate) fn call(&self, id: u64, tool: &str) -> Flow {
        let params = json!({ "name": tool, "_meta": { "progressToken": "t" } });
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        self.send("POST", message.to_string().as_bytes())
    }

    pub(crate) fn send(&self, method: &str, body: &[u8]) -> Flow {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut head = format!("{method} /mcp HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        // A server that refuses need not read the rest.
        _ = stream.write_all(body);
        Flow { from: BufReader::new(stream), head: String::new() }
    }
}

/// A response that is still coming.
pub(crate) struct Flow {
    from: BufReader<TcpStream>,
    head: String,
}

impl Flow {
    /// The head of the response.
    pub(crate) fn head(&mut self) -> &str {
        while !self.head.ends_with("\r\n\r\n") {
            assert_ne!(self.from.read_line(&mut self.head).unwrap(), 0, "{}", self.head);
        }
        &self.head
    }

    fn status(&mut self) -> u16 {
        self.head()[9..12].parse().unwrap()
    }

    fn is_chunked(&mut self) -> bool {
        self.head().to_ascii_lowercase().contains("transfer-encoding: chunked")
    }

    /// All of it.
    pub(crate) fn whole(mut self) -> Heard {
        let status = self.status();
        let mut body = String::new();
        if self.is_chunked() {
            while let Some(chunk) = self.chunk() {
                body.push_str(&chunk);
            }
        } else {
            _ = self.from.read_to_string(&mut body);
        }
        Heard { status, json: serde_json::from_str(&body).unwrap_or_default(), head: self.head }
    }

    /// The next event, as its id and its message; `None` at the end.
    pub(crate) fn event(&mut self) -> Option<(String, Value)> {
        assert!(self.head().contains("text/event-stream"), "{}", self.head);
        loop {
            let chunk = self.chunk()?;
            let field = |name: &str| chunk.lines().find_map(|it| it.strip_prefix(name));
            if let Some(data) = field("data: ") {
                let message = serde_json::from_str(data).unwrap_or_default();
                return Some((field("id: ").unwrap_or_default().to_owned(), message));
            }
        }
    }

    fn chunk(&mut self) -> Option<String> {
        self.head();
        let mut size = String::new();
        self.from.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).ok().filter(|it| *it > 0)?;
        let mut bytes = vec![0; size + 2];
        self.from.read_exact(&mut bytes).unwrap();
        bytes.truncate(size);
        Some(String::from_utf8(bytes).unwrap())
    }
}
