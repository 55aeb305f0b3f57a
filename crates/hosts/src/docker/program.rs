//! A program in a container: start, output, input, signals and exit.

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;
use helve_contract::{
    Error, Result,
    ports::{EnvVars, Process, ProcessEvent, ProcessExit, ProcessSpec, SandboxLevel, Signal, StdinSource, Streams},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf},
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{ContainerGuard, http::ByteStream};

/// The maximum number of bytes taken from a frame at once.
const READ_CHUNK_BYTES: u32 = 64 << 10;
/// The interval at which a program without output is polled for its exit.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum number of input chunks that wait for the program to read them.
const MAX_PENDING_INPUT: usize = 256;
/// The environment variable that identifies a program and its descendants.
const TASK_ENV_VAR: &str = "HELVE_TASK";

/// Writes its pid to standard error, merges the streams if the first argument says so, and executes the program.
const EXEC_PRELUDE: &str = r#"echo "$$" >&2
if [ "$1" = merged ]; then exec 2>&1; fi
shift
exec "$@""#;
/// Like `EXEC_PRELUDE`, for a script: uses bash if available, otherwise sh; reads no profile.
const SCRIPT_PRELUDE: &str = r#"echo "$$" >&2
if [ "$1" = merged ]; then exec 2>&1; fi
if command -v bash >/dev/null 2>&1; then exec bash --noprofile --norc -c "$2"; fi
exec sh -c "$2""#;
/// Signals a program's process group and every process with its environment mark. It stops processes before it kills
/// them, so that they cannot fork faster than the scan.
const KILL_SCRIPT: &str = r#"send() {
  kill -s "$1" -- "-$2" 2>/dev/null
  for one in /proc/[0-9]*; do
    if tr '\0' '\n' <"$one/environ" 2>/dev/null | grep -qx "$3"; then kill -s "$1" "${one#/proc/}" 2>/dev/null; fi
  done
}
if [ "$1" = KILL ]; then send STOP "$2" "$3"; fi
send "$@"
true"#;

/// A program in a container. Dropping it kills the program and its descendants.
pub(super) struct ExecProcess {
    container: Arc<ContainerGuard>,
    id: String,
    tag: String,
    /// The pid inside the container; known after the start.
    pid: Option<String>,
    from: BufReader<ReadHalf<BufReader<Box<dyn ByteStream>>>>,
    input: Option<mpsc::Sender<Vec<u8>>>,
    terminal: bool,
    frame: FrameHeader,
    /// Output that arrived before the pid line was complete.
    buffered_output: Vec<u8>,
    /// When the engine is polled next.
    next_poll: Instant,
    /// The engine reported the exit; processes that still hold the output get no more time.
    exited: bool,
    end: Option<ProcessExit>,
}

/// The parse position in the stream of frames. It is stored here, so that a cancelled read loses no bytes.
#[derive(Default)]
struct FrameHeader {
    head: Vec<u8>,
    left: u32,
}

