//! Renders Markdown for a terminal while it streams. Output is never redrawn: only ambiguous markup is held back.

use super::TerminalCapabilities;
use crate::print::escape_for_terminal;

/// Renders Markdown piece by piece.
pub(crate) struct MarkdownRenderer {
    capabilities: TerminalCapabilities,
    /// The beginning of a line, until it is clear what kind of line it is; or a line of code.
    line_start: String,
    /// Whether `head` still grows.
    in_line_start: bool,
    /// The fence that ends a block of code, in one.
    fence: Option<String>,
    /// Marks that are not clear yet.
    pending_marks: String,
    /// The last letter before them.
    last: char,
    strong: bool,
    slanted: bool,
    code: bool,
    heading: bool,
}

/// What a line is, once its beginning tells.
enum LineKind {
    /// Not clear yet.
    Undecided,
    /// Words, after so many bytes of blanks.
    Plain,
    /// A heading of this depth.
    Heading,
    /// An item: its indentation and its mark.
    Item(usize, String),
    /// Somebody's words.
    Quote,
    /// The beginning of a block of code.
    Fence,
}

impl MarkdownRenderer {
    /// Nothing said yet.
    pub(crate) fn new(look: TerminalCapabilities) -> Self {
        Self {
            capabilities: look,
            line_start: String::new(),
            in_line_start: true,
            fence: None,
            pending_marks: String::new(),
            last: '\n',
            strong: false,
            slanted: false,
            code: false,
            heading: false,
        }
    }

    /// What can be shown after one more piece. Escape sequences in it are made visible first.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        let piece = escape_for_terminal(piece);
        if !self.capabilities.color {
            return piece.into_owned();
        }
        let mut out = String::with_capacity(piece.len() + 16);
        for it in piece.chars() {
            if self.in_line_start || self.fence.is_some() {
                self.push_line_start(it, &mut out);
            } else {
                self.push_inline(it, &mut out);
            }
        }
        out
    }

    /// The rest: what was held back, and the end of every colour.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        if self.in_line_start || self.fence.is_some() {
            let head = std::mem::take(&mut self.line_start);
            match &self.fence {
                Some(_) if !head.is_empty() => out.push_str(&self.capabilities.style("36", &head)),
                _ => out.push_str(&head),
            }
        }
        self.resolve_marks('\n', &mut out);
        self.reset_styles(&mut out);
        let look = self.capabilities;
        *self = Self::new(look);
        out
    }

    /// One more letter at the beginning of a line, or in a block of code.
    fn push_line_start(&mut self, it: char, out: &mut String) {
        if let Some(fence) = &self.fence {
            if it != '\n' {
                self.line_start.push(it);
                return;
            }
            let line = std::mem::take(&mut self.line_start);
            let ends = line.trim().starts_with(fence.as_str()) && line.trim().chars().all(|c| fence.starts_with(c));
            if ends {
                self.fence = None;
                self.in_line_start = true;
                out.push_str(&self.capabilities.dim(&line));
            } else {
                out.push_str(&self.capabilities.style("36", &line));
            }
            out.push('\n');
            return;
        }
        if it != '\n' {
            self.line_start.push(it);
        }
        let line = match (line_kind(&self.line_start), it) {
            (LineKind::Undecided, '\n') => LineKind::Plain,
            (LineKind::Fence, '\n') => LineKind::Fence,
            // The name of the language follows.
            (LineKind::Fence, _) => return,
            (line, _) => line,
        };
        let head = match line {
            LineKind::Undecided => return,
            _ => std::mem::take(&mut self.line_start),
        };
        match line {
            LineKind::Undecided => {}
            LineKind::Fence => {
                let mark = head.trim_start().chars().next().unwrap_or('`');
                self.fence = Some(head.trim_start().chars().take_while(|it| *it == mark).collect());
                out.push_str(&self.capabilities.dim(&head));
                out.push('\n');
            }
            LineKind::Heading => {
                self.in_line_start = false;
                self.heading = true;
                out.push_str("\x1b[1;4m");
            }
            LineKind::Item(blanks, mark) => {
                self.in_line_start = false;
                out.push_str(&" ".repeat(blanks));
                out.push_str(&self.capabilities.style("33", &mark));
                out.push(' ');
                self.last = ' ';
            }
            LineKind::Quote => {
                self.in_line_start = false;
                out.push_str(&self.capabilities.dim(self.capabilities.symbol("│ ", "> ")));
                self.last = ' ';
            }
            LineKind::Plain => {
                self.in_line_start = false;
                self.last = '\n';
                for letter in head.chars() {
                    self.push_inline(letter, out);
                }
                if it == '\n' {
                    self.push_inline('\n', out);
                }
            }
        }
    }

    /// One more letter inside of a line.
    fn push_inline(&mut self, it: char, out: &mut String) {
        let is_mark = it == '`' || (it == '*' && !self.code);
        if is_mark && self.pending_marks.chars().next().is_none_or(|first| first == it) && self.last != '\\' {
            self.pending_marks.push(it);
            return;
        }
        self.resolve_marks(it, out);
        if is_mark && self.last != '\\' {
            self.pending_marks.push(it);
            return;
        }
        if it == '\n' {
            self.reset_styles(out);
            self.in_line_start = true;
        }
        out.push(it);
        self.last = it;
    }

    /// The marks before a letter, now that it is known.
    fn resolve_marks(&mut self, next: char, out: &mut String) {
        let marks = std::mem::take(&mut self.pending_marks);
        if marks.is_empty() {
            return;
        }
        let (opens, closes) = (!next.is_whitespace(), !self.last.is_whitespace());
        match marks.as_str() {
            "`" if self.code => self.set_code(false, out),
            "`" if opens || next == ' ' => self.set_code(true, out),
            "**" if self.strong && closes => {
                self.strong = false;
                self.reapply_styles(out);
            }
            "**" if !self.strong && opens => {
                self.strong = true;
                self.reapply_styles(out);
            }
            "*" if self.slanted && closes => {
                self.slanted = false;
                self.reapply_styles(out);
            }
            "*" if !self.slanted && opens => {
                self.slanted = true;
                self.reapply_styles(out);
            }
            other => out.push_str(other),
        }
        self.last = marks.chars().last().unwrap_or(self.last);
    }

    fn set_code(&mut self, on: bool, out: &mut String) {
        self.code = on;
        self.reapply_styles(out);
    }

    /// The colours that hold now.
    fn reapply_styles(&self, out: &mut String) {
        out.push_str("\x1b[0m");
        let inks = [(self.heading, "1;4"), (self.strong, "1"), (self.slanted, "3"), (self.code, "36")];
        for (_, code) in inks.iter().filter(|(on, _)| *on) {
            out.push_str(&format!("\x1b[{code}m"));
        }
    }

    /// Ends every colour: none goes over the end of a line.
    fn reset_styles(&mut self, out: &mut String) {
        if self.strong || self.slanted || self.code || self.heading {
            out.push_str("\x1b[0m");
        }
        (self.strong, self.slanted, self.code, self.heading) = (false, false, false, false);
    }
}

