//! Programs that answer lines with lines: MCP over standard input and output.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::report::first_line;

/// A process that answers lines with lines.
pub(crate) struct PeerProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    id: u64,
}

impl PeerProcess {
    /// Starts it.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let told = command.get_program().display().to_string();
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context(told)?;
        let input = child.stdin.take();
        let output = BufReader::with_capacity(1 << 18, child.stdout.take().context("no output")?);
        Ok(Self { child, input, output, id: 100 })
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        let input = self.input.as_mut().context("no input")?;
        input.write_all(format!("{message}\n").as_bytes())?;
        Ok(())
    }

    /// The next answer. What the server tells or asks by itself is passed over.
    fn read_response(&mut self) -> Result<String> {
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(self.output.read_line(&mut line)? > 0, "the process ended without an answer");
            let head = line.get(..200).unwrap_or(&line);
            if line.starts_with('{') && !head.contains("\"method\":") {
                return Ok(line);
            }
            self.refuse(&line)?;
        }
    }

    /// A server that asks its client something may wait for the answer.
    fn refuse(&mut self, line: &str) -> Result<()> {
        if let Ok(Value::Object(asked)) = serde_json::from_str(line)
            && let Some(id) = asked.get("id")
        {
            let empty = if asked["method"] == "roots/list" { json!({ "roots": [] }) } else { json!({}) };
            self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": empty }))?;
        }
        Ok(())
    }

    /// Sends a line and waits for one.
    pub(crate) fn request(&mut self, message: &Value) -> Result<String> {
        self.send(message)?;
        self.read_response()
    }

    /// A client's first words, up to the list of tools.
    pub(crate) fn initialize(&mut self) -> Result<Value> {
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "bench", "version": "1" } });
        self.request(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }))?;
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(serde_json::from_str(&self.request(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }))?)?)
    }

    /// Calls a tool; the answer as it came. A failure of the tool is an error here.
    pub(crate) fn call(&mut self, tool: &str, args: &Value) -> Result<String> {
        self.id += 1;
        let call = request(self.id, tool, args);
        let answer = self.request(&call)?;
        check_response(&answer).with_context(|| format!("{tool} {}", first_line(&args.to_string())))?;
        Ok(answer)
    }

    /// Calls a tool, and waits for nothing: `answered` does.
    pub(crate) fn begin(&mut self, tool: &str, args: &Value) -> Result<()> {
        self.id += 1;
        let call = request(self.id, tool, args);
        self.send(&call)
    }

    /// The answer to what was begun.
    pub(crate) fn wait(&mut self) -> Result<String> {
        let answer = self.read_response()?;
        check_response(&answer)?;
        Ok(answer)
    }

    /// Calls a tool with many arguments at once, and waits for all answers.
    pub(crate) fn burst(&mut self, tool: &str, many: &[Value]) -> Result<()> {
        self.burst_of(many.iter().map(|args| (tool.to_owned(), args.clone())))
    }

    /// Makes many calls at once, and waits for all answers.
    pub(crate) fn burst_of(&mut self, calls: impl IntoIterator<Item = (String, Value)>) -> Result<()> {
        let mut input = self.input.take().context("no input")?;
        let (mut lines, first) = (String::new(), self.id);
        for (tool, args) in calls {
            self.id += 1;
            lines += &format!("{}\n", request(self.id, &tool, &args));
        }
        // Both directions at once, or two full pipes would wait for each other.
        let answered = std::thread::scope(|scope| {
            let sent = scope.spawn(|| input.write_all(lines.as_bytes()));
            for _ in first..self.id {
                check_response(&self.read_response()?)?;
            }
            sent.join().ok().context("the sender broke")??;
            Ok(())
        });
        self.input = Some(input);
        answered
    }

    /// Megabytes of memory that it and its children hold: now, and at most so far.
    pub(crate) fn memory(&self) -> (f64, f64) {
        memory(self.child.id())
    }

    /// Megabytes that it holds now, without its children.
    pub(crate) fn own_memory(&self) -> f64 {
        process_memory(self.child.id()).0
    }
}

/// Megabytes that a process and its children hold: now, and at most so far.
pub(crate) fn memory(id: u32) -> (f64, f64) {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok()).collect::<String>();
    let children = children.split_whitespace().filter_map(|it| it.parse().ok()).map(memory);
    children.fold(process_memory(id), |sum, it| (sum.0 + it.0, sum.1 + it.1))
}

fn process_memory(id: u32) -> (f64, f64) {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|it| it.trim().trim_end_matches("kB").trim().parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
    };
    (field("VmRSS"), field("VmHWM"))
}

fn request(id: u64, tool: &str, args: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": args } })
}

/// Whether an answer is one, without parsing all of it.
fn check_response(answer: &str) -> Result<()> {
    let (head, tail) =
        (&answer.as_bytes()[..answer.len().min(200)], &answer.as_bytes()[answer.len().saturating_sub(200)..]);
    let has = |text: &[u8], what: &[u8]| text.windows(what.len()).any(|it| it == what);
    if has(head, b"\"error\":{") || has(head, b"\"isError\":true") || has(tail, b"\"isError\":true") {
        bail!("{}", first_line(answer));
    }
    Ok(())
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // The end of its input is its end. One that goes on is ended, so that it does not work beside the others.
        drop(self.input.take());
        let begun = std::time::Instant::now();
        while begun.elapsed().as_secs() < 2 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
