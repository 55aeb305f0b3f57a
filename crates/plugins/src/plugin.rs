//! A running plugin: start, handshake, sequential calls and restarts.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use helve_contract::{
    Call, Error, Reply, Result,
    ports::{Host, NetworkAccess, Process, ProcessEvent, ProcessSpec, StdinSource, Streams},
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::{sync::Mutex, time::timeout_at};

use crate::{
    PluginConfig, StderrLog,
    lines::{LineBuffer, MAX_LINE_BYTES},
    protocol::{self, CallLine, HandshakeLine, PluginTool, ProtocolForm},
};

/// How long a silent plugin gets before the other handshake is tried.
const HANDSHAKE_FALLBACK_DELAY: Duration = Duration::from_secs(2);
/// The longest wait between two starts.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// How long a call waits for a restart. A later restart refuses the call.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// How much of standard error is kept for an error message.
const STDERR_TAIL_BYTES: usize = 2048;

/// What stands for the content of a file; none for a file that is not on this machine.
type ContentHash = Option<[u8; 32]>;

/// A plugin, running or to be started again.
pub(crate) struct Plugin {
    settings: PluginConfig,
    host: Arc<dyn Host>,
    log: StderrLog,
    /// The program and its scripts, as they were when it was started.
    hashes: Vec<ContentHash>,
    /// One call at a time, as the protocol has it.
    state: Mutex<PluginState>,
}

struct PluginState {
    running: Option<PluginProcess>,
    calls: u64,
    failures: u32,
    not_before: Option<Instant>,
}

struct PluginProcess {
    process: Box<dyn Process>,
    lines: LineBuffer,
    form: ProtocolForm,
    tools: Vec<String>,
    stderr_tail: String,
}

impl Plugin {
    pub(crate) async fn start(
        settings: PluginConfig,
        host: Arc<dyn Host>,
        log: StderrLog,
    ) -> Result<(Self, Vec<PluginTool>)> {
        let files = hash_files(&settings).await;
        let (running, tools) = PluginProcess::start(&settings, &*host, &log).await?;
        let state = PluginState { running: Some(running), calls: 0, failures: 0, not_before: None };
        Ok((Self { settings, host, log, hashes: files, state: Mutex::new(state) }, tools))
    }

    /// One call. Arguments were checked by the engine before.
    pub(crate) async fn call(&self, name: &str, params: Value, call: &Call) -> Result<Reply> {
        let mut state = self.state.lock().await;
        self.restart(&mut state, call).await?;
        state.calls += 1;
        let id = format!("call-{}", state.calls);
        let Some(running) = state.running.as_mut() else { return Err(Error::failed("the plugin is not running")) };
        if !running.tools.iter().any(|tool| tool == name) {
            return Err(Error::failed(format!("the plugin no longer has a tool `{name}` since it was started again")));
        }
        let message = protocol::call(running.form, name, &id, params);
        let deadline = tokio::time::Instant::now() + self.settings.call_timeout;
        let outcome = tokio::select! {
            outcome = running.exchange(&message, &id, &self.log) => outcome,
            () = tokio::time::sleep_until(deadline) => Err(PluginCallError::Timeout),
            () = call.cancel.cancelled() => Err(PluginCallError::Cancelled),
        };
        match outcome {
            Ok(reply) => {
                state.failures = 0;
                Ok(reply)
            }
            // A late answer would be taken for the next call's, so the program is ended with the call.
            Err(lost) => {
                let words = state.running.take().map(|it| it.stderr_tail).unwrap_or_default();
                if !matches!(lost, PluginCallError::Cancelled) {
                    state.failures = state.failures.saturating_add(1);
                    let wait = Duration::from_millis(100) * 2_u32.saturating_pow(state.failures.min(10));
                    state.not_before = Some(Instant::now() + wait.min(MAX_BACKOFF));
                }
                Err(lost.into_error(self.settings.call_timeout, &words))
            }
        }
    }

    /// Restarts the program if it is not running. A call waits for a restart that is due soon.
    async fn restart(&self, state: &mut PluginState, call: &Call) -> Result<()> {
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
        if hash_files(&self.settings).await != self.hashes {
            return Err(Error::failed(
                "the plugin's program is another one than was started; the new one is used when Helve is started anew",
            ));
        }
        let (running, _) = PluginProcess::start(&self.settings, &*self.host, &self.log).await.inspect_err(|_| {
            state.failures = state.failures.saturating_add(1);
            state.not_before = Some(Instant::now() + MAX_BACKOFF);
        })?;
        state.running = Some(running);
        Ok(())
    }
}

