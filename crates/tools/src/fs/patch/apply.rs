//! Applies hunks to the bytes of a file; everything else is copied unchanged.

use std::ops::Range;

use helve_contract::{Error, FileErrorKind, Result};

use super::{
    LineSide, PatchHunk, PatchLine,
    place::{HunkLocation, HunkMiss, MatchQuality, SearchableLines, to_ascii_punctuation},
};
use crate::fs::{
    diff::ByteChange,
    text::{DecodedText, detect, encode},
};

/// A file after its hunks.
#[derive(Debug)]
pub(in crate::fs) struct PatchedBytes {
    /// All of it.
    pub(in crate::fs) bytes: Vec<u8>,
    /// The changed byte ranges.
    pub(in crate::fs) changes: Vec<ByteChange>,
    /// Notes about tolerated differences.
    pub(in crate::fs) notes: Vec<String>,
}

/// Applies all hunks, or returns which one does not fit and why.
pub(in crate::fs) fn apply(path: &str, bytes: &[u8], hunks: &[PatchHunk]) -> Result<PatchedBytes> {
    let format = detect(bytes, true).map_err(|what| Error::file(path, FileErrorKind::Binary(what)))?;
    let decoded = DecodedText::new(bytes, format);
    let text = &*decoded.text;
    let (edits, places) = match edits(text, hunks, CarriageReturns::End) {
        Err(_) if has_lone_return(text) => edits(text, hunks, CarriageReturns::Stay),
        done => done,
    }
    .map_err(|(hunk, miss)| hunk_error(path, text, hunks, hunk, &miss))?;

    let more: usize = edits.iter().map(|(_, new)| new.len()).sum();
    let (mut result, mut changes) = (Vec::with_capacity(bytes.len() + more), Vec::with_capacity(edits.len()));
    let mut copied = 0;
    for (range, new) in edits {
        let torn = || Error::failed(format!("{path}: the lines to change are not whole characters of the file"));
        let range = decoded.bytes_of(range).ok_or_else(torn)?;
        let new = encode(&new, format.charset).map_err(|it| {
            Error::failed(format!("{path} is written in {}, which has no `{it}`; nothing was changed", format.charset))
        })?;
        result.extend_from_slice(&bytes[copied..range.start]);
        let start = result.len();
        result.extend_from_slice(&new);
        copied = range.end;
        changes.push((range, start..result.len()));
    }
    result.extend_from_slice(&bytes[copied..]);
    let notes = places.iter().enumerate().filter_map(|(number, place)| {
        let told = place.fit.note()?;
        Some(format!("{path}: hunk {} fits at line {} without regard to {told}", number + 1, place.at + 1))
    });
    Ok(PatchedBytes { bytes: result, changes, notes: notes.collect() })
}

/// Whether a carriage return by itself ends a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CarriageReturns {
    End,
    Stay,
}

fn has_lone_return(text: &str) -> bool {
    let bytes = text.as_bytes();
    memchr::memchr_iter(b'\r', bytes).any(|at| bytes.get(at + 1) != Some(&b'\n'))
}

/// Where a line is in the text: its words, and its end.
#[derive(Clone, Copy)]
struct LineSpan {
    start: usize,
    end: usize,
    next: usize,
}

fn split(text: &str, returns: CarriageReturns) -> Vec<LineSpan> {
    let bytes = text.as_bytes();
    let mut spans = Vec::new();
    let mut start = 0;
    for at in memchr::memchr2_iter(b'\n', b'\r', bytes) {
        let (end, next) = match (bytes[at], bytes.get(at + 1)) {
            (b'\n', _) => (at, at + 1),
            (_, Some(b'\n')) => (at, at + 2),
            _ if returns == CarriageReturns::End => (at, at + 1),
            _ => continue,
        };
        // The newline of a pair was taken with its return.
        if at >= start {
            spans.push(LineSpan { start, end, next });
            start = next;
        }
    }
    if start < bytes.len() {
        spans.push(LineSpan { start, end: bytes.len(), next: bytes.len() });
    }
    spans
}

type TextEdits = Vec<(Range<usize>, String)>;

fn edits(
    text: &str,
    hunks: &[PatchHunk],
    returns: CarriageReturns,
) -> Result<(TextEdits, Vec<HunkLocation>), (usize, HunkMiss)> {
    let spans = split(text, returns);
    let lines = SearchableLines::new(spans.iter().map(|span| &text[span.start..span.end]).collect(), hunks);
    let places = lines.locate_all(hunks)?;
    let file = PatchTarget { text, spans: &spans, usual: dominant_line_end(text, &spans) };
    let mut edits = Vec::new();
    for (number, (hunk, place)) in hunks.iter().zip(&places).enumerate() {
        let shift =
            IndentShift::of(hunk, *place, &lines.texts).ok_or((number, HunkMiss::InconsistentIndent(place.at + 1)))?;
        file.edits(hunk, *place, &shift, &mut edits).ok_or((number, HunkMiss::InconsistentIndent(place.at + 1)))?;
    }
    edits.sort_by_key(|(range, _)| (range.start, range.end));
    if let Some(at) = edits.windows(2).position(|pair| pair[0].0.end > pair[1].0.start) {
        return Err((at.min(hunks.len() - 1), HunkMiss::Overlaps));
    }
    file.terminate_last_line(&mut edits);
    Ok((edits, places))
}

