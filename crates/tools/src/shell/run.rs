//! `run`: runs a shell command in the foreground or background.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::Duration,
};

use futures::FutureExt;
use helve_contract::{
    Access, AccessRequest, Call, CommandLine, Effects, Error, Port, PortSet, Reply, RequestedCommand, Result, Root,
    RootPermission, SafePath, Tool, TruncateSide, Truncation,
    ports::{
        FileKind, NetworkAccess, ProcessSpec, ProcessStatus, SandboxLevel, StdinSource, Streams, TaskId, TaskInfo,
        TaskOutput, TerminalSize, WaitUntil,
    },
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Runs a shell command and tells its output and exit code.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunTool {
    /// The command, for bash.
    pub script: String,
    /// Program and arguments instead of a script: for commands that Helve builds itself.
    #[serde(skip)]
    #[schemars(skip)]
    pub argv: Vec<String>,
    /// Where it starts; the session's folder otherwise.
    pub dir: Option<String>,
    /// More names and values for its environment.
    pub env: BTreeMap<String, String>,
    /// When it is ended; `None` lets it run.
    pub timeout: Option<Duration>,
    /// The session's own limit for commands replaces `timeout`: for tools whose parameters have none.
    #[serde(skip)]
    #[schemars(skip)]
    pub session_timeout: bool,
    /// Do not wait for it.
    pub background: bool,
    /// What it is for, in a few words; the label of the task.
    pub description: Option<String>,
    /// What it reads.
    pub stdin: RunStdin,
    /// Give it a terminal.
    pub terminal: bool,
    /// Keep it away from the network, whatever is configured.
    pub offline: bool,
    /// Whether standard output and standard error come back in one text, in the order written, or apart.
    #[serde(skip)]
    #[schemars(skip)]
    pub streams: Streams,
    /// Which end of a long output comes back.
    #[serde(skip)]
    #[schemars(skip)]
    pub keep: TruncateSide,
    /// The folder that its shell ends in is where the session's next command starts.
    #[serde(skip)]
    #[schemars(skip)]
    pub keep_dir: bool,
}

/// What a command reads from its standard input.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStdin {
    /// Nothing: it is at its end.
    #[default]
    Closed,
    /// This text, and then the end.
    Text(String),
    /// What is written to it later.
    Open,
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct RunToolOutput {
    /// Its id, where it was left in the background.
    pub id: Option<String>,
    /// Running, or how it ended.
    pub state: ProcessStatus,
    /// Both streams, in the order written unless they were requested separately.
    pub merged: String,
    /// Standard output; both streams where they are merged.
    pub stdout: String,
    /// Standard error; empty where both are merged.
    pub stderr: String,
    /// Exit code, once it has ended.
    pub exit: Option<i32>,
    /// How long it ran.
    pub ran: Duration,
    /// The limit that it ran under.
    pub timeout: Option<Duration>,
    /// The sandbox around it.
    pub sandbox_level: SandboxLevel,
    /// The file with all of its raw output.
    pub file: Option<String>,
    /// Bytes of output in all, shown or not.
    pub total_bytes: u64,
    /// Bytes of output that are not in the texts here.
    pub omitted_bytes: u64,
    /// Whether it left processes that held its output open; they were ended.
    pub left_behind: bool,
    /// What the sandbox denied.
    pub denials: Vec<String>,
    /// Whether it timed out.
    pub timed_out: bool,
    /// Whether the caller cancelled it.
    pub cancelled: bool,
    /// Which side of a long output is kept.
    pub keep: TruncateSide,
    /// The next working directory, if it is not where this command ended.
    pub strayed: Option<String>,
    /// Whether it was left in the background of a single-call process and ends with it.
    pub ends_with_call: bool,
}

impl Tool for RunTool {
    const NAME: &'static str = "run";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES).union(Effects::EXECUTES);
    const NEEDS: PortSet = PortSet::of(&[Port::Commands]);
    const TIMEOUT: Duration = Duration::MAX;
    type Output = RunToolOutput;

    fn access(&self) -> Option<AccessRequest> {
        let line = if self.argv.is_empty() {
            CommandLine::Script(self.script.clone())
        } else {
            CommandLine::Words(self.argv.clone())
        };
        let variables = self.env.keys().cloned().collect();
        let command = RequestedCommand { line, dir: self.dir.clone(), variables };
        Some(AccessRequest { command: Some(command), ..AccessRequest::default() })
    }

    async fn run(mut self, call: &Call) -> Result<RunToolOutput> {
        if self.session_timeout {
            self.timeout = call.session.command_timeout.or(self.timeout);
        }
        if self.argv.is_empty() && self.script.trim().is_empty() {
            return Err(Error::failed("the command is empty"));
        }
        if self.script.contains('\0') {
            return Err(Error::failed("the command has a NUL character in it, which no shell takes"));
        }
        let gone = self.reset_missing_dir(call).await?;
        let command = self.command(call)?;
        let label = self.description.as_deref().unwrap_or(&self.script);
        let id = call.tasks().start(call, command, self.timeout, label).await?;

        if self.background {
            let info = super::task_info(call, &id).await?;
            let ends_with_call = !call.tasks().outlives_call();
            return Ok(RunToolOutput { ends_with_call, ..self.to_output(info, TaskOutput::default(), Some(id.0)) });
        }
        let mut leash = StopOnDrop { call, id: &id, held: true };
        let mut info = call.tasks().wait(call, &id, WaitUntil::Exit).await;
        let cancelled = call.cancel.is_cancelled();
        if cancelled && !matches!(&info, Ok(info) if info.status.exit().is_some()) {
            info = call.tasks().stop(call, &id).await;
        }
        let info = info?;
        leash.held = info.status.exit().is_none();
        let output = self.output(call, &id, &info).await?;
        call.tasks().forget(call, &id).await;
        let strayed = self.follow_cwd(call, &info.status).await.or(gone);
        Ok(RunToolOutput { cancelled, strayed, ..self.to_output(info, output, None) })
    }
}

/// Ends a command when its call is dropped.
struct StopOnDrop<'a> {
    call: &'a Call,
    id: &'a TaskId,
    held: bool,
}

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        if self.held {
            // Nothing can be awaited here; one poll suffices to send the request.
            let order = AssertUnwindSafe(|| self.call.tasks().stop(self.call, self.id).now_or_never());
            _ = catch_unwind(order);
        }
    }
}

