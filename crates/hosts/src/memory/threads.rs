//! Threads for scripts. An idle thread waits for the next script: starting a thread and touching its stack takes
//! longer than most scripts.

use std::{
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Sender, channel},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use super::shell::ScriptJob;

/// The stack size of a thread. Pages are allocated at the first use.
pub(super) const STACK_BYTES: usize = 256 << 20;
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The idle threads; the most recent is last.
static IDLE_THREADS: Mutex<Vec<(ThreadId, Sender<ScriptJob>)>> = Mutex::new(Vec::new());

fn waiting() -> MutexGuard<'static, Vec<(ThreadId, Sender<ScriptJob>)>> {
    IDLE_THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a job on an idle thread or a new one.
pub(super) fn run_job(mut job: ScriptJob) -> io::Result<()> {
    let free = waiting().pop();
    if let Some((_, free)) = free {
        match free.send(job) {
            Ok(()) => return Ok(()),
            Err(back) => job = back.0,
        }
    }
    thread::Builder::new().name("memory-shell".into()).stack_size(STACK_BYTES).spawn(move || worker_loop(job)).map(drop)
}

/// Runs jobs until none arrives within the timeout.
fn worker_loop(mut job: ScriptJob) {
    let (sender, jobs) = channel();
    let me = thread::current().id();
    loop {
        // It registers as idle before the result is sent, so that the next caller finds it.
        job.run(|| waiting().push((me, sender.clone())));
        let next = match jobs.recv_timeout(IDLE_TIMEOUT) {
            Ok(next) => Some(next),
            Err(_) if unregister(me) => None,
            // Another caller took this thread at the last moment: the job will arrive.
            Err(_) => jobs.recv().ok(),
        };
        match next {
            Some(next) => job = next,
            None => return,
        }
    }
}

/// Removes the thread from the idle list; returns false if it was not there.
fn unregister(me: ThreadId) -> bool {
    let mut waiting = waiting();
    let at = waiting.iter().position(|it| it.0 == me);
    at.map(|at| waiting.remove(at)).is_some()
}
