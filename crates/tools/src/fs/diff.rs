//! Line diffs: hunks and unified diffs for `patch` and `git apply`.

use std::{
    fmt::Write,
    ops::Range,
    time::{Duration, Instant},
};

use serde::Serialize;
use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};

/// The number of context lines.
pub const CONTEXT: usize = 3;
/// The time limit for a minimal diff; afterwards a larger one is accepted.
const DIFF_TIMEOUT: Duration = Duration::from_millis(300);
/// Bytes that are compared at once.
const BLOCK: usize = 256;
/// The marker for a missing final newline.
const NO_NEWLINE_MARKER: &str = "\\ No newline at end of file";

/// The differences between two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// The hunks, in order.
    pub hunks: Vec<DiffHunk>,
    /// The number of added lines.
    pub added: usize,
    /// The number of removed lines.
    pub removed: usize,
}

/// One hunk with context lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffHunk {
    /// The first line in the old text, counted from 1; the line before it if it has none there.
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

/// Bytes of the old text, and those of the new one in their place.
pub type ByteChange = (Range<usize>, Range<usize>);

/// Compares two texts line by line.
#[must_use]
pub fn diff(old: &str, new: &str) -> Diff {
    let head = common_prefix(old.as_bytes(), new.as_bytes());
    let tail = common_suffix(&old.as_bytes()[head..], &new.as_bytes()[head..]);
    diff_with_known_changes(old, new, [(head..old.len() - tail, head..new.len() - tail)])
}

/// Compares two texts that differ only in these changes. Looks only at the changed lines and their context.
#[must_use]
pub fn diff_with_known_changes(old: &str, new: &str, changes: impl IntoIterator<Item = ByteChange>) -> Diff {
    let (mut diff, mut open): (_, Vec<DiffPiece>) = (Diff::default(), Vec::new());
    let (mut line, mut at) = ((0, 0), 0);
    for (from, to) in regions(old.as_bytes(), new.as_bytes(), changes) {
        let same = memchr::memchr_iter(b'\n', &old.as_bytes()[at..from.start]).count();
        line = (line.0 + same, line.1 + same);
        at = from.end;
        let (from, to) = (LineIndex::new(old, from, line.0), LineIndex::new(new, to, line.1));
        for (gone, come) in changed_ranges(&from.texts, &to.texts) {
            let piece = DiffPiece { old: from.part(gone), new: to.part(come) };
            diff.removed += piece.old.lines.len();
            diff.added += piece.new.lines.len();
            if open.last().is_some_and(|last| piece.old.lines.start > last.old.lines.end + 2 * CONTEXT) {
                diff.hunks.extend(hunk(old, new, &std::mem::take(&mut open)));
            }
            open.push(piece);
        }
        line = (line.0 + from.texts.len(), line.1 + to.texts.len());
    }
    diff.hunks.extend(hunk(old, new, &open));
    diff
}

/// How many bytes two texts begin with in common.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let blocks = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK)).take_while(|(a, b)| a == b).count() * BLOCK;
    blocks + a[blocks..].iter().zip(&b[blocks..]).take_while(|(a, b)| a == b).count()
}

/// How many bytes two texts end with in common.
fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let blocks = a.rchunks_exact(BLOCK).zip(b.rchunks_exact(BLOCK)).take_while(|(a, b)| a == b).count() * BLOCK;
    let (a, b) = (&a[..a.len() - blocks], &b[..b.len() - blocks]);
    blocks + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// The changes, extended to whole lines; adjacent ones are merged.
fn regions(old: &[u8], new: &[u8], changes: impl IntoIterator<Item = ByteChange>) -> Vec<ByteChange> {
    let begins_line = |text: &[u8], at: usize| at == 0 || text[at - 1] == b'\n';
    let mut regions: Vec<ByteChange> = Vec::new();
    for (from, to) in changes {
        // No byte is scanned twice, however many changes a long line has.
        let done = regions.last().map_or(0, |last| last.0.end);
        let more = if from.end < done {
            done - from.end
        } else if begins_line(old, from.end) && begins_line(new, to.end) {
            0
        } else {
            memchr::memchr(b'\n', &old[from.end..]).map_or(old.len() - from.end, |at| at + 1)
        };
        let ends = (from.end + more, to.end + more);
        let same = old.get(done..from.start).unwrap_or_default();
        let less = memchr::memrchr(b'\n', same).map_or(same.len(), |at| same.len() - at - 1);
        match regions.last_mut() {
            Some(last) if from.start - less <= done => (last.0.end, last.1.end) = ends,
            _ => regions.push((from.start - less..ends.0, to.start - less..ends.1)),
        }
    }
    regions
}

/// Some lines of a text.
struct LineIndex<'a> {
    texts: Vec<&'a str>,
    /// Where each begins, and where the last one ends.
    starts: Vec<usize>,
    /// How many lines are before them.
    before: usize,
}

impl<'a> LineIndex<'a> {
    fn new(text: &'a str, range: Range<usize>, before: usize) -> Self {
        let mut at = range.start;
        let mut starts = vec![at];
        let texts = text[range].split_inclusive('\n').inspect(|line| {
            at += line.len();
            starts.push(at);
        });
        Self { texts: texts.collect(), starts, before }
    }

    fn part(&self, lines: Range<usize>) -> DiffSide {
        let bytes = self.starts[lines.start]..self.starts[lines.end];
        DiffSide { lines: lines.start + self.before..lines.end + self.before, bytes }
    }
}

/// A piece of one text: its lines, counted from 0, and its bytes.
struct DiffSide {
    lines: Range<usize>,
    bytes: Range<usize>,
}

/// A piece that differs.
struct DiffPiece {
    old: DiffSide,
    new: DiffSide,
}

