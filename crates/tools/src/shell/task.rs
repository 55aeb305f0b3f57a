//! `task_output` and `task_stop`: read a task in the background, or end it.

use std::time::Duration;

use helve_contract::{
    Call, Effects, Error, Keep, Reply, Result, Tool,
    ports::{State, TaskId, TaskInfo, TaskOutput as Output, Until},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Gives the output of a task in the background, running or ended.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct TaskOutput {
    /// Which task.
    pub id: String,
    /// Wait until it has ended.
    #[serde(default)]
    pub block: bool,
    /// How long to wait at most.
    #[serde(default)]
    pub timeout: Option<Duration>,
}

/// The output of a task.
#[derive(Clone, Debug)]
pub struct TaskRead {
    /// Where it stands.
    pub info: TaskInfo,
    /// The end of what it wrote.
    pub output: Output,
    /// How long was waited in vain for its end.
    pub waited: Option<Duration>,
}

impl Tool for TaskOutput {
    const NAME: &'static str = "task_output";
    const EFFECTS: Effects = Effects::READS;
    const TIMEOUT: Duration = Duration::MAX;
    type Output = TaskRead;

    async fn run(self, call: &Call) -> Result<TaskRead> {
        let id = TaskId(self.id);
        let mut info = super::look(call, &id).await?;
        let mut waited = None;
        if self.block && info.state == State::Running {
            let limit = self.timeout.unwrap_or(Duration::from_secs(30));
            info = call.tasks().wait(call, &id, Until::For(limit)).await?;
            call.still_wanted()?;
            waited = (info.state == State::Running).then_some(limit);
        }
        let from = info.written.saturating_sub(super::SHOWN as u64);
        let mut output = call.tasks().output(call, &id, from, super::SHOWN).await?;
        output.skipped += from;
        Ok(TaskRead { info, output, waited })
    }
}

impl From<TaskRead> for Reply {
    /// 004's words: `Task ID (status: completed):` and the output. Waiting in vain is an error with the output so far.
    fn from(out: TaskRead) -> Self {
        let TaskRead { info, output, waited } = out;
        let word = super::word(&info.state);
        let mut text = String::new();
        if let Some(limit) = waited {
            text = format!("Task {} is still running after {}; its output so far:\n", info.id, super::seconds(limit));
        }
        text.push_str(&format!("Task {} (status: {word}):\n", info.id));
        if output.skipped > 0 {
            let place = info.file.as_ref().map(|file| format!("; all of it is in {file}")).unwrap_or_default();
            text.push_str(&format!("[{} earlier bytes are not shown{place}]\n", output.skipped));
        }
        text.push_str(if output.merged.is_empty() { "(no output)" } else { &output.merged });
        let exit = info.state.exit();
        let ended = match &info.state {
            State::TimedOut(exit) => {
                Some(format!("timed out after {}; exit code {}", super::seconds(info.ran), exit.code))
            }
            State::Ended(exit) if exit.code != 0 => Some(format!("exit code {}", exit.code)),
            _ => None,
        };
        for line in ended.into_iter().chain(super::remarks(&info.state)) {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!("[{line}]"));
        }
        let data = json!({
            "task_id": info.id.0,
            "status": word,
            "output": output.merged,
            "exitCode": exit.map(|exit| exit.code),
            "written": info.written,
        });
        Self {
            text,
            data: Some(data),
            is_error: waited.is_some(),
            exit: exit.map(|exit| exit.code),
            keep: Keep::Tail,
            spill: info.file,
            wall: Some(info.level.name().to_owned()),
            ..Self::default()
        }
    }
}

/// Ends a task in the background with all that it started.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct TaskStop {
    /// Which task.
    pub id: String,
}

/// A task that was ended.
#[derive(Clone, Debug)]
pub struct TaskStopped(
    /// Where it stands now.
    pub TaskInfo,
);

impl Tool for TaskStop {
    const NAME: &'static str = "task_stop";
    const EFFECTS: Effects = Effects::WRITES;
    const TIMEOUT: Duration = Duration::from_secs(30);
    type Output = TaskStopped;

    async fn run(self, call: &Call) -> Result<TaskStopped> {
        let id = TaskId(self.id);
        let info = super::look(call, &id).await?;
        if info.state != State::Running {
            let word = super::word(&info.state);
            return Err(Error::failed(format!("Task {id} is not running (status: {word}); its output can be read")));
        }
        Ok(TaskStopped(call.tasks().stop(call, &id).await?))
    }
}

impl From<TaskStopped> for Reply {
    fn from(TaskStopped(info): TaskStopped) -> Self {
        let message = format!("Successfully stopped task: {} ({})", info.id, super::brief(&info.command));
        let data = json!({
            "message": message,
            "task_id": info.id.0,
            "task_type": "local_bash",
            "command": info.command,
        });
        Self { text: message, data: Some(data), wall: Some(info.level.name().to_owned()), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use helve_contract::{Reply, Tool, ports::State};

    use super::{TaskOutput, TaskStop};
    use crate::shell::testing::{Fake, exit};

    async fn ask<T: Tool>(fake: &Arc<Fake>, tool: T) -> String {
        let reply: Reply = tool.run(&fake.call()).await.map_or_else(Into::into, Into::into);
        format!("{}{}", if reply.is_error { "error: " } else { "" }, reply.text)
    }

    fn output(block: bool) -> TaskOutput {
        TaskOutput { id: "t1".into(), block, timeout: Some(Duration::from_millis(500)) }
    }

    #[tokio::test]
    async fn says_where_a_task_stands_and_what_it_wrote() {
        for (state, want) in [
            (State::Running, "Task t1 (status: running):\nout\n"),
            (State::Ended(exit(0)), "Task t1 (status: completed):\nout\n"),
            (State::Ended(exit(3)), "Task t1 (status: failed):\nout\n[exit code 3]"),
            (State::TimedOut(exit(143)), "Task t1 (status: failed):\nout\n[timed out after 1.25 s; exit code 143]"),
            (State::Stopped(exit(143)), "Task t1 (status: stopped):\nout\n"),
        ] {
            assert_eq!(ask(&Fake::new(state, &["out\n"]), output(false)).await, want);
        }
    }

    #[tokio::test]
    async fn waiting_in_vain_is_an_error_with_the_output_so_far() {
        let fake = Fake::new(State::Running, &["half"]);
        assert_eq!(
            ask(&fake, output(true)).await,
            "error: Task t1 is still running after 500 ms; its output so far:\nTask t1 (status: running):\nhalf"
        );
        assert_eq!(fake.log(), ["wait Now", "wait For(500ms)"]);
    }

    #[tokio::test]
    async fn stops_what_runs_and_nothing_else() {
        let stop = || TaskStop { id: "t1".into() };
        assert_eq!(ask(&Fake::new(State::Running, &[]), stop()).await, "Successfully stopped task: t1 (make all)");
        assert_eq!(
            ask(&Fake::ends(0, &[]), stop()).await,
            "error: Task t1 is not running (status: completed); its output can be read"
        );
    }
}
