//! The screen: scrolling text with a status line below.
//!
//! Scrolled text is never redrawn. The status line is drawn only while the text above ends with a newline, and is
//! removed before other output.

use std::{
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use unicode_width::UnicodeWidthChar;

use super::{TerminalCapabilities, look};
use crate::print::escape_for_terminal;

/// The screen. Cheap to clone; clones share the state.
#[derive(Clone)]
pub(crate) struct Screen {
    /// What it can do.
    pub(crate) capabilities: TerminalCapabilities,
    inner: Arc<Mutex<ScreenState>>,
}

struct ScreenState {
    out: Box<dyn Write + Send>,
    /// Whether the text ends in the middle of a line.
    mid_line: bool,
    /// What goes on, and since when.
    status: Option<(String, Instant)>,
    /// A word more about it.
    detail: String,
    /// What was typed while something goes on.
    typed: String,
    /// Whether the line at the bottom stands there now.
    drawn: bool,
    /// What waits until a question is answered.
    paused_output: Option<String>,
    /// Writes above a line that is being typed.
    print_above: Option<PrintAbove>,
    frame: usize,
}

/// Writes above a line that is being typed; whether it did.
pub(super) type PrintAbove = Box<dyn FnMut(String) -> bool + Send>;

impl Screen {
    /// A screen that writes here.
    pub(crate) fn new(look: TerminalCapabilities, out: impl Write + Send + 'static) -> Self {
        let inner = ScreenState {
            out: Box::new(out),
            mid_line: false,
            status: None,
            detail: String::new(),
            typed: String::new(),
            drawn: false,
            paused_output: None,
            print_above: None,
            frame: 0,
        };
        Self { capabilities: look, inner: Arc::new(Mutex::new(inner)) }
    }

    fn lock(&self) -> MutexGuard<'_, ScreenState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes text unchanged; its escape sequences are ours.
    pub(crate) fn write(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut inner = self.lock();
        match &mut inner.paused_output {
            Some(held) => held.push_str(text),
            None => inner.scroll(text, self.capabilities),
        }
    }

    /// A whole line, on a line of its own.
    pub(crate) fn line(&self, text: &str) {
        self.end_line();
        self.write(&format!("{text}\n"));
    }

    /// Ends a line that was begun.
    pub(crate) fn end_line(&self) {
        let mut inner = self.lock();
        let open = match &inner.paused_output {
            Some(held) if !held.is_empty() => !held.ends_with('\n'),
            _ => inner.mid_line,
        };
        if open {
            match &mut inner.paused_output {
                Some(held) => held.push('\n'),
                None => inner.scroll("\n", self.capabilities),
            }
        }
    }

    /// What goes on from now; `None`: nothing does.
    pub(crate) fn set_status(&self, text: Option<&str>) {
        let mut inner = self.lock();
        inner.clear_status();
        inner.status = text.map(|it| (it.to_owned(), Instant::now()));
        inner.detail.clear();
        inner.draw(self.capabilities);
    }

    /// A word more about what goes on.
    pub(crate) fn set_detail(&self, text: &str) {
        text.clone_into(&mut self.lock().detail);
    }

    /// What was typed so far while something goes on.
    pub(crate) fn set_typed(&self, text: &str) {
        let mut inner = self.lock();
        inner.clear_status();
        text.clone_into(&mut inner.typed);
        inner.draw(self.capabilities);
    }

    /// Draws the line at the bottom again, one step further.
    pub(crate) fn redraw_status(&self) {
        let mut inner = self.lock();
        if inner.drawn {
            inner.frame += 1;
            inner.clear_status();
            inner.draw(self.capabilities);
        }
    }

    /// Holds output back until [`resume_output`](Self::resume_output), because a prompt is open.
    pub(crate) fn pause_output(&self) {
        self.end_line();
        let mut inner = self.lock();
        inner.clear_status();
        inner.paused_output.get_or_insert_default();
    }

    /// Words before an answer, past what waits.
    pub(crate) fn prompt(&self, words: &str) {
        self.lock().write_raw(words);
    }

    /// Says what writes above a line that is being typed.
    pub(super) fn set_print_above(&self, above: PrintAbove) {
        self.lock().print_above = Some(above);
    }

    /// Writes what waits above the line that is being typed, where that can be done.
    pub(crate) fn flush_above(&self) {
        let mut inner = self.lock();
        let Some(held) = inner.paused_output.as_mut().map(std::mem::take).filter(|it| !it.is_empty()) else { return };
        if !inner.print_above.as_mut().is_some_and(|write| write(held.clone())) {
            inner.paused_output = Some(held);
        }
    }

    /// Writes what had to wait.
    pub(crate) fn resume_output(&self) {
        let mut inner = self.lock();
        // The answer ended its line.
        inner.mid_line = false;
        if let Some(held) = inner.paused_output.take() {
            inner.scroll(&held, self.capabilities);
        }
    }
}

impl ScreenState {
    fn scroll(&mut self, text: &str, look: TerminalCapabilities) {
        self.clear_status();
        self.write_raw(text);
        if let Some(last) = text.chars().last() {
            self.mid_line = last != '\n';
        }
        self.draw(look);
    }

    /// Takes the line at the bottom away.
    fn clear_status(&mut self) {
        if self.drawn {
            self.write_raw("\r\x1b[K");
            self.drawn = false;
        }
    }

    /// Draws the line at the bottom, where there is one and it may stand.
    fn draw(&mut self, look: TerminalCapabilities) {
        if !look.can_redraw || self.mid_line || self.drawn || self.paused_output.is_some() {
            return;
        }
        let Some((text, since)) = &self.status else { return };
        let frames: &[&str] =
            if look.unicode { &["⠋", "⠙", "⠸", "⠴", "⠦", "⠇"] } else { &["|", "/", "-", "\\"] };
        let frame = frames[self.frame % frames.len()];
        let detail = if self.detail.is_empty() { String::new() } else { format!(" · {}", self.detail) };
        let mut shown = format!("{frame} {text} {}s{detail} · Ctrl-C stops", since.elapsed().as_secs());
        if !self.typed.is_empty() {
            shown = format!("{frame} {}s › {}", since.elapsed().as_secs(), escape_for_terminal(&self.typed));
        }
        let shown = fit_columns(&shown, look::terminal_columns().saturating_sub(1), !self.typed.is_empty());
        self.write_raw(&look.dim(&shown));
        self.drawn = true;
    }

    /// Ignores errors: the reader notices a closed terminal.
    fn write_raw(&mut self, text: &str) {
        _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }
}

/// As much of a line as fits: its beginning, or its end.
fn fit_columns(text: &str, columns: usize, keep_end: bool) -> String {
    let width = |it: char| it.width().unwrap_or(0);
    if text.chars().map(width).sum::<usize>() <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let mut takes = |it: &char| {
        let fits = width(*it) <= left;
        left = left.saturating_sub(width(*it));
        fits
    };
    if keep_end {
        let end: Vec<char> = text.chars().rev().take_while(&mut takes).collect();
        format!("…{}", end.into_iter().rev().collect::<String>())
    } else {
        let start: String = text.chars().take_while(&mut takes).collect();
        format!("{start}…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Paper {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap().replace("\r\x1b[K", "⟨wiped⟩")
        }
    }

    #[test]
    fn the_bottom_line_makes_room_for_text() {
        let paper = Paper::default();
        let screen =
            Screen::new(TerminalCapabilities { color: false, can_redraw: true, unicode: false }, paper.clone());
        screen.set_status(Some("asking"));
        screen.write("half ");
        screen.write("a line\n");
        screen.set_status(None);
        assert_eq!(paper.text(), "| asking 0s · Ctrl-C stops⟨wiped⟩half a line\n| asking 0s · Ctrl-C stops⟨wiped⟩");
    }

    #[test]
    fn what_comes_during_a_question_waits() {
        let paper = Paper::default();
        let screen = Screen::new(TerminalCapabilities::PLAIN, paper.clone());
        screen.write("half");
        screen.pause_output();
        screen.line("late");
        assert_eq!(paper.text(), "half\n");
        screen.resume_output();
        assert_eq!(paper.text(), "half\nlate\n");
    }

    #[test]
    fn a_long_line_is_cut_to_fit() {
        assert_eq!(fit_columns("abcdef", 6, false), "abcdef");
        assert_eq!(fit_columns("abcdef", 4, false), "abc…");
        assert_eq!(fit_columns("abcdef", 4, true), "…def");
        assert_eq!(fit_columns("日本語", 5, false), "日本…");
    }
}
