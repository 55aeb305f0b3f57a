//! Fake commands for tests: the test sets their output and end.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use helve_contract::{
    Call, Error, Result, async_trait,
    ports::{
        ProcessExit, ProcessSpec, ProcessStatus, SandboxLevel, Signal, TaskId, TaskInfo, TaskOutput, Tasks, WaitUntil,
    },
};

use crate::testing::FakeHost;

/// One pretended command, whatever is started.
pub(crate) struct FakeTasks {
    /// What it writes: standard output, and standard error where the text starts with `!`.
    pub(crate) writes: Vec<&'static str>,
    /// How it ends, or that it runs on.
    pub(crate) state: ProcessStatus,
    /// What was done to it.
    pub(crate) log: Mutex<Vec<String>>,
    /// The process serves one call and exits.
    one_call: bool,
}

impl FakeTasks {
    pub(crate) fn new(state: ProcessStatus, writes: &[&'static str]) -> Arc<Self> {
        Arc::new(Self { writes: writes.to_vec(), state, log: Mutex::default(), one_call: false })
    }

    /// A command that runs on, in a process that serves one call.
    pub(crate) fn for_one_call() -> Arc<Self> {
        Arc::new(Self { writes: Vec::new(), state: ProcessStatus::Running, log: Mutex::default(), one_call: true })
    }

    /// A command that ends by itself.
    pub(crate) fn ends(code: i32, writes: &[&'static str]) -> Arc<Self> {
        Self::new(ProcessStatus::Exited(exit(code)), writes)
    }

    /// A call in a session whose commands are this one.
    pub(crate) fn call(self: &Arc<Self>) -> Call {
        let mut call = FakeHost::with(&[("sub/a", "")]).call();
        Arc::get_mut(&mut call.session).unwrap().ports.tasks = self.clone();
        call
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, what: String) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn merged(&self) -> String {
        self.writes.iter().map(|text| text.trim_start_matches('!')).collect()
    }

    fn info(&self, state: ProcessStatus) -> TaskInfo {
        TaskInfo {
            id: TaskId("t1".into()),
            command: "make all".into(),
            status: state,
            elapsed: Duration::from_millis(1250),
            output_bytes: self.merged().len() as u64,
            sandbox_level: SandboxLevel::Full,
            output_file: Some("/spill/t1".into()),
        }
    }
}

/// A plain end.
pub(crate) fn exit(code: i32) -> ProcessExit {
    ProcessExit { code, signal: None, left_behind: false, denials: Vec::new(), dir: None }
}

#[async_trait]
impl Tasks for FakeTasks {
    async fn start(&self, _: &Call, command: ProcessSpec, timeout: Option<Duration>, label: &str) -> Result<TaskId> {
        let roots: Vec<String> = command.roots.iter().map(ToString::to_string).collect();
        let script = command.script.unwrap_or_default();
        self.record(format!(
            "start `{script}` in {} with {} {:?} {:?} {timeout:?} as {label}",
            command.cwd,
            roots.join(" "),
            command.env,
            command.stdin
        ));
        Ok(TaskId("t1".into()))
    }

    async fn wait(&self, call: &Call, id: &TaskId, until: WaitUntil) -> Result<TaskInfo> {
        if id.0 != "t1" {
            return Err(Error::failed(format!("no task `{id}` in this session")));
        }
        self.record(format!("wait {until:?}"));
        if until == WaitUntil::Exit && self.state == ProcessStatus::Running {
            call.cancel.cancelled().await;
        }
        Ok(self.info(self.state.clone()))
    }

    async fn output(&self, _: &Call, _: &TaskId, from: u64, max: usize) -> Result<TaskOutput> {
        let merged = self.merged();
        let end = (from as usize + max).min(merged.len());
        let side = |wanted: bool| -> String {
            let texts = self.writes.iter().filter(|text| text.starts_with('!') == wanted);
            texts.map(|text| text.trim_start_matches('!')).collect()
        };
        Ok(TaskOutput {
            merged: merged[from as usize..end].to_owned(),
            stdout: side(false),
            stderr: side(true),
            next: end as u64,
            skipped: 0,
        })
    }

    async fn input(&self, _: &Call, _: &TaskId, bytes: &[u8]) -> Result<()> {
        self.record(format!("input {:?}", String::from_utf8_lossy(bytes)));
        Ok(())
    }

    async fn signal(&self, _: &Call, _: &TaskId, signal: Signal) -> Result<()> {
        self.record(format!("signal {}", signal.name()));
        Ok(())
    }

    async fn stop(&self, _: &Call, _: &TaskId) -> Result<TaskInfo> {
        self.record("stop".to_owned());
        Ok(self.info(ProcessStatus::Stopped(exit(143))))
    }

    async fn list(&self, _: &Call) -> Vec<TaskInfo> {
        vec![self.info(self.state.clone())]
    }

    async fn forget(&self, _: &Call, _: &TaskId) {
        self.record("forget".to_owned());
    }

    fn outlives_call(&self) -> bool {
        !self.one_call
    }
}
