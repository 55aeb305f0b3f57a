//! A minimal HTTP client: one persistent connection, one request at a time. It measures the server.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

/// A connection to an MCP server, with a session.
pub(crate) struct BenchHttpClient {
    stream: BufReader<TcpStream>,
    host: String,
    /// Lines of the head that belong to the session.
    head: String,
    body: Vec<u8>,
    line: String,
}

impl BenchHttpClient {
    /// Connects, and begins a session.
    pub(crate) fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
        stream.set_nodelay(true)?;
        let mut client = Self {
            stream: BufReader::with_capacity(1 << 16, stream),
            host: address.to_owned(),
            head: String::new(),
            body: Vec::new(),
            line: String::new(),
        };
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "bench", "version": "1" } });
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string();
        let session = client.post(&hello)?;
        "MCP-Protocol-Version: 2025-06-18\r\n".clone_into(&mut client.head);
        if let Some(session) = session {
            client.head += &format!("Mcp-Session-Id: {session}\r\n");
        }
        client.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        Ok(client)
    }

    /// Sends a message and takes in the answer; the session that it names, if any.
    pub(crate) fn post(&mut self, message: &str) -> Result<Option<String>> {
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{}Content-Length: {}\r\n\r\n{message}",
            self.host,
            self.head,
            message.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.read_response()
    }

    /// Calls a tool. A failure of the tool is an error here.
    pub(crate) fn call(&mut self, message: &str) -> Result<()> {
        self.post(message)?;
        let text = &self.body;
        let has = |what: &[u8]| text.windows(what.len()).any(|it| it == what);
        ensure!(has(b"\"result\"") && !has(b"\"isError\":true"), "no result: {}", String::from_utf8_lossy(text));
        Ok(())
    }

    fn line(&mut self) -> Result<&str> {
        self.line.clear();
        ensure!(self.stream.read_line(&mut self.line)? > 0, "the server closed the connection");
        Ok(self.line.trim_end())
    }

    fn read_response(&mut self) -> Result<Option<String>> {
        let status = self.line()?.to_owned();
        let (mut length, mut chunked, mut session) = (None, false, None);
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').context("a line of the head without a colon")?;
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = Some(value.trim().parse()?),
                "transfer-encoding" => chunked = value.contains("chunked"),
                "mcp-session-id" => session = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        self.body.clear();
        match (length, chunked) {
            (Some(length), _) => self.read_exact(length)?,
            (None, true) => loop {
                let length = usize::from_str_radix(self.line()?, 16)?;
                self.read_exact(length)?;
                self.line()?;
                if length == 0 {
                    break;
                }
            },
            (None, false) => {}
        }
        if !status.contains(" 20") {
            bail!("{status}: {}", String::from_utf8_lossy(&self.body));
        }
        Ok(session)
    }

    fn read_exact(&mut self, length: usize) -> Result<()> {
        let from = self.body.len();
        self.body.resize(from + length, 0);
        Ok(self.stream.read_exact(&mut self.body[from..])?)
    }
}
