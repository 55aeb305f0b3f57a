//! Converts what the searcher finds in one file into hits. Counts and lines are those that ripgrep prints.

use std::io;

use grep_matcher::{Match, Matcher as _};
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkFinish, SinkMatch};
use helve_contract::ports::{GrepOutputMode, MatchLine, MatchLineKind};

/// The maximum lookahead behind a match when its matches are located again.
const LOOKAHEAD_BYTES: usize = 128;

/// Lines up to this size are kept whole without locating the match.
const SHORT_LINE: usize = 500;
/// Longer lines are truncated.
const LONG_LINE: usize = 8 << 10;
/// How many bytes of a long line are kept before and after the start of its first match.
const WINDOW: (usize, usize) = (2 << 10, 4 << 10);

/// Which information a search collects from a file.
#[derive(Clone, Copy)]
pub(crate) struct CollectOptions {
    pub(crate) output: GrepOutputMode,
    /// Report each match separately.
    pub(crate) only_matching: bool,
    /// A match may span lines.
    pub(crate) multiline: bool,
    /// The maximum number of matches kept per file.
    pub(crate) most: usize,
    /// The maximum number of bytes kept per file.
    pub(crate) bytes: usize,
}

/// The size of a hit: its line and the line ending.
pub(crate) fn hit_bytes(hit: &MatchLine) -> usize {
    hit.text.len() + 1
}

/// Collects the hits of one file.
pub(crate) struct HitCollector<'m> {
    ask: CollectOptions,
    matcher: &'m RegexMatcher,
    /// Matching lines (or matches, in multi-line and only-matching searches).
    pub(crate) count: u64,
    pub(crate) hits: Vec<MatchLine>,
    pub(crate) bytes: usize,
    pub(crate) kept: usize,
    /// The offset of the first zero byte, if the file is binary.
    pub(crate) binary: Option<u64>,
    /// The limit is reached; further matches are only counted.
    is_full: bool,
    matches: Vec<Match>,
}

impl<'m> HitCollector<'m> {
    pub(crate) fn new(ask: CollectOptions, matcher: &'m RegexMatcher) -> Self {
        Self {
            ask,
            matcher,
            count: 0,
            hits: Vec::new(),
            bytes: 0,
            kept: 0,
            binary: None,
            is_full: false,
            matches: Vec::new(),
        }
    }

    fn push(&mut self, kind: MatchLineKind, line: u64, text: &[u8]) {
        if kind == MatchLineKind::Match {
            self.count += 1;
            self.is_full |= self.kept >= self.ask.most || self.bytes > self.ask.bytes;
        }
        if self.is_full {
            return;
        }
        let hit = self.hit(kind, line, text.strip_suffix(b"\n").unwrap_or(text));
        self.bytes += hit_bytes(&hit);
        self.kept += usize::from(kind == MatchLineKind::Match);
        self.hits.push(hit);
    }

    /// A line, or the part around the first match of a very long line.
    fn hit(&self, kind: MatchLineKind, line: u64, text: &[u8]) -> MatchLine {
        if text.len() <= SHORT_LINE {
            return MatchLine::line(kind, line, text);
        }
        let found = if kind == MatchLineKind::Match { self.matcher.find(text).ok().flatten() } else { None };
        let at = found.map_or(0, |it| it.start());
        if text.len() <= LONG_LINE {
            return MatchLine { at, ..MatchLine::line(kind, line, text) };
        }
        let from = boundary(text, at.saturating_sub(WINDOW.0));
        let to = boundary(text, text.len().min(at + WINDOW.1));
        MatchLine { at: at - from, left_out: (from, text.len() - to), ..MatchLine::line(kind, line, &text[from..to]) }
    }

    /// Locates the matches within matching lines.
    fn find_each(&mut self, found: &SinkMatch<'_>) -> io::Result<()> {
        let (buffer, range) = (found.buffer(), found.bytes_range_in_buffer());
        let end = if self.ask.multiline {
            buffer.len().min(range.end + LOOKAHEAD_BYTES)
        } else if buffer[range.clone()].last() == Some(&b'\n') {
            range.end - 1
        } else {
            range.end
        };
        let matches = &mut self.matches;
        matches.clear();
        self.matcher
            .find_iter_at(&buffer[..end], range.start, |it| {
                if it.start() >= range.end {
                    return false;
                }
                matches.push(Match::new(it.start() - range.start, it.end() - range.start));
                true
            })
            .map_err(io::Error::other)?;
        // An empty match after the last byte does not count.
        if matches.last().is_some_and(|last| last.is_empty() && last.start() >= range.len()) {
            matches.pop();
        }
        Ok(())
    }

