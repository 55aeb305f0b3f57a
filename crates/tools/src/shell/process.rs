//! `process`: manages a background command.

use std::time::Duration;

use helve_contract::{
    AccessRequest, Call, CommandLine, Effects, Error, Port, PortSet, Reply, Result, Tool, TruncateSide,
    ports::{ProcessStatus, Signal, TaskId, TaskInfo, TaskOutput},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Looks after a command in the background: its state, its output, its input, a signal.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ProcessTool {
    /// Which command.
    pub id: String,
    /// What to do.
    pub action: ProcessAction,
    /// What to write to its standard input.
    #[serde(default)]
    pub input: Option<String>,
    /// Which signal to send, such as SIGTERM.
    #[serde(default)]
    pub signal: Option<String>,
}

/// What to do with a command in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessAction {
    /// Tell where it stands.
    Status,
    /// Write to its standard input.
    Input,
    /// Send it a signal.
    Signal,
    /// Give its output so far.
    Poll,
}

/// The result.
#[derive(Clone, Debug)]
pub enum ProcessOutput {
    /// Where it stands.
    Status(TaskInfo),
    /// This many bytes went to its standard input.
    Sent(TaskInfo, usize),
    /// This signal was sent.
    Signalled(TaskInfo, Signal),
    /// The end of its output so far.
    Polled(TaskInfo, TaskOutput),
}

impl Tool for ProcessTool {
    const NAME: &'static str = "process";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES).union(Effects::EXECUTES);
    const NEEDS: PortSet = PortSet::of(&[Port::Commands]);
    const TIMEOUT: Duration = Duration::from_secs(30);
    type Output = ProcessOutput;

    fn access(&self) -> Option<AccessRequest> {
        // Input to a running shell may be a command, so command rules apply to it.
        let input = self.input.as_ref().filter(|_| self.action == ProcessAction::Input);
        let line = |input: &String| AccessRequest::command(CommandLine::OneOf(vec![input.clone()]), None);
        Some(input.map(line).unwrap_or_default())
    }

    async fn run(self, call: &Call) -> Result<ProcessOutput> {
        let id = TaskId(self.id);
        let info = super::task_info(call, &id).await?;
        match self.action {
            ProcessAction::Status => Ok(ProcessOutput::Status(info)),
            ProcessAction::Input => {
                let input = self.input.ok_or_else(|| Error::failed("there is no input to write; send some text"))?;
                require_running(&info)?;
                call.tasks().input(call, &id, input.as_bytes()).await?;
                Ok(ProcessOutput::Sent(info, input.len()))
            }
            ProcessAction::Signal => {
                let signal = Signal::parse(self.signal.as_deref().unwrap_or("SIGTERM"))?;
                require_running(&info)?;
                call.tasks().signal(call, &id, signal).await?;
                Ok(ProcessOutput::Signalled(info, signal))
            }
            ProcessAction::Poll => {
                let from = info.output_bytes.saturating_sub(super::MAX_OUTPUT_BYTES as u64);
                let mut output = call.tasks().output(call, &id, from, super::MAX_OUTPUT_BYTES).await?;
                output.skipped += from;
                Ok(ProcessOutput::Polled(info, output))
            }
        }
    }
}

fn require_running(info: &TaskInfo) -> Result<()> {
    match &info.status {
        ProcessStatus::Running => Ok(()),
        _ => Err(Error::failed(format!("process {} has ended already; ask for its status or output", info.id))),
    }
}

impl From<ProcessOutput> for Reply {
    /// The text of 000.
    fn from(out: ProcessOutput) -> Self {
        let (mut cut, mut source_bytes) = (None, None);
        let (text, info) = match out {
            ProcessOutput::Status(info) => (status(&info), info),
            ProcessOutput::Sent(info, bytes) => (format!("wrote {bytes} bytes to process {}", info.id), info),
            ProcessOutput::Signalled(info, signal) => (format!("sent {} to process {}", signal.name(), info.id), info),
            ProcessOutput::Polled(info, output) => {
                cut = super::left_out(&info, &output);
                source_bytes = super::source_bytes(info.output_bytes, output.skipped, &output.merged);
                (poll_text(&info, &output), info)
            }
        };
        Self {
            text,
            truncation: cut,
            source_bytes,
            exit_code: info.status.exit().map(|exit| exit.code),
            truncate_side: TruncateSide::KeepTail,
            spill_file: info.output_file.clone(),
            sandbox: Some(info.sandbox_level.name().to_owned()),
            ..Self::default()
        }
    }
}

