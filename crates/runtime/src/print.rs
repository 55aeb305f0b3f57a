//! Terminal output: lines that survive a closed pipe, escaped text, and colours.

use std::{
    borrow::Cow,
    fmt,
    io::{self, ErrorKind, IsTerminal, Write},
    process,
};

use helve_contract::{Invisible, invisible};

/// Prints a line on standard output. If the reader is gone, the program exits quietly.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::print::line(format_args!($($text)*)) };
}

/// Prints a line on standard error. Ignores write errors.
#[macro_export]
macro_rules! remark {
    ($($text:tt)*) => { $crate::print::eprint_line(format_args!($($text)*)) };
}

/// Writes a line to standard output.
pub fn line(text: fmt::Arguments<'_>) {
    let mut whole = text.to_string();
    whole.push('\n');
    write_stdout(whole.as_bytes());
}

/// Writes bytes to standard output, and sends them off.
pub fn write_stdout(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        match error.kind() {
            ErrorKind::BrokenPipe => process::exit(0),
            _ => {
                eprint_line(format_args!("error: cannot write to standard output: {error}"));
                process::exit(1);
            }
        }
    }
}

/// Writes a line to standard error.
pub fn eprint_line(text: fmt::Arguments<'_>) {
    let mut whole = escape_for_terminal(&text.to_string()).into_owned();
    whole.push('\n');
    _ = io::stderr().lock().write_all(whole.as_bytes());
}

/// Prints escaped lines with our own escape sequences on standard error. Prints nothing for an empty text.
pub fn eprint_styled(text: &str) {
    if !text.is_empty() {
        _ = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
    }
}

/// Prints text from a tool: unchanged into a pipe or file, escaped on a terminal. Ends with a newline.
pub fn print_tool_text(text: &str) {
    let shown = if io::stdout().is_terminal() { escape_for_terminal(text) } else { Cow::Borrowed(text) };
    write_stdout(shown.as_bytes());
    if !shown.is_empty() && !shown.ends_with('\n') {
        write_stdout(b"\n");
    }
}

/// Escapes what a terminal would interpret or a reader would not see: escape sequences, control characters, direction
/// overrides, invisible tags.
pub fn escape_for_terminal(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_invisible) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(it) = chars.next() {
        match it {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => shown.push_str("\\r"),
            it if is_invisible(it) && (it as u32) < 0x80 => shown.push_str(&format!("\\x{:02x}", it as u32)),
            it if is_invisible(it) => shown.extend(it.escape_unicode()),
            it => shown.push(it),
        }
    }
    Cow::Owned(shown)
}

fn is_invisible(it: char) -> bool {
    match it {
        '\n' | '\t' => false,
        it => it.is_control() || matches!(invisible(it), Some(Invisible::Mark | Invisible::Hidden)),
    }
}

/// A style of text.
#[derive(Clone, Copy)]
pub enum TextStyle {
    /// A heading.
    Bold,
    /// Less important.
    Dim,
    /// Good.
    Green,
    /// Medium.
    Yellow,
    /// Bad.
    Red,
}

/// The text in a style, if the terminal supports colours.
pub fn styled(ink: TextStyle, text: &str) -> Cow<'_, str> {
    if !color_enabled() {
        return Cow::Borrowed(text);
    }
    let code = match ink {
        TextStyle::Bold => "1",
        TextStyle::Dim => "2",
        TextStyle::Green => "32",
        TextStyle::Yellow => "33",
        TextStyle::Red => "31",
    };
    Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m"))
}

fn color_enabled() -> bool {
    let unset = |name| std::env::var_os(name).is_none_or(|it| it.is_empty());
    io::stdout().is_terminal() && unset("NO_COLOR") && std::env::var_os("TERM").is_none_or(|it| it != "dumb")
}

/// The first sentence of a text, on one line.
pub fn first_sentence(text: &str) -> String {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match flat.find(". ") {
        Some(end) => flat.split_at(end + 1).0.to_owned(),
        None => flat,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_sees_what_it_would_have_obeyed() {
        let seen = [
            "plain \u{e9}\ttext\n",
            "\x1b]52;c;aGk=\x07",
            "\x1b[2Jgone",
            "\u{9b}6n",
            "abc\rxyz\r\n",
            "a\u{202e}b\u{e0001}",
        ]
        .map(|text| escape_for_terminal(text).into_owned());
        assert_eq!(
            seen,
            [
                "plain \u{e9}\ttext\n",
                "\\x1b]52;c;aGk=\\x07",
                "\\x1b[2Jgone",
                "\\u{9b}6n",
                "abc\\rxyz\n",
                "a\\u{202e}b\\u{e0001}",
            ]
        );
    }

    #[test]
    fn a_table_shows_one_sentence() {
        assert_eq!(first_sentence("Reads a file.\nIt is 1.5 MB at most. More."), "Reads a file.");
    }
}
