//! Terminal input: one thread reads standard input.
//!
//! On a terminal it supports line editing and collects lines that are typed while the agent works. Other input is read
//! line by line on demand.

use std::{
    io::{self, BufRead, IsTerminal},
    os::fd::AsFd,
    path::PathBuf,
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr},
};
use rustyline::{Config, Editor, ExternalPrinter as _, error::ReadlineError, history::FileHistory};
use tokio::sync::{mpsc as later, oneshot};

use super::Screen;

/// The maximum number of history lines.
const MAX_HISTORY_LINES: usize = 1000;
/// The maximum length of a typed message.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The result of reading a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LineEvent {
    /// A line.
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// End of input.
    End,
}

enum InputRequest {
    /// A line, after these words.
    Line { words: String, keep: bool, answer: oneshot::Sender<LineEvent> },
    /// What is typed while the agent works.
    Capture(LineCapture),
}

/// Where typed lines go, until the other end is dropped.
struct LineCapture {
    lines: later::UnboundedSender<String>,
    until: mpsc::Receiver<()>,
    /// Dropped when the terminal is as it was before.
    _done: mpsc::Sender<()>,
}

/// Standard input.
#[derive(Clone)]
pub(crate) struct LineInput {
    requests: mpsc::Sender<InputRequest>,
    screen: Screen,
    /// Somebody types at a terminal.
    pub(crate) is_interactive: bool,
}

/// Lines that are typed while the agent works. Dropping it gives the terminal back.
pub(crate) struct CaptureGuard {
    /// The lines.
    pub(crate) lines: later::UnboundedReceiver<String>,
    stop: Option<mpsc::Sender<()>>,
    done: mpsc::Receiver<()>,
}

impl Drop for CaptureGuard {
    fn drop(&mut self) {
        self.stop = None;
        // The terminal mode is restored before the next read.
        _ = self.done.recv_timeout(Duration::from_secs(1));
    }
}

impl LineInput {
    /// Reads standard input on a thread of its own. Lines are remembered in a file.
    pub(crate) fn new(screen: Screen, history: Option<PathBuf>) -> Self {
        let (wishes, wanted) = mpsc::channel();
        let live = io::stdin().is_terminal() && screen.capabilities.can_redraw;
        let shown = screen.clone();
        thread::spawn(move || {
            if live { read_from_terminal(&wanted, &shown, history.as_ref()) } else { read_from_pipe(&wanted, &shown) }
        });
        Self { requests: wishes, screen, is_interactive: live }
    }

    /// Reads a line. Other output waits meanwhile.
    pub(crate) async fn read_line(&self, words: &str, keep: bool) -> LineEvent {
        let (answer, answered) = oneshot::channel();
        // Without a prompt on the screen, output need not wait.
        let holds = self.is_interactive || !words.is_empty();
        if holds {
            self.screen.pause_output();
        }
        let sent = self.requests.send(InputRequest::Line { words: words.to_owned(), keep, answer });
        let typed = if sent.is_ok() { answered.await.unwrap_or(LineEvent::End) } else { LineEvent::End };
        if holds {
            self.screen.resume_output();
        }
        typed
    }

    /// Collects lines typed while the agent works. Input from a pipe is read only on demand.
    pub(crate) fn capture_lines(&self) -> Option<CaptureGuard> {
        if !self.is_interactive {
            return None;
        }
        let ((lines, typed), (stop, until), (done, is_done)) =
            (later::unbounded_channel(), mpsc::channel(), mpsc::channel());
        self.requests.send(InputRequest::Capture(LineCapture { lines, until, _done: done })).ok()?;
        Some(CaptureGuard { lines: typed, stop: Some(stop), done: is_done })
    }
}

/// Lines from a pipe or file, or from a terminal that cannot do more.
fn read_from_pipe(wanted: &mpsc::Receiver<InputRequest>, screen: &Screen) {
    let echoes = io::stdin().is_terminal();
    let mut input = io::stdin().lock();
    for wish in wanted {
        if let InputRequest::Line { words, answer, .. } = wish {
            screen.prompt(&words);
            let mut line = String::new();
            let typed = match input.read_line(&mut line) {
                Ok(0) | Err(_) => LineEvent::End,
                Ok(_) => LineEvent::Line(line.trim_end_matches(['\n', '\r']).to_owned()),
            };
            if !echoes && !words.is_empty() {
                screen.prompt("\n");
            }
            _ = answer.send(typed);
        }
    }
}