/// Hashes the files of a plugin: a replaced file changes nothing while the plugin runs.
async fn hash_files(settings: &PluginConfig) -> Vec<ContentHash> {
    let argv = settings.argv.clone();
    let read = move || {
        let files = argv.iter().map(Path::new).filter(|it| it.is_absolute());
        files.map(|it| fs::read(it).ok().map(|bytes| Sha256::digest(bytes).into())).collect()
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

/// Why a call got no answer.
enum PluginCallError {
    Timeout,
    Cancelled,
    Exited(i32),
    Broken(Error),
}

impl PluginCallError {
    fn into_error(self, limit: Duration, last_words: &str) -> Error {
        let said =
            if last_words.trim().is_empty() { String::new() } else { format!(" It said: {}", last_words.trim()) };
        match self {
            Self::Timeout => Error::Timeout(limit),
            Self::Cancelled => Error::Cancelled,
            Self::Exited(code) => Error::failed(format!(
                "the plugin ended with code {code} while it worked on this call; it is started again with the next one.{said}"
            )),
            Self::Broken(error) => error,
        }
    }
}

impl PluginProcess {
    async fn start(settings: &PluginConfig, host: &dyn Host, log: &StderrLog) -> Result<(Self, Vec<PluginTool>)> {
        let command = ProcessSpec {
            script: None,
            argv: settings.argv.clone(),
            cwd: settings.dir.clone(),
            roots: settings.roots.clone(),
            env: settings.env.clone(),
            stdin: StdinSource::Open,
            network: NetworkAccess::Configured,
            terminal: None,
            report_cwd: false,
            // Standard output carries the protocol alone.
            streams: Streams::Separate,
        };
        let process = host.spawn(&command).await?;
        let mut running = Self {
            process,
            lines: LineBuffer::default(),
            form: ProtocolForm::Init,
            tools: Vec::new(),
            stderr_tail: String::new(),
        };
        let name = settings.argv.first().map_or("", String::as_str);
        let (form, tools) = running.handshake(settings.start_timeout, log).await.map_err(|why| {
            let said = running.stderr_tail.trim();
            let said = if said.is_empty() { String::new() } else { format!(" It said: {said}") };
            Error::failed(format!("plugin {name} {why}.{said}"))
        })?;
        running.form = form;
        running.tools = tools.iter().map(|tool| tool.name.clone()).collect();
        Ok((running, tools))
    }

    async fn handshake(&mut self, limit: Duration, log: &StderrLog) -> Result<(ProtocolForm, Vec<PluginTool>), String> {
        let start = tokio::time::Instant::now();
        let end = start + limit;
        let mut other_at = Some(start + HANDSHAKE_FALLBACK_DELAY.min(limit / 2));
        self.send(&protocol::init()).await.map_err(|error| error.to_string())?;
        loop {
            let until = other_at.unwrap_or(end);
            let line = match timeout_at(until, self.read_line(log)).await {
                Ok(Ok(line)) => line,
                Ok(Err(PluginCallError::Exited(code))) => {
                    return Err(format!("ended with code {code} before it told its tools"));
                }
                Ok(Err(_)) => return Err("sent something that cannot be read".into()),
                Err(_) if other_at.take().is_some() => {
                    self.send(&protocol::describe()).await.map_err(|error| error.to_string())?;
                    continue;
                }
                Err(_) => return Err(format!("did not tell its tools within {} s", limit.as_secs())),
            };
            match protocol::parse_handshake(&line) {
                HandshakeLine::Tools(form, tools) => {
                    let (tools, left): (Vec<_>, Vec<_>) = tools.into_iter().partition(Result::is_ok);
                    left.into_iter().filter_map(Result::err).for_each(|why| log(&why));
                    return Ok((form, tools.into_iter().flatten().collect()));
                }
                HandshakeLine::NotUnderstood if other_at.take().is_some() => {
                    self.send(&protocol::describe()).await.map_err(|error| error.to_string())?;
                }
                HandshakeLine::NotUnderstood | HandshakeLine::Ignored => {}
            }
        }
    }

    async fn exchange(&mut self, message: &Value, id: &str, log: &StderrLog) -> Result<Reply, PluginCallError> {
        // Unrequested output belongs to no call.
        while self.lines.next().is_some() {}
        self.send(message).await.map_err(|_| PluginCallError::Exited(-1))?;
        loop {
            match protocol::parse_result(self.form, &self.read_line(log).await?, id) {
                CallLine::Result(reply) => return Ok(*reply),
                CallLine::Stale | CallLine::Ignored => {}
            }
        }
    }

    async fn send(&mut self, message: &Value) -> Result<()> {
        self.process.write(format!("{message}\n").as_bytes()).await
    }

    async fn read_line(&mut self, log: &StderrLog) -> Result<Vec<u8>, PluginCallError> {
        loop {
            if let Some(line) = self.lines.next() {
                return Ok(line);
            }
            match self.process.next().await {
                ProcessEvent::Stdout(bytes) => self.lines.push(&bytes).map_err(|_| {
                    PluginCallError::Broken(Error::failed(format!(
                        "the plugin wrote a line of more than {MAX_LINE_BYTES} bytes"
                    )))
                })?,
                ProcessEvent::Stderr(bytes) => {
                    let text = String::from_utf8_lossy(&bytes);
                    log(&text);
                    self.stderr_tail.push_str(&text);
                    let surplus = self.stderr_tail.len().saturating_sub(STDERR_TAIL_BYTES);
                    self.stderr_tail.drain(..self.stderr_tail.ceil_char_boundary(surplus));
                }
                ProcessEvent::Exit(exit) => return Err(PluginCallError::Exited(exit.code)),
            }
        }
    }
}
