//! The shell: a new one for each script, over the same files, on a separate thread.
//!
//! A script cannot block the runtime or overflow a shared stack. It ends at its limits. A script that ignores its
//! termination is abandoned and keeps its slot among the concurrent scripts.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bashkit::{Bash, ExecOptions, ExecutionLimits, LimitExceeded, MemoryLimits, SessionLimits};
use helve_contract::{
    Error, Result, async_trait,
    ports::{
        EnvVars, Process, ProcessEvent, ProcessExit, SandboxLevel, Signal, StdinSource, Streams, TERMINATION_GRACE,
    },
};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::timeout,
};

use super::{
    HOME_DIR, MemoryHost, braces,
    threads::{self, STACK_BYTES},
};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
const MAX_COMMANDS: usize = 200_000;
/// The maximum number of loop iterations, per loop and in total.
const MAX_LOOP_ITERATIONS: usize = 200_000;
const MAX_TOTAL_ITERATIONS: usize = 1_000_000;
/// The maximum output per stream.
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// The maximum size of variables and pipes.
const MAX_MEMORY_BYTES: usize = 64 << 20;
/// Variables that bash sets at its start.
const PRELUDE: &str = "IFS=$' \\t\\n' OPTERR=1 COMP_WORDBREAKS=$' \\t\\n\"\\'@><=;|&(:'";
/// The chunk size of forwarded output.
const OUTPUT_CHUNK_BYTES: usize = 64 << 10;

/// A script to run.
#[derive(Clone, Debug)]
pub struct Script {
    /// The source text.
    pub text: String,
    /// The working directory.
    pub dir: PathBuf,
    /// Additional environment variables.
    pub env: EnvVars,
    /// The standard input.
    pub input: StdinSource,
    /// The timeout.
    pub limit: Duration,
    /// With [`Streams::Merged`] all output is in [`ScriptOutput::stdout`], in the order written.
    pub streams: Streams,
}

impl Script {
    /// A script in the home directory without input.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            dir: HOME_DIR.into(),
            env: Vec::new(),
            input: StdinSource::Closed,
            limit: DEFAULT_TIMEOUT,
            streams: Streams::Separate,
        }
    }
}

/// How a script ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptOutput {
    /// The standard output.
    pub stdout: Vec<u8>,
    /// The standard error.
    pub stderr: Vec<u8>,
    /// Its exit code.
    pub code: i32,
}

impl ScriptOutput {
    /// The result of a script whose thread died.
    fn thread_died() -> Self {
        Self { code: 134, ..Self::default() }
    }
}

/// Runs a script to its end.
pub(super) async fn run(memory: &MemoryHost, script: Script) -> Result<ScriptOutput> {
    let limit = script.limit;
    let mut running = start(memory, script).await?;
    // The script checks its own timeout; this one covers a script that hangs where it cannot check.
    match timeout(limit + TERMINATION_GRACE, &mut running.ended).await {
        Ok(ended) => Ok(ended.unwrap_or_else(|_| ScriptOutput::thread_died())),
        Err(_) => {
            Ok(ScriptOutput { stderr: timeout_message(limit).into_bytes(), code: 124, ..ScriptOutput::default() })
        }
    }
}

fn timeout_message(limit: Duration) -> String {
    format!("bash: ended after {} s, which is the most a script may take\n", limit.as_secs_f32())
}

/// Starts a script on an idle thread or a new one.
pub(super) async fn start(memory: &MemoryHost, script: Script) -> Result<RunningScript> {
    let place = memory.scripts.clone().try_acquire_owned().map_err(|_| {
        Error::failed("too many scripts are running in memory at once; wait until one of them has ended")
    })?;
    let meta = memory.files.stat(&script.dir).await;
    if !meta.is_ok_and(|it| it.file_type.is_dir()) {
        return Err(Error::failed(format!("{}: there is no such folder in memory to start in", script.dir.display())));
    }
    let (said, ended) = oneshot::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let job = ScriptJob { memory: memory.clone(), script, result: said, stop: stop.clone(), _place: place };
    threads::run_job(job)
        .map_err(|error| Error::Internal(anyhow::Error::new(error).context("no thread for a script")))?;
    Ok(RunningScript { ended, stop, pending_events: VecDeque::new(), exit: None })
}