impl RunTool {
    fn command(&self, call: &Call) -> Result<ProcessSpec> {
        let workspace = &call.session.workspace;
        let here = call.session.cwd()?;
        let dir = match &self.dir {
            Some(dir) => workspace.check(Path::new(dir), Access::Read, Some(&here))?,
            None => here,
        };
        let roots = workspace.roots().iter().map(|root| root_path(call, root)).collect::<Result<_>>()?;
        let input = match &self.stdin {
            RunStdin::Closed => StdinSource::Closed,
            RunStdin::Text(text) => StdinSource::Bytes(text.clone().into_bytes()),
            RunStdin::Open => StdinSource::Open,
        };
        Ok(ProcessSpec {
            script: self.argv.is_empty().then(|| self.script.clone()),
            argv: self.argv.clone(),
            cwd: dir,
            roots,
            env: self.env.clone().into_iter().collect(),
            stdin: input,
            network: if self.offline { NetworkAccess::Off } else { NetworkAccess::Configured },
            terminal: self.terminal.then_some(TerminalSize { rows: 24, columns: 80 }),
            report_cwd: self.keep_dir && !self.background && may_change_dir(&self.script),
            streams: self.streams,
        })
    }

    /// Resets the working directory if it no longer exists, with a note.
    async fn reset_missing_dir(&self, call: &Call) -> Result<Option<String>> {
        let (here, top) = (call.session.cwd()?, call.workspace_root()?);
        if !self.keep_dir || here.host_path() == top.host_path() || is_folder(call, &here).await {
            return Ok(None);
        }
        let said = format!("{here} is gone; commands start in {top} again");
        call.session.set_cwd(top);
        Ok(Some(said))
    }

    /// Follows the shell's working directory. Resets it, with a note, if no command may start there.
    async fn follow_cwd(&self, call: &Call, state: &ProcessStatus) -> Option<String> {
        let ProcessStatus::Exited(exit) = state else { return None };
        let ended = exit.dir.as_ref().filter(|_| self.keep_dir)?;
        let workspace = &call.session.workspace;
        let beneath = |root: &Root| Some((root.dir.clone(), ended.strip_prefix(&root.dir).ok()?.to_owned()));
        let nearest =
            workspace.roots().iter().filter_map(|root| beneath(root)).max_by_key(|(dir, _)| dir.as_os_str().len());
        let why = match nearest.map(|(root, rest)| workspace.resolve_in_root(&root, rest, Access::Read)) {
            Some(Ok(place)) if is_folder(call, &place).await => {
                call.session.set_cwd(place);
                return None;
            }
            Some(Ok(_)) => "is gone or cannot be read",
            Some(Err(_)) => "may not be read",
            None => "is outside the workspace",
        };
        let top = call.workspace_root().ok()?;
        let shown = workspace.display_path(ended);
        let said = format!("the command ended in {shown}, which {why}; the next one starts in {top}");
        call.session.set_cwd(top);
        Some(said)
    }