/// Where the lines differ, in order.
fn changed_ranges(old: &[&str], new: &[&str]) -> Vec<(Range<usize>, Range<usize>)> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    if a.is_empty() && b.is_empty() {
        return Vec::new();
    }
    if a.is_empty() || b.is_empty() {
        return vec![(head..head + a.len(), head..head + b.len())];
    }
    let ops = capture_diff_slices_deadline(Algorithm::Myers, a, b, Some(Instant::now() + DIFF_TIMEOUT));
    let shifted = |range: Range<usize>| range.start + head..range.end + head;
    let mut pieces: Vec<(Range<usize>, Range<usize>)> = Vec::new();
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

/// Some pieces with the lines between and around them, as far as there are any.
fn hunk(old: &str, new: &str, pieces: &[DiffPiece]) -> Option<DiffHunk> {
    let (first, last) = (pieces.first()?, pieces.last()?);
    let (head, rest) = (&old[..first.old.bytes.start], &old[last.old.bytes.end..]);
    let before: Vec<&str> = head.split_inclusive('\n').rev().take(CONTEXT).collect();
    let after: Vec<&str> = rest.split_inclusive('\n').take(CONTEXT).collect();
    let bytes = |lines: &[&str]| lines.iter().map(|line| line.len()).sum::<usize>();
    let mut lines = Vec::new();
    let mut push = |mark: char, text: &str| {
        for line in text.split_inclusive('\n') {
            let body = line.strip_suffix('\n');
            lines.push(format!("{mark}{}", body.unwrap_or(line)));
            if body.is_none() {
                lines.push(NO_NEWLINE_MARKER.to_owned());
            }
        }
    };
    let mut at = first.old.bytes.start - bytes(&before);
    for piece in pieces {
        push(' ', &old[at..piece.old.bytes.start]);
        push('-', &old[piece.old.bytes.clone()]);
        push('+', &new[piece.new.bytes.clone()]);
        at = piece.old.bytes.end;
    }
    push(' ', &old[at..last.old.bytes.end + bytes(&after)]);
    let around = |side: fn(&DiffPiece) -> &Range<usize>| side(first).start - before.len()..side(last).end + after.len();
    let (from, to) = (around(|it| &it.old.lines), around(|it| &it.new.lines));
    let start = |range: &Range<usize>| if range.is_empty() { range.start } else { range.start + 1 };
    Some(DiffHunk { old_start: start(&from), old_lines: from.len(), new_start: start(&to), new_lines: to.len(), lines })
}

impl Diff {
    /// The unified diff of one file. Empty if nothing differs.
    #[must_use]
    pub fn unified(&self, path: &str) -> String {
        self.with_names(&name("a/", path), &name("b/", path))
    }

    /// The unified diff of a created file.
    #[must_use]
    pub fn created(&self, path: &str) -> String {
        self.with_names("/dev/null", &name("b/", path))
    }

    /// The unified diff of a deleted file.
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
            let DiffHunk { old_start, old_lines, new_start, new_lines, lines } = hunk;
            _ = writeln!(text, "@@ -{old_start},{old_lines} +{new_start},{new_lines} @@");
            for line in lines {
                _ = writeln!(text, "{line}");
            }
        }
        text
    }
}

/// A file name in a diff. As in git, a tab follows a name with spaces.
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
            diff(&old, &new).unified("a b.txt"),
            "--- a/a b.txt\t\n+++ b/a b.txt\t\n@@ -2,7 +2,8 @@\n line 2\n line 3\n line 4\n-line 5\n+LINE 5\n+more\n line 6\n \
             line 7\n line 8\n@@ -17,4 +18,4 @@\n line 17\n line 18\n line 19\n-line 20\n+line 20\n\\ No newline at end of \
             file\n"
        );
    }

    #[test]
    fn a_new_file_begins_at_nothing() {
        assert_eq!(diff("", "a\n").created("x"), "--- /dev/null\n+++ b/x\n@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(
            diff("a", "").deleted("/w/x"),
            "--- /w/x\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-a\n\\ No newline at end of file\n"
        );
        assert_eq!(diff("a\n", "a\n").unified("x"), "");
    }

    /// Applies hunks as `patch` would, and stops where they do not fit.
    fn apply(old: &str, diff: &Diff) -> Option<String> {
        let lines: Vec<_> = old.split_inclusive('\n').collect();
        let (mut out, mut at) = (String::new(), 0);
        for hunk in &diff.hunks {
            let start = if hunk.old_lines == 0 { hunk.old_start } else { hunk.old_start - 1 };
            out.extend(lines.get(at..start)?.iter().copied());
            at = start;
            let mut marks = hunk.lines.iter().peekable();
            while let Some(line) = marks.next() {
                let open = marks.next_if(|it| it.as_str() == NO_NEWLINE_MARKER).is_some();
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
            prop_assert_eq!(apply(&old, &diff(&old, &new)), Some(new));
        }

        #[test]
        fn changes_that_are_known_lead_there_as_well(
            same in prop::collection::vec("[a\n]{0,4}", 1..12),
            swapped in prop::collection::vec(("[ab\n]{0,4}", "[ab\n]{0,4}"), 12),
        ) {
            let (mut old, mut new, mut changes) = (String::new(), String::new(), Vec::new());
            for (same, (gone, come)) in same.iter().zip(&swapped) {
                old += same;
                new += same;
                changes.push((old.len()..old.len() + gone.len(), new.len()..new.len() + come.len()));
                old += gone;
                new += come;
            }
            let diff = diff_with_known_changes(&old, &new, changes);
            prop_assert_eq!(apply(&old, &diff), Some(new));
        }
    }
}
