//! Unified diffs, as `diff -u` and `git diff` write them and as models remember them.

use helve_contract::{Error, Result};

use super::{FileAction, FileOp, LineSide, OnExisting, PatchHunk, PatchLine, parse_hunk_header};

/// Whether a diff starts at this line.
pub(super) fn is_diff_start(lines: &[&str], at: usize) -> bool {
    lines[at].starts_with("diff --git ") || header_pair(lines, at).is_some()
}

/// `--- old` with `+++ new` on the next line.
fn header_pair<'a>(lines: &[&'a str], at: usize) -> Option<(&'a str, &'a str)> {
    Some((lines.get(at)?.strip_prefix("--- ")?, lines.get(at + 1)?.strip_prefix("+++ ")?))
}

/// Reads every file of a diff.
pub(super) fn parse(lines: &[&str]) -> Result<Vec<FileOp>> {
    let mut ops = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        if !is_diff_start(lines, at) {
            // Skips prose, fences and commit messages around a diff; a hunk without a file is an error.
            if parse_hunk_header(lines[at]).is_some() {
                return Err(Error::failed(format!("line {} of the patch: this hunk belongs to no file", at + 1)));
            }
            at += 1;
            continue;
        }
        let (op, next) = parse_file(lines, at)?;
        ops.push(op);
        at = next;
    }
    Ok(ops)
}

/// What the lines above the hunks say about a file.
#[derive(Default)]
struct UnifiedHeader {
    old: Option<String>,
    new: Option<String>,
    renamed: Option<(String, String)>,
    created: bool,
    deleted: bool,
}

fn parse_file(lines: &[&str], start: usize) -> Result<(FileOp, usize)> {
    let mut header = UnifiedHeader::default();
    let mut at = start;
    if let Some(names) = lines[at].strip_prefix("diff --git ") {
        (header.old, header.new) = git_names(names);
        at = parse_extended_headers(lines, at + 1, &mut header)?;
    }
    if let Some((old, new)) = header_pair(lines, at) {
        let (old, new) = (parse_name(old), parse_name(new));
        let plain = |name: &str, mark: &str| name.strip_prefix(mark).unwrap_or(name).to_owned();
        let git = (old.starts_with("a/") || old == NULL) && (new.starts_with("b/") || new == NULL);
        header.created |= old == NULL;
        header.deleted |= new == NULL;
        header.old = Some(if git { plain(&old, "a/") } else { old });
        header.new = Some(if git { plain(&new, "b/") } else { new });
        at += 2;
    }
    let mut hunks = Vec::new();
    while let Some((_, old, new, _)) =
        lines.get(at).and_then(|line| parse_hunk_header(line)).or_else(|| bare_hunk_header(lines, at))
    {
        let (hunk, next) = hunk(lines, at, old, new);
        if hunk.lines.is_empty() {
            return Err(Error::failed(format!("line {} of the patch: the hunk has no lines", at + 1)));
        }
        hunks.push(hunk);
        at = next;
    }
    Ok((header.op(hunks, start + 1)?, at))
}

const NULL: &str = "/dev/null";

/// A bare `@@` without numbers, as models write it.
fn bare_hunk_header<'a>(lines: &[&'a str], at: usize) -> Option<(usize, usize, usize, &'a str)> {
    lines.get(at)?.starts_with("@@").then_some((0, usize::MAX, usize::MAX, ""))
}

fn parse_extended_headers(lines: &[&str], mut at: usize, header: &mut UnifiedHeader) -> Result<usize> {
    let (mut from, mut to) = (None, None);
    while let Some(line) = lines.get(at) {
        if line.starts_with("--- ") || line.starts_with("diff --git ") || line.starts_with("@@") {
            break;
        }
        if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
            return Err(Error::failed(format!("line {} of the patch: changes of binary files are not taken", at + 1)));
        }
        if line.starts_with("copy from ") {
            return Err(Error::failed(format!(
                "line {} of the patch: copies are not taken; add the file instead",
                at + 1
            )));
        }
        from = line.strip_prefix("rename from ").map(parse_name).or(from);
        to = line.strip_prefix("rename to ").map(parse_name).or(to);
        header.created |= line.starts_with("new file mode");
        header.deleted |= line.starts_with("deleted file mode");
        let known =
            ["index ", "old mode", "new mode", "new file", "deleted file", "similarity", "dissimilarity", "rename"];
        if !known.iter().any(|it| line.starts_with(it)) {
            break;
        }
        at += 1;
    }
    header.renamed = from.zip(to);
    Ok(at)
}