fn status(info: &TaskInfo) -> String {
    let running = info.status == ProcessStatus::Running;
    let mut lines =
        vec![format!("state: {}", if running { "running" } else { "completed" }), format!("running: {running}")];
    if let Some(exit) = info.status.exit() {
        let how = match info.status {
            ProcessStatus::TimedOut(_) => "; timeout",
            ProcessStatus::Stopped(_) => "; stopped",
            ProcessStatus::Running | ProcessStatus::Exited(_) => "",
        };
        lines.push(format!("exit code: {}{how}", exit.code));
    }
    lines.push(format!("runtime: {}", super::format_duration(info.elapsed)));
    lines.push(format!("output: {} bytes", info.output_bytes));
    lines.extend(super::exit_notes(&info.status));
    lines.join("\n")
}

fn poll_text(info: &TaskInfo, output: &TaskOutput) -> String {
    match (output.merged.as_str(), &info.status) {
        ("", ProcessStatus::Running) => "(no output yet)".to_owned(),
        ("", _) => "(no output)".to_owned(),
        (text, _) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::{Reply, Tool, ports::ProcessStatus};

    use super::{ProcessAction, ProcessTool};
    use crate::shell::testing::{FakeTasks, exit};

    async fn ask(fake: &std::sync::Arc<FakeTasks>, id: &str, action: ProcessAction, word: &str) -> String {
        let word = Some(word.to_owned()).filter(|it| !it.is_empty());
        let process = ProcessTool { id: id.into(), action, input: word.clone(), signal: word };
        process.run(&fake.call()).await.map_or_else(|error| format!("error: {error}"), |out| Reply::from(out).text)
    }

    #[tokio::test]
    async fn looks_after_a_running_process() {
        let fake = FakeTasks::new(ProcessStatus::Running, &["ready\n"]);
        assert_eq!(
            ask(&fake, "t1", ProcessAction::Status, "").await,
            "state: running\nrunning: true\nruntime: 1.25 s\noutput: 6 bytes"
        );
        assert_eq!(ask(&fake, "t1", ProcessAction::Poll, "").await, "ready\n");
        assert_eq!(ask(&fake, "t1", ProcessAction::Input, "y\n").await, "wrote 2 bytes to process t1");
        assert_eq!(
            ask(&fake, "t1", ProcessAction::Input, "").await,
            "error: there is no input to write; send some text"
        );
        assert_eq!(ask(&fake, "t1", ProcessAction::Signal, "int").await, "sent SIGINT to process t1");
        assert_eq!(
            ask(&fake, "t1", ProcessAction::Signal, "SIGSEGV").await,
            "error: unknown signal `SIGSEGV`; send one of SIGINT, SIGTERM, SIGKILL, SIGHUP, SIGQUIT, SIGSTOP, SIGCONT, \
             SIGUSR1, SIGUSR2"
        );
        let done: Vec<_> = fake.log().into_iter().filter(|it| !it.starts_with("wait")).collect();
        assert_eq!(done, ["input \"y\\n\"", "signal SIGINT"]);
    }

    #[tokio::test]
    async fn an_ended_process_is_still_told_of() {
        let fake = FakeTasks::new(ProcessStatus::TimedOut(exit(143)), &["x".repeat(10_003).leak()]);
        assert_eq!(
            ask(&fake, "t1", ProcessAction::Status, "").await,
            "state: completed\nrunning: false\nexit code: 143; timeout\nruntime: 1.25 s\noutput: 10003 bytes"
        );
        assert_eq!(ask(&fake, "t1", ProcessAction::Poll, "").await, "x".repeat(10_003));
        assert_eq!(
            ask(&fake, "t1", ProcessAction::Signal, "").await,
            "error: process t1 has ended already; ask for its status or output"
        );
    }

    #[tokio::test]
    async fn output_that_is_not_in_memory_any_more_is_counted() {
        let long: &'static str = "x\n".repeat(super::super::MAX_OUTPUT_BYTES / 2 + 3).leak();
        let poll = ProcessTool { id: "t1".into(), action: ProcessAction::Poll, input: None, signal: None };
        let reply = Reply::from(poll.run(&FakeTasks::new(ProcessStatus::Running, &[long]).call()).await.unwrap());
        assert_eq!(reply.truncation.map(|it| it.bytes), Some(524_294));
        assert_eq!((reply.text.len(), reply.spill_file.as_deref()), (524_288, Some("/spill/t1")));
    }

    #[tokio::test]
    async fn an_unknown_id_gets_the_known_ones() {
        let fake = FakeTasks::new(ProcessStatus::Running, &[]);
        assert_eq!(
            ask(&fake, "t9", ProcessAction::Status, "").await,
            "error: no task `t9` in this session; there are t1 (running, `make all`)"
        );
    }
}
