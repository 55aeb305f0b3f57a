//! Markdown for a terminal, as it streams in. What was written is never drawn again: only a mark whose meaning is not
//! clear yet is held back.

use super::Look;
use crate::print::harmless;

/// Renders Markdown piece by piece.
pub(crate) struct Markdown {
    look: Look,
    /// The beginning of a line, until it is clear what kind of line it is; or a line of code.
    head: String,
    /// Whether `head` still grows.
    at_head: bool,
    /// The fence that ends a block of code, in one.
    fence: Option<String>,
    /// Marks that are not clear yet.
    marks: String,
    /// The last letter before them.
    last: char,
    strong: bool,
    slanted: bool,
    code: bool,
    heading: bool,
}

/// What a line is, once its beginning tells.
enum Line {
    /// Not clear yet.
    Unclear,
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

impl Markdown {
    /// Nothing said yet.
    pub(crate) fn new(look: Look) -> Self {
        Self {
            look,
            head: String::new(),
            at_head: true,
            fence: None,
            marks: String::new(),
            last: '\n',
            strong: false,
            slanted: false,
            code: false,
            heading: false,
        }
    }

    /// What can be shown after one more piece. Escape sequences in it are made visible first.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        let piece = harmless(piece);
        if !self.look.colour {
            return piece.into_owned();
        }
        let mut out = String::with_capacity(piece.len() + 16);
        for it in piece.chars() {
            if self.at_head || self.fence.is_some() {
                self.begin(it, &mut out);
            } else {
                self.go_on(it, &mut out);
            }
        }
        out
    }

    /// The rest: what was held back, and the end of every colour.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        if self.at_head || self.fence.is_some() {
            let head = std::mem::take(&mut self.head);
            match &self.fence {
                Some(_) if !head.is_empty() => out.push_str(&self.look.ink("36", &head)),
                _ => out.push_str(&head),
            }
        }
        self.settle('\n', &mut out);
        self.close(&mut out);
        let look = self.look;
        *self = Self::new(look);
        out
    }

    /// One more letter at the beginning of a line, or in a block of code.
    fn begin(&mut self, it: char, out: &mut String) {
        if let Some(fence) = &self.fence {
            if it != '\n' {
                self.head.push(it);
                return;
            }
            let line = std::mem::take(&mut self.head);
            let ends = line.trim().starts_with(fence.as_str()) && line.trim().chars().all(|c| fence.starts_with(c));
            if ends {
                self.fence = None;
                self.at_head = true;
                out.push_str(&self.look.dim(&line));
            } else {
                out.push_str(&self.look.ink("36", &line));
            }
            out.push('\n');
            return;
        }
        if it != '\n' {
            self.head.push(it);
        }
        let line = match (kind(&self.head), it) {
            (Line::Unclear, '\n') => Line::Plain,
            (Line::Fence, '\n') => Line::Fence,
            // The name of the language follows.
            (Line::Fence, _) => return,
            (line, _) => line,
        };
        let head = match line {
            Line::Unclear => return,
            _ => std::mem::take(&mut self.head),
        };
        match line {
            Line::Unclear => {}
            Line::Fence => {
                let mark = head.trim_start().chars().next().unwrap_or('`');
                self.fence = Some(head.trim_start().chars().take_while(|it| *it == mark).collect());
                out.push_str(&self.look.dim(&head));
                out.push('\n');
            }
            Line::Heading => {
                self.at_head = false;
                self.heading = true;
                out.push_str("\x1b[1;4m");
            }
            Line::Item(blanks, mark) => {
                self.at_head = false;
                out.push_str(&" ".repeat(blanks));
                out.push_str(&self.look.ink("33", &mark));
                out.push(' ');
                self.last = ' ';
            }
            Line::Quote => {
                self.at_head = false;
                out.push_str(&self.look.dim(self.look.mark("│ ", "> ")));
                self.last = ' ';
            }
            Line::Plain => {
                self.at_head = false;
                self.last = '\n';
                for letter in head.chars() {
                    self.go_on(letter, out);
                }
                if it == '\n' {
                    self.go_on('\n', out);
                }
            }
        }
    }

    /// One more letter inside of a line.
    fn go_on(&mut self, it: char, out: &mut String) {
        let is_mark = it == '`' || (it == '*' && !self.code);
        if is_mark && self.marks.chars().next().is_none_or(|first| first == it) && self.last != '\\' {
            self.marks.push(it);
            return;
        }
        self.settle(it, out);
        if is_mark && self.last != '\\' {
            self.marks.push(it);
            return;
        }
        if it == '\n' {
            self.close(out);
            self.at_head = true;
        }
        out.push(it);
        self.last = it;
    }

    /// The marks before a letter, now that it is known.
    fn settle(&mut self, next: char, out: &mut String) {
        let marks = std::mem::take(&mut self.marks);
        if marks.is_empty() {
            return;
        }
        let (opens, closes) = (!next.is_whitespace(), !self.last.is_whitespace());
        match marks.as_str() {
            "`" if self.code => self.turn_code(false, out),
            "`" if opens || next == ' ' => self.turn_code(true, out),
            "**" if self.strong && closes => {
                self.strong = false;
                self.again(out);
            }
            "**" if !self.strong && opens => {
                self.strong = true;
                self.again(out);
            }
            "*" if self.slanted && closes => {
                self.slanted = false;
                self.again(out);
            }
            "*" if !self.slanted && opens => {
                self.slanted = true;
                self.again(out);
            }
            other => out.push_str(other),
        }
        self.last = marks.chars().last().unwrap_or(self.last);
    }

    fn turn_code(&mut self, on: bool, out: &mut String) {
        self.code = on;
        self.again(out);
    }

    /// The colours that hold now.
    fn again(&self, out: &mut String) {
        out.push_str("\x1b[0m");
        let inks = [(self.heading, "1;4"), (self.strong, "1"), (self.slanted, "3"), (self.code, "36")];
        for (_, code) in inks.iter().filter(|(on, _)| *on) {
            out.push_str(&format!("\x1b[{code}m"));
        }
    }

    /// Ends every colour: none goes over the end of a line.
    fn close(&mut self, out: &mut String) {
        if self.strong || self.slanted || self.code || self.heading {
            out.push_str("\x1b[0m");
        }
        (self.strong, self.slanted, self.code, self.heading) = (false, false, false, false);
    }
}

