//! One task while it runs: takes what the program writes, does what callers ask, and ends it when its time is over.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use helve_contract::{
    Call, Result,
    ports::{Exit, GRACE, Level, Noticed, Process, Signal, State, TaskId, TaskInfo},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use super::{
    output::{Kept, Stream},
    spill::{SMALL, Spill},
};

/// What a caller asks of a running task.
pub(super) enum Order {
    /// Write to its standard input. Nothing closes it.
    Input(Vec<u8>, oneshot::Sender<Result<()>>),
    /// Send a signal.
    Signal(Signal, oneshot::Sender<Result<()>>),
    /// End it.
    Stop,
}

/// A task, running or not.
pub(super) struct Task {
    pub(super) id: TaskId,
    pub(super) session: String,
    pub(super) command: String,
    pub(super) level: Level,
    pub(super) started: Instant,
    pub(super) orders: mpsc::Sender<Order>,
    /// Turns true when it has ended.
    pub(super) ended: watch::Sender<bool>,
    inside: Mutex<Inside>,
}

/// What changes while it runs.
pub(super) struct Inside {
    pub(super) kept: Kept,
    pub(super) state: State,
    pub(super) ran: Option<Duration>,
    pub(super) file: Option<String>,
    /// Up to which byte its progress has been told.
    pub(super) said: u64,
}

impl Task {
    pub(super) fn new(session: &str, id: TaskId, command: &str, level: Level, orders: mpsc::Sender<Order>) -> Self {
        let inside = Inside { kept: Kept::default(), state: State::Running, ran: None, file: None, said: 0 };
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

    pub(super) fn inside(&self) -> MutexGuard<'_, Inside> {
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
            state: inside.state.clone(),
            ran: inside.ran.unwrap_or_else(|| self.started.elapsed()),
            written: inside.kept.total,
            level: self.level,
            file: inside.file.as_ref().map(|file| call.session.workspace.shown(Path::new(file))),
        }
    }
}

/// Why a task is being ended before its time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Timeout,
    Asked,
}

/// Runs a task to its end.
pub(super) async fn drive(
    task: &Task,
    mut process: Box<dyn Process>,
    timeout: Option<Duration>,
    mut orders: mpsc::Receiver<Order>,
    folder: PathBuf,
) {
    let mut spill: Option<Spill> = None;
    let mut why = None;
    // A timeout too far away to be a moment is none.
    let mut alarm = timeout.and_then(|time| task.started.checked_add(time));
    let exit = loop {
        let waking = alarm.unwrap_or_else(Instant::now);
        tokio::select! {
            noticed = process.next() => match noticed {
                Noticed::Stdout(piece) => keep(task, &mut spill, &folder, Stream::Out, &piece).await,
                Noticed::Stderr(piece) => keep(task, &mut spill, &folder, Stream::Err, &piece).await,
                Noticed::Exit(exit) => break exit,
            },
            Some(order) = orders.recv() => match order {
                Order::Input(bytes, answer) => _ = answer.send(process.write(&bytes).await),
                Order::Signal(signal, answer) => _ = answer.send(process.signal(signal).await),
                Order::Stop if why.is_none() => {
                    why = Some(Why::Asked);
                    alarm = Some(end(process.as_mut(), Signal::Terminate).await);
                }
                Order::Stop => {}
            },
            () = sleep_until(waking), if alarm.is_some() => {
                alarm = if why.is_none() {
                    why = Some(Why::Timeout);
                    Some(end(process.as_mut(), Signal::Terminate).await)
                } else {
                    end(process.as_mut(), Signal::Kill).await;
                    None
                };
            }
        }
    };
    if let Some(spill) = spill
        && !spill.end(|| task.inside().kept.tail()).await
    {
        task.inside().file = None;
    }
    // The program must be gone for good before anybody hears of its end.
    drop(process);
    finish(task, exit, why);
}

/// Sends a signal; answers when to send the next, stronger one.
async fn end(process: &mut dyn Process, signal: Signal) -> Instant {
    // A program that has just ended cannot be signalled, and need not be.
    _ = process.signal(signal).await;
    Instant::now() + GRACE
}

fn finish(task: &Task, exit: Exit, why: Option<Why>) {
    {
        let mut inside = task.inside();
        inside.ran = Some(task.started.elapsed());
        inside.state = match why {
            None => State::Ended(exit),
            Some(Why::Timeout) => State::TimedOut(exit),
            Some(Why::Asked) => State::Stopped(exit),
        };
    }
    task.ended.send_replace(true);
}

async fn keep(task: &Task, spill: &mut Option<Spill>, folder: &Path, stream: Stream, piece: &[u8]) {
    let so_far = {
        let mut inside = task.inside();
        let so_far = (spill.is_none() && inside.kept.total + piece.len() as u64 > SMALL && inside.kept.total <= SMALL)
            .then(|| inside.kept.head().to_vec());
        inside.kept.push(stream, piece);
        so_far
    };
    if let Some(so_far) = so_far
        && let Ok(mut begun) = Spill::begin(folder, &task.id.0).await
    {
        begun.add(&so_far).await;
        task.inside().file = Some(begun.path());
        *spill = Some(begun);
    }
    if let Some(spill) = spill {
        spill.add(piece).await;
    }
}
