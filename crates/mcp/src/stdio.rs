//! MCP over standard input and output.

use std::{
    fs::File,
    io::{self, stderr, stdin, stdout},
    os::fd::AsFd,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
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
/// How long the next message is waited for awake: a client needs some of it to look at an answer.
const SOON: Duration = Duration::from_micros(300);
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
    let mut ear = Ear { quick: true, moment: SOON };
    let mut thrift = Thrift { called: false, let_go: 0, last: Instant::now() };
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
        // Now nobody waits for an answer.
        if !more {
            thrift.let_go(&server);
        }
        let handled = match ear.listen(&mut lines, more, tasks.is_empty()) {
            Ok(Line::Text(message)) => peer.receive(message, &out),
            Ok(Line::TooLong) => Handled::Now(too_long()),
            Ok(Line::End) => break Ok(()),
            Err(error) => break Err(error),
        };
        thrift.called |= matches!(handled, Handled::Later(_));
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

/// Waits for the next message. To be woken takes a good part of the time of a small call, so whoever asks for one thing
/// after another in quick succession is waited for awake, for a moment.
struct Ear {
    /// The last message came alone, soon after the one before it had been answered.
    quick: bool,
    /// How long it waits awake.
    moment: Duration,
}

impl Ear {
    /// The next message. While calls are under way the processor is theirs, and nobody waits awake. Where many messages come at
    /// once, more of them are there after a sleep, and are answered together.
    fn listen<'a>(&mut self, lines: &'a mut Lines<File>, more: bool, idle: bool) -> io::Result<Line<'a>> {
        if more {
            self.quick = false;
            return lines.next();
        }
        let began = Instant::now();
        if self.quick && idle {
            while !lines.is_there() && began.elapsed() < self.moment {
                thread::yield_now();
            }
        }
        let next = lines.next();
        self.quick = began.elapsed() < self.moment;
        next
    }
}

/// Sees to it that memory that was needed for a while is not kept for good.
struct Thrift {
    called: bool,
    /// What was done for the first time and has been let go.
    let_go: usize,
    /// When it was last looked at.
    last: Instant,
}

impl Thrift {
    /// How much there may be without a thought.
    const MOST: usize = 12 << 20;
    /// How often that is looked at: it takes as long as a small call.
    const OFTEN: Duration = Duration::from_millis(25);

    /// Lets go after the tools were told, after the first call, and when there is much.
    fn let_go(&mut self, server: &Server) {
        let Some(let_go) = server.options.let_go else { return };
        let done = if self.called { 2 } else { usize::from(server.was_listed()) };
        if done > self.let_go {
            self.let_go = done;
            let_go(0);
        } else if self.last.elapsed() >= Self::OFTEN {
            let_go(Self::MOST);
        } else {
            return;
        }
        self.last = Instant::now();
    }
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

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::OwnedFd};

    use super::*;

    #[test]
    fn only_who_asks_one_thing_after_another_is_waited_for_awake() {
        let (read, mut client) = io::pipe().unwrap();
        let mut lines = Lines::new(File::from(OwnedFd::from(read)));
        let mut ear = Ear { quick: true, moment: Duration::MAX };
        let saying = thread::spawn(move || client.write_all(b"one\n").map(|()| client));
        assert_eq!(ear.listen(&mut lines, false, true).unwrap(), Line::Text(b"one"));
        assert!(ear.quick, "it came in time");

        let mut client = saying.join().unwrap().unwrap();
        client.write_all(b"two\nthree\n").unwrap();
        assert_eq!(ear.listen(&mut lines, false, false).unwrap(), Line::Text(b"two"));
        assert_eq!(ear.listen(&mut lines, true, true).unwrap(), Line::Text(b"three"));
        assert!(!ear.quick, "many come at once");

        let mut late = Ear { quick: true, moment: Duration::ZERO };
        client.write_all(b"four\n").unwrap();
        assert_eq!(late.listen(&mut lines, false, true).unwrap(), Line::Text(b"four"));
        assert!(!late.quick, "the moment is over");
        drop(client);
        assert_eq!(ear.listen(&mut lines, false, true).unwrap(), Line::End);
    }
}