    /// The end of the output that matters.
    async fn output(&self, call: &Call, id: &TaskId, info: &TaskInfo) -> Result<TaskOutput> {
        let from = match self.keep {
            TruncateSide::KeepHead => 0,
            TruncateSide::KeepTail => info.output_bytes.saturating_sub(super::MAX_OUTPUT_BYTES as u64),
        };
        call.tasks().output(call, id, from, super::MAX_OUTPUT_BYTES).await
    }

    fn to_output(&self, info: TaskInfo, output: TaskOutput, id: Option<String>) -> RunToolOutput {
        let exit = info.status.exit().cloned();
        RunToolOutput {
            id,
            exit: exit.as_ref().map(|exit| exit.code),
            left_behind: exit.as_ref().is_some_and(|exit| exit.left_behind),
            denials: exit.map(|exit| exit.denials).unwrap_or_default(),
            timed_out: matches!(info.status, ProcessStatus::TimedOut(_)),
            cancelled: false,
            omitted_bytes: match self.keep {
                TruncateSide::KeepHead => info.output_bytes.saturating_sub(output.next) + output.skipped,
                TruncateSide::KeepTail => {
                    info.output_bytes.saturating_sub(super::MAX_OUTPUT_BYTES as u64) + output.skipped
                }
            },
            total_bytes: info.output_bytes,
            merged: output.merged,
            stdout: output.stdout,
            stderr: output.stderr,
            ran: info.elapsed,
            timeout: self.timeout,
            sandbox_level: info.sandbox_level,
            file: info.output_file,
            state: info.status,
            keep: self.keep,
            strayed: None,
            ends_with_call: false,
        }
    }
}

/// What is said of a command in the background of a process that serves one call.
const ENDS_WITH_CALL: &str = "It ends when this call returns, because this process serves one call and exits. \
                              Run it in the foreground, or in a session that lasts.";

/// Whether a script can change its directory. Asking the shell costs a process, and most do not.
fn may_change_dir(script: &str) -> bool {
    ["cd", "pushd", "popd", "eval", "source", ". "].iter().any(|word| script.contains(word))
}

async fn is_folder(call: &Call, place: &SafePath) -> bool {
    call.host().stat(place).await.is_ok_and(|about| about.kind == FileKind::Folder)
}

/// A whole root, with all the rights it has.
fn root_path(call: &Call, root: &Root) -> Result<SafePath> {
    let access = if root.rights == RootPermission::Write { Access::Write } else { Access::Read };
    call.session.workspace.resolve_in_root(&root.dir, "", access)
}

/// Rendering for the dialects.
impl RunToolOutput {
    /// 000: `exit code: N`, then the output. A failing command is no error.
    pub fn render_status_first(self) -> Reply {
        if let Some(id) = &self.id {
            let next = if self.ends_with_call { ENDS_WITH_CALL } else { "ask for its status or its output by this id" };
            let text = format!("started in the background; process id: {id}\n{next}");
            return self.reply(String::new(), text);
        }
        let end = match (self.timed_out, self.cancelled) {
            (true, _) => "; timeout",
            (_, true) => "; canceled",
            _ => "",
        };
        self.reply(format!("exit code: {}{end}\n", self.code()), self.merged.clone())
    }

    /// 001: `{stdout, stderr, exitCode}`.
    pub fn render_streams(self) -> Reply {
        let mut data = json!({ "stdout": self.stdout, "stderr": self.stderr, "exitCode": self.code() });
        if self.timed_out {
            data["timedOut"] = true.into();
        }
        if self.omitted_bytes > 0 {
            let whole = self.file.as_ref().map(|file| format!("; the whole is in {file}")).unwrap_or_default();
            let shown = self.total_bytes.saturating_sub(self.omitted_bytes);
            data["truncated"] = format!("the last {shown} of {} bytes are here{whole}", self.total_bytes).into();
        }
        let remarks = self.notes();
        if !remarks.is_empty() {
            data["notes"] = remarks.into();
        }
        let json = Reply::json(data);
        // The file with the whole output holds no JSON, so the size of the JSON says nothing about it.
        let source_bytes = self.file.is_some().then_some(self.total_bytes);
        let reply = self.reply(String::new(), String::new());
        Reply { text: json.text, data: json.data, format: json.format, source_bytes, ..reply }
    }

