//! `helve batch`: many calls, one per line; replies in the order of the calls.

use std::{
    io::{self, BufRead, Read},
    process::ExitCode,
    thread,
};

use helve_agent::SessionSpec;
use helve_contract::{Call, Reply};
use helve_engine::CallRequest;
use helve_runtime::{Caller, OpenSession};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Receiver};

use super::{SettingsArgs, call};
use crate::{
    fault::{CommandResult, EXIT_FAILURE},
    outside::Wanted,
    say, setup,
    workshop::HelveRuntime,
};

/// The maximum length of a line.
const MAX_LINE_BYTES: u64 = 16 << 20;
/// The maximum number of calls in a batch; adjacent read-only ones run in parallel.
const MAX_BATCH: usize = 64;

/// Call tools from JSON lines on standard input; print their replies as JSON lines, in order.
///
/// A line is {"tool": NAME, "args": {…}} and may have an "id", which comes back. Calls that only read and stand next to
/// each other run side by side. The exit code is 1 when a call failed.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  printf '%s\\n' '{\"tool\":\"ls\",\"args\":{}}' '{\"tool\":\"read\",\"args\":{\"path\":\"a.txt\"}}' |
    helve batch --dialect preset")]
pub(crate) struct Args {
    #[command(flatten)]
    choice: SettingsArgs,
}

/// A line of input: a call, or why it is none.
struct BatchLine {
    id: Value,
    request: Result<(String, Value), String>,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        let settings = self.choice.load_and_warn()?;
        let dialect = super::configured_dialect(&settings)?;
        let runtime = setup::runtime()?;
        let bench = HelveRuntime::with_external(settings, &dialect, &Wanted::All, &runtime)?;
        let need = SessionSpec { dialect: Some(dialect.name.to_owned()), ..SessionSpec::default() };
        let opened = bench.session(need).caller(Caller::Person).build()?;
        let failed = runtime.block_on(async {
            let (mut lines, mut count, mut failed) = (read_lines(), 0, false);
            let mut waiting = Vec::new();
            let work = async {
                while lines.recv_many(&mut waiting, MAX_BATCH).await > 0 {
                    failed |= run_lines(&opened, waiting.drain(..), &mut count).await;
                }
                failed
            };
            let failed = tokio::select! {
                failed = work => failed,
                () = setup::wait_for_shutdown_signal() => true,
            };
            setup::stop_tasks(opened.session.clone()).await;
            setup::shutdown_servers(bench.servers()).await;
            failed
        });
        Ok(if failed { ExitCode::from(EXIT_FAILURE) } else { ExitCode::SUCCESS })
    }
}

/// Reads lines on a separate thread, so that available lines form one batch.
fn read_lines() -> Receiver<BatchLine> {
    let (send, receive) = mpsc::channel(MAX_BATCH);
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        for number in 1.. {
            let mut line = Vec::new();
            let line = match input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) if line.len() as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") => BatchLine {
                    id: Value::Null,
                    request: Err(format!("line {number} is longer than {MAX_LINE_BYTES} bytes")),
                },
                Ok(_) if line.trim_ascii().is_empty() => continue,
                Ok(_) => parse_line(number, &line),
                Err(error) => BatchLine { id: Value::Null, request: Err(format!("standard input: {error}")) },
            };
            let over = line.request.is_err() && line.id.is_null() && is_fatal(&line);
            if send.blocking_send(line).is_err() || over {
                break;
            }
        }
    });
    receive
}

/// After a read error or an unterminated line, later lines cannot be separated.
fn is_fatal(line: &BatchLine) -> bool {
    line.request.as_ref().is_err_and(|why| why.starts_with("standard input") || why.contains("is longer than"))
}

fn parse_line(number: u32, line: &[u8]) -> BatchLine {
    let wanted = "write {\"tool\": NAME, \"args\": {…}} on one line";
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => return BatchLine { id: Value::Null, request: Err(format!("line {number}: {error}; {wanted}")) },
    };
    let id = value.get("id").cloned().unwrap_or(Value::Null);
    let request = match value.get("tool").and_then(Value::as_str) {
        Some(tool) => Ok((tool.to_owned(), value.get("args").cloned().unwrap_or_else(|| json!({})))),
        None => Err(format!("line {number} names no tool; {wanted}")),
    };
    BatchLine { id, request }
}

/// Runs the calls of these lines and prints a reply for each. Returns whether one failed.
async fn run_lines(opened: &OpenSession, lines: impl Iterator<Item = BatchLine>, count: &mut usize) -> bool {
    let mut slots: Vec<(Value, Option<Reply>)> = Vec::new();
    let mut requests = Vec::new();
    for line in lines {
        *count += 1;
        let id = if line.id.is_null() { json!(*count) } else { line.id };
        match line.request {
            Ok((name, args)) => {
                let call = Call::new(format!("cli-{count}"), opened.session.clone());
                requests.push(CallRequest { name, args: args.into(), call });
                slots.push((id, None));
            }
            Err(why) => slots.push((id, Some(Reply::error(why)))),
        }
    }
    let mut replies = opened.engine.batch(requests).await.into_iter();
    let mut failed = false;
    for (id, reply) in slots {
        let reply = reply.or_else(|| replies.next()).unwrap_or_else(|| Reply::error("no reply"));
        failed |= reply.is_error;
        let mut whole = call::reply_json(&reply);
        if let Value::Object(map) = &mut whole {
            map.shift_insert(0, "id".into(), id);
        }
        say!("{whole}");
    }
    failed
}
