//! What is different between two texts: hunks of lines, and the unified diff that `patch` and `git apply` take.

use std::{
    fmt::Write,
    ops::Range,
    time::{Duration, Instant},
};

use serde::Serialize;
use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};

/// Lines around a change.
pub const CONTEXT: usize = 3;
/// How long to look for a small diff; after it, a larger one will do.
const PATIENCE: Duration = Duration::from_millis(300);
/// What stands below a last line without an end.
const NO_END: &str = "\\ No newline at end of file";

/// What is different between two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// The places, in order.
    pub hunks: Vec<Hunk>,
    /// How many lines are new.
    pub added: usize,
    /// How many lines are gone.
    pub removed: usize,
}

/// One place where two texts differ, with lines around it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hunk {
    /// Its first line in the old text, counted from 1; the line before it when it has none there.
    pub old_start: usize,
    /// Its lines in the old text.
    pub old_lines: usize,
    /// Its first line in the new text.
    pub new_start: usize,
    /// Its lines in the new text.
    pub new_lines: usize,
    /// The lines, each after ` `, `-` or `+`, without their ends.
    pub lines: Vec<String>,
}

/// A piece that differs: lines of the old text and lines of the new one.
type Piece = (Range<usize>, Range<usize>);

/// Compares two texts line by line.
#[must_use]
pub fn between(old: &str, new: &str) -> Diff {
    let (old, new): (Vec<_>, Vec<_>) = (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let mut diff = Diff::default();
    let mut open: Option<(Piece, Vec<Piece>)> = None;
    for (from, to) in pieces(&old, &new) {
        diff.removed += from.len();
        diff.added += to.len();
        match &mut open {
            Some((all, inner)) if from.start <= all.0.end + 2 * CONTEXT => {
                (all.0.end, all.1.end) = (from.end, to.end);
                inner.push((from, to));
            }
            _ => {
                diff.hunks.extend(open.take().map(|it| hunk(&old, &new, &it.0, &it.1)));
                open = Some(((from.clone(), to.clone()), vec![(from, to)]));
            }
        }
    }
    diff.hunks.extend(open.map(|it| hunk(&old, &new, &it.0, &it.1)));
    diff
}

/// Where the lines differ, in order.
fn pieces(old: &[&str], new: &[&str]) -> Vec<Piece> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    if a.is_empty() && b.is_empty() {
        return Vec::new();
    }
    if a.is_empty() || b.is_empty() {
        return vec![(head..head + a.len(), head..head + b.len())];
    }
    let ops = capture_diff_slices_deadline(Algorithm::Myers, a, b, Some(Instant::now() + PATIENCE));
    let shifted = |range: Range<usize>| range.start + head..range.end + head;
    let mut pieces: Vec<Piece> = Vec::new();
    for op in ops.iter().filter(|op| op.tag() != DiffTag::Equal) {
        let (from, to) = (shifted(op.old_range()), shifted(op.new_range()));
        match pieces.last_mut() {
            Some(last) if last.0.end == from.start && last.1.end == to.start => {
                (last.0.end, last.1.end) = (from.end, to.end);
            }
            _ => pieces.push((from, to)),
        }
    }
    pieces
}

fn hunk(old: &[&str], new: &[&str], all: &Piece, inner: &[Piece]) -> Hunk {
    let before = all.0.start.min(CONTEXT);
    let after = (old.len() - all.0.end).min(CONTEXT);
    let (from, to) = (all.0.start - before..all.0.end + after, all.1.start - before..all.1.end + after);
    let mut lines = Vec::new();
    let mut push = |mark: char, line: &str| {
        let body = line.strip_suffix('\n');
        lines.push(format!("{mark}{}", body.unwrap_or(line)));
        if body.is_none() {
            lines.push(NO_END.to_owned());
        }
    };
    let mut at = from.start;
    for (gone, come) in inner {
        old[at..gone.start].iter().for_each(|line| push(' ', line));
        old[gone.clone()].iter().for_each(|line| push('-', line));
        new[come.clone()].iter().for_each(|line| push('+', line));
        at = gone.end;
    }
    old[at..from.end].iter().for_each(|line| push(' ', line));
    let start = |range: &Range<usize>| if range.is_empty() { range.start } else { range.start + 1 };
    Hunk { old_start: start(&from), old_lines: from.len(), new_start: start(&to), new_lines: to.len(), lines }
}

