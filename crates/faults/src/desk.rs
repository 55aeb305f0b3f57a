//! A test environment: a home directory, a project and the program.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError},
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// How long an answer is waited for before the program counts as hung.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// A user with an empty home and one project.
#[derive(Debug)]
pub struct TestEnv {
    folder: tempfile::TempDir,
    env: Vec<(String, String)>,
}

/// What a run of the program left.
#[derive(Debug)]
pub struct ProcessResult {
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// What it printed.
    pub out: String,
    /// What it said besides.
    pub err: String,
}

impl ProcessResult {
    /// Whether it ended by a code of its own: no signal, no panic.
    pub fn exited_normally(&self) -> bool {
        (0..=2).contains(&self.code) && !self.err.contains("panicked at")
    }
}

impl TestEnv {
    /// An environment in the system's temporary directory.
    pub fn new() -> anyhow::Result<Self> {
        Self::in_dir(&std::env::temp_dir())
    }

    /// An environment in this directory.
    pub fn in_dir(folder: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("helve-faults-").tempdir_in(folder)?;
        for name in ["home", "work"] {
            fs::create_dir(folder.path().join(name))?;
        }
        Ok(Self { folder, env: Vec::new() })
    }

    /// The same environment, with a variable for the program.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// A path beneath the environment.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap_or_else(|_| self.folder.path().to_owned()).join(name)
    }

    /// The program's state directory.
    pub fn state(&self) -> PathBuf {
        self.path("home/.local/state/helve")
    }

    /// Its store.
    pub fn store(&self) -> PathBuf {
        self.state().join("helve.db")
    }

    /// The record of calls by hand.
    pub fn events(&self) -> PathBuf {
        self.state().join("runs/cli/events.ndjson")
    }

    /// Writes a file beneath the desk.
    pub fn write_file(&self, name: &str, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let path = self.path(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, bytes).with_context(|| path.display().to_string())
    }

    /// The program, started through `wrap` if it is not empty, with a minimal environment.
    pub fn command(&self, wrap: &[String], args: &[&str]) -> Command {
        let mut command = match wrap {
            [] => Command::new(helve_path()),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(helve_path());
                command
            }
        };
        command.args(args).current_dir(self.path("work")).env_clear();
        command.env("HOME", self.path("home")).env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, args: &[&str]) -> anyhow::Result<ProcessResult> {
        self.run_wrapped(&[], args)
    }

    /// Runs the program beneath another one to its end.
    pub fn run_wrapped(&self, wrap: &[String], args: &[&str]) -> anyhow::Result<ProcessResult> {
        let output = self.command(wrap, args).stdin(Stdio::null()).output()?;
        Ok(ProcessResult {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Temporary files of Helve that are left in the project directory.
    pub fn leftover_files(&self) -> Vec<String> {
        let names = fs::read_dir(self.path("work")).into_iter().flatten().flatten().map(|it| it.file_name());
        names.filter_map(|it| it.into_string().ok()).filter(|it| it.starts_with(".helve-")).collect()
    }
}

/// The program that is tried.
fn helve_path() -> PathBuf {
    if let Some(path) = std::env::var_os("HELVE_BIN") {
        return path.into();
    }
    // target/debug/deps/it-… or target/debug/helve-faults
    let own = std::env::current_exe().unwrap_or_default();
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join("helve")).find(|it| it.is_file());
    found.unwrap_or_else(|| {
        eprintln!("there is no helve beside {}; build it first: cargo build -p helve-cli", own.display());
        "helve".into()
    })
}

/// An answer of the program to one call.
#[derive(Clone, Debug)]
pub struct CallResult {
    /// Whether it is an error.
    pub is_error: bool,
    /// Its words.
    pub text: String,
    /// All of it.
    pub whole: Value,
}

/// `helve batch`: one process that takes many calls and reports each result.
#[derive(Debug)]
pub struct BatchProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Receiver<String>,
    /// Calls that it answered.
    pub answered: u64,
}

impl BatchProcess {
    /// Starts one, beneath another program if `wrap` names it.
    pub fn start(desk: &TestEnv, wrap: &[String], dialect: &str) -> anyhow::Result<Self> {
        Self::start_with_args(desk, wrap, &["batch", "--dialect", dialect])
    }

    /// Like `start`, for any arguments: a process with a line protocol.
    pub fn start_with_args(desk: &TestEnv, wrap: &[String], words: &[&str]) -> anyhow::Result<Self> {
        let mut command = desk.command(wrap, words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let lines = line_channel(child.stdout.take().context("no output")?);
        let said = line_channel(child.stderr.take().context("no errors")?);
        Ok(Self { child, input, lines, said, answered: 0 })
    }

    /// Calls a tool. `None`: the process is gone, and did not answer.
    pub fn call(&mut self, tool: &str, args: Value) -> anyhow::Result<Option<CallResult>> {
        if !self.send_line(&format!("{}\n", json!({ "tool": tool, "args": args }))) {
            return Ok(None);
        }
        let Some(line) = self.read_line().with_context(|| tool.to_owned())? else { return Ok(None) };
        // A line that the kill truncated does not count.
        let Ok(whole) = serde_json::from_str::<Value>(&line) else { return Ok(None) };
        self.answered += 1;
        let text = whole["text"].as_str().unwrap_or_default().to_owned();
        Ok(Some(CallResult { is_error: whole["is_error"] == true, text, whole }))
    }

    /// Sends a line. Returns whether the process was there to read it.
    pub fn send_line(&mut self, words: &str) -> bool {
        self.input.as_mut().is_some_and(|it| it.write_all(words.as_bytes()).is_ok())
    }

    /// The next line it says. `None`: it is gone.
    pub fn read_line(&mut self) -> anyhow::Result<Option<String>> {
        match self.lines.recv_timeout(HANG_TIMEOUT) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("no word in {} s", HANG_TIMEOUT.as_secs()),
        }
    }

    /// Whether it is gone; what it said until then is passed over.
    pub fn has_exited(&self) -> bool {
        loop {
            match self.lines.try_recv() {
                Ok(_) => {}
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Kills it after this long, wherever it is by then.
    pub fn kill_after(&self, moment: Duration) {
        let pid = Pid::from_child(&self.child);
        // The process is not reaped before `wait`, so that its pid is not reused.
        thread::spawn(move || {
            thread::sleep(moment);
            _ = kill_process(pid, Signal::KILL);
        });
    }

    /// Waits for its end, and tells its exit code (-1: killed) and what it said besides.
    pub fn wait(mut self) -> anyhow::Result<ProcessResult> {
        drop(self.input.take());
        let status = self.child.wait()?;
        let err = self.said.iter().collect::<Vec<_>>().join("\n");
        Ok(ProcessResult { code: status.code().unwrap_or(-1), out: String::new(), err })
    }
}

impl Drop for BatchProcess {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The lines of a pipe, as they come.
fn line_channel(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