/// The inputs of a script's thread.
pub(super) struct ScriptJob {
    memory: MemoryHost,
    script: Script,
    result: oneshot::Sender<ScriptOutput>,
    stop: Arc<AtomicBool>,
    _place: OwnedSemaphorePermit,
}

impl ScriptJob {
    /// Runs the script to its end and sends the result; calls `ready` just before.
    pub(super) fn run(self, ready: impl FnOnce()) {
        let (written, mut shell) = (Arc::new(Mutex::new(ScriptOutput::default())), None);
        let ended = catch_unwind(AssertUnwindSafe(|| self.interpret(&written, &mut shell))).unwrap_or_else(|_| {
            let mut ended = std::mem::take(&mut *written.lock().unwrap_or_else(PoisonError::into_inner));
            ended.stderr.extend(b"bash: the shell in memory broke down at this script; write it another way\n");
            ScriptOutput { code: 134, ..ended }
        });
        ready();
        // The receiver may be gone after a cancelled call. The result is sent before the shell is dropped.
        _ = self.result.send(ended);
        drop(shell);
    }

    fn interpret(&self, written: &Arc<Mutex<ScriptOutput>>, shell: &mut Option<Bash>) -> ScriptOutput {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().thread_stack_size(STACK_BYTES).build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                return ScriptOutput {
                    stderr: format!("bash: {error}\n").into_bytes(),
                    code: 126,
                    ..ScriptOutput::default()
                };
            }
        };
        let to_stderr: fn(&mut ScriptOutput) -> &mut Vec<u8> = match self.script.streams {
            Streams::Merged => |it| &mut it.stdout,
            Streams::Separate => |it| &mut it.stderr,
        };
        let bash = shell.insert(self.bash());
        let script = braces::rewrite_nested_braces(&self.script.text);
        let mut options = ExecOptions::new();
        if let StdinSource::Bytes(bytes) = &self.script.input {
            options = options.stdin(bytes.clone());
        }
        let result = runtime.block_on(async {
            let asked = async {
                while !self.stop.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                // The interpreter stops at its next command; a waiting one is dropped.
                tokio::time::sleep(TERMINATION_GRACE).await;
            };
            // Few scripts use these variables, and setting them costs time.
            if ["IFS", "OPTERR", "COMP_WORDBREAKS"].iter().any(|name| script.contains(name)) {
                _ = bash.exec(PRELUDE).await;
            }
            tokio::select! {
                biased;
                result = bash
                    .execute(&script)
                    .options(options)
                    .stdout_fn(|piece| append_output(written, |it| &mut it.stdout, piece))
                    .stderr_fn(|piece| append_output(written, to_stderr, piece))
                    .cancel_with(self.stop.clone()) => result,
                () = asked => Err(bashkit::Error::Cancelled),
            }
        });
        // Parser threads that still run are not waited for.
        runtime.shutdown_background();
        let mut ended = std::mem::take(&mut *written.lock().unwrap_or_else(PoisonError::into_inner));
        match result {
            Ok(result) => {
                ended.code = if is_unbound(result.exit_code, to_stderr(&mut ended)) { 127 } else { result.exit_code };
                if result.stdout_truncated || result.stderr_truncated {
                    let text = format!("bash: the output was cut at {MAX_OUTPUT_BYTES} bytes, which is the most\n");
                    to_stderr(&mut ended).extend(text.into_bytes());
                }
            }
            Err(error) => {
                let (text, code) = self.describe_error(&error);
                to_stderr(&mut ended).extend(text.into_bytes());
                ended.code = code;
            }
        }
        ended
    }

    /// The message and exit code of a script that failed to complete.
    fn describe_error(&self, error: &bashkit::Error) -> (String, i32) {
        match error {
            bashkit::Error::Parse { message, line, .. } => {
                (format!("bash: line {}: syntax error: {message}\n", (*line).max(1)), 2)
            }
            bashkit::Error::Cancelled => ("bash: the script was ended\n".to_owned(), 130),
            bashkit::Error::ResourceLimit(LimitExceeded::Timeout(_)) => (timeout_message(self.script.limit), 124),
            bashkit::Error::ResourceLimit(limit) => {
                (format!("bash: the script was ended at a limit of the shell in memory: {limit}\n"), 137)
            }
            error => (format!("bash: {error}\n"), 1),
        }
    }

    fn bash(&self) -> Bash {
        let limits = ExecutionLimits::new()
            .timeout(self.script.limit)
            .max_commands(MAX_COMMANDS)
            .max_loop_iterations(MAX_LOOP_ITERATIONS)
            .max_total_loop_iterations(MAX_TOTAL_ITERATIONS)
            .max_function_depth(100)
            .max_subst_depth(64)
            .max_subshell_depth(64)
            .max_stdout_bytes(MAX_OUTPUT_BYTES)
            .max_stderr_bytes(MAX_OUTPUT_BYTES)
            .max_live_intermediate_bytes(MAX_MEMORY_BYTES as u64)
            .max_parser_operations(2_000_000)
            .max_background_jobs(16);
        let memory = MemoryLimits::new().max_total_variable_bytes(MAX_MEMORY_BYTES).max_array_entries(200_000);
        let mut builder = Bash::builder()
            .fs(self.memory.files.clone())
            .limits(limits)
            .session_limits(SessionLimits::unlimited())
            .memory_limits(memory)
            .username("user")
            .hostname("memory")
            .cwd(&self.script.dir)
            .env("HOME", HOME_DIR)
            .env("PATH", "/usr/bin:/bin");
        for (name, value) in &self.script.env {
            builder = builder.env(name, value);
        }
        builder.build()
    }
}

