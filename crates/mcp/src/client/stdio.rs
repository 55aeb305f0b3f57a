//! A server that is a local program: runs in a process group, which is killed as a whole.

use std::{
    collections::{BTreeMap, VecDeque},
    env,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    sync::mpsc,
    task::JoinSet,
};

use super::{
    lines::{self, MAX_LINE_BYTES, OwnedInputLine},
    link::{RpcClientError, RpcConnection},
    text,
};

/// How much of standard error is kept for an error message.
const STDERR_TAIL_BYTES: usize = 8 << 10;
/// How long a program that closed its output may take to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Variables that a program inherits; the rest of the environment is not passed on.
const INHERITED_VARS: [&str; 12] =
    ["HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "XDG_RUNTIME_DIR", "PWD"];

/// Set for every started program, so that a nested Helve starts no servers.
const NESTED_VAR: &str = "STARTED_BY_HELVE";

/// A program and its descendants. Dropping it kills them.
pub(crate) struct ProcessGroup(Pid);

impl ProcessGroup {
    /// Asks all of them to end.
    pub(crate) fn terminate(&self) {
        _ = kill_process_group(self.0, Signal::TERM);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        _ = kill_process_group(self.0, Signal::KILL);
    }
}

/// The last that was written to standard error.
type StderrTail = Arc<Mutex<VecDeque<u8>>>;

/// Starts the program and carries messages between it and the link.
pub(crate) fn open(
    link: &Arc<RpcConnection>,
    queue: mpsc::Receiver<Value>,
    (command, args): (&str, &[String]),
    env: &BTreeMap<String, String>,
    cwd: Option<&Path>,
) -> Result<(ProcessGroup, JoinSet<()>), String> {
    let mut program = Command::new(command);
    program.args(args).env_clear().envs(inherited_env()).env(NESTED_VAR, "1").envs(env);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    program.process_group(0).kill_on_drop(true);
    if let Some(cwd) = cwd {
        program.current_dir(cwd);
    }
    let mut child = program.spawn().map_err(|error| format!("`{command}` cannot be started: {error}"))?;
    let group = child.id().and_then(|it| Pid::from_raw(it.cast_signed())).map(ProcessGroup);
    let (Some(group), Some(stdin), Some(stdout), Some(stderr)) =
        (group, child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(format!("`{command}` ended at once"));
    };
    let words = StderrTail::default();
    let mut tasks = JoinSet::new();
    tasks.spawn(write(link.clone(), queue, stdin));
    tasks.spawn(read_stderr(stderr, words.clone()));
    tasks.spawn(read(link.clone(), stdout, child, words));
    Ok((group, tasks))
}

/// What of our own environment a program gets.
fn inherited_env() -> impl Iterator<Item = (String, String)> {
    env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let wanted = INHERITED_VARS.contains(&name.as_str()) || name.starts_with("LC_");
        // A value that begins so is a function of some shells.
        (wanted && !value.starts_with("()")).then_some((name, value))
    })
}

async fn write(link: Arc<RpcConnection>, mut queue: mpsc::Receiver<Value>, mut stdin: ChildStdin) {
    let carrying = async {
        while let Some(message) = queue.recv().await {
            // A program that no longer reads may still write.
            if stdin.write_all(format!("{message}\n").as_bytes()).await.is_err() || stdin.flush().await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = carrying => link.ended.cancelled().await,
        () = link.closing.cancelled() => {}
    }
}

async fn read(link: Arc<RpcConnection>, stdout: ChildStdout, mut child: Child, words: StderrTail) {
    let mut stdout = BufReader::with_capacity(64 << 10, stdout);
    loop {
        match lines::next(&mut stdout).await {
            Ok(OwnedInputLine::Whole(line)) => link.receive(&line),
            // It is unknown which request it answered.
            Ok(OwnedInputLine::TooLong) => link.fail_all(&RpcClientError::Refused(
                -32603,
                format!("it sent a line of more than {MAX_LINE_BYTES} bytes, which is not taken; ask for less at once"),
            )),
            Ok(OwnedInputLine::End) | Err(_) => break,
        }
    }
    let status = tokio::time::timeout(EXIT_TIMEOUT, child.wait()).await;
    let status = match status {
        Ok(Ok(status)) => format!("ended ({status})"),
        _ => "closed its output".to_owned(),
    };
    let said = stderr_text(&words);
    link.close(if said.is_empty() { status } else { format!("{status}; it said: {said}") });
}

async fn read_stderr(mut stderr: ChildStderr, words: StderrTail) {
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut piece).await {
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend(&piece[..count]);
        let surplus = words.len().saturating_sub(STDERR_TAIL_BYTES);
        words.drain(..surplus);
    }
}

fn stderr_text(words: &StderrTail) -> String {
    let words: Vec<u8> = words.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
    let words = String::from_utf8_lossy(&words).into_owned();
    // The end says why.
    let from = words.len().saturating_sub(1500);
    text::quote_message(&words[words.ceil_char_boundary(from)..])
}