    /// 002: the output, then `[exit code: N]` if it is not zero. A failing command is no error.
    pub fn render_status_last(self) -> Reply {
        let mut reply = self.reply(String::new(), self.merged.clone());
        if self.timed_out {
            push_line(&mut reply.after, &format!("[{}]", self.timeout_message()));
        }
        match self.code() {
            0 => {}
            code => push_line(&mut reply.after, &format!("[exit code: {code}]")),
        }
        if reply.text.is_empty() && reply.after.is_empty() {
            reply.text.push_str("(no output)");
        }
        reply
    }

    /// 003: the output, or an error with the exit code and the output.
    pub fn render_text_or_error(self) -> Reply {
        let code = self.code();
        let (before, text) = match (self.timed_out, code, self.merged.is_empty()) {
            (true, _, true) => (String::new(), self.timeout_message()),
            (true, _, false) => (format!("{}: ", self.timeout_message()), self.merged.clone()),
            (false, 0, true) if self.notes().is_empty() => {
                (String::new(), "command completed with no output".to_owned())
            }
            (false, 0, _) => (String::new(), self.merged.clone()),
            (false, _, true) => (String::new(), format!("command exited with status {code}")),
            (false, _, false) => (format!("command exited with status {code}: "), self.merged.clone()),
        };
        let is_error = self.timed_out || code != 0;
        Reply { is_error, ..self.reply(before, text) }
    }

    /// 004: the output; a failing command is an error whose first line is `Exit code N`. In the background, the id.
    pub fn render_merged_or_error(self) -> Reply {
        if let Some(id) = &self.id {
            let file = self.file.as_ref().map(|file| format!(" Its output is also in {file}.")).unwrap_or_default();
            let limit = self.timeout.map(|limit| format!(" It is stopped after {}.", super::format_duration(limit)));
            let next =
                if self.ends_with_call { ENDS_WITH_CALL } else { "Ask for the task's output by this ID, or stop it." };
            let limit = limit.unwrap_or_default();
            let text = format!("Command running in background with ID: {id}. {next}{limit}{file}");
            return self.reply(String::new(), text);
        }
        let mut first = Vec::new();
        if self.timed_out {
            first.push(self.timeout_message());
        } else if self.cancelled {
            first.push("Command was interrupted".to_owned());
        } else if self.code() != 0 {
            first.push(format!("Exit code {}", self.code()));
        }
        let is_error = !first.is_empty();
        let before = first.into_iter().map(|line| line + "\n").collect::<String>();
        let mut reply = self.reply(before, self.merged.clone());
        if reply.text.is_empty() && reply.before.is_empty() && reply.after.is_empty() {
            reply.text.push_str("(Command completed with no output)");
        }
        if reply.text.is_empty() {
            reply.before.truncate(reply.before.trim_end().len());
        }
        Reply { is_error, ..reply }
    }

    fn code(&self) -> i32 {
        self.exit.unwrap_or(0)
    }

    fn timeout_message(&self) -> String {
        let limit = self.timeout.unwrap_or(self.ran);
        format!("Command timed out after {} and was ended", super::format_duration(limit))
    }

    fn notes(&self) -> Vec<String> {
        super::exit_notes(&self.state).into_iter().chain(self.strayed.clone()).collect()
    }

    /// The output with its notes. Only the output is truncated.
    fn reply(&self, before: String, text: String) -> Reply {
        let mut after = String::new();
        self.notes().iter().for_each(|remark| push_line(&mut after, &format!("[{remark}]")));
        let data = json!({
            "stdout": self.stdout,
            "stderr": self.stderr,
            "interrupted": self.timed_out || self.cancelled,
            "exitCode": self.exit,
            "backgroundTaskId": self.id,
            "durationMs": self.ran.as_millis() as u64,
        });
        // Lines that were never taken in cannot be counted; those that were are the least there are.
        let cut = (self.omitted_bytes > 0)
            .then(|| Truncation { bytes: self.total_bytes, lines: self.merged.lines().count() as u64 });
        Reply {
            text,
            before,
            after,
            data: Some(data),
            truncation: cut,
            source_bytes: super::source_bytes(self.total_bytes, self.omitted_bytes, &self.merged),
            exit_code: self.exit,
            truncate_side: self.keep,
            spill_file: self.file.clone(),
            sandbox: Some(self.sandbox_level.name().to_owned()),
            ..Reply::default()
        }
    }
}

