//! Some lines of a file, and how they are shown.

use std::fmt::{self, Write};

/// Some lines of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The file, as the model knows it.
    pub path: String,
    /// The lines as they are in the file, without their ends; a `\r` before the end is still there.
    pub lines: Vec<String>,
    /// Number of the first one, counted from 1.
    pub start: u64,
    /// How many lines the whole file has.
    pub total: Total,
    /// Why there are more lines than are shown.
    pub cut: Option<CutBy>,
    /// Bytes of the whole file.
    pub size: u64,
    /// What is to be said about the encoding.
    pub encoding: Option<String>,
    /// What ends a line: `\n`, or `\r` in files of old.
    pub(super) end: &'static str,
    /// The last line that is shown has an end.
    pub(super) ended: bool,
}

/// How many lines a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// This many.
    Exactly(u64),
    /// More than this: the file is too large to count.
    MoreThan(u64),
}

impl Total {
    /// The number alone.
    #[must_use]
    pub fn count(self) -> u64 {
        match self {
            Self::Exactly(count) | Self::MoreThan(count) => count,
        }
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(count) => write!(f, "{count}"),
            Self::MoreThan(count) => write!(f, "more than {count}"),
        }
    }
}

/// What ended a page before the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutBy {
    /// The number of lines asked for.
    Lines,
    /// The number of bytes allowed.
    Bytes,
}

impl Page {
    /// The lines with their numbers, and below them what else there is to say. When there are more lines, `hint` says
    /// how to ask for line `n`.
    #[must_use]
    pub fn numbered(&self, hint: fn(n: u64) -> String) -> String {
        let mut text = String::new();
        for (number, line) in (self.start..).zip(self.shown()) {
            _ = writeln!(text, "{number:>6}\t{line}");
        }
        for note in self.notes(hint) {
            _ = writeln!(text, "[{note}]");
        }
        text
    }

    /// The lines alone, joined by newlines.
    #[must_use]
    pub fn plain(&self) -> String {
        self.shown().collect::<Vec<_>>().join("\n")
    }

    /// The lines with the ends that they have in the file.
    #[must_use]
    pub fn exact(&self) -> String {
        let mut text = self.lines.join(self.end);
        if self.ended {
            text += self.end;
        }
        text
    }

    /// What there is to say below the lines, one remark each: that the file is empty, its encoding, where to go on.
    #[must_use]
    pub fn notes(&self, hint: fn(n: u64) -> String) -> Vec<String> {
        let empty = (self.total == Total::Exactly(0)).then(|| format!("{} is empty", self.path));
        let more = self
            .next()
            .map(|next| format!("lines {}-{} of {}; go on with {}", self.start, next - 1, self.total, hint(next)));
        [empty, self.encoding.clone(), more].into_iter().flatten().collect()
    }

    /// The line after the last one shown, if there is one.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let next = self.start + self.lines.len() as u64;
        self.cut.map(|_| next)
    }

    /// Number of the last line shown; one less than the first when there is none.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.start + self.lines.len() as u64 - 1
    }

    fn shown(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|line| line.strip_suffix('\r').unwrap_or(line))
    }
}
