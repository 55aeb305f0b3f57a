//! Explains an empty result: searches the skipped files too, for a short time.

use std::{
    hash::{BuildHasher as _, RandomState},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use grep_regex::RegexMatcher;
use helve_contract::ports::{FileKind, GrepOutputMode, GrepQuery, IgnoreOptions, NoMatchDiagnostics};

use super::{
    pattern::matcher,
    run::{BinaryMode, FileSearcher, GrepRun},
};
use crate::local::names::has_hidden_component;

const DIAGNOSE_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_FILES: u64 = 200_000;

/// Records where the pattern would have matched.
pub(super) fn diagnose(search: &GrepRun<'_>, absence: &mut NoMatchDiagnostics) {
    let clock = search.clock.shorter(DIAGNOSE_TIMEOUT);
    let grep = GrepQuery {
        output: GrepOutputMode::Counts,
        only_matching: false,
        limit: None,
        offset: 0,
        ..search.grep.clone()
    };
    let any = GrepQuery { ignore_case: true, ..grep.clone() };
    let Ok(any_case) = matcher(&any) else { return };
    let same_files_any = GrepRun { grep: &any, matcher: &any_case, clock: &clock, ..*search };
    let mut visited = SearchedFiles::default();
    let same = examine_searched(&same_files_any, search.matcher, &visited);
    absence.other_case = if search.grep.ignore_case { 0 } else { same.other_case };
    absence.binary = same.binary;
    absence.foreign = same.foreign;

    let everything = IgnoreOptions { ignored: true, hidden: true };
    if search.start.kind == FileKind::Folder && search.grep.noise != everything {
        let more_files = GrepRun { grep: &grep, clock: &clock, ..*search };
        visited.sort();
        examine_skipped(&more_files, everything, &visited, absence);
    }
}

/// The searched files, each as a hash.
#[derive(Default)]
struct SearchedFiles {
    state: RandomState,
    numbers: Mutex<Vec<u64>>,
}

impl SearchedFiles {
    fn add(&self, path: &Path) {
        let number = self.state.hash_one(path.as_os_str());
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }

    /// Sorts the hashes for lookups.
    fn sort(&mut self) {
        self.numbers.get_mut().unwrap_or_else(PoisonError::into_inner).sort_unstable();
    }

    fn has(&self, path: &Path) -> bool {
        let number = self.state.hash_one(path.as_os_str());
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).binary_search(&number).is_ok()
    }
}

/// What the searched files contain.
struct SearchedFileStats {
    /// Lines that match case-insensitively.
    other_case: u64,
    /// Binary files that match.
    binary: u64,
    /// Files whose encoding spells the pattern with other bytes.
    foreign: u64,
}

fn examine_searched(search: &GrepRun<'_>, exact: &RegexMatcher, visited: &SearchedFiles) -> SearchedFileStats {
    let counters: [AtomicU64; 4] = Default::default();
    let [other_case, binary, foreign, seen] = &counters;
    let exact = GrepRun { matcher: exact, ..*search };
    let is_ascii = search.grep.pattern.is_ascii();
    let visitor = || {
        let (mut any, mut same) =
            (FileSearcher::new(search, BinaryMode::Search), FileSearcher::new(&exact, BinaryMode::Search));
        move |path: &Path| {
            if seen.fetch_add(1, Ordering::Relaxed) >= MAX_FILES || search.clock.is_expired() {
                return;
            }
            visited.add(path);
            let Ok(found) = any.search(path) else { return };
            let is_binary = found.binary.is_some();
            if !is_binary {
                other_case.fetch_add(found.count, Ordering::Relaxed);
            } else if found.count > 0 && same.search(path).is_ok_and(|found| found.count > 0) {
                binary.fetch_add(1, Ordering::Relaxed);
                return;
            }
            // Most encodings share ASCII, so their files are checked only for patterns with other characters.
            if (is_binary || !is_ascii) && any.head(path).is_some_and(|head| is_unsupported_encoding(&head)) {
                foreign.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    if search.start.kind == FileKind::Folder {
        search.for_each_file(search.grep.noise, visitor);
    } else {
        visitor()(&search.start.real);
    }
    let [other_case, binary, foreign, _] = counters.map(AtomicU64::into_inner);
    SearchedFileStats { other_case, binary, foreign }
}

/// Whether these bytes start a text that is not UTF-8 and that the searcher does not decode.
pub(crate) fn is_unsupported_encoding(head: &[u8]) -> bool {
    // With a byte order mark the searcher decodes it.
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return false;
    }
    if head.contains(&0) {
        return looks_like_utf16(head);
    }
    // The last character of the probe may be incomplete.
    std::str::from_utf8(head).is_err_and(|error| error.error_len().is_some())
}

/// UTF-16 without a byte order mark: in most pairs the same half is zero.
fn looks_like_utf16(head: &[u8]) -> bool {
    let pairs = head.len() / 2;
    let zeros = |half: usize| head.chunks_exact(2).filter(|pair| pair[half] == 0 && pair[1 - half] != 0).count();
    pairs > 1 && zeros(0).max(zeros(1)) * 4 > pairs * 3
}

/// Searches the files that were skipped. Those searched before do not match.
fn examine_skipped(
    search: &GrepRun<'_>,
    everything: IgnoreOptions,
    visited: &SearchedFiles,
    absence: &mut NoMatchDiagnostics,
) {
    let counters: [AtomicU64; 5] = Default::default();
    let [seen, ignored, ignored_files, hidden, hidden_files] = &counters;
    search.for_each_file(everything, || {
        let mut eye = FileSearcher::new(search, BinaryMode::Stop);
        move |path: &Path| {
            let beneath_start = path.strip_prefix(&search.start.real).unwrap_or(path);
            // Files inside `.git` are not source text.
            let is_git = beneath_start.components().any(|part| part.as_os_str() == ".git");
            if is_git || visited.has(path) || seen.fetch_add(1, Ordering::Relaxed) >= MAX_FILES {
                return;
            }
            let Ok(found) = eye.search(path) else { return };
            if found.count > 0 {
                let is_hidden = !search.grep.noise.hidden && has_hidden_component(beneath_start);
                let (lines, files) = if is_hidden { (hidden, hidden_files) } else { (ignored, ignored_files) };
                lines.fetch_add(found.count, Ordering::Relaxed);
                files.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let [_, ignored, ignored_files, hidden, hidden_files] = counters.map(AtomicU64::into_inner);
    absence.ignored = (ignored, ignored_files);
    absence.hidden = (hidden, hidden_files);
}

#[cfg(test)]
mod tests {
    use super::is_unsupported_encoding;

    #[test]
    fn text_that_the_searcher_cannot_read_is_known() {
        let wide: Vec<u8> = "hello\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert!(is_unsupported_encoding(&wide));
        assert!(is_unsupported_encoding(b"caf\xe9\n"), "Latin-1");
        assert!(!is_unsupported_encoding("café\n".as_bytes()));
        assert!(!is_unsupported_encoding(&"café".as_bytes()[..4]), "cut within a letter");
        assert!(!is_unsupported_encoding(b"\xff\xfeh\0i\0"), "with a mark");
        assert!(!is_unsupported_encoding(b"\x7fELF\0\0\0\x01\x02\x03\x04\0"), "a program");
    }
}
