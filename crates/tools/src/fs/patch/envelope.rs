//! The patch envelope: `*** Begin Patch` … `*** End Patch`.

use helve_contract::{Error, Result};

use super::{FileAction, FileOp, LineSide, OnExisting, PatchHunk, parse_hunk_header};

pub(super) const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// Reads a patch; `lines` are all lines of what the model sent.
pub(super) fn parse(lines: &[&str]) -> Result<Vec<FileOp>> {
    let (first, last) = patch_body(lines)?;
    let mut reader = EnvelopeParser { lines: &lines[..last], at: first };
    let mut ops = Vec::new();
    while let Some(line) = reader.take() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let op = if let Some(path) = line.strip_prefix(ADD) {
            FileOp { path: parse_path(path, reader.at)?, act: reader.add()? }
        } else if let Some(path) = line.strip_prefix(DELETE) {
            FileOp { path: parse_path(path, reader.at)?, act: FileAction::Delete { hunks: Vec::new() } }
        } else if let Some(path) = line.strip_prefix(UPDATE) {
            let path = parse_path(path, reader.at)?;
            let act = reader.update(&path)?;
            FileOp { path, act }
        } else {
            return Err(line_error(
                reader.at,
                &format!("`{line}` is no header; use `{ADD} path`, `{DELETE} path` or `{UPDATE} path`"),
            ));
        };
        ops.push(op);
    }
    Ok(ops)
}

/// The lines between the markers. Around them only shell or Markdown wrapping is allowed.
fn patch_body(lines: &[&str]) -> Result<(usize, usize)> {
    let find = |marker: &str| lines.iter().position(|line| line.trim() == marker);
    let first = find(BEGIN).ok_or_else(|| Error::failed(format!("the patch does not start with `{BEGIN}`")))?;
    let wrapper = |line: &str| {
        let line = line.trim();
        line.is_empty() || line.starts_with("```") || line.contains("<<") || line.starts_with("cd ")
    };
    if let Some(other) = lines[..first].iter().position(|line| !wrapper(line)) {
        return Err(line_error(other + 1, &format!("`{}` stands before `{BEGIN}`", lines[other].trim())));
    }
    let last = lines.iter().rposition(|line| line.trim() == END).filter(|last| *last > first).ok_or_else(|| {
        Error::failed(format!("the patch does not end with `{END}`; it may have been cut off. Nothing was changed"))
    })?;
    let tag = |line: &str| {
        let line = line.trim().trim_end_matches(['\'', '"', ')']);
        line.is_empty() || line.starts_with("```") || line.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
    };
    if let Some(other) = lines[last + 1..].iter().position(|line| !tag(line)) {
        return Err(line_error(
            last + other + 2,
            &format!("`{}` stands after `{END}`", lines[last + 1 + other].trim()),
        ));
    }
    Ok((first + 1, last))
}

struct EnvelopeParser<'a> {
    lines: &'a [&'a str],
    /// How many lines were taken: also the number of the last one.
    at: usize,
}

impl<'a> EnvelopeParser<'a> {
    fn take(&mut self) -> Option<&'a str> {
        let line = self.lines.get(self.at)?;
        self.at += 1;
        Some(line)
    }

    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    fn add(&mut self) -> Result<FileAction> {
        let mut text = String::new();
        let mut blanks = 0;
        while let Some(line) = self.peek() {
            if let Some(line) = line.strip_prefix('+') {
                (0..blanks).for_each(|_| text.push('\n'));
                blanks = 0;
                text.push_str(line);
                text.push('\n');
            } else if line.trim().is_empty() {
                blanks += 1;
            } else if line.trim_start().starts_with("***") {
                break;
            } else {
                return Err(line_error(
                    self.at + 1,
                    &format!("each line of a new file starts with `+`, but this is `{line}`"),
                ));
            }
            self.at += 1;
        }
        Ok(FileAction::Add { text, existing: OnExisting::Replace })
    }

    fn update(&mut self, path: &str) -> Result<FileAction> {
        let mut to = None;
        if let Some(target) = self.peek().and_then(|line| line.trim().strip_prefix(MOVE)) {
            self.at += 1;
            to = Some(parse_path(target, self.at)?);
        }
        let mut hunks: Vec<PatchHunk> = Vec::new();
        while let Some(line) = self.peek() {
            if line.starts_with("***") {
                break;
            }
            if line.trim().is_empty() {
                self.at += 1;
                continue;
            }
            if !line.starts_with("@@") && !hunks.is_empty() {
                return Err(line_error(
                    self.at + 1,
                    &format!("a hunk starts with `@@`, and its lines with ` `, `+` or `-`; this is `{line}`"),
                ));
            }
            hunks.push(self.hunk()?);
        }
        if hunks.is_empty() && to.is_none() {
            return Err(Error::failed(format!("Update file hunk for path '{path}' is empty")));
        }
        Ok(FileAction::Update { to, hunks })
    }

    fn hunk(&mut self) -> Result<PatchHunk> {
        let mut hunk = PatchHunk { line: self.at + 1, ..PatchHunk::default() };
        while let Some(line) = self.peek().filter(|line| line.starts_with("@@")) {
            self.at += 1;
            header(line, &mut hunk);
        }
        while let Some(line) = self.peek() {
            match line.chars().next() {
                _ if line.trim_end() == END_OF_FILE => {
                    self.at += 1;
                    hunk.at_end = true;
                    break;
                }
                None => hunk.push(LineSide::Context, ""),
                Some(' ') => hunk.push(LineSide::Context, &line[1..]),
                Some('+') => hunk.push(LineSide::Added, &line[1..]),
                Some('-') => hunk.push(LineSide::Removed, &line[1..]),
                Some('\\') => hunk.no_newline(),
                Some(_) if hunk.lines.is_empty() => {
                    return Err(line_error(
                        self.at + 1,
                        &format!("each line of a hunk starts with ` `, `+` or `-`; this is `{line}`"),
                    ));
                }
                Some(_) => break,
            }
            self.at += 1;
        }
        if hunk.lines.is_empty() {
            return Err(line_error(hunk.line, "the hunk has no lines"));
        }
        Ok(hunk)
    }
}

/// `@@`, `@@ line before`, `@@ line before @@` or `@@ -1,2 +3,4 @@`.
fn header(line: &str, hunk: &mut PatchHunk) {
    if let Some((start, ..)) = parse_hunk_header(line) {
        hunk.hint = Some(start);
        return;
    }
    let head = line[2..].strip_prefix(' ').unwrap_or(&line[2..]).trim_end();
    let head = head.strip_suffix("@@").map_or(head, str::trim_end);
    if !head.trim().is_empty() {
        hunk.anchors.push(head.to_owned());
    }
}

fn parse_path(path: &str, line: usize) -> Result<String> {
    match path.trim() {
        "" => Err(line_error(line, "the header names no file")),
        path => Ok(path.to_owned()),
    }
}

fn line_error(line: usize, text: &str) -> Error {
    Error::failed(format!("line {line} of the patch: {text}"))
}
