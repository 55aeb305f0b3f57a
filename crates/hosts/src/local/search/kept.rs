//! Collects the hits of all files and keeps only the first ones by path during the search.

use std::{collections::BTreeMap, path::PathBuf};

use helve_contract::ports::{FileMatches, GrepOutputMode, GrepQuery, GrepResult, MatchLine, MatchLineKind};

use super::sink::hit_bytes;

/// The buffer for hits that the offset will skip; that is unknown before the search ends.
const OFFSET_BUFFER_BYTES: usize = 64 << 20;

/// The results so far.
pub(crate) struct SearchResults {
    files: BTreeMap<PathBuf, SizedHits>,
    /// The maximum number of matches (or files) in the answer.
    most: usize,
    room: usize,
    held: usize,
    bytes: usize,
    total: u64,
    total_files: u64,
}

/// The hits of a file and their size.
struct SizedHits {
    hits: FileMatches,
    bytes: usize,
    units: usize,
}

impl SearchResults {
    pub(crate) fn new(grep: &GrepQuery) -> Self {
        Self {
            files: BTreeMap::new(),
            most: max_matches(grep),
            room: max_bytes(grep),
            held: 0,
            bytes: 0,
            total: 0,
            total_files: 0,
        }
    }

    /// Adds a file with at least one match.
    pub(crate) fn add(&mut self, hits: FileMatches, bytes: usize, units: usize, counted: u64) {
        self.total += counted;
        self.total_files += 1;
        self.held += units;
        self.bytes += bytes;
        self.files.insert(hits.path.clone(), SizedHits { hits, bytes, units });
        // Drops the last file by path when the files before it fill the answer.
        while let Some(last) = self.files.last_entry() {
            let (units, bytes) = (last.get().units, last.get().bytes);
            if self.files.len() == 1 || (self.held - units < self.most && self.bytes - bytes <= self.room) {
                break;
            }
            self.held -= units;
            self.bytes -= bytes;
            self.files.pop_last();
        }
    }

    /// The answer: the results after the offset, within the limits.
    pub(crate) fn finish(self, grep: &GrepQuery) -> GrepResult {
        let mut matches = GrepResult { total: self.total, total_files: self.total_files, ..GrepResult::default() };
        let mut cut = ResultWindow { skip: grep.offset, left: grep.limit.unwrap_or(usize::MAX), bytes: grep.max_bytes };
        for SizedHits { mut hits, .. } in self.files.into_values() {
            let is_kept = match grep.output {
                GrepOutputMode::Lines if hits.hits.is_empty() => cut.take_file(&hits),
                GrepOutputMode::Lines => {
                    hits.hits = cut.take_lines(hits.hits, grep.context);
                    !hits.hits.is_empty()
                }
                GrepOutputMode::Counts | GrepOutputMode::Files => cut.take_file(&hits),
            };
            if is_kept {
                matches.files.push(hits);
            }
            if cut.left == 0 || cut.bytes == 0 {
                break;
            }
        }
        matches
    }
}

/// The maximum number of matches to keep.
pub(crate) fn max_matches(grep: &GrepQuery) -> usize {
    grep.limit.map_or(usize::MAX, |limit| limit.saturating_add(grep.offset))
}

/// The maximum number of bytes to keep.
pub(crate) fn max_bytes(grep: &GrepQuery) -> usize {
    if grep.offset == 0 { grep.max_bytes } else { grep.max_bytes.saturating_add(OFFSET_BUFFER_BYTES) }
}

/// The remaining capacity.
struct ResultWindow {
    skip: usize,
    left: usize,
    bytes: usize,
}

impl ResultWindow {
    /// Counts the file as one.
    fn take_file(&mut self, hits: &FileMatches) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let bytes = hits.path.as_os_str().len();
        if self.left == 0 || bytes > self.bytes {
            self.left = 0;
            return false;
        }
        self.left -= 1;
        self.bytes -= bytes;
        true
    }

    /// Counts each match, with its context lines.
    fn take_lines(&mut self, hits: Vec<MatchLine>, (before, after): (usize, usize)) -> Vec<MatchLine> {
        let matches: Vec<usize> = (0..hits.len()).filter(|at| hits[*at].kind == MatchLineKind::Match).collect();
        if self.skip >= matches.len() {
            self.skip -= matches.len();
            return Vec::new();
        }
        let first = std::mem::take(&mut self.skip);
        let last = (first.saturating_add(self.left)).min(matches.len()) - 1;
        self.left -= last + 1 - first;

        let near = |at: usize, to: usize, most: usize| {
            hits[at].kind == MatchLineKind::Context && hits[at].line.abs_diff(hits[to].line) <= most as u64
        };
        let mut from = matches[first];
        while first > 0 && from > 0 && near(from - 1, matches[first], before) {
            from -= 1;
        }
        let from = if first == 0 { 0 } else { from };
        let mut to = matches[last];
        while to + 1 < hits.len() && near(to + 1, matches[last], after) {
            to += 1;
        }
        let mut kept = Vec::with_capacity(to + 1 - from);
        for hit in hits.into_iter().take(to + 1).skip(from) {
            if hit_bytes(&hit) > self.bytes {
                self.bytes = 0;
                break;
            }
            self.bytes -= hit_bytes(&hit);
            kept.push(hit);
        }
        while kept.last().is_some_and(|hit| hit.kind == MatchLineKind::Gap) {
            kept.pop();
        }
        kept
    }
}
