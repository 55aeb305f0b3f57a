//! MCP over standard input and output.

use std::{
    fs::File,
    io::{self, stderr, stdin, stdout},
    os::fd::AsFd,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use helve_contract::patiently;
use tokio::{runtime::Handle, time::timeout};
use tokio_util::task::TaskTracker;

use crate::{
    answer,
    lane::{Lane, Post},
    lines::{LONGEST, Line, Lines},
    peer::{Handled, Outbox, Peer, Work},
    server::Server,
    wire::Fault,
};

/// How long calls may still answer after the last message came in: somebody may have piped a script into us.
const LAST_WORDS: Duration = Duration::from_millis(700);
/// How long cancelled calls may take to clean up behind themselves.
const CLEANUP: Duration = Duration::from_millis(1500);

/// Serves one client over standard input and output until it closes its side.
///
/// This thread reads, and blocks. `runtime` drives the calls that are not done at once, so it must have threads of its
/// own. From here on standard output is the protocol's alone: whatever else prints there goes to standard error.
pub fn serve_stdio(server: Arc<Server>, runtime: &Handle) -> io::Result<()> {
    let input = File::from(stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(stdout().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(stderr())?;
    serve(server, input, output, runtime)
}

/// Serves one client over a pair of pipes or the like until it closes its side.
pub fn serve(server: Arc<Server>, input: File, output: File, runtime: &Handle) -> io::Result<()> {
    let engine = server.engine.clone();
    // Whatever is answered is on record. Where that fails it is tried again with the next event.
    let lane = Lane::new(output, move || _ = engine.events().settle());
    let out: Arc<dyn Outbox> = Arc::new(Post(lane.clone()));
    let peer = Peer::new(server.clone());
    let tasks = TaskTracker::new();
    let teller = runtime.spawn(peer.clone().follow_tools(out.clone()));

    let entered = runtime.enter();
    let mut lines = Lines::new(input);
    let ended = loop {
        // Who sends many messages at once gets the answers in a few pieces, and they are recorded in as few.
        let more = lines.has_another();
        server.engine.events().gather(more);
        lane.gather(more);
        let handled = match lines.next() {
            Ok(Line::Text(message)) => peer.receive(message, &out),
            Ok(Line::TooLong) => Handled::Now(too_long()),
            Ok(Line::End) => break Ok(()),
            Err(error) => break Err(error),
        };
        match handled {
            Handled::Nothing => {}
            Handled::Now(answer) => out.send(answer),
            // With nothing else to read there is time to wait for a small write.
            Handled::Later(work) if lines.is_drained() => {
                patiently(|| begin(work, &out, &tasks, runtime));
            }
            Handled::Later(work) => begin(work, &out, &tasks, runtime),
        }
        if lane.is_broken() {
            break Ok(());
        }
    };
    server.engine.events().gather(false);
    lane.gather(false);
    drop(entered);
    teller.abort();

    tasks.close();
    peer.close();
    if !lane.is_broken() {
        let _ = runtime.block_on(async { timeout(LAST_WORDS, tasks.wait()).await });
    }
    peer.hang_up();
    let _ = runtime.block_on(async { timeout(CLEANUP, tasks.wait()).await });
    lane.drain(CLEANUP);
    ended
}

/// Most calls are done when they are looked at for the first time; only the others need a task.
fn begin(mut work: Work, out: &Arc<dyn Outbox>, tasks: &TaskTracker, runtime: &Handle) {
    match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(answer)) => out.send(answer),
        Poll::Ready(None) => {}
        Poll::Pending => {
            let out = out.clone();
            let task = async move {
                if let Some(answer) = work.await {
                    out.send(answer);
                }
            };
            tasks.spawn_on(task, runtime);
        }
    }
}

fn too_long() -> Vec<u8> {
    answer::error(None, &Fault::request(format!("the message is longer than {} MiB", LONGEST >> 20)))
}
