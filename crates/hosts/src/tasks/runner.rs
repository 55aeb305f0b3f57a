//! The task runner: starts, lists, reads and stops tasks.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use helve_contract::{
    Call, Error, Result,
    ids::{self, Named},
    ports::{Host, ProcessSpec, Signal, TaskId, TaskInfo, TaskOutput, Tasks, WaitUntil},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};

use super::{
    drive::{TaskControl, TaskRecord, drive},
    spill,
};

/// How many tasks of one session may run at once.
const MAX_RUNNING: usize = 64;
/// How many of one session's finished tasks can still be asked about.
const MAX_FINISHED: usize = 64;
/// The most that may be written to a task's input at once.
const MAX_INPUT_BYTES: usize = 1 << 20;
/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// How much of it at once.
const PROGRESS_BYTES: usize = 4096;
/// How long a stop may take before the caller gets a note.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs commands on a host and keeps their output. Dropping it ends all of them.
pub struct TaskRunner {
    host: Arc<dyn Host>,
    folder: PathBuf,
    prepared: OnceLock<bool>,
    tasks: Mutex<Vec<TaskEntry>>,
    outlives_call: bool,
}

/// A task and the handle that ends it.
struct TaskEntry {
    task: Arc<TaskRecord>,
    driver: AbortHandle,
}

impl Drop for TaskEntry {
    fn drop(&mut self) {
        // Ends the program with it, if it still runs.
        self.driver.abort();
    }
}

impl TaskRunner {
    /// Creates a runner for this host. Long output goes to files in this directory, which is created when needed.
    #[must_use]
    pub fn new(host: Arc<dyn Host>, folder: impl Into<PathBuf>) -> Self {
        Self {
            host,
            folder: folder.into(),
            prepared: OnceLock::new(),
            tasks: Mutex::new(Vec::new()),
            outlives_call: true,
        }
    }

    /// For a process that serves one call and exits: replies say that a background task ends with it.
    #[must_use]
    pub fn for_one_call(self) -> Self {
        Self { outlives_call: false, ..self }
    }

    /// Ends and removes every task of a session.
    pub fn end_session(&self, session: &str) {
        self.tasks().retain(|entry| entry.task.session != session);
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<TaskEntry>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory, real and private. Without one, output stays in memory.
    fn folder(&self) -> &Path {
        self.prepared.get_or_init(|| spill::prepare(&self.folder).is_ok());
        &self.folder
    }

    fn find(&self, call: &Call, id: &TaskId) -> Result<Arc<TaskRecord>> {
        let tasks = self.tasks();
        let own = || tasks.iter().map(|entry| &entry.task).filter(|task| task.session == call.session.id);
        if let Named::One(task) = ids::find(&id.0, own().map(|task| (task.id.0.as_str(), None, task))) {
            return Ok(task.clone());
        }
        let known: Vec<_> = own().map(|task| task.id.0.clone()).collect();
        let others =
            if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
        let shown: String = id.0.chars().take(64).collect();
        Err(Error::failed(format!("no task `{}` in this session; {others}", shown.escape_debug())))
    }

    /// Refuses a task above the limit and removes the oldest finished ones.
    fn evict_finished(&self, session: &str) -> Result<()> {
        let mut tasks = self.tasks();
        let running = tasks.iter().filter(|it| it.task.session == session && !it.task.has_ended()).count();
        if running >= MAX_RUNNING {
            return Err(Error::failed(format!(
                "{running} commands are running in this session already, which is the most; stop one first"
            )));
        }
        let ended = |entry: &TaskEntry| entry.task.session == session && entry.task.has_ended();
        let mut too_many = tasks.iter().filter(|it| ended(it)).count().saturating_sub(MAX_FINISHED - 1);
        tasks.retain(|entry| {
            let goes = too_many > 0 && ended(entry);
            too_many -= usize::from(goes);
            !goes
        });
        Ok(())
    }

    async fn send_control(
        &self,
        task: &TaskRecord,
        order: impl FnOnce(oneshot::Sender<Result<()>>) -> TaskControl,
    ) -> Result<()> {
        let gone = || Error::failed(format!("task `{}` has ended", task.id));
        if task.has_ended() {
            return Err(gone());
        }
        let (answer, answered) = oneshot::channel();
        task.orders.send(order(answer)).await.map_err(|_| gone())?;
        match timeout(STOP_TIMEOUT, answered).await {
            Ok(answer) => answer.map_err(|_| gone())?,
            Err(_) => Err(Error::failed(format!("task `{}` is busy and did not take it within 5 s", task.id))),
        }
    }
}

/// Tells what a task has written since it was last told, if anybody listens.
fn report_progress(call: &Call, task: &TaskRecord) {
    if call.progress.is_none() {
        return;
    }
    let news = {
        let mut inside = task.inside();
        let total = inside.output.total;
        // Only the newest output of a burst is reported.
        let from = inside.reported_bytes.max(total.saturating_sub(PROGRESS_BYTES as u64));
        let news = inside.output.text(from, PROGRESS_BYTES, false);
        inside.reported_bytes = news.next;
        news
    };
    // What cannot be seen is shown in more bytes than it had.
    let text = news.merged.as_str();
    let newest = &text[text.ceil_char_boundary(text.len().saturating_sub(PROGRESS_BYTES))..];
    if !newest.is_empty() {
        call.report_progress(newest);
    }
}

#[async_trait]
impl Tasks for TaskRunner {
    async fn start(&self, call: &Call, command: ProcessSpec, timeout: Option<Duration>, label: &str) -> Result<TaskId> {
        call.check_cancelled()?;
        let session = call.session.id.clone();
        self.evict_finished(&session)?;
        let process = self.host.spawn(&command).await?;
        let (orders, inbox) = mpsc::channel(16);
        let task = Arc::new(TaskRecord::new(&session, TaskId(ids::new_id()), label, process.sandbox_level(), orders));
        let folder = self.folder().to_owned();
        let driver = tokio::spawn({
            let task = task.clone();
            async move { drive(&task, process, timeout, inbox, folder).await }
        });
        let id = task.id.clone();
        self.tasks().push(TaskEntry { task, driver: driver.abort_handle() });
        Ok(id)
    }

