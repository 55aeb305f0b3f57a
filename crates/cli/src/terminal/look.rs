//! Terminal capabilities: colours, redrawing a line, characters beyond ASCII.

use std::{env, io::IsTerminal};

/// What a terminal can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TerminalCapabilities {
    /// Words may have colours.
    pub(crate) color: bool,
    /// The last line may be redrawn: a person is watching.
    pub(crate) can_redraw: bool,
    /// Marks beyond ASCII are shown.
    pub(crate) unicode: bool,
}

impl TerminalCapabilities {
    /// Nothing but plain lines.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { color: false, can_redraw: false, unicode: true };

    /// What can be done with this stream.
    pub(crate) fn detect(stream: &impl IsTerminal) -> Self {
        let set = |name| env::var_os(name).is_some_and(|it| !it.is_empty());
        let dumb = env::var_os("TERM").is_none_or(|it| it.is_empty() || it == "dumb");
        let live = stream.is_terminal() && !dumb;
        Self { color: live && !set("NO_COLOR"), can_redraw: live, unicode: !stream.is_terminal() || is_utf8() }
    }

    /// Text in a colour or weight, by the number of its escape sequence.
    pub(crate) fn style(self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Of less weight.
    pub(crate) fn dim(self, text: &str) -> String {
        self.style("2", text)
    }

    /// Of more weight.
    pub(crate) fn bold(self, text: &str) -> String {
        self.style("1", text)
    }

    /// One of two marks.
    pub(crate) fn symbol(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }
}

/// Whether the locale writes UTF-8; the first of these that is set decides.
fn is_utf8() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = names.iter().filter_map(|name| env::var(name).ok()).find(|it| !it.is_empty());
    locale.is_none_or(|it| it.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

/// How many columns the terminal has.
pub(crate) fn terminal_columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    size.map(|it| usize::from(it.ws_col)).filter(|it| *it >= 20).unwrap_or(80)
}