impl UnifiedHeader {
    fn op(self, hunks: Vec<PatchHunk>, line: usize) -> Result<FileOp> {
        let nameless =
            || Error::failed(format!("line {line} of the patch: the diff does not say which file it changes"));
        let known = |name: Option<String>| name.filter(|it| it != NULL && !it.is_empty());
        if self.created {
            let path = known(self.new).ok_or_else(nameless)?;
            let bare = hunks.iter().any(|hunk| hunk.no_final_newline);
            let added = hunks.into_iter().flat_map(|hunk| hunk.lines);
            let mut text: String = added.filter(|it| it.side != LineSide::Removed).map(|it| it.text + "\n").collect();
            if bare {
                text.pop();
            }
            return Ok(FileOp { path, act: FileAction::Add { text, existing: OnExisting::Refuse } });
        }
        if self.deleted {
            return Ok(FileOp { path: known(self.old).ok_or_else(nameless)?, act: FileAction::Delete { hunks } });
        }
        let (path, to) = match (self.renamed, known(self.old), known(self.new)) {
            (Some((from, to)), ..) => (from, Some(to)),
            // Without git's word for it, two names are one file before and after: the new one is what there is.
            (None, _, Some(new)) => (new, None),
            (None, Some(old), None) => (old, None),
            (None, None, None) => return Err(nameless()),
        };
        if hunks.is_empty() && to.is_none() {
            return Err(Error::failed(format!("Update file hunk for path '{path}' is empty")));
        }
        Ok(FileOp { path, act: FileAction::Update { to, hunks } })
    }
}

/// Parses one hunk. Its counts determine the end; if they are wrong, the line prefixes do.
fn hunk(lines: &[&str], start: usize, old: usize, new: usize) -> (PatchHunk, usize) {
    let hint = parse_hunk_header(lines[start]).map(|(start, ..)| start);
    let mut hunk = PatchHunk { line: start + 1, hint, ..PatchHunk::default() };
    let (mut olds, mut news) = (0, 0);
    let mut at = start + 1;
    while let Some(line) = lines.get(at) {
        let done = olds >= old && news >= new;
        let (side, text) = match line.chars().next() {
            Some('\\') => {
                hunk.no_newline();
                at += 1;
                continue;
            }
            Some(' ') => (LineSide::Context, &line[1..]),
            Some('+') => (LineSide::Added, &line[1..]),
            Some('-') if (done || old == usize::MAX) && is_diff_start(lines, at) => break,
            Some('-') => (LineSide::Removed, &line[1..]),
            None if !done && at + 1 < lines.len() => (LineSide::Context, ""),
            _ => break,
        };
        olds += usize::from(side != LineSide::Added);
        news += usize::from(side != LineSide::Removed);
        hunk.push(side, text);
        at += 1;
    }
    if olds > old || news > new || olds < old || news < new {
        trim_blank_end(&mut hunk);
    }
    (hunk, at)
}

/// Empty lines after a hunk whose counts are wrong are most likely no part of it.
fn trim_blank_end(hunk: &mut PatchHunk) {
    while let Some(PatchLine { side: LineSide::Context, text }) = hunk.lines.last()
        && text.is_empty()
    {
        hunk.lines.pop();
    }
}

/// The two names of `a/x b/x`.
fn git_names(names: &str) -> (Option<String>, Option<String>) {
    let split = names.match_indices(" b/").map(|(at, _)| at).find(|at| {
        let (old, new) = (&names[..*at], &names[at + 1..]);
        old.strip_prefix("a/") == new.strip_prefix("b/")
    });
    let split = split.or_else(|| names.find(" b/"));
    match split {
        Some(at) => {
            let plain = |name: &str, mark: &str| Some(name.strip_prefix(mark).unwrap_or(name).to_owned());
            (plain(&names[..at], "a/"), plain(&names[at + 1..], "b/"))
        }
        None => (None, None),
    }
}

/// A name as diffs write it: before a tab and a date, or in quotes with escapes.
fn parse_name(text: &str) -> String {
    let text = text.split('\t').next().unwrap_or(text).trim_end();
    match text.strip_prefix('"').and_then(|it| it.strip_suffix('"')) {
        Some(quoted) => unquote_c_style(quoted),
        None => text.to_owned(),
    }
}

fn unquote_c_style(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(digit @ b'0'..=b'7') => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    if let Some(digit) = rest.next_if(|it| matches!(it, b'0'..=b'7')) {
                        value = value * 8 + u32::from(digit - b'0');
                    }
                }
                bytes.push(value as u8);
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
