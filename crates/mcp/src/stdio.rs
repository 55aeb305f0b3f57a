//! MCP over standard input and output.

use std::{
    fs::File,
    io::{self, stderr, stdin, stdout},
    os::fd::AsFd,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use helve_contract::allow_blocking;
use tokio::{runtime::Handle, time::timeout};
use tokio_util::task::TaskTracker;

use crate::{
    answer,
    lane::{MessageWriter, WriterOutbox},
    lines::{InputLine, LineReader, MAX_LINE_BYTES},
    peer::{MessageResponse, Outbox, Peer, PendingResponse},
    server::McpService,
    wire::RpcError,
};

/// How long calls may answer after the input has ended: it may be a piped script.
const EOF_GRACE: Duration = Duration::from_millis(700);
/// How long cancelled calls may take to clean up behind themselves.
const CLEANUP_TIMEOUT: Duration = Duration::from_millis(1500);

/// Serves one client over standard input and output until it closes its side.
///
/// This thread reads and blocks. `runtime` runs calls that are not ready immediately, so it must have its own
/// threads. Standard output is reserved for the protocol: other output goes to standard error.
pub fn serve_stdio(server: Arc<McpService>, runtime: &Handle) -> io::Result<()> {
    let input = File::from(stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(stdout().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(stderr())?;
    serve(server, input, output, runtime)
}

/// Serves one client over a pair of pipes or the like until it closes its side.
pub fn serve(server: Arc<McpService>, input: File, output: File, runtime: &Handle) -> io::Result<()> {
    let engine = server.engine.clone();
    // Events are written before answers leave. A failed write is retried with the next event.
    let lane = MessageWriter::new(output, move || _ = engine.events().settle());
    let out: Arc<dyn Outbox> = Arc::new(WriterOutbox(lane.clone()));
    let peer = Peer::new(server.clone());
    let tasks = TaskTracker::new();
    let teller = runtime.spawn(peer.clone().watch_tool_changes(out.clone()));

    let entered = runtime.enter();
    let mut lines = LineReader::new(input);
    let ended = loop {
        // Answers to many messages at once are batched, and so are their records.
        let more = lines.has_buffered_line();
        server.engine.events().gather(more);
        lane.set_batching(more);
        let handled = match lines.next() {
            Ok(InputLine::Text(message)) => peer.receive(message, &out),
            Ok(InputLine::TooLong) => MessageResponse::Ready(too_long()),
            Ok(InputLine::End) => break Ok(()),
            Err(error) => break Err(error),
        };
        match handled {
            MessageResponse::None => {}
            MessageResponse::Ready(answer) => out.send(answer),
            // With nothing else to read, wait for a small write.
            MessageResponse::Pending(work) if lines.is_buffer_empty() => {
                allow_blocking(|| start_pending(work, &out, &tasks, runtime));
            }
            MessageResponse::Pending(work) => start_pending(work, &out, &tasks, runtime),
        }
        if lane.is_broken() {
            break Ok(());
        }
    };
    server.engine.events().gather(false);
    lane.set_batching(false);
    drop(entered);
    teller.abort();

    tasks.close();
    peer.close();
    if !lane.is_broken() {
        let _ = runtime.block_on(async { timeout(EOF_GRACE, tasks.wait()).await });
    }
    peer.disconnect();
    let _ = runtime.block_on(async { timeout(CLEANUP_TIMEOUT, tasks.wait()).await });
    lane.drain(CLEANUP_TIMEOUT);
    ended
}

/// Most calls are complete after the first poll; only the others need a task.
fn start_pending(mut work: PendingResponse, out: &Arc<dyn Outbox>, tasks: &TaskTracker, runtime: &Handle) {
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
    answer::error(None, &RpcError::invalid_request(format!("the message is longer than {} MiB", MAX_LINE_BYTES >> 20)))
}