/// What a line is, by its beginning.
fn kind(head: &str) -> Line {
    let blanks = head.len() - head.trim_start_matches(' ').len();
    let rest = &head[blanks..];
    let Some(first) = rest.chars().next() else { return Line::Unclear };
    let run = rest.chars().take_while(|it| *it == first).count();
    let after = rest[first.len_utf8() * run..].chars().next();
    match (first, after) {
        ('#', None) if run <= 6 => Line::Unclear,
        ('#', Some(' ')) if run <= 6 => Line::Heading,
        ('>', None) if run == 1 => Line::Unclear,
        ('>', Some(' ')) if run == 1 => Line::Quote,
        ('`' | '~', None) if run < 3 => Line::Unclear,
        ('`' | '~', _) if run >= 3 => Line::Fence,
        ('-' | '*' | '+', None) if run == 1 => Line::Unclear,
        ('-' | '*' | '+', Some(' ')) if run == 1 => Line::Item(blanks, "•".into()),
        ('0'..='9', _) => numbered(rest, blanks),
        _ => Line::Plain,
    }
}

fn numbered(rest: &str, blanks: usize) -> Line {
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    match &rest.as_bytes()[digits..] {
        [] if digits <= 3 => Line::Unclear,
        [b'.' | b')'] => Line::Unclear,
        [b'.' | b')', b' ', ..] => Line::Item(blanks, rest[..=digits].to_owned()),
        _ => Line::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLOUR: Look = Look { colour: true, live: true, unicode: true };

    /// The text rendered letter by letter, with escape sequences as `⟨1⟩`.
    fn shown(text: &str) -> String {
        let mut markdown = Markdown::new(COLOUR);
        let mut out: String = text.chars().map(|it| markdown.push(&it.to_string())).collect();
        out.push_str(&markdown.finish());
        let mut whole = Markdown::new(COLOUR);
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
        assert_eq!(Markdown::new(Look::PLAIN).push("**a** \x07"), "**a** \\x07");
    }
}
