//! `helve mcp` over standard input and output, beside a process that only sends back what it gets.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::files::repeat;
use crate::{
    data::Dice,
    desk::in_memory,
    report::{Duel, Report},
};

/// Sends back each line: the floor of a round trip.
pub(crate) fn echo() -> Result<ExitCode> {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        output.write_all(&line)?;
        output.flush()?;
        line.clear();
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn run(report: &mut Report) -> Result<()> {
    let own = std::env::current_exe()?;
    let helve = report.helve.clone().unwrap_or_else(|| own.with_file_name("helve"));
    if !helve.is_file() {
        report.skip(&format!(
            "{} is not there: build it with --profile quick, or name one with --helve",
            helve.display()
        ));
        return Ok(());
    }
    let (_held, root) = in_memory()?;
    let place = Place { helve: helve.canonicalize()?, own, work: root.join("work"), state: root.join("state") };
    fs::create_dir(&place.work)?;
    fs::write(place.work.join("small.txt"), Dice::new().text(1 << 10))?;

    let mut server = place.served()?;
    let mut floor = Peer::start(Command::new(&place.own).arg("echo"))?;
    let tools = server.listed()?;
    let bytes = tools.to_string().len();
    let count = tools["result"]["tools"].as_array().map_or(0, Vec::len);
    floor.ask(&listing())?;
    report.note(&format!(
        "after start: {} KB resident with {count} tools ({bytes} bytes of tools/list); the echo process has {} KB",
        server.resident()?,
        floor.resident()?
    ));

    report.duel(
        Duel::of("start, and answer tools/list", "start a process, one line there and back"),
        &mut |times| repeat(times, || place.served()?.listed().map(|_| ())),
        &mut |times| repeat(times, || Peer::start(Command::new(&place.own).arg("echo"))?.ask(&listing()).map(|_| ())),
    )?;
    report.duel(
        Duel::of("ping, there and back", "the same line sent back"),
        &mut |times| repeat(times, || server.ask(&ping()).map(|_| ())),
        &mut |times| repeat(times, || floor.ask(&ping()).map(|_| ())),
    )?;
    let read = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": { "name": "read", "arguments": { "path": "small.txt" } } });
    let answer: Value = serde_json::from_str(&server.ask(&read)?)?;
    ensure!(answer["result"]["content"][0]["text"].as_str().is_some_and(|it| it.len() > 1000), "no text: {answer}");
    report.duel(
        Duel::of("read 1 KB, there and back", "the request sent back"),
        &mut |times| repeat(times, || server.ask(&read).map(|_| ())),
        &mut |times| repeat(times, || floor.ask(&read).map(|_| ())),
    )?;
    report.note(&format!("after the calls: {} KB resident", server.resident()?));
    Ok(())
}

/// Where the server works.
struct Place {
    helve: PathBuf,
    own: PathBuf,
    work: PathBuf,
    state: PathBuf,
}

impl Place {
    fn served(&self) -> Result<Peer> {
        let mut command = Command::new(&self.helve);
        command.args(["mcp", "--dialect", "solo", "--workspace"]).arg(&self.work);
        command.env("HELVE_STATE_DIR", &self.state).current_dir(&self.work);
        Peer::start(&mut command)
    }
}

/// A process that answers lines with lines.
pub(super) struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, input, output })
    }

    fn tell(&mut self, message: &Value) -> Result<()> {
        let input = self.input.as_mut().context("no input")?;
        input.write_all(format!("{message}\n").as_bytes())?;
        Ok(())
    }

    /// Sends a line and waits for one.
    pub(super) fn ask(&mut self, message: &Value) -> Result<String> {
        self.tell(message)?;
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the process ended without an answer to {message}");
        }
        Ok(line)
    }

    /// A client's first words, up to the list of tools.
    pub(super) fn listed(&mut self) -> Result<Value> {
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "bench", "version": "1" } });
        self.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }))?;
        self.tell(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(serde_json::from_str(&self.ask(&listing())?)?)
    }

    /// Kilobytes of memory that it holds.
    fn resident(&self) -> Result<u64> {
        let path = Path::new("/proc").join(self.child.id().to_string()).join("status");
        let status = fs::read_to_string(path)?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The end of its input is its end.
        drop(self.input.take());
        _ = self.child.wait();
    }
}

fn listing() -> Value {
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" })
}

fn ping() -> Value {
    json!({ "jsonrpc": "2.0", "id": 3, "method": "ping" })
}
