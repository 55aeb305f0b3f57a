//! Drives one running task: collects output, handles requests, and enforces the timeout.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use helve_contract::{
    Call, Result,
    ports::{
        Process, ProcessEvent, ProcessExit, ProcessStatus, SandboxLevel, Signal, TERMINATION_GRACE, TaskId, TaskInfo,
    },
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use super::{
    output::{OutputBuffer, OutputStream},
    spill::{SPILL_THRESHOLD, TaskSpill},
};

/// What a caller asks of a running task.
pub(super) enum TaskControl {
    /// Write to its standard input. Nothing closes it.
    Input(Vec<u8>, oneshot::Sender<Result<()>>),
    /// Send a signal.
    Signal(Signal, oneshot::Sender<Result<()>>),
    /// End it.
    Stop,
}

/// A task, running or not.
pub(super) struct TaskRecord {
    pub(super) id: TaskId,
    pub(super) session: String,
    pub(super) command: String,
    pub(super) level: SandboxLevel,
    pub(super) started: Instant,
    pub(super) orders: mpsc::Sender<TaskControl>,
    /// Turns true when it has ended.
    pub(super) ended: watch::Sender<bool>,
    inside: Mutex<TaskState>,
}

/// What changes while it runs.
pub(super) struct TaskState {
    pub(super) output: OutputBuffer,
    pub(super) state: ProcessStatus,
    pub(super) ran: Option<Duration>,
    pub(super) file: Option<String>,
    /// Up to which byte its progress has been told.
    pub(super) reported_bytes: u64,
}

impl TaskRecord {
    pub(super) fn new(
        session: &str,
        id: TaskId,
        command: &str,
        level: SandboxLevel,
        orders: mpsc::Sender<TaskControl>,
    ) -> Self {
        let inside = TaskState {
            output: OutputBuffer::default(),
            state: ProcessStatus::Running,
            ran: None,
            file: None,
            reported_bytes: 0,
        };
        Self {
            id,
            session: session.to_owned(),
            command: command.to_owned(),
            level,
            started: Instant::now(),
            orders,
            ended: watch::Sender::new(false),
            inside: Mutex::new(inside),
        }
    }

    pub(super) fn inside(&self) -> MutexGuard<'_, TaskState> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Where the task stands. Its file is named as the session's model knows it.
    pub(super) fn info(&self, call: &Call) -> TaskInfo {
        let inside = self.inside();
        TaskInfo {
            id: self.id.clone(),
            command: self.command.clone(),
            status: inside.state.clone(),
            elapsed: inside.ran.unwrap_or_else(|| self.started.elapsed()),
            output_bytes: inside.output.total,
            sandbox_level: self.level,
            output_file: inside.file.as_ref().map(|file| call.session.workspace.display_path(Path::new(file))),
        }
    }
}

/// Why a task is being ended before its time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StopReason {
    Timeout,
    Asked,
}

/// Runs a task to its end.
pub(super) async fn drive(
    task: &TaskRecord,
    mut process: Box<dyn Process>,
    timeout: Option<Duration>,
    mut orders: mpsc::Receiver<TaskControl>,
    folder: PathBuf,
) {
    let mut spill: Option<TaskSpill> = None;
    let mut why = None;
    // A timeout too far away to be a moment is none.
    let mut alarm = timeout.and_then(|time| task.started.checked_add(time));
    let exit = loop {
        let waking = alarm.unwrap_or_else(Instant::now);
        tokio::select! {
            noticed = process.next() => match noticed {
                ProcessEvent::Stdout(piece) => store_output(task, &mut spill, &folder, OutputStream::Out, &piece).await,
                ProcessEvent::Stderr(piece) => store_output(task, &mut spill, &folder, OutputStream::Err, &piece).await,
                ProcessEvent::Exit(exit) => break exit,
            },
            Some(order) = orders.recv() => match order {
                TaskControl::Input(bytes, answer) => _ = answer.send(process.write(&bytes).await),
                TaskControl::Signal(signal, answer) => _ = answer.send(process.signal(signal).await),
                TaskControl::Stop if why.is_none() => {
                    why = Some(StopReason::Asked);
                    alarm = Some(send_signal(process.as_mut(), Signal::Terminate).await);
                }
                TaskControl::Stop => {}
            },
            () = sleep_until(waking), if alarm.is_some() => {
                alarm = if why.is_none() {
                    why = Some(StopReason::Timeout);
                    Some(send_signal(process.as_mut(), Signal::Terminate).await)
                } else {
                    send_signal(process.as_mut(), Signal::Kill).await;
                    None
                };
            }
        }
    };
    if let Some(spill) = spill
        && !spill.end(|| task.inside().output.tail()).await
    {
        task.inside().file = None;
    }
    // The program must be gone before its end is reported.
    drop(process);
    finish(task, exit, why);
}

/// Sends a signal; answers when to send the next, stronger one.
async fn send_signal(process: &mut dyn Process, signal: Signal) -> Instant {
    // A program that has just ended cannot be signalled, and need not be.
    _ = process.signal(signal).await;
    Instant::now() + TERMINATION_GRACE
}

fn finish(task: &TaskRecord, exit: ProcessExit, why: Option<StopReason>) {
    {
        let mut inside = task.inside();
        inside.ran = Some(task.started.elapsed());
        inside.state = match why {
            None => ProcessStatus::Exited(exit),
            Some(StopReason::Timeout) => ProcessStatus::TimedOut(exit),
            Some(StopReason::Asked) => ProcessStatus::Stopped(exit),
        };
    }
    task.ended.send_replace(true);
}

async fn store_output(
    task: &TaskRecord,
    spill: &mut Option<TaskSpill>,
    folder: &Path,
    stream: OutputStream,
    piece: &[u8],
) {
    let so_far = {
        let mut inside = task.inside();
        let so_far = (spill.is_none()
            && inside.output.total + piece.len() as u64 > SPILL_THRESHOLD
            && inside.output.total <= SPILL_THRESHOLD)
            .then(|| inside.output.head().to_vec());
        inside.output.push(stream, piece);
        so_far
    };
    if let Some(so_far) = so_far
        && let Ok(mut begun) = TaskSpill::begin(folder, &task.id.0).await
    {
        begun.add(&so_far).await;
        task.inside().file = Some(begun.path());
        *spill = Some(begun);
    }
    if let Some(spill) = spill {
        spill.add(piece).await;
    }
}