impl Diff {
    /// As a unified diff of one file. Empty when nothing is different.
    #[must_use]
    pub fn unified(&self, path: &str) -> String {
        self.with_names(&name("a/", path), &name("b/", path))
    }

    /// As the unified diff of a file that was not there before.
    #[must_use]
    pub fn created(&self, path: &str) -> String {
        self.with_names("/dev/null", &name("b/", path))
    }

    /// As the unified diff of a file that is no longer there.
    #[must_use]
    pub fn deleted(&self, path: &str) -> String {
        self.with_names(&name("a/", path), "/dev/null")
    }

    fn with_names(&self, old: &str, new: &str) -> String {
        if self.hunks.is_empty() {
            return String::new();
        }
        let mut text = format!("--- {old}\n+++ {new}\n");
        for hunk in &self.hunks {
            let Hunk { old_start, old_lines, new_start, new_lines, lines } = hunk;
            _ = writeln!(text, "@@ -{old_start},{old_lines} +{new_start},{new_lines} @@");
            for line in lines {
                _ = writeln!(text, "{line}");
            }
        }
        text
    }
}

/// A file's name in a diff. As in git, a tab ends a name with blanks.
fn name(side: &str, path: &str) -> String {
    let side = if path.starts_with('/') { "" } else { side };
    let end = if path.contains(' ') { "\t" } else { "" };
    format!("{side}{path}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shows_what_changed_and_a_little_around_it() {
        let old = (1..=20).map(|it| format!("line {it}\n")).collect::<Vec<_>>().concat();
        let new = old.replace("line 5\n", "LINE 5\nmore\n").replace("line 20\n", "line 20");
        assert_eq!(
            between(&old, &new).unified("a b.txt"),
            "--- a/a b.txt\t\n+++ b/a b.txt\t\n@@ -2,7 +2,8 @@\n line 2\n line 3\n line 4\n-line 5\n+LINE 5\n+more\n line 6\n \
             line 7\n line 8\n@@ -17,4 +18,4 @@\n line 17\n line 18\n line 19\n-line 20\n+line 20\n\\ No newline at end of \
             file\n"
        );
    }

    #[test]
    fn a_new_file_begins_at_nothing() {
        assert_eq!(between("", "a\n").created("x"), "--- /dev/null\n+++ b/x\n@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(
            between("a", "").deleted("/w/x"),
            "--- /w/x\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-a\n\\ No newline at end of file\n"
        );
        assert_eq!(between("a\n", "a\n").unified("x"), "");
    }

    /// Puts hunks on a text as `patch` would, and stops where they do not fit.
    fn apply(old: &str, diff: &Diff) -> Option<String> {
        let lines: Vec<_> = old.split_inclusive('\n').collect();
        let (mut out, mut at) = (String::new(), 0);
        for hunk in &diff.hunks {
            let start = if hunk.old_lines == 0 { hunk.old_start } else { hunk.old_start - 1 };
            out.extend(lines.get(at..start)?.iter().copied());
            at = start;
            let mut marks = hunk.lines.iter().peekable();
            while let Some(line) = marks.next() {
                let open = marks.next_if(|it| it.as_str() == NO_END).is_some();
                let whole = format!("{}{}", &line[1..], if open { "" } else { "\n" });
                if !line.starts_with('+') {
                    if lines.get(at)? != &whole {
                        return None;
                    }
                    at += 1;
                }
                if !line.starts_with('-') {
                    out += &whole;
                }
            }
        }
        out.extend(lines.get(at..)?.iter().copied());
        Some(out)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_diff_leads_from_the_old_text_to_the_new(old in "[ab\r\n]{0,60}", new in "[ab\r\n]{0,60}") {
            prop_assert_eq!(apply(&old, &between(&old, &new)), Some(new));
        }
    }
}
