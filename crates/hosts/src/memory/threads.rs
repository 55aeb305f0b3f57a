//! Threads for scripts. One that has done its script waits a while for the next: to start a thread, and to touch its stack
//! for the first time, takes longer than most scripts do.

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

/// The stack of a thread. Pages are taken when they are used.
pub(super) const STACK_BYTES: usize = 256 << 20;
/// How long a thread waits.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The threads that wait; the last one has done so for the shortest time.
static IDLE_THREADS: Mutex<Vec<(ThreadId, Sender<ScriptJob>)>> = Mutex::new(Vec::new());

fn waiting() -> MutexGuard<'static, Vec<(ThreadId, Sender<ScriptJob>)>> {
    IDLE_THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does a job on a thread that waits, or on a new one.
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

/// Does one job after another, until none comes.
fn worker_loop(mut job: ScriptJob) {
    let (sender, jobs) = channel();
    let me = thread::current().id();
    loop {
        // It waits before anybody hears of the end, so that whoever comes next finds it.
        job.run(|| waiting().push((me, sender.clone())));
        let next = match jobs.recv_timeout(IDLE_TIMEOUT) {
            Ok(next) => Some(next),
            Err(_) if unregister(me) => None,
            // Somebody took this thread at the last moment: the job is on its way.
            Err(_) => jobs.recv().ok(),
        };
        match next {
            Some(next) => job = next,
            None => return,
        }
    }
}

/// Waits no longer; false, where it was not among those that wait.
fn unregister(me: ThreadId) -> bool {
    let mut waiting = waiting();
    let at = waiting.iter().position(|it| it.0 == me);
    at.map(|at| waiting.remove(at)).is_some()
}
