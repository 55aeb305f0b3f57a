//! A page of a file and its rendering.

use std::fmt::{self, Write};

use helve_contract::SavedText;

/// How many characters of a folded line stand in one.
pub(super) const FOLDED: usize = 1000;

/// Some lines of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPage {
    /// The file, as the model knows it.
    pub path: String,
    /// The lines as they are in the file; a `\r` before the end is still there.
    pub(super) lines: PageLines,
    /// Number of the first one, counted from 1.
    pub start: u64,
    /// How many lines the whole file has.
    pub total: TotalLines,
    /// Why the page ends before the file does.
    pub cut: Option<PageLimit>,
    /// Bytes of the whole file.
    pub size: u64,
    /// A note about the encoding.
    pub encoding: Option<String>,
    /// The last line that is shown has an end.
    pub(super) ended: bool,
    /// Number of the first line that is longer than a page.
    pub(super) long: Option<u64>,
    /// That line in full, folded into lines that fit into a page.
    pub(super) folded: Option<String>,
}

/// Lines in one piece of memory, each with its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PageLines {
    text: String,
    /// Where the end of each line is, which is one byte long.
    ends: Vec<usize>,
}

impl PageLines {
    /// Lines that end at these places.
    pub(super) fn new(text: String, ends: Vec<usize>) -> Self {
        Self { text, ends }
    }

    /// One more line.
    pub(super) fn push(&mut self, line: &str, end: u8) {
        self.text.push_str(line);
        self.ends.push(self.text.len());
        self.text.push(char::from(end));
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.text[std::mem::replace(&mut start, end + 1)..*end])
    }
}

/// How many lines a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TotalLines {
    /// This many.
    Exactly(u64),
    /// More than this: the file is too large to count.
    AtLeast(u64),
}

impl TotalLines {
    /// The number alone.
    #[must_use]
    pub fn count(self) -> u64 {
        match self {
            Self::Exactly(count) | Self::AtLeast(count) => count,
        }
    }
}

impl fmt::Display for TotalLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(count) => write!(f, "{count}"),
            Self::AtLeast(count) => write!(f, "more than {count}"),
        }
    }
}

/// Why a page ends before the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageLimit {
    /// The number of lines asked for.
    Lines,
    /// The number of bytes allowed.
    Bytes,
}

impl TextPage {
    /// The numbered lines, followed by notes. If there are more lines, `hint` says how to request line `n`.
    #[must_use]
    pub fn numbered(&self, hint: fn(n: u64) -> String) -> String {
        let mut text = String::with_capacity(self.lines.text.len() + 8 * self.lines.ends.len());
        let mut number = LineNumberWriter::from(self.start);
        for line in self.lines() {
            number.push(&mut text);
            text.push_str(line);
            text.push('\n');
        }
        for note in self.notes(hint) {
            _ = writeln!(text, "[{note}]");
        }
        text
    }

    /// The lines alone, joined by newlines.
    #[must_use]
    pub fn to_plain_text(&self) -> String {
        self.lines().collect::<Vec<_>>().join("\n")
    }

    /// The lines with the ends that they have in the file.
    #[must_use]
    pub fn to_exact_text(&self) -> String {
        let length = self.lines.ends.last().map_or(0, |end| end + usize::from(self.ended));
        self.lines.text[..length].to_owned()
    }

    /// The notes below the lines: empty file, encoding, how to continue.
    #[must_use]
    pub fn notes(&self, hint: fn(n: u64) -> String) -> Vec<String> {
        let empty = (self.total == TotalLines::Exactly(0)).then(|| format!("{} is empty", self.path));
        let more = self
            .next_line()
            .map(|next| format!("lines {}-{} of {}; go on with {}", self.start, next - 1, self.total, hint(next)));
        [empty, self.encoding.clone(), more].into_iter().flatten().collect()
    }

    /// The line that exceeds a page, to be saved beside the reply: no offset can address inside a line.
    #[must_use]
    pub fn saved(&self) -> Option<SavedText> {
        let (line, text) = (self.long?, self.folded.clone()?);
        Some(SavedText { what: format!("line {line} in full, folded at {FOLDED} characters"), text })
    }

    /// The line after the last one shown, if there is one.
    #[must_use]
    pub fn next_line(&self) -> Option<u64> {
        let next = self.start + self.lines.ends.len() as u64;
        self.cut.map(|_| next)
    }

    /// Number of the last line shown; one less than the first when there is none.
    #[must_use]
    pub fn last_line(&self) -> u64 {
        self.start + self.lines.ends.len() as u64 - 1
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|line| line.strip_suffix('\r').unwrap_or(line))
    }
}

/// Writes line numbers in six columns. A specialised writer, because there may be a hundred thousand.
struct LineNumberWriter {
    digits: [u8; 20],
    /// Where the number begins.
    first: usize,
}

impl LineNumberWriter {
    fn from(number: u64) -> Self {
        let (mut digits, mut first, mut left) = ([b' '; 20], 20, number);
        while left > 0 || first == 20 {
            first -= 1;
            digits[first] = b'0' + (left % 10) as u8;
            left /= 10;
        }
        Self { digits, first }
    }

    /// Writes the number and a tab, and counts on.
    fn push(&mut self, text: &mut String) {
        text.push_str(str::from_utf8(&self.digits[self.first.min(14)..]).unwrap_or_default());
        text.push('\t');
        let mut at = 19;
        while at > self.first && self.digits[at] == b'9' {
            self.digits[at] = b'0';
            at -= 1;
        }
        match self.digits[at] {
            b'9' if at > 0 => {
                self.digits[at] = b'0';
                self.first = at - 1;
                self.digits[self.first] = b'1';
            }
            digit => self.digits[at] = digit.saturating_add(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_in_columns() {
        for first in [0, 1, 8, 95, 999_990, 99_999_995, u64::MAX - 20] {
            let (mut text, mut counter) = (String::new(), LineNumberWriter::from(first));
            for _ in 0..20 {
                counter.push(&mut text);
            }
            let expected: Vec<_> = (first..first + 20).map(|it| format!("{it:>6}\t")).collect();
            assert_eq!(text, expected.concat());
        }
    }
}