    async fn wait(&self, call: &Call, id: &TaskId, until: WaitUntil) -> Result<TaskInfo> {
        let task = self.find(call, id)?;
        if until == WaitUntil::Now {
            return Ok(task.info(call));
        }
        let mut ended = task.ended.subscribe();
        let deadline = match until {
            WaitUntil::For(time) => Instant::now().checked_add(time),
            _ => None,
        };
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let waking = deadline.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                _ = ended.wait_for(|ended| *ended) => break,
                () = call.cancel.cancelled() => break,
                () = sleep_until(waking), if deadline.is_some() => break,
                _ = ticks.tick(), if call.progress.is_some() => report_progress(call, &task),
            }
        }
        report_progress(call, &task);
        Ok(task.info(call))
    }

    async fn output(&self, call: &Call, id: &TaskId, from: u64, max: usize) -> Result<TaskOutput> {
        let task = self.find(call, id)?;
        let ended = task.has_ended();
        let output = task.inside().output.text(from, max, ended);
        Ok(output)
    }

    async fn input(&self, call: &Call, id: &TaskId, bytes: &[u8]) -> Result<()> {
        let task = self.find(call, id)?;
        if bytes.len() > MAX_INPUT_BYTES {
            return Err(Error::failed(format!(
                "{} bytes are more than the {MAX_INPUT_BYTES} that may be sent at once; send them in parts",
                bytes.len()
            )));
        }
        self.send_control(&task, |answer| TaskControl::Input(bytes.to_vec(), answer)).await
    }

    async fn signal(&self, call: &Call, id: &TaskId, signal: Signal) -> Result<()> {
        let task = self.find(call, id)?;
        self.send_control(&task, |answer| TaskControl::Signal(signal, answer)).await
    }

    async fn stop(&self, call: &Call, id: &TaskId) -> Result<TaskInfo> {
        let task = self.find(call, id)?;
        let mut ended = task.ended.subscribe();
        if !task.has_ended() {
            // The task may end by itself at this moment; that is fine.
            _ = task.orders.send(TaskControl::Stop).await;
            if timeout(STOP_TIMEOUT, ended.wait_for(|ended| *ended)).await.is_err() {
                return Err(Error::failed(format!("task `{id}` was told to end but still runs; ask again later")));
            }
        }
        Ok(task.info(call))
    }

    async fn list(&self, call: &Call) -> Vec<TaskInfo> {
        let own: Vec<_> = {
            let tasks = self.tasks();
            tasks.iter().filter(|it| it.task.session == call.session.id).map(|it| it.task.clone()).collect()
        };
        own.iter().map(|task| task.info(call)).collect()
    }

    async fn forget(&self, call: &Call, id: &TaskId) {
        self.tasks().retain(|entry| {
            let task = &entry.task;
            !(task.session == call.session.id && task.id == *id && task.has_ended())
        });
    }

    fn outlives_call(&self) -> bool {
        self.outlives_call
    }
}
