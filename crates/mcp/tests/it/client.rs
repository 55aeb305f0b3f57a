//! A scripted client for tests.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write, pipe},
    os::fd::OwnedFd,
    sync::Arc,
    thread::{self, JoinHandle},
};

use helve_engine::{Engine, Gate};
use helve_mcp::{McpServerConfig, McpService};
use serde_json::{Value, json};

use crate::dialect::{dialect, session};

pub(crate) struct Client {
    to: Option<File>,
    from: BufReader<File>,
    server: Option<JoinHandle<()>>,
}

impl Client {
    /// A client that has not said hello.
    pub(crate) fn silent() -> Self {
        Self::of(None, McpServerConfig::default())
    }

    /// A client of a server with this gate and these options.
    pub(crate) fn of(gate: Option<Gate>, options: McpServerConfig) -> Self {
        let engine = Engine::builder(dialect());
        let engine = match gate {
            Some(gate) => engine.gate(gate),
            None => engine,
        };
        let engine = Arc::new(engine.build().unwrap());
        Self::at(Arc::new(McpService::new(engine, session(), options)))
    }

    /// A client of this server.
    pub(crate) fn at(server: Arc<McpService>) -> Self {
        let (server_in, to) = pipe().unwrap();
        let (from, server_out) = pipe().unwrap();
        let file = |end: OwnedFd| File::from(end);
        let (input, output) = (file(server_in.into()), file(server_out.into()));
        let server = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            helve_mcp::serve(server, input, output, runtime.handle()).unwrap();
        });
        Self { to: Some(file(to.into())), from: BufReader::new(file(from.into())), server: Some(server) }
    }

    /// A client that has shaken hands over a revision.
    pub(crate) fn speaking(revision: &str) -> Self {
        let mut client = Self::silent();
        client.hello(revision, &json!({}));
        client
    }

    /// Shakes hands; gives what the server said of itself.
    pub(crate) fn hello(&mut self, revision: &str, capabilities: &Value) -> Value {
        let params = json!({
            "protocolVersion": revision, "capabilities": capabilities, "clientInfo": { "name": "test", "version": "0" },
        });
        let said = self.ask("initialize", params);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        said["result"].clone()
    }

    /// Sends a request with the id 1 and gives the next message.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        self.next()
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.to.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// The next message; `null` at the end.
    pub(crate) fn next(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        if line.is_empty() { Value::Null } else { serde_json::from_str(&line).unwrap() }
    }

    /// Closes our side, waits for the server to end, and gives what it still said.
    pub(crate) fn leave(mut self) -> Vec<Value> {
        drop(self.to.take());
        let mut last = Vec::new();
        loop {
            match self.next() {
                Value::Null => break,
                message => last.push(message),
            }
        }
        self.server.take().unwrap().join().unwrap();
        last
    }
}