impl From<RunToolOutput> for Reply {
    fn from(out: RunToolOutput) -> Self {
        out.render_merged_or_error()
    }
}

fn push_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use helve_contract::{
        Tool, TruncateSide, Truncation,
        ports::{ProcessExit, ProcessStatus},
    };

    use super::{RunStdin, RunTool, RunToolOutput};
    use crate::shell::testing::{FakeTasks, exit};

    async fn out(state: ProcessStatus, writes: &[&'static str]) -> RunToolOutput {
        let run = RunTool { script: "x".into(), timeout: Some(Duration::from_secs(5)), ..RunTool::default() };
        run.run(&FakeTasks::new(state, writes).call()).await.unwrap()
    }

    /// The five ways of telling, and which of them call it an error.
    fn told(out: &RunToolOutput) -> [String; 5] {
        [
            RunToolOutput::render_status_first,
            RunToolOutput::render_streams,
            RunToolOutput::render_status_last,
            RunToolOutput::render_text_or_error,
            RunToolOutput::render_merged_or_error,
        ]
        .map(|tell| {
            let reply = tell(out.clone());
            format!("{}{}", if reply.is_error { "error: " } else { "" }, reply.full_text())
        })
    }

    #[tokio::test]
    async fn each_dialect_tells_of_success_in_its_way() {
        let good = out(ProcessStatus::Exited(exit(0)), &["one\n", "!two\n"]).await;
        assert_eq!(
            told(&good),
            [
                "exit code: 0\none\ntwo\n",
                r#"{"stdout":"one\n","stderr":"two\n","exitCode":0}"#,
                "one\ntwo\n",
                "one\ntwo\n",
                "one\ntwo\n",
            ]
        );
        let quiet = out(ProcessStatus::Exited(exit(0)), &[]).await;
        assert_eq!(
            told(&quiet),
            [
                "exit code: 0\n",
                r#"{"stdout":"","stderr":"","exitCode":0}"#,
                "(no output)",
                "command completed with no output",
                "(Command completed with no output)",
            ]
        );
        assert_eq!(
            RunToolOutput { omitted_bytes: 5, total_bytes: 9, ..good.clone() }.render_streams().text,
            r#"{"stdout":"one\n","stderr":"two\n","exitCode":0,"truncated":"the last 4 of 9 bytes are here; the whole is in /spill/t1"}"#
        );
        let reply = good.render_merged_or_error();
        assert_eq!(
            (reply.exit_code, reply.sandbox.as_deref(), reply.spill_file.as_deref()),
            (Some(0), Some("L3"), Some("/spill/t1"))
        );
    }

    #[tokio::test]
    async fn each_dialect_tells_of_failure_in_its_way() {
        assert_eq!(
            told(&out(ProcessStatus::Exited(exit(2)), &["!no such thing\n"]).await),
            [
                "exit code: 2\nno such thing\n",
                r#"{"stdout":"","stderr":"no such thing\n","exitCode":2}"#,
                "no such thing\n[exit code: 2]",
                "error: command exited with status 2: no such thing\n",
                "error: Exit code 2\nno such thing\n",
            ]
        );
        assert_eq!(
            told(&out(ProcessStatus::TimedOut(exit(143)), &["part"]).await),
            [
                "exit code: 143; timeout\npart",
                r#"{"stdout":"part","stderr":"","exitCode":143,"timedOut":true}"#,
                "part\n[Command timed out after 5 s and was ended]\n[exit code: 143]",
                "error: Command timed out after 5 s and was ended: part",
                "error: Command timed out after 5 s and was ended\npart",
            ]
        );
    }

    #[tokio::test]
    async fn jobs_that_remained_and_refusals_are_told() {
        let denials = vec!["writing /etc/x was refused by the sandbox".to_owned()];
        let state = ProcessStatus::Exited(ProcessExit { code: 0, signal: None, left_behind: true, denials, dir: None });
        assert_eq!(
            out(state, &["started\n"]).await.render_merged_or_error().full_text(),
            "started\n[A job remained when the command ended, and was ended with it. Start long jobs in the background.]\n\
             [writing /etc/x was refused by the sandbox]"
        );
    }

    #[tokio::test]
    async fn a_command_starts_where_it_is_told_with_all_roots() {
        let fake = FakeTasks::ends(0, &[]);
        let run = RunTool {
            script: "ls".into(),
            dir: Some("sub".into()),
            env: [("A".to_owned(), "1".to_owned())].into(),
            stdin: RunStdin::Text("in".into()),
            description: Some("List".into()),
            ..RunTool::default()
        };
        run.run(&fake.call()).await.unwrap();
        assert_eq!(
            fake.log(),
            ["start `ls` in sub with . [(\"A\", \"1\")] Bytes([105, 110]) None as List", "wait Exit", "forget"]
        );
    }

    #[tokio::test]
    async fn in_the_background_only_the_id_comes_back() {
        let fake = FakeTasks::new(ProcessStatus::Running, &["early"]);
        let run = || RunTool { script: "server".into(), background: true, stdin: RunStdin::Open, ..RunTool::default() };
        let out = run().run(&fake.call()).await.unwrap();
        assert_eq!(
            out.clone().render_status_first().text,
            "started in the background; process id: t1\nask for its status or its output by this id"
        );
        assert_eq!(
            out.render_merged_or_error().text,
            "Command running in background with ID: t1. Ask for the task's output by this ID, or stop it. \
             Its output is also in /spill/t1."
        );
        assert_eq!(fake.log(), ["start `server` in . with . [] Open None as server", "wait Now"]);
    }

    #[tokio::test]
    async fn a_background_command_that_ends_with_the_call_says_so() {
        let fake = FakeTasks::for_one_call();
        let out = RunTool { script: "server".into(), background: true, ..RunTool::default() }
            .run(&fake.call())
            .await
            .unwrap();
        assert_eq!(
            out.clone().render_status_first().text,
            "started in the background; process id: t1\nIt ends when this call returns, because this process serves one \
             call and exits. Run it in the foreground, or in a session that lasts."
        );
        assert!(out.render_merged_or_error().text.starts_with(
            "Command running in background with ID: t1. It ends when this call returns, because this process serves one"
        ));
    }

    #[tokio::test]
    async fn giving_up_stops_the_command_and_keeps_what_it_wrote() {
        let fake = FakeTasks::new(ProcessStatus::Running, &["half"]);
        let call = fake.call();
        call.cancel.cancel();
        let out = RunTool { script: "sleep 99".into(), ..RunTool::default() }.run(&call).await.unwrap();
        assert_eq!(out.render_status_first().full_text(), "exit code: 143; canceled\nhalf");
        assert_eq!(fake.log()[1..], ["wait Exit", "stop", "forget"]);
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_takes_its_command_with_it() {
        let fake = FakeTasks::new(ProcessStatus::Running, &[]);
        let call = fake.call();
        let mut work = Box::pin(RunTool { script: "sleep 99".into(), ..RunTool::default() }.run(&call));
        assert!(work.as_mut().now_or_never().is_none());
        drop(work);
        assert_eq!(fake.log()[1..], ["wait Exit", "stop"]);
    }

    #[tokio::test]
    async fn long_output_tells_its_true_size_and_keeps_the_remarks() {
        let long: &'static str = "x\n".repeat(super::super::MAX_OUTPUT_BYTES / 2 + 3).leak();
        let state = ProcessStatus::Exited(ProcessExit {
            code: 1,
            signal: None,
            left_behind: true,
            denials: Vec::new(),
            dir: None,
        });
        for keep in [TruncateSide::KeepHead, TruncateSide::KeepTail] {
            let run = RunTool { script: "yes".into(), keep, ..RunTool::default() };
            let reply = run.run(&FakeTasks::new(state.clone(), &[long]).call()).await.unwrap().render_status_last();
            assert_eq!(reply.truncation, Some(Truncation { bytes: 524_294, lines: 262_144 }));
            assert!(
                reply.after.starts_with("[A job remained") && reply.after.ends_with("background.]\n[exit code: 1]")
            );
        }
    }

    #[tokio::test]
    async fn an_empty_command_is_refused() {
        let error = RunTool { script: " \n".into(), ..RunTool::default() }
            .run(&FakeTasks::ends(0, &[]).call())
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "the command is empty");
    }
}
