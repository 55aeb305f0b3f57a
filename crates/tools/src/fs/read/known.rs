//! A cache of line offsets in long files, so that the next page costs a page and not the file.
//!
//! It stores offsets only, never text. Every page is read through the host with all its checks, and a changed file is
//! read from the start.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use helve_contract::{Call, SafePath, ports::FileStamp};
use memchr::{memchr, memchr_iter};

use crate::fs::text::TextFormat;

/// The number of cached files; the least recently used is evicted.
const MAX_CACHED_FILES: usize = 16;
/// Bytes from one place to the next, about.
const CHECKPOINT_BYTES: usize = 16 << 10;

static CACHE: Mutex<VecDeque<Arc<CachedLineIndex>>> = Mutex::new(VecDeque::new());

/// The line index of a long file in one state.
#[derive(Debug)]
pub(super) struct CachedLineIndex {
    host: String,
    path: PathBuf,
    pub(super) stamp: FileStamp,
    pub(super) size: u64,
    pub(super) format: TextFormat,
    /// What its lines end with.
    pub(super) end: u8,
    /// Numbers of lines, counted from 1, and where they begin.
    places: Vec<(u64, u64)>,
    /// How many lines end, and whether one more follows that does not.
    pub(super) ends: u64,
    pub(super) open: bool,
}

impl CachedLineIndex {
    /// Nothing of it yet but where its text begins.
    pub(super) fn new(
        call: &Call,
        path: &SafePath,
        (stamp, size): (FileStamp, u64),
        format: TextFormat,
        end: u8,
    ) -> Self {
        let places = vec![(1, format.bom as u64)];
        let host = call.host().name().to_owned();
        Self { host, path: path.host_path(), stamp, size, format, end, places, ends: 0, open: false }
    }

    /// Takes note of the next bytes of the text, which begin at `at`.
    pub(super) fn scan(&mut self, bytes: &[u8], at: u64) {
        for (step, block) in bytes.chunks(CHECKPOINT_BYTES).enumerate() {
            let from = at + (step * CHECKPOINT_BYTES) as u64;
            if let Some(first) = memchr(self.end, block) {
                self.places.push((self.ends + 2, from + first as u64 + 1));
            }
            self.ends += memchr_iter(self.end, block).count() as u64;
        }
        self.open = bytes.last().map_or(self.open, |it| *it != self.end);
    }

    /// The last known line start at or before a line: its number and offset.
    pub(super) fn nearest_before(&self, line: u64) -> (u64, u64) {
        let after = self.places.partition_point(|(number, _)| *number <= line);
        self.places.get(after.saturating_sub(1)).copied().unwrap_or((1, self.format.bom as u64))
    }

    /// Stores it for the next call and replaces an older index of the file.
    pub(super) fn store(self) {
        let mut known = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|it| it.path != self.path || it.host != self.host);
        known.truncate(MAX_CACHED_FILES - 1);
        known.push_front(Arc::new(self));
    }
}

/// What is known of a file, whatever its state is now.
pub(super) fn lookup(call: &Call, path: &SafePath) -> Option<Arc<CachedLineIndex>> {
    let known = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if known.is_empty() {
        return None;
    }
    let (host, path) = (call.host().name(), path.host_path());
    known.iter().find(|it| it.path == path && it.host == host).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_the_beginning_of_its_line() {
        let lines: Vec<_> = (1..=60_000).map(|at| format!("line {at}, {}\n", "x".repeat(at % 40))).collect();
        let text = lines.concat();
        let (stamp, size) = (FileStamp::default(), text.len() as u64);
        let places = vec![(1, 0)];
        let (host, path, format) = (String::new(), PathBuf::new(), TextFormat::UTF8);
        let mut known = CachedLineIndex { host, path, stamp, size, format, end: b'\n', places, ends: 0, open: false };
        let mut at = 0;
        for piece in text.as_bytes().chunks(100_001) {
            known.scan(piece, at);
            at += piece.len() as u64;
        }
        known.scan(b"the end", at);
        assert_eq!((known.ends, known.open), (60_000, true));
        assert!(known.places.len() > text.len() / CHECKPOINT_BYTES, "{}", known.places.len());
        for line in [1, 2, 999, 31_007, 60_000, 60_001, 99_999] {
            let (number, from) = known.nearest_before(line);
            let begins = text.as_bytes().get(from as usize..).unwrap_or_default();
            assert!(number <= line && (number > 60_000 || begins.starts_with(format!("line {number},").as_bytes())));
        }
        let (number, _) = known.nearest_before(31_007);
        assert!(31_007 - number < 4_000, "{number} is far away");
    }
}
