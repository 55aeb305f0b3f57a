//! Calls over HTTP: one client's round trip, and many clients at once; compared with the official SDK and a baseline.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use anyhow::{Context, Result};

use super::files::repeat;
use crate::{
    data::Rng,
    desk::tmpfs_dir,
    http::BenchHttpClient,
    peers::cached,
    report::{BenchReport, ComparisonSpec},
    wire,
};

/// A no-op tool of the fixtures: the cost of the transport.
pub(super) const ECHO: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"test_simple_text","arguments":{}}}"#;
/// A tool through the whole engine.
pub(super) const READ: &str =
    r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"read","arguments":{"path":"small.txt"}}}"#;

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let Some(helve) = super::helve(report)? else { return Ok(()) };
    let (_held, root) = tmpfs_dir()?;
    let ours = HttpServerProcess::helve(&helve, &root)?;
    let sdk = HttpServerProcess::sdk()?;
    if sdk.is_none() {
        report.skip("the echo server of the official SDK is not built (bench/peers rmcp)");
    }
    let floor = start_baseline()?;
    let mut client = BenchHttpClient::connect(&ours.address)?;
    let mut bare = BenchHttpClient::connect(&floor)?;
    report.compare(
        ComparisonSpec::of("a call that does nothing, over HTTP", "a fixed answer over HTTP"),
        &mut |times| repeat(times, || client.call(ECHO)),
        &mut |times| repeat(times, || bare.call(ECHO)),
    )?;
    report.compare(
        ComparisonSpec::of("read 1 KB, over HTTP", "a fixed answer over HTTP"),
        &mut |times| repeat(times, || client.call(READ)),
        &mut |times| repeat(times, || bare.call(READ)),
    )?;
    if let Some(sdk) = &sdk {
        let mut theirs = BenchHttpClient::connect(&sdk.address)?;
        report.compare(
            ComparisonSpec::of("a call that does nothing, over HTTP", "rmcp 3.8, the same"),
            &mut |times| repeat(times, || client.call(ECHO)),
            &mut |times| repeat(times, || theirs.call(ECHO)),
        )?;
    }
    let crowd = |address: String| {
        move |clients: usize| -> Result<crate::report::PreparedWork<'static>> {
            let mut all = (0..clients).map(|_| BenchHttpClient::connect(&address)).collect::<Result<Vec<_>>>()?;
            Ok(Box::new(move |times| repeat(times, || call_concurrently(&mut all, 5, ECHO))))
        }
    };
    let (mut one, mut other) = (crowd(ours.address.clone()), crowd(floor));
    report.measure_growth(
        ("5 calls of each client", "clients"),
        &[1, 4, 16, 60],
        &mut [("helve mcp --http", &mut one), ("a fixed answer", &mut other)],
    )
}

/// Each client calls this many times, all of them at once.
fn call_concurrently(clients: &mut [BenchHttpClient], calls: usize, message: &str) -> Result<()> {
    thread::scope(|scope| {
        let all: Vec<_> =
            clients.iter_mut().map(|client| scope.spawn(move || repeat(calls, || client.call(message)))).collect();
        all.into_iter().try_for_each(|it| it.join().ok().context("a client broke")?)
    })
}

/// A server over HTTP that ends with this.
pub(super) struct HttpServerProcess {
    child: Child,
    /// Host and port.
    pub(super) address: String,
}

impl HttpServerProcess {
    /// `helve mcp --http` over a private directory, with the no-op tools.
    pub(super) fn helve(helve: &Path, root: &Path) -> Result<Self> {
        let work = root.join("work");
        std::fs::create_dir_all(&work)?;
        std::fs::write(work.join("small.txt"), Rng::new().text(1 << 10))?;
        let mut command = Command::new(helve);
        command.args(["mcp", "--dialect", "solo", "--http", "127.0.0.1:0", "--no-auth", "--fixtures", "--workspace"]);
        command.arg(&work).env("HELVE_STATE_DIR", root.join("state")).env("HOME", root);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(child.stderr.take().context("no output")?);
        let mut line = String::new();
        let address = loop {
            line.clear();
            anyhow::ensure!(said.read_line(&mut line)? > 0, "helve did not come up over HTTP");
            if let Some((_, rest)) = line.split_once("MCP at http://") {
                break rest.trim_end().trim_end_matches("/mcp").to_owned();
            }
        };
        // Drains later output, so that the pipe does not fill.
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Ok(Self { child, address })
    }

    /// The official SDK with a tool that does nothing.
    pub(super) fn sdk() -> Result<Option<Self>> {
        let Some(program) = cached("rmcp/rmcp-echo") else { return Ok(None) };
        let mut child =
            Command::new(program).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        Ok(Some(Self { child, address: line.trim().to_owned() }))
    }

    /// Megabytes that it holds: now, and at most so far.
    pub(super) fn memory(&self) -> (f64, f64) {
        wire::memory(self.child.id())
    }
}

impl Drop for HttpServerProcess {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A server that sends a fixed answer to any request, with one thread per connection. Returns its address.
fn start_baseline() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    Ok(address)
}

fn answer(stream: TcpStream) -> Result<()> {
    const BODY: &str =
        r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"done"}],"isError":false}}"#;
    let said =
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len());
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let (mut line, mut body) = (String::new(), Vec::new());
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.strip_prefix("Content-Length:") {
                length = value.trim().parse()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        body.resize(length, 0);
        stream.read_exact(&mut body)?;
        stream.get_mut().write_all(said.as_bytes())?;
    }
}