/// Whether a script ended at an unset variable under `set -u`: `bash -c` exits with 127 then.
fn is_unbound(code: i32, stderr: &[u8]) -> bool {
    let last = stderr.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    code == 1 && last.starts_with(b"bash: line ") && last.ends_with(b": unbound variable")
}

fn append_output(
    written: &Mutex<ScriptOutput>,
    stream: fn(&mut ScriptOutput) -> &mut Vec<u8>,
    piece: Vec<u8>,
) -> std::future::Ready<bashkit::Result<()>> {
    let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
    stream(&mut written).extend(piece);
    std::future::ready(Ok(()))
}

fn exit(code: i32) -> ProcessExit {
    ProcessExit { code, signal: None, left_behind: false, denials: Vec::new(), dir: None }
}

/// A running script. Dropping it ends it.
pub(super) struct RunningScript {
    ended: oneshot::Receiver<ScriptOutput>,
    stop: Arc<AtomicBool>,
    /// Output that was not taken before the script ended.
    pending_events: VecDeque<ProcessEvent>,
    exit: Option<ProcessExit>,
}

impl Drop for RunningScript {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl Process for RunningScript {
    async fn next(&mut self) -> ProcessEvent {
        if self.exit.is_none() {
            let ended = (&mut self.ended).await.unwrap_or_else(|_| ScriptOutput::thread_died());
            self.pending_events
                .extend(ended.stdout.chunks(OUTPUT_CHUNK_BYTES).map(|piece| ProcessEvent::Stdout(piece.to_vec())));
            self.pending_events
                .extend(ended.stderr.chunks(OUTPUT_CHUNK_BYTES).map(|piece| ProcessEvent::Stderr(piece.to_vec())));
            self.exit = Some(exit(ended.code));
        }
        let gone = || ProcessEvent::Exit(self.exit.clone().unwrap_or_else(|| exit(134)));
        self.pending_events.pop_front().unwrap_or_else(gone)
    }

    async fn write(&mut self, _: &[u8]) -> Result<()> {
        Err(Error::failed("a script in memory reads only what it was given at its start"))
    }

    async fn close_stdin(&mut self) -> Result<()> {
        Ok(())
    }

    async fn signal(&mut self, signal: Signal) -> Result<()> {
        let number = match signal {
            Signal::Stop | Signal::Continue | Signal::User1 | Signal::User2 => {
                return Err(Error::failed(format!("{} means nothing to a script in memory", signal.name())));
            }
            Signal::HangUp => 1,
            Signal::Interrupt => 2,
            Signal::Quit => 3,
            Signal::Kill => 9,
            Signal::Terminate => 15,
        };
        self.stop.store(true, Ordering::Relaxed);
        self.exit.get_or_insert(ProcessExit { signal: Some(number), ..exit(128 + number) });
        Ok(())
    }

    fn sandbox_level(&self) -> SandboxLevel {
        SandboxLevel::Full
    }
}
