//! The `Tasks` port: the manager of running commands behind `exec`, `process`, `Bash`, `TaskOutput` and others.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use super::{
    host::{ProcessExit, ProcessSpec, SandboxLevel, Signal},
    set::Port,
};
use crate::{Call, Error, Result};

/// The tasks of all sessions. A task belongs to the session that started it; other sessions cannot see it.
#[async_trait]
pub trait Tasks: Send + Sync {
    /// Whether this session can run commands.
    fn is_available(&self) -> bool {
        true
    }

    /// Starts a command. After `timeout` the process tree gets TERM, a grace period, and KILL. Progress of a foreground
    /// task goes to the call.
    async fn start(&self, call: &Call, command: ProcessSpec, timeout: Option<Duration>, label: &str) -> Result<TaskId>;

    /// Waits until the task ends, the timeout expires or the call is cancelled, and returns the task's state.
    async fn wait(&self, call: &Call, id: &TaskId, until: WaitUntil) -> Result<TaskInfo>;

    /// The output of the task, from byte `from` of its interleaved output, at most `max` bytes.
    async fn output(&self, call: &Call, id: &TaskId, from: u64, max: usize) -> Result<TaskOutput>;

    /// Writes to the task's standard input.
    async fn input(&self, call: &Call, id: &TaskId, bytes: &[u8]) -> Result<()>;

    /// Sends a signal to the process tree of the task.
    async fn signal(&self, call: &Call, id: &TaskId, signal: Signal) -> Result<()>;

    /// Stops the task: TERM, grace period, KILL. Returns when the whole process tree has ended.
    async fn stop(&self, call: &Call, id: &TaskId) -> Result<TaskInfo>;

    /// The session's tasks, oldest first.
    async fn list(&self, call: &Call) -> Vec<TaskInfo>;

    /// Drops a foreground task that has been reported. Its output file stays until it expires.
    async fn forget(&self, call: &Call, id: &TaskId);

    /// Whether a background task continues after the call that started it. False in a process that serves one call and
    /// exits.
    fn outlives_call(&self) -> bool {
        true
    }
}

/// The id of a task. It is opaque, and never a process id.
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
    /// At most this long.
    For(Duration),
    /// Until it ends.
    Exit,
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// Its id.
    pub id: TaskId,
    /// The command as the model sent it.
    pub command: String,
    /// Running, or how it ended.
    pub status: ProcessStatus,
    /// The running time so far.
    pub elapsed: Duration,
    /// The size of the output so far, both streams.
    pub output_bytes: u64,
    /// The sandbox level of the command.
    pub sandbox_level: SandboxLevel,
    /// The file with its whole raw output, once it exists.
    pub output_file: Option<String>,
}

/// The status of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessStatus {
    /// It runs.
    Running,
    /// It exited by itself.
    Exited(ProcessExit),
    /// It exceeded its timeout and was terminated.
    TimedOut(ProcessExit),
    /// The caller stopped it.
    Stopped(ProcessExit),
}

impl ProcessStatus {
    /// How it exited, if it has.
    #[must_use]
    pub fn exit(&self) -> Option<&ProcessExit> {
        match self {
            Self::Running => None,
            Self::Exited(exit) | Self::TimedOut(exit) | Self::Stopped(exit) => Some(exit),
        }
    }
}

/// Output of a task as valid text, with escape sequences neutralised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskOutput {
    /// Both streams, interleaved in order of arrival.
    pub merged: String,
    /// Standard output alone.
    pub stdout: String,
    /// Standard error alone.
    pub stderr: String,
    /// The offset after the last byte shown, for the next request.
    pub next: u64,
    /// The number of bytes before the first one shown that are only in the output file.
    pub skipped: u64,
}

/// No tasks, for sessions without a shell.
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
