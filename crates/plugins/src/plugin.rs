//! A plugin that runs: started, asked for its tools, called one call at a time, started again when it died.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use helve_contract::{
    Call, Error, Reply, Result,
    ports::{Command, Host, Input, Network, Noticed, Process, Streams},
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::{sync::Mutex, time::timeout_at};

use crate::{
    Log, Settings,
    lines::{LONGEST, Lines},
    protocol::{self, Answer, Form, Greeting, Told},
};

/// How long a silent plugin is given before the other greeting is tried.
const SILENCE: Duration = Duration::from_secs(2);
/// The longest wait between two starts.
const SLOWEST: Duration = Duration::from_secs(30);
/// How long a call waits for a restart. It is refused when the restart comes later.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// How much of standard error is kept for an error message.
const LAST_WORDS: usize = 2048;

/// What stands for the content of a file; none for a file that is not on this machine.
type Print = Option<[u8; 32]>;

/// A plugin, running or to be started again.
pub(crate) struct Plugin {
    settings: Settings,
    host: Arc<dyn Host>,
    log: Log,
    /// The program and its scripts, as they were when it was started.
    files: Vec<Print>,
    /// One call at a time, as the protocol has it.
    state: Mutex<State>,
}

struct State {
    running: Option<Running>,
    calls: u64,
    failures: u32,
    not_before: Option<Instant>,
}

struct Running {
    process: Box<dyn Process>,
    lines: Lines,
    form: Form,
    tools: Vec<String>,
    last_words: String,
}

impl Plugin {
    pub(crate) async fn start(settings: Settings, host: Arc<dyn Host>, log: Log) -> Result<(Self, Vec<Told>)> {
        let files = prints(&settings).await;
        let (running, tools) = Running::start(&settings, &*host, &log).await?;
        let state = State { running: Some(running), calls: 0, failures: 0, not_before: None };
        Ok((Self { settings, host, log, files, state: Mutex::new(state) }, tools))
    }

    /// One call. Arguments were checked by the engine before.
    pub(crate) async fn call(&self, name: &str, params: Value, call: &Call) -> Result<Reply> {
        let mut state = self.state.lock().await;
        self.revive(&mut state, call).await?;
        state.calls += 1;
        let id = format!("call-{}", state.calls);
        let Some(running) = state.running.as_mut() else { return Err(Error::failed("the plugin is not running")) };
        if !running.tools.iter().any(|tool| tool == name) {
            return Err(Error::failed(format!("the plugin no longer has a tool `{name}` since it was started again")));
        }
        let message = protocol::call(running.form, name, &id, params);
        let deadline = tokio::time::Instant::now() + self.settings.call;
        let outcome = tokio::select! {
            outcome = running.exchange(&message, &id, &self.log) => outcome,
            () = tokio::time::sleep_until(deadline) => Err(Lost::Timeout),
            () = call.cancel.cancelled() => Err(Lost::Cancelled),
        };
        match outcome {
            Ok(reply) => {
                state.failures = 0;
                Ok(reply)
            }
            // An answer that comes later would be taken for the next call's: the program is ended with the call.
            Err(lost) => {
                let words = state.running.take().map(|it| it.last_words).unwrap_or_default();
                if !matches!(lost, Lost::Cancelled) {
                    state.failures = state.failures.saturating_add(1);
                    let wait = Duration::from_millis(100) * 2_u32.saturating_pow(state.failures.min(10));
                    state.not_before = Some(Instant::now() + wait.min(SLOWEST));
                }
                Err(lost.told(self.settings.call, &words))
            }
        }
    }

    /// Starts the program again, if it is not running. A call waits for a restart that is due soon.
    async fn revive(&self, state: &mut State, call: &Call) -> Result<()> {
        if state.running.is_some() {
            return Ok(());
        }
        match state.not_before.and_then(|at| at.checked_duration_since(Instant::now())) {
            Some(left) if left <= MAX_WAIT => {
                tokio::select! {
                    () = tokio::time::sleep(left) => {}
                    () = call.cancel.cancelled() => return Err(Error::Cancelled),
                }
            }
            Some(left) => {
                return Err(Error::failed(format!(
                    "the plugin does not run: it ended or could not be started. It is started again in {} s; try then",
                    left.as_secs() + 1
                )));
            }
            None => {}
        }
        if prints(&self.settings).await != self.files {
            return Err(Error::failed(
                "the plugin's program is another one than was started; the new one is used when Helve is started anew",
            ));
        }
        let (running, _) = Running::start(&self.settings, &*self.host, &self.log).await.inspect_err(|_| {
            state.failures = state.failures.saturating_add(1);
            state.not_before = Some(Instant::now() + SLOWEST);
        })?;
        state.running = Some(running);
        Ok(())
    }
}

