//! `process`: look after a command in the background.

use std::time::Duration;

use helve_contract::{
    AccessRequest, Call, CommandLine, Effects, Error, Keep, Port, PortSet, Reply, Result, Tool,
    ports::{Signal, State, TaskId, TaskInfo, TaskOutput},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Looks after a command in the background: its state, its output, its input, a signal.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Process {
    /// Which command.
    pub id: String,
    /// What to do.
    pub action: Action,
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
pub enum Action {
    /// Tell where it stands.
    Status,
    /// Write to its standard input.
    Input,
    /// Send it a signal.
    Signal,
    /// Give its output so far.
    Poll,
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum ProcessOut {
    /// Where it stands.
    Status(TaskInfo),
    /// This many bytes went to its standard input.
    Sent(TaskInfo, usize),
    /// This signal was sent.
    Signalled(TaskInfo, Signal),
    /// The end of its output so far.
    Polled(TaskInfo, TaskOutput),
}

impl Tool for Process {
    const NAME: &'static str = "process";
    const EFFECTS: Effects = Effects::READS.and(Effects::WRITES).and(Effects::EXECUTES);
    const NEEDS: PortSet = PortSet::of(&[Port::Commands]);
    const TIMEOUT: Duration = Duration::from_secs(30);
    type Output = ProcessOut;

    fn access(&self) -> Option<AccessRequest> {
        // What a running shell is sent may be a command, so command rules read it as one.
        let input = self.input.as_ref().filter(|_| self.action == Action::Input);
        let line = |input: &String| AccessRequest::command(CommandLine::OneOf(vec![input.clone()]), None);
        Some(input.map(line).unwrap_or_default())
    }

    async fn run(self, call: &Call) -> Result<ProcessOut> {
        let id = TaskId(self.id);
        let info = super::look(call, &id).await?;
        match self.action {
            Action::Status => Ok(ProcessOut::Status(info)),
            Action::Input => {
                let input = self.input.ok_or_else(|| Error::failed("there is no input to write; send some text"))?;
                running(&info)?;
                call.tasks().input(call, &id, input.as_bytes()).await?;
                Ok(ProcessOut::Sent(info, input.len()))
            }
            Action::Signal => {
                let signal = Signal::named(self.signal.as_deref().unwrap_or("SIGTERM"))?;
                running(&info)?;
                call.tasks().signal(call, &id, signal).await?;
                Ok(ProcessOut::Signalled(info, signal))
            }
            Action::Poll => {
                let from = info.written.saturating_sub(super::SHOWN as u64);
                let mut output = call.tasks().output(call, &id, from, super::SHOWN).await?;
                output.skipped += from;
                Ok(ProcessOut::Polled(info, output))
            }
        }
    }
}

fn running(info: &TaskInfo) -> Result<()> {
    match &info.state {
        State::Running => Ok(()),
        _ => Err(Error::failed(format!("process {} has ended already; ask for its status or output", info.id))),
    }
}

impl From<ProcessOut> for Reply {
    /// 000's words.
    fn from(out: ProcessOut) -> Self {
        let (mut cut, mut source_bytes) = (None, None);
        let (text, info) = match out {
            ProcessOut::Status(info) => (status(&info), info),
            ProcessOut::Sent(info, bytes) => (format!("wrote {bytes} bytes to process {}", info.id), info),
            ProcessOut::Signalled(info, signal) => (format!("sent {} to process {}", signal.name(), info.id), info),
            ProcessOut::Polled(info, output) => {
                cut = super::left_out(&info, &output);
                source_bytes = super::source_bytes(info.written, output.skipped, &output.merged);
                (polled(&info, &output), info)
            }
        };
        Self {
            text,
            cut,
            source_bytes,
            exit: info.state.exit().map(|exit| exit.code),
            keep: Keep::Tail,
            spill: info.file.clone(),
            wall: Some(info.level.name().to_owned()),
            ..Self::default()
        }
    }
}

fn status(info: &TaskInfo) -> String {
    let running = info.state == State::Running;
    let mut lines =
        vec![format!("state: {}", if running { "running" } else { "completed" }), format!("running: {running}")];
    if let Some(exit) = info.state.exit() {
        let how = match info.state {
            State::TimedOut(_) => "; timeout",
            State::Stopped(_) => "; stopped",
            State::Running | State::Ended(_) => "",
        };
        lines.push(format!("exit code: {}{how}", exit.code));
    }
    lines.push(format!("runtime: {}", super::seconds(info.ran)));
    lines.push(format!("output: {} bytes", info.written));
    lines.extend(super::remarks(&info.state));
    lines.join("\n")
}

fn polled(info: &TaskInfo, output: &TaskOutput) -> String {
    match (output.merged.as_str(), &info.state) {
        ("", State::Running) => "(no output yet)".to_owned(),
        ("", _) => "(no output)".to_owned(),
        (text, _) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::{Reply, Tool, ports::State};

    use super::{Action, Process};
    use crate::shell::testing::{Fake, exit};

    async fn ask(fake: &std::sync::Arc<Fake>, id: &str, action: Action, word: &str) -> String {
        let word = Some(word.to_owned()).filter(|it| !it.is_empty());
        let process = Process { id: id.into(), action, input: word.clone(), signal: word };
        process.run(&fake.call()).await.map_or_else(|error| format!("error: {error}"), |out| Reply::from(out).text)
    }

    #[tokio::test]
    async fn looks_after_a_running_process() {
        let fake = Fake::new(State::Running, &["ready\n"]);
        assert_eq!(
            ask(&fake, "t1", Action::Status, "").await,
            "state: running\nrunning: true\nruntime: 1.25 s\noutput: 6 bytes"
        );
        assert_eq!(ask(&fake, "t1", Action::Poll, "").await, "ready\n");
        assert_eq!(ask(&fake, "t1", Action::Input, "y\n").await, "wrote 2 bytes to process t1");
        assert_eq!(ask(&fake, "t1", Action::Input, "").await, "error: there is no input to write; send some text");
        assert_eq!(ask(&fake, "t1", Action::Signal, "int").await, "sent SIGINT to process t1");
        assert_eq!(
            ask(&fake, "t1", Action::Signal, "SIGSEGV").await,
            "error: unknown signal `SIGSEGV`; send one of SIGINT, SIGTERM, SIGKILL, SIGHUP, SIGQUIT, SIGSTOP, SIGCONT, \
             SIGUSR1, SIGUSR2"
        );
        let done: Vec<_> = fake.log().into_iter().filter(|it| !it.starts_with("wait")).collect();
        assert_eq!(done, ["input \"y\\n\"", "signal SIGINT"]);
    }

    #[tokio::test]
    async fn an_ended_process_is_still_told_of() {
        let fake = Fake::new(State::TimedOut(exit(143)), &["x".repeat(10_003).leak()]);
        assert_eq!(
            ask(&fake, "t1", Action::Status, "").await,
            "state: completed\nrunning: false\nexit code: 143; timeout\nruntime: 1.25 s\noutput: 10003 bytes"
        );
        assert_eq!(ask(&fake, "t1", Action::Poll, "").await, "x".repeat(10_003));
        assert_eq!(
            ask(&fake, "t1", Action::Signal, "").await,
            "error: process t1 has ended already; ask for its status or output"
        );
    }

    #[tokio::test]
    async fn output_that_is_not_in_memory_any_more_is_counted() {
        let long: &'static str = "x\n".repeat(super::super::SHOWN / 2 + 3).leak();
        let poll = Process { id: "t1".into(), action: Action::Poll, input: None, signal: None };
        let reply = Reply::from(poll.run(&Fake::new(State::Running, &[long]).call()).await.unwrap());
        assert_eq!(reply.cut.map(|it| it.bytes), Some(524_294));
        assert_eq!((reply.text.len(), reply.spill.as_deref()), (524_288, Some("/spill/t1")));
    }

    #[tokio::test]
    async fn an_unknown_id_gets_the_known_ones() {
        let fake = Fake::new(State::Running, &[]);
        assert_eq!(
            ask(&fake, "t9", Action::Status, "").await,
            "error: no task `t9` in this session; there are t1 (running, `make all`)"
        );
    }
}
