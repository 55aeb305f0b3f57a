//! Test support: processes without a sandbox, for pages about reply texts. The sandbox has its own tests.

use std::process::Stdio;

use async_trait::async_trait;
use helve_contract::{
    Error, Result,
    ports::{Process, ProcessEvent, ProcessExit, ProcessSpec, SandboxLevel, Signal, StdinSource, Streams},
};
use helve_hosts::Spawn;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
};

pub(crate) struct Bare;

#[async_trait]
impl Spawn for Bare {
    async fn spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>> {
        let script = command.script.as_deref().unwrap_or("exec \"$@\"");
        let ended_in = command.report_cwd.then(|| tempfile::NamedTempFile::new().unwrap().into_temp_path());
        let trap = ended_in.as_ref().map(|file| format!("trap 'pwd -P >{}' EXIT\n", file.display()));
        let merge = if command.streams == Streams::Merged { "exec 2>&1\n" } else { "" };
        let mut child = tokio::process::Command::new("bash")
            .args(["--noprofile", "--norc", "-c", &(merge.to_owned() + &trap.unwrap_or_default() + script), "bash"])
            .args(&command.argv)
            .current_dir(command.cwd.host_path())
            .envs(command.env.iter().cloned())
            .stdin(if command.stdin == StdinSource::Closed { Stdio::null() } else { Stdio::piped() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::failed(error.to_string()))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok(Box::new(Running { child, stdin, stdout, stderr, ended_in }))
    }

    fn level(&self) -> SandboxLevel {
        SandboxLevel::None
    }
}

struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// Where its shell writes its final directory.
    ended_in: Option<tempfile::TempPath>,
}

async fn piece(stream: &mut Option<impl AsyncReadExt + Unpin>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    let count = stream.as_mut()?.read(&mut bytes).await.unwrap_or(0);
    if count == 0 {
        *stream = None;
        return None;
    }
    bytes.truncate(count);
    Some(bytes)
}

#[async_trait]
impl Process for Running {
    async fn next(&mut self) -> ProcessEvent {
        while self.stdout.is_some() || self.stderr.is_some() {
            tokio::select! {
                biased;
                Some(bytes) = piece(&mut self.stdout) => return ProcessEvent::Stdout(bytes),
                Some(bytes) = piece(&mut self.stderr) => return ProcessEvent::Stderr(bytes),
                else => {}
            }
        }
        let code = self.child.wait().await.ok().and_then(|it| it.code()).unwrap_or(143);
        let said = self.ended_in.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let dir = said.filter(|it| !it.is_empty()).map(|it| it.trim_end_matches('\n').into());
        ProcessEvent::Exit(ProcessExit { code, signal: None, left_behind: false, denials: Vec::new(), dir })
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let pipe = self.stdin.as_mut().ok_or_else(|| Error::failed("no input"))?;
        pipe.write_all(bytes).await.map_err(|error| Error::failed(error.to_string()))
    }

    async fn close_stdin(&mut self) -> Result<()> {
        self.stdin = None;
        Ok(())
    }

    async fn signal(&mut self, signal: Signal) -> Result<()> {
        let Some(group) = self.child.id() else { return Ok(()) };
        let sent = std::process::Command::new("bash")
            .args(["-c", &format!("kill -s {} -- -{group}", &signal.name()[3..])])
            .status();
        sent.map(|_| ()).map_err(|error| Error::failed(error.to_string()))
    }

    fn sandbox_level(&self) -> SandboxLevel {
        SandboxLevel::None
    }
}
