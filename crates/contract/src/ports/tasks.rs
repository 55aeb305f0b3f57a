//! Running commands: one manager behind `exec`, `process`, `Bash`, `TaskOutput` and the rest.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use super::{
    host::{ProcessExit, ProcessSpec, SandboxLevel, Signal},
    set::Port,
};
use crate::{Call, Error, Result};

/// The tasks of all sessions. A task is bound to the session that started it; no other sees it.
#[async_trait]
pub trait Tasks: Send + Sync {
    /// Whether commands can be run at all.
    fn is_available(&self) -> bool {
        true
    }

    /// Starts a command. After `timeout` the whole tree gets TERM, a grace, and KILL.
    /// Progress of a task in the foreground goes to the call.
    async fn start(&self, call: &Call, command: ProcessSpec, timeout: Option<Duration>, label: &str) -> Result<TaskId>;

    /// Waits until the task has ended, the time is over or the call is cancelled, and tells where it stands.
    async fn wait(&self, call: &Call, id: &TaskId, until: WaitUntil) -> Result<TaskInfo>;

    /// What the task has written so far, from a byte of its interleaved output on; at most `max` bytes, from the
    /// beginning or (`tail`) the end.
    async fn output(&self, call: &Call, id: &TaskId, from: u64, max: usize) -> Result<TaskOutput>;

    /// Writes to the task's standard input.
    async fn input(&self, call: &Call, id: &TaskId, bytes: &[u8]) -> Result<()>;

    /// Sends a signal to the task's whole tree.
    async fn signal(&self, call: &Call, id: &TaskId, signal: Signal) -> Result<()>;

    /// Ends the task: TERM, grace, KILL. Returns when nothing of it is left.
    async fn stop(&self, call: &Call, id: &TaskId) -> Result<TaskInfo>;

    /// The session's tasks, oldest first.
    async fn list(&self, call: &Call) -> Vec<TaskInfo>;

    /// Forgets a task that was run in the foreground and has been answered for. Its output file stays until it expires.
    async fn forget(&self, call: &Call, id: &TaskId);

    /// Whether a task in the background goes on after the call that started it. False in a process that serves one
    /// call and exits: its tasks end with it.
    fn outlives_call(&self) -> bool {
        true
    }
}

/// The id of a task: opaque, never a process id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub String);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How long to wait for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitUntil {
    /// Not at all.
    Now,
    /// This long at most.
    For(Duration),
    /// Until it ends.
    Exit,
}

/// Where a task stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// Its id.
    pub id: TaskId,
    /// The command, as it was sent.
    pub command: String,
    /// Running, or how it ended.
    pub status: ProcessStatus,
    /// How long it ran, or has been running.
    pub elapsed: Duration,
    /// Bytes of output so far, both streams.
    pub output_bytes: u64,
    /// The walls around it.
    pub sandbox_level: SandboxLevel,
    /// The file that holds all of its raw output, once there is one.
    pub output_file: Option<String>,
}

/// Running, or how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessStatus {
    /// It runs.
    Running,
    /// It ended by itself.
    Exited(ProcessExit),
    /// It ran out of time and was ended.
    TimedOut(ProcessExit),
    /// It was stopped by the caller.
    Stopped(ProcessExit),
}

impl ProcessStatus {
    /// How it ended, if it has.
    #[must_use]
    pub fn exit(&self) -> Option<&ProcessExit> {
        match self {
            Self::Running => None,
            Self::Exited(exit) | Self::TimedOut(exit) | Self::Stopped(exit) => Some(exit),
        }
    }
}

/// Output of a task: as text, escape sequences made harmless, characters never cut in half.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskOutput {
    /// Both streams as they came.
    pub merged: String,
    /// Standard output alone.
    pub stdout: String,
    /// Standard error alone.
    pub stderr: String,
    /// Where to go on: the byte after the last one shown.
    pub next: u64,
    /// Bytes before the first one shown that are no longer in memory; the file has them.
    pub skipped: u64,
}

/// No tasks at all: for sessions without a shell.
pub struct NoTasks;

#[async_trait]
impl Tasks for NoTasks {
    fn is_available(&self) -> bool {
        false
    }
    async fn start(&self, _: &Call, _: ProcessSpec, _: Option<Duration>, _: &str) -> Result<TaskId> {
        Err(Error::denied(Port::Commands.why_missing()))
    }
    async fn wait(&self, _: &Call, id: &TaskId, _: WaitUntil) -> Result<TaskInfo> {
        Err(unknown_task_error(id))
    }
    async fn output(&self, _: &Call, id: &TaskId, _: u64, _: usize) -> Result<TaskOutput> {
        Err(unknown_task_error(id))
    }
    async fn input(&self, _: &Call, id: &TaskId, _: &[u8]) -> Result<()> {
        Err(unknown_task_error(id))
    }
    async fn signal(&self, _: &Call, id: &TaskId, _: Signal) -> Result<()> {
        Err(unknown_task_error(id))
    }
    async fn stop(&self, _: &Call, id: &TaskId) -> Result<TaskInfo> {
        Err(unknown_task_error(id))
    }
    async fn list(&self, _: &Call) -> Vec<TaskInfo> {
        Vec::new()
    }
    async fn forget(&self, _: &Call, _: &TaskId) {}
}

fn unknown_task_error(id: &TaskId) -> Error {
    Error::failed(format!("no task `{id}` in this session"))
}