/// The line end that most lines have; the first of several.
fn dominant_line_end<'a>(text: &'a str, spans: &[LineSpan]) -> &'a str {
    let mut ends: Vec<(&str, usize)> = Vec::new();
    for span in spans.iter().filter(|span| span.next > span.end) {
        let end = &text[span.end..span.next];
        match ends.iter_mut().find(|(it, _)| *it == end) {
            Some((_, count)) => *count += 1,
            None => ends.push((end, 1)),
        }
    }
    ends.into_iter().rev().max_by_key(|(_, count)| *count).map_or("\n", |(end, _)| end)
}

struct PatchTarget<'a> {
    text: &'a str,
    spans: &'a [LineSpan],
    usual: &'a str,
}

impl PatchTarget<'_> {
    /// One edit for each run of lines that go and come.
    fn edits(&self, hunk: &PatchHunk, place: HunkLocation, shift: &IndentShift, edits: &mut TextEdits) -> Option<()> {
        let mut at = place.at;
        let mut lines = &hunk.lines[..place.lines];
        while let Some(first) = lines.first() {
            if first.side == LineSide::Context {
                at += 1;
                lines = &lines[1..];
                continue;
            }
            let run = lines.iter().take_while(|line| line.side != LineSide::Context).count();
            let (run, rest) = lines.split_at(run);
            lines = rest;
            let removed = run.iter().filter(|line| line.side == LineSide::Removed).count();
            let last = lines.is_empty();
            edits.push(self.edit(at..at + removed, run, place.fit, shift, hunk.no_final_newline && last)?);
            at += removed;
        }
        Some(())
    }

    /// These lines of the file become the new ones of a run.
    fn edit(
        &self,
        gone: Range<usize>,
        run: &[PatchLine],
        fit: MatchQuality,
        shift: &IndentShift,
        bare: bool,
    ) -> Option<(Range<usize>, String)> {
        let end = self.neighbour_line_end(&gone);
        let start = self.spans.get(gone.start).map_or(self.text.len(), |span| span.start);
        let stop = if gone.is_empty() { start } else { self.spans[gone.end - 1].next };
        let mut new = String::new();
        let added = run.iter().filter(|line| line.side == LineSide::Added);
        for (number, line) in added.enumerate() {
            let mut words = shift.applied(&line.text)?;
            if fit == MatchQuality::Punctuation
                && let Some(span) = self.spans.get(gone.start + number).filter(|_| gone.start + number < gone.end)
            {
                words = with_typography(&words, &self.text[span.start..span.end]);
            }
            new.push_str(&words);
            new.push_str(end);
        }
        if bare && gone.end == self.spans.len() && !new.is_empty() {
            new.truncate(new.len() - end.len());
        }
        Some((start..stop, new))
    }

    /// Adds a line end to an unterminated last line if new lines follow it.
    fn terminate_last_line(&self, edits: &mut TextEdits) {
        let open = self.spans.last().is_some_and(|span| span.end == span.next);
        let end = self.text.len();
        let Some(first) = edits.iter().position(|(range, new)| range.start == end && !new.is_empty()) else { return };
        let replaced = edits[..first].iter().any(|(range, _)| range.start < end && range.end == end);
        if open && !replaced {
            let len = self.spans.len();
            edits[first].1.insert_str(0, self.neighbour_line_end(&(len..len)));
        }
    }

    /// The line end of the neighbours, where they agree.
    fn neighbour_line_end(&self, gone: &Range<usize>) -> &str {
        let end = |span: &LineSpan| Some(&self.text[span.end..span.next]).filter(|end| !end.is_empty());
        let before = gone.start.checked_sub(1).and_then(|at| self.spans.get(at)).and_then(end);
        let after = self.spans.get(gone.end).and_then(end);
        match (before, after) {
            (Some(a), Some(b)) if a != b => self.usual,
            (Some(end), _) | (None, Some(end)) => end,
            (None, None) => self.usual,
        }
    }
}

/// The indentation difference between file and patch.
enum IndentShift {
    None,
    Deeper(String),
    Shallower(String),
}

