//! Commands and processes: run, watch and end them.

mod process;
mod run;
mod task;

pub use process::{ProcessAction, ProcessOutput, ProcessTool};
pub use run::{RunStdin, RunTool, RunToolOutput};
pub use task::{BackgroundTask, TaskOutputResult, TaskOutputTool, TaskStopOutput, TaskStopTool};

use std::time::Duration;

use helve_contract::{
    Call, Error, Result, Truncation, count_lines,
    ports::{ProcessStatus, TaskId, TaskInfo, TaskOutput as TaskText},
};

/// The maximum output in a reply: more than any dialect shows, and no more than the task runner keeps in memory. The
/// spill file has all of it.
const MAX_OUTPUT_BYTES: usize = 512 << 10;

/// The state name that the dialects with tasks use.
fn state_label(state: &ProcessStatus) -> &'static str {
    match state {
        ProcessStatus::Running => "running",
        ProcessStatus::Exited(exit) if exit.code == 0 => "completed",
        ProcessStatus::Exited(_) | ProcessStatus::TimedOut(_) => "failed",
        ProcessStatus::Stopped(_) => "stopped",
    }
}

/// Notes about how a command ended, besides output and exit code. One per line.
fn exit_notes(state: &ProcessStatus) -> Vec<String> {
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

/// The part of the output before this one; `None` if it is complete. Lines that are not in memory cannot be counted.
fn left_out(info: &TaskInfo, output: &TaskText) -> Option<Truncation> {
    (output.skipped > 0).then(|| Truncation { bytes: info.output_bytes, lines: count_lines(&output.merged) as u64 })
}

/// The size of the whole output, if the text shows escaped bytes or omits terminal commands.
fn source_bytes(written: u64, unseen: u64, text: &str) -> Option<u64> {
    (text.len() as u64 != written.saturating_sub(unseen)).then_some(written)
}

/// `1.25 s` or `340 ms`.
fn format_duration(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{:.2} s", ms as f64 / 1000.0),
    }
}

/// The error for an id that is not there, with those that are.
async fn unknown_task_error(call: &Call, id: &TaskId, error: Error) -> Error {
    let tasks = call.tasks().list(call).await;
    if !matches!(error, Error::Failed(_)) || tasks.iter().any(|it| it.id == *id) {
        return error;
    }
    let told = |it: &TaskInfo| format!("{} ({}, `{}`)", it.id, state_label(&it.status), short_command(&it.command));
    let agents = call.agents().running(call).await;
    let agents = agents.iter().map(|it| format!("{} (running, the agent `{}`)", it.id, short_command(&it.title)));
    let known: Vec<_> = tasks.iter().rev().take(5).map(told).chain(agents.take(5)).collect();
    let id: String = id.0.chars().take(64).collect();
    let known = if known.is_empty() {
        "no command was started in the background, and no agent is running".into()
    } else {
        format!("there are {}", known.join(", "))
    };
    Error::failed(format!("no task `{}` in this session; {known}", id.escape_debug()))
}

/// The current state of a task, without waiting.
async fn task_info(call: &Call, id: &TaskId) -> Result<TaskInfo> {
    match call.tasks().wait(call, id, helve_contract::ports::WaitUntil::Now).await {
        Ok(info) => Ok(info),
        Err(error) => Err(unknown_task_error(call, id, error).await),
    }
}

/// A command in one short line.
fn short_command(command: &str) -> String {
    let line = command.lines().next().unwrap_or_default();
    match line.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None if command.lines().nth(1).is_some() => format!("{line}…"),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod testing;