/// The content of each file that a plugin is made of: whoever replaces one while the plugin runs changes nothing.
async fn prints(settings: &Settings) -> Vec<Print> {
    let argv = settings.argv.clone();
    let read = move || {
        let files = argv.iter().map(Path::new).filter(|it| it.is_absolute());
        files.map(|it| fs::read(it).ok().map(|bytes| Sha256::digest(bytes).into())).collect()
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

/// Why a call got no answer.
enum Lost {
    Timeout,
    Cancelled,
    Ended(i32),
    Broken(Error),
}

impl Lost {
    fn told(self, limit: Duration, last_words: &str) -> Error {
        let said =
            if last_words.trim().is_empty() { String::new() } else { format!(" It said: {}", last_words.trim()) };
        match self {
            Self::Timeout => Error::Timeout(limit),
            Self::Cancelled => Error::Cancelled,
            Self::Ended(code) => Error::failed(format!(
                "the plugin ended with code {code} while it worked on this call; it is started again with the next one.{said}"
            )),
            Self::Broken(error) => error,
        }
    }
}

impl Running {
    async fn start(settings: &Settings, host: &dyn Host, log: &Log) -> Result<(Self, Vec<Told>)> {
        let command = Command {
            script: None,
            argv: settings.argv.clone(),
            dir: settings.dir.clone(),
            roots: settings.roots.clone(),
            env: settings.env.clone(),
            input: Input::Open,
            network: Network::Configured,
            terminal: None,
            tell_dir: false,
            // Standard output carries the protocol alone.
            streams: Streams::Separate,
        };
        let process = host.spawn(&command).await?;
        let mut running =
            Self { process, lines: Lines::default(), form: Form::Init, tools: Vec::new(), last_words: String::new() };
        let name = settings.argv.first().map_or("", String::as_str);
        let (form, tools) = running.greet(settings.start, log).await.map_err(|why| {
            let said = running.last_words.trim();
            let said = if said.is_empty() { String::new() } else { format!(" It said: {said}") };
            Error::failed(format!("plugin {name} {why}.{said}"))
        })?;
        running.form = form;
        running.tools = tools.iter().map(|tool| tool.name.clone()).collect();
        Ok((running, tools))
    }

    async fn greet(&mut self, limit: Duration, log: &Log) -> Result<(Form, Vec<Told>), String> {
        let start = tokio::time::Instant::now();
        let end = start + limit;
        let mut other_at = Some(start + SILENCE.min(limit / 2));
        self.send(&protocol::init()).await.map_err(|error| error.to_string())?;
        loop {
            let until = other_at.unwrap_or(end);
            let line = match timeout_at(until, self.line(log)).await {
                Ok(Ok(line)) => line,
                Ok(Err(Lost::Ended(code))) => return Err(format!("ended with code {code} before it told its tools")),
                Ok(Err(_)) => return Err("sent something that cannot be read".into()),
                Err(_) if other_at.take().is_some() => {
                    self.send(&protocol::describe()).await.map_err(|error| error.to_string())?;
                    continue;
                }
                Err(_) => return Err(format!("did not tell its tools within {} s", limit.as_secs())),
            };
            match protocol::greeting(&line) {
                Greeting::Tools(form, tools) => {
                    let (tools, left): (Vec<_>, Vec<_>) = tools.into_iter().partition(Result::is_ok);
                    left.into_iter().filter_map(Result::err).for_each(|why| log(&why));
                    return Ok((form, tools.into_iter().flatten().collect()));
                }
                Greeting::NotUnderstood if other_at.take().is_some() => {
                    self.send(&protocol::describe()).await.map_err(|error| error.to_string())?;
                }
                Greeting::NotUnderstood | Greeting::Noise => {}
            }
        }
    }

    async fn exchange(&mut self, message: &Value, id: &str, log: &Log) -> Result<Reply, Lost> {
        // What came unasked belongs to no call.
        while self.lines.next().is_some() {}
        self.send(message).await.map_err(|_| Lost::Ended(-1))?;
        loop {
            match protocol::answer(self.form, &self.line(log).await?, id) {
                Answer::Result(reply) => return Ok(*reply),
                Answer::Late | Answer::Noise => {}
            }
        }
    }

    async fn send(&mut self, message: &Value) -> Result<()> {
        self.process.write(format!("{message}\n").as_bytes()).await
    }

    async fn line(&mut self, log: &Log) -> Result<Vec<u8>, Lost> {
        loop {
            if let Some(line) = self.lines.next() {
                return Ok(line);
            }
            match self.process.next().await {
                Noticed::Stdout(bytes) => self.lines.push(&bytes).map_err(|_| {
                    Lost::Broken(Error::failed(format!("the plugin wrote a line of more than {LONGEST} bytes")))
                })?,
                Noticed::Stderr(bytes) => {
                    let text = String::from_utf8_lossy(&bytes);
                    log(&text);
                    self.last_words.push_str(&text);
                    let surplus = self.last_words.len().saturating_sub(LAST_WORDS);
                    self.last_words.drain(..self.last_words.ceil_char_boundary(surplus));
                }
                Noticed::Exit(exit) => return Err(Lost::Ended(exit.code)),
            }
        }
    }
}
