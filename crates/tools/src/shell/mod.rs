//! Commands and processes: run one, watch one, end one.

mod process;
mod run;
mod task;

pub use process::{Action, Process, ProcessOut};
pub use run::{Run, RunOut, Stdin};
pub use task::{TaskFound, TaskOutput, TaskRead, TaskStop, TaskStopped};

use std::time::Duration;

use helve_contract::{
    Call, Cut, Error, Result, count_lines,
    ports::{State, TaskId, TaskInfo, TaskOutput as TaskText},
};

/// How much output is taken into a reply at most: more than any dialect shows, and no more than the keeper of tasks
/// has of an end in memory. The task's file has all of it.
const SHOWN: usize = 512 << 10;

/// The word for where a task stands, as the dialects with tasks spell it.
fn word(state: &State) -> &'static str {
    match state {
        State::Running => "running",
        State::Ended(exit) if exit.code == 0 => "completed",
        State::Ended(_) | State::TimedOut(_) => "failed",
        State::Stopped(_) => "stopped",
    }
}

/// What there is to say about how a command ended, beside its output and exit code. One remark a line.
fn remarks(state: &State) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(exit) = state.exit() {
        if exit.left_behind {
            remarks.push(
                "A job remained when the command ended, and was ended with it. Start long jobs in the background."
                    .to_owned(),
            );
        }
        remarks.extend(exit.denials.iter().cloned());
    }
    remarks
}

/// What a task wrote before the output that is here; `None` when all of it is here. Lines that are not in memory cannot
/// be counted.
fn left_out(info: &TaskInfo, output: &TaskText) -> Option<Cut> {
    (output.skipped > 0).then(|| Cut { bytes: info.written, lines: count_lines(&output.merged) as u64 })
}

/// Bytes of the whole output, where the text does not show its bytes as they are: some are escaped, or were commands to a
/// terminal.
fn source_bytes(written: u64, unseen: u64, text: &str) -> Option<u64> {
    (text.len() as u64 != written.saturating_sub(unseen)).then_some(written)
}

/// `1.25 s` or `340 ms`.
fn seconds(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{:.2} s", ms as f64 / 1000.0),
    }
}

/// The error for an id that is not there, with those that are.
async fn strayed(call: &Call, id: &TaskId, error: Error) -> Error {
    let tasks = call.tasks().list(call).await;
    if !matches!(error, Error::Failed(_)) || tasks.iter().any(|it| it.id == *id) {
        return error;
    }
    let told = |it: &TaskInfo| format!("{} ({}, `{}`)", it.id, word(&it.state), brief(&it.command));
    let agents = call.agents().running(call).await;
    let agents = agents.iter().map(|it| format!("{} (running, the agent `{}`)", it.id, brief(&it.title)));
    let known: Vec<_> = tasks.iter().rev().take(5).map(told).chain(agents.take(5)).collect();
    let id: String = id.0.chars().take(64).collect();
    let known = if known.is_empty() {
        "no command was started in the background, and no agent is running".into()
    } else {
        format!("there are {}", known.join(", "))
    };
    Error::failed(format!("no task `{}` in this session; {known}", id.escape_debug()))
}

/// Waits without waiting: where a task stands now.
async fn look(call: &Call, id: &TaskId) -> Result<TaskInfo> {
    match call.tasks().wait(call, id, helve_contract::ports::Until::Now).await {
        Ok(info) => Ok(info),
        Err(error) => Err(strayed(call, id, error).await),
    }
}

/// A command in one short line.
fn brief(command: &str) -> String {
    let line = command.lines().next().unwrap_or_default();
    match line.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None if command.lines().nth(1).is_some() => format!("{line}…"),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod testing;