impl ExecProcess {
    pub(super) async fn start(held: Arc<ContainerGuard>, command: &ProcessSpec, inherited: &EnvVars) -> Result<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| Error::Internal(anyhow::anyhow!("no random numbers: {error}")))?;
        let mark = format!("{TASK_ENV_VAR}={:032x}", u128::from_ne_bytes(random));
        let streams = if command.streams == Streams::Merged { "merged" } else { "separate" };
        let mut argv = match &command.script {
            Some(script) => vec!["/bin/sh", "-c", SCRIPT_PRELUDE, "helve", streams, script],
            None => vec!["/bin/sh", "-c", EXEC_PRELUDE, "helve", streams],
        };
        if command.script.is_none() {
            argv.extend(command.argv.iter().map(String::as_str));
        }
        let named = |name: &str| !name.is_empty() && !name.contains(['=', '\0']) && name != TASK_ENV_VAR;
        let env = inherited
            .iter()
            .chain(&command.env)
            .filter(|(name, _)| named(name))
            .map(|(name, value)| format!("{name}={value}"));
        let program = json!({
            "AttachStdin": command.stdin != StdinSource::Closed,
            "AttachStdout": true,
            "AttachStderr": true,
            "Tty": command.terminal.is_some(),
            "Cmd": argv,
            "Env": env.chain([mark.clone()]).collect::<Vec<_>>(),
            "WorkingDir": command.cwd.host_path(),
        });
        let id = held.api.create_exec(&held.id, &program).await?;
        let stream = held.api.start_attached(&id, command.terminal.is_some()).await?;
        if let Some(size) = command.terminal {
            held.api.resize(&id, size.rows, size.columns).await?;
        }
        let (from, to) = tokio::io::split(stream);
        let input = (command.stdin != StdinSource::Closed).then(|| spawn_stdin_writer(to));
        let mut program = Self {
            container: held,
            id,
            tag: mark,
            pid: None,
            from: BufReader::new(from),
            input,
            terminal: command.terminal.is_some(),
            frame: FrameHeader::default(),
            buffered_output: Vec::new(),
            next_poll: Instant::now() + POLL_INTERVAL,
            exited: false,
            end: None,
        };
        if let StdinSource::Bytes(bytes) = &command.stdin {
            program.write(bytes).await?;
            program.close_stdin().await?;
        }
        Ok(program)
    }

    /// Returns the next chunk of either stream; `None` at the end.
    async fn next_chunk(&mut self) -> io::Result<Option<(bool, Vec<u8>)>> {
        if self.terminal {
            let mut bytes = vec![0; READ_CHUNK_BYTES as usize];
            let count = self.from.read(&mut bytes).await?;
            bytes.truncate(count);
            return Ok((count > 0).then_some((true, bytes)));
        }
        while self.frame.left == 0 {
            while self.frame.head.len() < 8 {
                let mut rest = [0; 8];
                let count = self.from.read(&mut rest[self.frame.head.len()..]).await?;
                if count == 0 {
                    return Ok(None);
                }
                self.frame.head.extend(&rest[self.frame.head.len()..][..count]);
            }
            self.frame.left = match self.frame.head[..] {
                [0..=2, 0, 0, 0, a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
                _ => return Err(io::Error::other("the engine sent something else than frames of output")),
            };
            if self.frame.left == 0 {
                self.frame.head.clear();
            }
        }
        let mut bytes = vec![0; self.frame.left.min(READ_CHUNK_BYTES) as usize];
        let count = self.from.read(&mut bytes).await?;
        bytes.truncate(count);
        let is_error = self.frame.head[0] == 2;
        self.frame.left -= count as u32;
        if self.frame.left == 0 {
            self.frame.head.clear();
        }
        Ok((count > 0).then_some((!is_error, bytes)))
    }

    /// Removes the pid line from the start of the output; returns nothing until the line is complete.
    fn strip_pid_line(&mut self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        if self.pid.is_some() {
            return Some(bytes);
        }
        self.buffered_output.extend(bytes);
        let end = self.buffered_output.iter().position(|byte| *byte == b'\n')?;
        let rest = self.buffered_output.split_off(end + 1);
        let line = String::from_utf8_lossy(&self.buffered_output).trim().to_owned();
        self.buffered_output = Vec::new();
        // A shell that failed to start prints its error here instead.
        if line.parse::<u32>().is_err() {
            self.pid = Some(String::new());
            return Some([line.as_bytes(), b"\n", &rest].concat());
        }
        self.pid = Some(line);
        (!rest.is_empty()).then_some(rest)
    }

    /// Determines the exit status after the stream has ended.
    async fn finish(&mut self) -> ProcessExit {
        let mut code = None;
        for _ in 0..40 {
            match self.container.api.inspect(&self.id).await {
                Ok(seen) if seen.running => tokio::time::sleep(Duration::from_millis(25)).await,
                Ok(seen) => {
                    code = seen.code;
                    break;
                }
                Err(_) => break,
            }
        }
        let denials = match code {
            Some(_) => Vec::new(),
            None => vec!["the container engine did not say how the program ended; it may have been removed".to_owned()],
        };
        let code = code.unwrap_or(255);
        let signal = (129..=159).contains(&code).then(|| code - 128);
        ProcessExit { code, signal, left_behind: self.exited, denials, dir: None }
    }

    async fn kill(&self, signal: &str) -> Result<()> {
        run_kill_script(&self.container, signal, self.pid.as_deref().unwrap_or_default(), &self.tag).await
    }
}

