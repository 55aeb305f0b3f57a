//! Finds the lines of a page in a file of any size with bounded memory.

use std::time::Duration;

use encoding_rs::Decoder;
use helve_contract::{
    Call, Error, FileErrorKind, Result, SafePath,
    ports::{FileChunk, Span},
};
use memchr::{memchr, memchr_iter};

use super::{
    CHUNK_BYTES, ReadTool,
    known::{self, CachedLineIndex},
    page::{PageLimit, PageLines, TextPage, TotalLines},
};
use crate::fs::text::{self, Charset, TextFormat};

/// The most text and the most lines in one page, whatever was asked for.
const MAX_PAGE_BYTES: usize = 4 << 20;
const MAX_PAGE_LINES: usize = 200_000;
/// Files larger than this are not read to the end only to count their lines.
const MAX_COUNTED_BYTES: u64 = 256 << 20;
/// What is read at first from a place that is known to be near, at most, and what is added to an estimate.
const MAX_NEAR_READ: u64 = 256 << 10;
const MIN_NEAR_READ: u64 = 8 << 10;
/// Two changes within this time may have the same timestamp.
const MTIME_GRANULARITY: Duration = Duration::from_secs(2);

/// Reads the requested page. `head` is the file's first chunk.
///
/// A file that changes during the read is read again, so that no page mixes two states. A file that changes
/// constantly, such as a log, is taken as it is.
pub(super) async fn read_page(
    call: &Call,
    path: &SafePath,
    read: &ReadTool,
    format: TextFormat,
    mut head: FileChunk,
) -> Result<TextPage> {
    for _ in 0..2 {
        if let Some(page) = scan_once(call, path, read, format, head, OnChange::Noticed).await? {
            return Ok(page);
        }
        head = call.host().read(path, Span::first(CHUNK_BYTES)).await?;
    }
    let page = scan_once(call, path, read, format, head, OnChange::Accepted).await?;
    page.ok_or_else(|| Error::file(path, FileErrorKind::Changed))
}

/// What a change of the file between two chunks means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnChange {
    Noticed,
    Accepted,
}

/// Reads a page from the nearest cached offset; `None` if the file is not cached or has changed.
pub(super) async fn read_indexed_page(call: &Call, path: &SafePath, read: &ReadTool) -> Result<Option<TextPage>> {
    let Some(known) = known::lookup(call, path) else { return Ok(None) };
    let mut scan = PageScanner::new(read, known.format, &[]);
    scan.end = known.end;
    let mut at;
    (scan.line, at) = known.nearest_before(read.start.get());
    // About as much as the lines will take, and one more that shows that there are more.
    let lines = read.start.get() - scan.line + read.limit.unwrap_or(MAX_PAGE_LINES) as u64 + 2;
    let mut step = (lines.saturating_mul(known.size / known.ends.max(1) + 1) + MIN_NEAR_READ).min(MAX_NEAR_READ);
    while scan.full.is_none() && at < known.size {
        call.check_cancelled()?;
        let Ok(chunk) = call.host().read(path, Span { start: at, len: step.min(known.size - at) }).await else {
            return Ok(None);
        };
        if chunk.stamp != known.stamp || chunk.bytes.is_empty() {
            return Ok(None);
        }
        at += chunk.bytes.len() as u64;
        scan.feed(&chunk.bytes, at >= known.size);
        step = CHUNK_BYTES;
    }
    if scan.full.is_some() {
        // What comes after the page is known already.
        scan.line = known.ends + 1;
        scan.length = u64::from(known.open);
    }
    scan.finish(path, read, known.size, true).map(Some)
}

/// Stores the index, unless the file is so new that a change may not be visible in its timestamp.
async fn store_index(call: &Call, path: &SafePath, known: CachedLineIndex) {
    // A stamp with only a size cannot distinguish states.
    if known.stamp.0[1..] == [0; 3] {
        return;
    }
    let modified = call.host().stat(path).await.ok().and_then(|it| it.modified);
    if modified.and_then(|it| it.elapsed().ok()).is_some_and(|it| it >= MTIME_GRANULARITY) {
        known.store();
    }
}