impl IndentShift {
    /// `None` if it differs between lines, because then new lines have no defined indentation.
    fn of(hunk: &PatchHunk, place: HunkLocation, texts: &[&str]) -> Option<Self> {
        let adds = hunk.lines.iter().any(|line| line.side == LineSide::Added && !line.text.trim().is_empty());
        if matches!(place.fit, MatchQuality::Exact | MatchQuality::TrailingWhitespace) || !adds {
            return Some(Self::None);
        }
        let telling = if hunk.removes() { LineSide::Removed } else { LineSide::Context };
        let old = hunk.lines[..place.lines].iter().filter(|line| line.side != LineSide::Added);
        let mut shift: Option<(&str, bool)> = None;
        for (line, file) in old.zip(&texts[place.at..]).filter(|(line, _)| line.side == telling) {
            if line.text.trim().is_empty() {
                continue;
            }
            let (patch, file) = (indent(&line.text), indent(file));
            let this = match (file.strip_suffix(patch), patch.strip_suffix(file)) {
                (Some(more), _) => (more, true),
                (None, Some(less)) => (less, false),
                (None, None) => return None,
            };
            if shift.is_some_and(|it| it != this && !(it.0.is_empty() && this.0.is_empty())) {
                return None;
            }
            shift = Some(this);
        }
        Some(match shift {
            None | Some(("", _)) => Self::None,
            Some((more, true)) => Self::Deeper(more.to_owned()),
            Some((less, false)) => Self::Shallower(less.to_owned()),
        })
    }

    fn applied(&self, line: &str) -> Option<String> {
        match self {
            _ if line.trim().is_empty() => Some(line.to_owned()),
            Self::None => Some(line.to_owned()),
            Self::Deeper(more) => Some(format!("{more}{line}")),
            Self::Shallower(less) => line.strip_prefix(less.as_str()).map(str::to_owned),
        }
    }
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

/// Keeps the quotes and dashes of the old line where the text is the same.
fn with_typography(new: &str, old: &str) -> String {
    let (new, old): (Vec<char>, Vec<char>) = (new.chars().collect(), old.chars().collect());
    let same = |(a, b): &(&char, &char)| to_ascii_punctuation(**a) == to_ascii_punctuation(**b);
    let head = new.iter().zip(&old).take_while(same).count();
    let tail = new[head..].iter().rev().zip(old[head..].iter().rev()).take_while(same).count();
    let middle = &new[head..new.len() - tail];
    old[..head].iter().chain(middle).chain(&old[old.len() - tail..]).collect()
}

/// The error for a hunk that does not fit, with the actual lines.
fn hunk_error(path: &str, text: &str, hunks: &[PatchHunk], number: usize, miss: &HunkMiss) -> Error {
    let hunk = &hunks[number];
    let which = format!("{path}: hunk {} (line {} of the patch)", number + 1, hunk.line);
    let spans = split(text, CarriageReturns::End);
    let texts = spans.iter().map(|span| &text[span.start..span.end]).collect();
    let lines = SearchableLines::new(texts, std::slice::from_ref(hunk));
    let told = match miss {
        HunkMiss::AnchorMissing(head) => {
            let near = PatchHunk {
                lines: vec![PatchLine { side: LineSide::Removed, text: head.clone() }],
                ..PatchHunk::default()
            };
            let near = lines
                .nearest(&near)
                .map(|at| format!("; the nearest is line {}: `{}`", at + 1, truncate_line(lines.texts[at])));
            format!("the line `{}` after @@ is not in the file{}", truncate_line(head), near.unwrap_or_default())
        }
        HunkMiss::Ambiguous(at) => {
            let places: Vec<String> = at.iter().take(20).map(usize::to_string).collect();
            let more = if at.len() > 20 { " …" } else { "" };
            format!(
                "it fits in {} places, at lines {}{more}; add lines around it, or the line above after @@, to say which",
                at.len(),
                places.join(", ")
            )
        }
        HunkMiss::InconsistentIndent(at) => format!(
            "it fits at line {at} only without its indentation, and the indentation differs from line to line.{}",
            nearest_lines(&lines, hunk, at - 1)
        ),
        HunkMiss::Overlaps => "changes lines that another hunk changes too".to_owned(),
        HunkMiss::NotAtEnd => {
            "its lines are in the file, but not at the end, where it says `*** End of File`".to_owned()
        }
        HunkMiss::Nowhere => match lines.nearest(hunk) {
            Some(at) => format!("its lines are not in the file.{}", nearest_lines(&lines, hunk, at)),
            None => "its lines are not in the file, nor anything like them; read the file again".to_owned(),
        },
    };
    Error::failed(format!("{which}: {told}\nNothing was changed."))
}

/// The lines of the file that a hunk nearly fits, and where it first differs.
fn nearest_lines(lines: &SearchableLines<'_>, hunk: &PatchHunk, at: usize) -> String {
    let old: Vec<&str> = hunk.old().collect();
    let window = &lines.texts[at.min(lines.texts.len())..(at + old.len()).min(lines.texts.len())];
    let mut told = format!(" From line {} on the file says:\n", at + 1);
    told.push_str(&window.iter().take(30).map(|line| truncate_line(line)).collect::<Vec<_>>().join("\n"));
    let differs = old.iter().enumerate().find(|(number, line)| window.get(*number) != Some(line));
    if let Some((number, line)) = differs {
        let is = window.get(number).map_or("the end of the file".to_owned(), |is| format!("`{}`", truncate_line(is)));
        told.push_str(&format!(
            "\nFirst difference, at line {}: the patch has `{}`, the file {is}",
            at + number + 1,
            truncate_line(line)
        ));
    }
    told
}

fn truncate_line(line: &str) -> String {
    match line.char_indices().nth(300) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}