    fn push_each(&mut self, first: u64, bytes: &[u8]) {
        let matches = std::mem::take(&mut self.matches);
        if matches.is_empty() {
            self.push_lines(first, bytes);
        } else if self.ask.multiline {
            self.push_parts(first, bytes, &matches);
        } else {
            for it in &matches {
                self.push(MatchLineKind::Match, first, &bytes[it.start()..it.end().min(bytes.len())]);
            }
        }
        self.matches = matches;
    }

    /// Splits multi-line matches into lines and keeps the matched part of each.
    fn push_parts(&mut self, first: u64, bytes: &[u8], matches: &[Match]) {
        let mut start = 0;
        for (line, number) in bytes.split_inclusive(|byte| *byte == b'\n').zip(first..) {
            let end = start + line.strip_suffix(b"\n").unwrap_or(line).len();
            for it in matches {
                let (from, to) = (it.start().max(start), it.end().min(end));
                if from < to {
                    self.push(MatchLineKind::Match, number, &bytes[from..to]);
                }
            }
            start += line.len();
        }
    }

    fn push_lines(&mut self, first: u64, bytes: &[u8]) {
        for (line, number) in bytes.split_inclusive(|byte| *byte == b'\n').zip(first..) {
            self.push(MatchLineKind::Match, number, line);
        }
    }

    /// Whether a fully searched file is binary; then no line of it is shown.
    fn is_converted(&self, searcher: &Searcher) -> bool {
        searcher.binary_detection().convert_byte().is_some() && self.binary.is_some()
    }
}

impl Sink for HitCollector<'_> {
    type Error = io::Error;

    fn matched(&mut self, searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let first = found.line_number().unwrap_or(0);
        match self.ask.output {
            GrepOutputMode::Files => {
                self.count = 1;
                return Ok(false);
            }
            // A pattern that cannot match a line break is counted by lines, as in ripgrep.
            GrepOutputMode::Counts if self.ask.only_matching || searcher.multi_line_with_matcher(self.matcher) => {
                self.find_each(found)?;
                self.count += (self.matches.len() as u64).max(1);
            }
            GrepOutputMode::Counts => self.count += 1,
            GrepOutputMode::Lines if self.is_converted(searcher) => {
                self.count += 1;
                return Ok(false);
            }
            GrepOutputMode::Lines if self.ask.only_matching => {
                self.find_each(found)?;
                self.push_each(first, found.bytes());
            }
            GrepOutputMode::Lines if self.ask.multiline => self.push_lines(first, found.bytes()),
            GrepOutputMode::Lines => self.push(MatchLineKind::Match, first, found.bytes()),
        }
        Ok(true)
    }

    fn context(&mut self, searcher: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        if self.ask.output == GrepOutputMode::Lines {
            if self.is_converted(searcher) {
                return Ok(false);
            }
            self.push(MatchLineKind::Context, context.line_number().unwrap_or(0), context.bytes());
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        if self.ask.output == GrepOutputMode::Lines {
            self.push(MatchLineKind::Gap, 0, b"");
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, offset: u64) -> io::Result<bool> {
        self.binary = Some(offset);
        Ok(true)
    }

    /// A count of a partially searched binary file would mislead, so there is none.
    fn finish(&mut self, searcher: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        if self.ask.output != GrepOutputMode::Lines {
            self.binary = finish.binary_byte_offset();
            if self.binary.is_some() && searcher.binary_detection().quit_byte().is_some() {
                self.count = 0;
            }
        }
        Ok(())
    }
}

/// The next UTF-8 character boundary at or after this offset.
fn boundary(text: &[u8], at: usize) -> usize {
    let is_inside = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    (at..at + 4).find(|at| !is_inside(at)).unwrap_or(at).min(text.len())
}