/// Runs the kill script inside the container.
async fn run_kill_script(held: &ContainerGuard, signal: &str, pid: &str, mark: &str) -> Result<()> {
    // Without a pid there is no group, but the mark finds all processes. No group has the largest integer as its
    // number.
    let group = if pid.is_empty() { "2147483647" } else { pid };
    let argv = ["/bin/sh", "-c", KILL_SCRIPT, "helve", signal, group, mark];
    let id = held.api.create_exec(&held.id, &json!({ "Cmd": argv })).await?;
    held.api.start_detached(&id).await
}

/// Writes queued input and then closes it. It waits for a program that does not read; nothing waits for this task.
fn spawn_stdin_writer(mut to: WriteHalf<BufReader<Box<dyn ByteStream>>>) -> mpsc::Sender<Vec<u8>> {
    let (sender, mut queue) = mpsc::channel::<Vec<u8>>(MAX_PENDING_INPUT);
    tokio::spawn(async move {
        while let Some(bytes) = queue.recv().await {
            if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
                return;
            }
        }
        _ = to.shutdown().await;
    });
    sender
}

#[async_trait]
impl Process for ExecProcess {
    async fn next(&mut self) -> ProcessEvent {
        if let Some(end) = &self.end {
            return ProcessEvent::Exit(end.clone());
        }
        loop {
            let look = self.next_poll;
            let piece = tokio::select! {
                piece = self.next_chunk() => piece,
                () = sleep_until(look) => {
                    if self.exited {
                        break;
                    }
                    let seen = self.container.api.inspect(&self.id).await;
                    if matches!(&seen, Ok(seen) if !seen.running) {
                        // The program has exited; kill the processes that still hold its output.
                        _ = self.kill("KILL").await;
                        self.exited = true;
                    }
                    self.next_poll = Instant::now() + POLL_INTERVAL;
                    continue;
                }
            };
            match piece {
                Ok(Some((true, bytes))) if !self.terminal => return ProcessEvent::Stdout(bytes),
                Ok(Some((is_output, bytes))) => match self.strip_pid_line(bytes) {
                    Some(bytes) if is_output => return ProcessEvent::Stdout(bytes),
                    Some(bytes) => return ProcessEvent::Stderr(bytes),
                    None => {}
                },
                Ok(None) | Err(_) => break,
            }
        }
        let exit = self.finish().await;
        self.end = Some(exit.clone());
        ProcessEvent::Exit(exit)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let closed = || Error::failed("the program's input is closed; start it with its input kept open");
        let input = self.input.as_ref().ok_or_else(closed)?;
        input.try_send(bytes.to_vec()).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                Error::failed("the program does not read its input; wait until it does, or end it")
            }
            mpsc::error::TrySendError::Closed(_) => closed(),
        })
    }

    async fn close_stdin(&mut self) -> Result<()> {
        if self.terminal && self.input.is_some() {
            return self.write(b"\x04").await;
        }
        self.input = None;
        Ok(())
    }

    async fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.end.is_some() {
            return Ok(());
        }
        self.kill(&signal.name()[3..]).await?;
        match signal {
            // A stopped process handles the signal only after SIGCONT.
            Signal::Terminate | Signal::HangUp | Signal::Interrupt | Signal::Quit => self.kill("CONT").await,
            _ => Ok(()),
        }
    }

    fn sandbox_level(&self) -> SandboxLevel {
        SandboxLevel::External
    }
}

impl Drop for ExecProcess {
    fn drop(&mut self) {
        if self.end.is_some() {
            return;
        }
        let (held, pid, mark) =
            (self.container.clone(), self.pid.take().unwrap_or_default(), std::mem::take(&mut self.tag));
        crate::parting::block_on_cleanup(async move { _ = run_kill_script(&held, "KILL", &pid, &mark).await });
    }
}