/// What a line is, by its beginning.
fn line_kind(head: &str) -> LineKind {
    let blanks = head.len() - head.trim_start_matches(' ').len();
    let rest = &head[blanks..];
    let Some(first) = rest.chars().next() else { return LineKind::Undecided };
    let run = rest.chars().take_while(|it| *it == first).count();
    let after = rest[first.len_utf8() * run..].chars().next();
    match (first, after) {
        ('#', None) if run <= 6 => LineKind::Undecided,
        ('#', Some(' ')) if run <= 6 => LineKind::Heading,
        ('>', None) if run == 1 => LineKind::Undecided,
        ('>', Some(' ')) if run == 1 => LineKind::Quote,
        ('`' | '~', None) if run < 3 => LineKind::Undecided,
        ('`' | '~', _) if run >= 3 => LineKind::Fence,
        ('-' | '*' | '+', None) if run == 1 => LineKind::Undecided,
        ('-' | '*' | '+', Some(' ')) if run == 1 => LineKind::Item(blanks, "•".into()),
        ('0'..='9', _) => ordered_item(rest, blanks),
        _ => LineKind::Plain,
    }
}

fn ordered_item(rest: &str, blanks: usize) -> LineKind {
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    match &rest.as_bytes()[digits..] {
        [] if digits <= 3 => LineKind::Undecided,
        [b'.' | b')'] => LineKind::Undecided,
        [b'.' | b')', b' ', ..] => LineKind::Item(blanks, rest[..=digits].to_owned()),
        _ => LineKind::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLOUR: TerminalCapabilities = TerminalCapabilities { color: true, can_redraw: true, unicode: true };

    /// The text rendered letter by letter, with escape sequences as `⟨1⟩`.
    fn shown(text: &str) -> String {
        let mut markdown = MarkdownRenderer::new(COLOUR);
        let mut out: String = text.chars().map(|it| markdown.push(&it.to_string())).collect();
        out.push_str(&markdown.finish());
        let mut whole = MarkdownRenderer::new(COLOUR);
        let at_once = whole.push(text) + &whole.finish();
        assert_eq!(out, at_once, "the size of the pieces makes no difference");
        out.replace("\x1b[", "⟨")
    }

    #[test]
    fn words_stand_out() {
        assert_eq!(shown("a **b** `c*d` *e* f\n"), "a ⟨0m⟨1mb⟨0m ⟨0m⟨36mc*d⟨0m ⟨0m⟨3me⟨0m f\n");
        assert_eq!(shown("2 * 3 * 4, snake_case, **open\nnext"), "2 * 3 * 4, snake_case, ⟨0m⟨1mopen⟨0m\nnext");
    }

    #[test]
    fn lines_have_kinds() {
        assert_eq!(
            shown("# Head\n- one\n  - two\n12. three\n> said\nplain"),
            "⟨1;4mHead⟨0m\n⟨33m•⟨0m one\n  ⟨33m•⟨0m two\n⟨33m12.⟨0m three\n⟨2m│ ⟨0msaid\nplain"
        );
        assert_eq!(shown("-flag and 3.14 and #tag"), "-flag and 3.14 and #tag");
    }

    #[test]
    fn code_is_left_as_it_is() {
        assert_eq!(
            shown("```rust\nlet **a** = `b`;\n```\nafter"),
            "⟨2m```rust⟨0m\n⟨36mlet **a** = `b`;⟨0m\n⟨2m```⟨0m\nafter"
        );
        assert_eq!(shown("```\nnever ended"), "⟨2m```⟨0m\n⟨36mnever ended⟨0m");
    }

    #[test]
    fn a_model_cannot_draw() {
        assert_eq!(shown("a\x1b[2Jb"), "a\\x1b[2Jb");
        assert_eq!(MarkdownRenderer::new(TerminalCapabilities::PLAIN).push("**a** \x07"), "**a** \\x07");
    }
}