/// Reads through the file once; `None` when it changed on the way.
async fn scan_once(
    call: &Call,
    path: &SafePath,
    read: &ReadTool,
    format: TextFormat,
    head: FileChunk,
    changes: OnChange,
) -> Result<Option<TextPage>> {
    let (size, stamp) = (head.size, head.stamp);
    let mut scan = PageScanner::new(read, format, &head.bytes);
    let mut at = head.bytes.len() as u64;
    let mut bytes = head.bytes;
    bytes.drain(..format.bom.min(bytes.len()));
    let is_long = size > CHUNK_BYTES && scan.wide.is_none() && changes == OnChange::Noticed;
    let mut known = is_long.then(|| CachedLineIndex::new(call, path, (stamp, size), format, scan.end));
    loop {
        scan.feed(&bytes, at >= size);
        if let Some(known) = &mut known {
            known.scan(&bytes, at - bytes.len() as u64);
        }
        let enough = scan.full.is_some() || scan.cut_in_line();
        if at >= size || (enough && size > MAX_COUNTED_BYTES && at >= MAX_COUNTED_BYTES / 8) {
            break;
        }
        call.check_cancelled()?;
        let chunk = call.host().read(path, Span { start: at, len: CHUNK_BYTES.min(size - at) }).await?;
        if chunk.stamp != stamp && changes == OnChange::Noticed {
            return Ok(None);
        }
        if chunk.bytes.is_empty() {
            scan.feed(&[], true);
            at = size;
            break;
        }
        at += chunk.bytes.len() as u64;
        bytes = chunk.bytes;
    }
    if let Some(known) = known.filter(|_| at >= size) {
        store_index(call, path, known).await;
    }
    scan.finish(path, read, size, at >= size).map(Some)
}

/// What is known of the lines so far.
struct PageScanner {
    format: TextFormat,
    wide: Option<Decoder>,
    end: u8,
    /// Number of the line that the next byte belongs to, counted from 1.
    line: u64,
    start: u64,
    /// How many lines and bytes may still be kept.
    lines_left: usize,
    bytes_left: usize,
    /// How many bytes may be kept in all.
    max_bytes: usize,
    /// How many bytes of one line are kept, and how many characters are shown.
    keep: usize,
    max_line: usize,
    /// What is kept of the lines, each with its end, and of the one that is being read.
    bytes: Vec<u8>,
    /// Where the end of each line that is kept is, and how long the line is in the file.
    kept: Vec<(usize, u64)>,
    /// How long the line is that is being read.
    length: u64,
    last_ended: bool,
    full: Option<PageLimit>,
    nul: Option<u64>,
}

impl PageScanner {
    fn new(read: &ReadTool, format: TextFormat, head: &[u8]) -> Self {
        let wide = match format.charset {
            Charset::Utf16Le => Some(encoding_rs::UTF_16LE.new_decoder_without_bom_handling()),
            Charset::Utf16Be => Some(encoding_rs::UTF_16BE.new_decoder_without_bom_handling()),
            Charset::Utf8 | Charset::Legacy(_) => None,
        };
        // Old Mac files end lines with a carriage return only.
        let old = memchr(b'\n', head).is_none() && memchr(b'\r', head).is_some();
        let bytes_left = read.max_bytes.unwrap_or(MAX_PAGE_BYTES).min(MAX_PAGE_BYTES);
        let max_line = read.max_line.unwrap_or(usize::MAX);
        Self {
            format,
            wide,
            end: if old { b'\r' } else { b'\n' },
            line: 1,
            start: read.start.get(),
            lines_left: read.limit.unwrap_or(MAX_PAGE_LINES).min(MAX_PAGE_LINES),
            bytes_left,
            max_bytes: bytes_left,
            keep: max_line.saturating_mul(4).min(bytes_left.saturating_add(4)),
            max_line,
            bytes: Vec::new(),
            kept: Vec::new(),
            length: 0,
            last_ended: false,
            full: None,
            nul: None,
        }
    }

    /// Takes the next bytes of the file; `last` when no more will come.
    fn feed(&mut self, bytes: &[u8], last: bool) {
        match self.wide.take() {
            None => self.lines(bytes),
            Some(mut decoder) => {
                let room = decoder.max_utf8_buffer_length(bytes.len()).unwrap_or(bytes.len() * 3);
                let mut text = String::with_capacity(room);
                _ = decoder.decode_to_string(bytes, &mut text, last);
                self.lines(text.as_bytes());
                self.wide = Some(decoder);
            }
        }
    }