/// Lines from a terminal.
fn read_from_terminal(wanted: &mpsc::Receiver<InputRequest>, screen: &Screen, history: Option<&PathBuf>) {
    let config = Config::builder().max_history_size(MAX_HISTORY_LINES).map(|it| it.history_ignore_space(true).build());
    let editor = config.ok().and_then(|it| Editor::<(), FileHistory>::with_config(it).ok());
    let Some(mut editor) = editor else { return read_from_pipe(wanted, screen) };
    if let Some(file) = history {
        _ = editor.load_history(file);
    }
    if let Ok(mut printer) = editor.create_external_printer() {
        screen.set_print_above(Box::new(move |text| printer.print(text).is_ok()));
    }
    let mut begun = String::new();
    let mut watch: Option<LineCapture> = None;
    loop {
        let next = match &watch {
            None => wanted.recv().ok(),
            Some(here) => match capture_keys(here, wanted, screen, &mut begun) {
                Some(wish) => Some(wish),
                None => {
                    watch = None;
                    continue;
                }
            },
        };
        match next {
            None => return,
            Some(InputRequest::Capture(more)) => watch = Some(more),
            Some(InputRequest::Line { words, keep, answer }) => {
                let first = if keep { std::mem::take(&mut begun) } else { String::new() };
                let typed = match editor.readline_with_initial(&words, (&first, "")) {
                    Ok(line) => LineEvent::Line(line),
                    Err(ReadlineError::Interrupted) => LineEvent::Interrupt,
                    Err(_) => LineEvent::End,
                };
                if let LineEvent::Line(line) = &typed
                    && keep
                    && !line.trim().is_empty()
                    && editor.add_history_entry(line.as_str()).is_ok()
                    && let Some(file) = history
                {
                    _ = editor.append_history(file);
                }
                _ = answer.send(typed);
            }
        }
    }
}

/// Reads keys until stopped (`None`) or another request arrives. Sends complete lines and keeps a partial one. Ctrl-C
/// stays a signal.
fn capture_keys(
    watch: &LineCapture,
    wanted: &mpsc::Receiver<InputRequest>,
    screen: &Screen,
    begun: &mut String,
) -> Option<InputRequest> {
    let stdin = io::stdin();
    let quiet = RawMode::new(&stdin);
    let mut bytes = Vec::new();
    screen.set_typed(begun);
    let next = loop {
        if watch.until.try_recv() == Err(mpsc::TryRecvError::Disconnected) {
            break None;
        }
        if let Ok(wish) = wanted.try_recv() {
            break Some(wish);
        }
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        if quiet.is_none() || !matches!(poll(&mut fds, Some(&wait)), Ok(1..)) {
            thread::sleep(if quiet.is_none() { Duration::from_millis(50) } else { Duration::ZERO });
            continue;
        }
        let mut some = [0_u8; 256];
        match rustix::io::read(stdin.as_fd(), &mut some) {
            // The terminal is closed.
            Ok(0) | Err(_) => thread::sleep(Duration::from_millis(50)),
            Ok(read) => bytes.extend_from_slice(&some[..read]),
        }
        let whole = match std::str::from_utf8(&bytes) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => bytes.len(),
        };
        let text = String::from_utf8_lossy(&bytes[..whole]).into_owned();
        bytes.drain(..whole);
        push_typed(&text, begun, &watch.lines);
        screen.set_typed(begun);
    };
    screen.set_typed("");
    drop(quiet);
    next
}

/// Takes typed letters to what was begun; a line's end sends it off.
fn push_typed(text: &str, begun: &mut String, lines: &later::UnboundedSender<String>) {
    let mut letters = text.chars().peekable();
    while let Some(it) = letters.next() {
        match it {
            '\n' | '\r' => {
                let line = std::mem::take(begun);
                // The turn has ended meanwhile: the line moves to the next prompt.
                if !line.trim().is_empty()
                    && let Err(unsent) = lines.send(line)
                {
                    *begun = unsent.0;
                }
            }
            '\x7f' | '\x08' => _ = begun.pop(),
            '\x15' => begun.clear(),
            // A key without a letter, such as an arrow: its sequence ends with a letter or `~`.
            '\x1b' if letters.next_if(|it| *it == '[' || *it == 'O').is_some() => {
                while letters.next_if(|it| !it.is_ascii_alphabetic() && *it != '~').is_some() {}
                letters.next();
            }
            it if it.is_control() => {}
            it if begun.len() < MAX_LINE_BYTES => begun.push(it),
            _ => {}
        }
    }
}

/// Raw mode: no echo, every key at once.
struct RawMode<'a> {
    stdin: &'a io::Stdin,
    before: Termios,
}

impl<'a> RawMode<'a> {
    fn new(stdin: &'a io::Stdin) -> Option<Self> {
        let before = tcgetattr(stdin).ok()?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ECHONL);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 0;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin, OptionalActions::Now, &quiet).ok()?;
        Some(Self { stdin, before })
    }
}

impl Drop for RawMode<'_> {
    fn drop(&mut self) {
        _ = tcsetattr(self.stdin, OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_ahead_becomes_lines() {
        let (lines, mut sent) = later::unbounded_channel();
        let mut begun = String::new();
        push_typed("first\nsecx\x7fond\x1b[A\x1b[3~\x01 line\r\n\nrest", &mut begun, &lines);
        let mut seen = Vec::new();
        while let Ok(line) = sent.try_recv() {
            seen.push(line);
        }
        assert_eq!((seen, begun.as_str()), (vec!["first".to_owned(), "second line".into()], "rest"));
    }
}
