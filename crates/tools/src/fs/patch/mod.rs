//! Patches: parsing (`envelope`, `unified`), locating hunks (`place`) and applying them (`apply`).

mod apply;
mod envelope;
mod place;
#[cfg(test)]
mod tests;
mod unified;

pub(super) use apply::apply;

use helve_contract::{Error, Result};

/// What a patch does to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileOp {
    /// Which file, as it was written.
    pub(super) path: String,
    /// What becomes of it.
    pub(super) act: FileAction,
}

/// What becomes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileAction {
    /// Creates it with this content.
    Add { text: String, existing: OnExisting },
    /// Removes it; hunks, if any, describe the expected content.
    Delete { hunks: Vec<PatchHunk> },
    /// Changes it, and moves it if `to` is set.
    Update { to: Option<String>, hunks: Vec<PatchHunk> },
}

/// What to do if a new file already exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnExisting {
    /// Replace it, as in the envelope format.
    Replace,
    /// Refuse, as in unified diffs.
    Refuse,
}

/// Some lines of a file, and what becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PatchHunk {
    /// Its first line in the patch, counted from 1.
    pub(super) line: usize,
    /// Lines of the file that come before it, each after the one before (`@@ class A`, `@@ def f`).
    pub(super) anchors: Vec<String>,
    /// The line of the file where it begins, counted from 1, as far as the writer knew.
    pub(super) hint: Option<usize>,
    /// The lines.
    pub(super) lines: Vec<PatchLine>,
    /// It ends where the file ends.
    pub(super) at_end: bool,
    /// The new file does not end with a newline.
    pub(super) no_final_newline: bool,
}

/// One line of a hunk, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PatchLine {
    /// Where it is.
    pub(super) side: LineSide,
    /// What it says.
    pub(super) text: String,
}

/// Which of two files has a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineSide {
    /// Both: context.
    Context,
    /// The old one: it goes.
    Removed,
    /// The new one: it comes.
    Added,
}

impl PatchHunk {
    /// The lines that must be in the file.
    fn old(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(|line| line.side != LineSide::Added).map(|line| line.text.as_str())
    }

    fn removes(&self) -> bool {
        self.lines.iter().any(|line| line.side == LineSide::Removed)
    }

    fn push(&mut self, side: LineSide, text: &str) {
        self.lines.push(PatchLine { side, text: text.to_owned() });
    }

    /// `\ No newline at end of file` after the last line read.
    fn no_newline(&mut self) {
        if let Some(PatchLine { side: LineSide::Added | LineSide::Context, .. }) = self.lines.last() {
            self.no_final_newline = true;
        }
    }
}

/// Bytes of a patch at most.
const MAX_PATCH_BYTES: usize = 10_000_000;
/// Hunks of a patch at most.
const MAX_HUNKS: usize = 10_000;

/// Reads a patch in either form.
pub(super) fn parse(text: &str) -> Result<Vec<FileOp>> {
    if text.len() > MAX_PATCH_BYTES {
        return Err(Error::failed(format!(
            "the patch has {} bytes; at most {MAX_PATCH_BYTES} are taken at once",
            text.len()
        )));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let ops = match detect_format(&lines) {
        Some(PatchFormat::Envelope) => envelope::parse(&lines),
        Some(PatchFormat::Unified) => unified::parse(&lines),
        None => Err(Error::failed(
            "this is no patch: it starts neither with `*** Begin Patch` nor with the `---` and `+++` lines of a unified diff",
        )),
    }?;
    let hunks: usize = ops.iter().map(|op| op.hunks().len()).sum();
    if hunks > MAX_HUNKS {
        return Err(Error::failed(format!("the patch has {hunks} hunks; at most {MAX_HUNKS} are taken at once")));
    }
    if ops.is_empty() {
        return Err(Error::failed("the patch changes no file"));
    }
    Ok(ops)
}

enum PatchFormat {
    Envelope,
    Unified,
}

fn detect_format(lines: &[&str]) -> Option<PatchFormat> {
    lines.iter().enumerate().find_map(|(at, line)| {
        if line.trim() == envelope::BEGIN {
            Some(PatchFormat::Envelope)
        } else if unified::is_diff_start(lines, at) {
            Some(PatchFormat::Unified)
        } else {
            None
        }
    })
}

impl FileOp {
    fn hunks(&self) -> &[PatchHunk] {
        match &self.act {
            FileAction::Add { .. } => &[],
            FileAction::Delete { hunks } | FileAction::Update { hunks, .. } => hunks,
        }
    }
}

/// The numbers of `@@ -12,3 +14,4 @@`: the old line and its count, the new count; and what follows.
fn parse_hunk_header(header: &str) -> Option<(usize, usize, usize, &str)> {
    let (ranges, rest) = header.strip_prefix("@@")?.trim_start().strip_prefix('-')?.split_once("@@")?;
    let (old, new) = ranges.trim().split_once(" +")?;
    let range = |text: &str| -> Option<(usize, usize)> {
        match text.trim().split_once(',') {
            Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
            None => Some((text.trim().parse().ok()?, 1)),
        }
    };
    let ((start, old), (_, new)) = (range(old)?, range(new)?);
    Some((start, old, new, rest.trim()))
}

/// A file and a patch, with a zero byte between them.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_patch(data: &[u8]) {
    let Some(at) = data.iter().position(|byte| *byte == 0) else { return };
    let Ok(text) = std::str::from_utf8(&data[at + 1..]) else { return };
    for op in parse(text).unwrap_or_default() {
        if op.hunks().is_empty() {
            continue;
        }
        if let Ok(changed) = apply("a.txt", &data[..at], op.hunks()) {
            let old: usize = op.hunks().iter().map(|it| it.old().map(|line| line.len() + 2).sum::<usize>()).sum();
            assert!(changed.bytes.len() + old >= at, "a patch takes away no more than its lines");
        }
    }
}