    fn lines(&mut self, mut bytes: &[u8]) {
        // Before the page only line ends matter; after it nothing does.
        if self.line < self.start {
            let Some(rest) = self.skip(bytes) else { return };
            bytes = rest;
        }
        if self.full.is_none() && self.length == 0 {
            bytes = self.take_lines(bytes);
        }
        while self.full.is_none() {
            let Some(at) = memchr(self.end, bytes) else { break };
            self.grow(&bytes[..at]);
            bytes = &bytes[at + 1..];
            self.end_line(true);
        }
        if self.full.is_none() {
            self.grow(bytes);
        } else if !bytes.is_empty() {
            self.line += memchr_iter(self.end, bytes).count() as u64;
            self.length = u64::from(bytes.last() != Some(&self.end));
        }
    }

    /// Takes lines in bulk while they need no special handling.
    fn take_lines<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (before, mut start) = (self.bytes.len(), 0);
        let already = self.kept.len();
        self.kept.reserve(self.lines_left.min(bytes.len() / 32));
        for at in memchr_iter(self.end, bytes) {
            let length = at - start;
            if self.lines_left == 0 || length > self.bytes_left || length > self.keep || length > self.max_line {
                break;
            }
            self.lines_left -= 1;
            self.bytes_left = self.bytes_left.saturating_sub(length + 1);
            self.kept.push((before + at, length as u64));
            start = at + 1;
            self.last_ended = true;
        }
        let (taken, rest) = bytes.split_at(start);
        if self.nul.is_none() {
            let line = |at: usize| self.line + memchr_iter(self.end, &taken[..at]).count() as u64;
            self.nul = memchr(0, taken).map(line);
        }
        self.line += (self.kept.len() - already) as u64;
        self.bytes.extend_from_slice(taken);
        rest
    }

    /// Passes over the lines before the page. `None` when the page does not begin in these bytes.
    fn skip<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let missing = self.start - self.line;
        let count = memchr_iter(self.end, bytes).count() as u64;
        if count < missing {
            self.line += count;
            self.length = u64::from(bytes.last().map_or(self.length > 0, |it| *it != self.end));
            return None;
        }
        self.line = self.start;
        self.length = 0;
        let at = memchr_iter(self.end, bytes).nth(missing as usize - 1)?;
        Some(&bytes[at + 1..])
    }

    /// Where the line begins that is being read.
    fn line_start(&self) -> usize {
        self.kept.last().map_or(0, |(end, _)| end + 1)
    }

    /// More of the line that is being read.
    fn grow(&mut self, bytes: &[u8]) {
        let has = self.bytes.len() - self.line_start();
        let bytes_kept = &bytes[..self.keep.saturating_sub(has).min(bytes.len())];
        if self.nul.is_none() {
            self.nul = memchr(0, bytes_kept).map(|_| self.line);
        }
        self.bytes.extend_from_slice(bytes_kept);
        self.length += bytes.len() as u64;
    }

    /// The line is complete: it is kept, or the page is full.
    fn end_line(&mut self, ended: bool) {
        let start = self.line_start();
        let cost = shown_bytes(&self.bytes[start..], self.max_line) + 1;
        // A page that whole lines fill less than half ends inside the next line.
        let is_filled = self.bytes_left <= self.max_bytes / 2;
        if self.lines_left == 0 {
            self.full = Some(PageLimit::Lines);
        } else if cost > self.bytes_left + 1 && is_filled && !self.kept.is_empty() {
            self.full = Some(PageLimit::Bytes);
        } else if cost > self.bytes_left + 1 {
            self.bytes.truncate(start + self.bytes_left);
        }
        if self.full.is_some() {
            self.bytes.truncate(start);
        } else {
            self.lines_left -= 1;
            self.bytes_left = self.bytes_left.saturating_sub(cost);
            self.kept.push((self.bytes.len(), self.length));
            self.bytes.push(self.end);
            self.last_ended = ended;
        }
        self.length = 0;
        self.line += u64::from(ended);
        if !ended && self.full.is_some() {
            self.length = 1;
        }
    }

    /// Whether the line that is being read is longer than can be shown, so that only its length is of interest.
    fn cut_in_line(&self) -> bool {
        self.line >= self.start && self.bytes.len() - self.line_start() >= self.keep
    }

    /// The lines that are kept, and how long each is in the file.
    fn lines_kept(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let mut start = 0;
        self.kept.iter().map(move |(end, length)| (&self.bytes[std::mem::replace(&mut start, end + 1)..*end], *length))
    }

    /// The lines as text, where nothing about them is out of the ordinary.
    fn take_valid_lines(&mut self) -> Option<PageLines> {
        let utf8 = self.wide.is_some() || self.format.charset == Charset::Utf8;
        let whole = |(line, length): (&[u8], u64)| line.len() <= self.max_line && line.len() as u64 == length;
        if !utf8 || !self.lines_kept().all(whole) {
            return None;
        }
        match String::from_utf8(std::mem::take(&mut self.bytes)) {
            Ok(text) => Some(PageLines::new(text, self.kept.iter().map(|(end, _)| *end).collect())),
            Err(error) => {
                self.bytes = error.into_bytes();
                None
            }
        }
    }

    /// The lines as text, one by one: decoded, and cut where they are too long.
    fn convert_lines(&mut self, whole: bool) -> PageLines {
        let damaged = self.lines_kept().any(|(line, _)| self.is_damaged(line));
        self.format.damaged |= damaged;
        let mut lines = PageLines::default();
        for (line, length) in self.lines_kept() {
            lines.push(&self.text(line, length, whole), self.end);
        }
        lines
    }

    /// Whether a line has bytes that are not UTF-8, though the file's beginning has none.
    fn is_damaged(&self, line: &[u8]) -> bool {
        self.wide.is_none()
            && self.format.charset == Charset::Utf8
            && std::str::from_utf8(line).is_err_and(|error| error.error_len().is_some())
    }

    fn finish(mut self, path: &SafePath, read: &ReadTool, size: u64, whole: bool) -> Result<TextPage> {
        if self.full.is_none() && self.line >= self.start && self.length > 0 {
            self.end_line(false);
        }
        if let Some(line) = self.nul.filter(|_| self.wide.is_none()) {
            return Err(Error::file(path, FileErrorKind::Binary(format!("data with a NUL byte in line {line}"))));
        }
        // A last line without an end counts as well.
        let open = u64::from(self.length > 0 || (self.full.is_none() && !self.last_ended && !self.kept.is_empty()));
        let count = self.line - 1 + open;
        let start = read.start.get();
        if start > count.max(1) || (start > 1 && count == 0) {
            let has = if size == 0 { "is empty".to_owned() } else { format!("has {}", lines(count)) };
            return Err(Error::failed(format!("{path} {has}; line {start} is past its end")));
        }
        let shown = self.kept.len() as u64;
        // What `max_line` cuts is cut on purpose.
        let is_long = |(line, length): (&[u8], u64)| (line.len() as u64) < length;
        let long = (self.max_line == usize::MAX).then(|| self.lines_kept().position(is_long)).flatten();
        let more = self.full.or((!whole || start + shown <= count).then_some(PageLimit::Lines));
        let lines = self.take_valid_lines().unwrap_or_else(|| self.convert_lines(whole));
        let total = if whole { TotalLines::Exactly(count) } else { TotalLines::AtLeast(count.saturating_sub(1)) };
        Ok(TextPage {
            path: path.to_string(),
            lines,
            start,
            total,
            cut: more,
            size,
            encoding: self.format.note(),
            ended: self.last_ended,
            long: long.map(|at| start + at as u64),
            folded: None,
        })
    }

    /// A line as text, with a mark where it is cut.
    fn text(&self, line: &[u8], length: u64, whole: bool) -> String {
        let charset = if self.wide.is_some() { Charset::Utf8 } else { self.format.charset };
        let cut_bytes = (line.len() as u64) < length;
        // The last character may be cut in half.
        let text = match (cut_bytes, std::str::from_utf8(line)) {
            (true, Err(error)) if charset == Charset::Utf8 && error.error_len().is_none() => {
                text::decode(&line[..error.valid_up_to()], charset)
            }
            _ => text::decode(line, charset),
        };
        let end = text.char_indices().nth(self.max_line).map(|(at, _)| at);
        let end = end.filter(|at| cut_bytes || &text[*at..] != "\r");
        if !cut_bytes && end.is_none() {
            return text.into_owned();
        }
        let more = if whole { "" } else { "more than " };
        format!("{}… [cut: the line has {more}{length} bytes]", &text[..end.unwrap_or(text.len())])
    }
}

/// About how many bytes of a line are shown when it is cut after so many characters.
fn shown_bytes(line: &[u8], max_line: usize) -> usize {
    if line.len() <= max_line {
        return line.len();
    }
    let starts = line.iter().enumerate().filter(|(_, byte)| (**byte & 0xc0) != 0x80);
    starts.map(|(at, _)| at).nth(max_line).unwrap_or(line.len())
}

fn lines(count: u64) -> String {
    if count == 1 { "1 line".to_owned() } else { format!("{count} lines") }
}
