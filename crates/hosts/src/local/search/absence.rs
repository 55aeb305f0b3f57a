//! Why nothing was found: what was passed over is searched too, for a short while.

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
use helve_contract::ports::{Absence, Grep, Kind, Noise, Output};

use super::{
    pattern::matcher,
    run::{Binary, Eye, Search},
};
use crate::local::names::is_dotted;

/// How long it looks.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many files it looks into.
const FILES: u64 = 200_000;

/// Fills in where the pattern would have matched.
pub(super) fn look(search: &Search<'_>, absence: &mut Absence) {
    let clock = search.clock.shorter(PATIENCE);
    let grep = Grep { output: Output::Counts, only_matching: false, limit: None, offset: 0, ..search.grep.clone() };
    let any = Grep { ignore_case: true, ..grep.clone() };
    let Ok(any_case) = matcher(&any) else { return };
    let same_files_any = Search { grep: &any, matcher: &any_case, clock: &clock, ..*search };
    let mut visited = Visited::default();
    let same = same_files(&same_files_any, search.matcher, &visited);
    absence.other_case = if search.grep.ignore_case { 0 } else { same.other_case };
    absence.binary = same.binary;
    absence.foreign = same.foreign;

    let everything = Noise { ignored: true, hidden: true };
    if search.start.kind == Kind::Folder && search.grep.noise != everything {
        let more_files = Search { grep: &grep, clock: &clock, ..*search };
        visited.sort();
        passed_over(&more_files, everything, &visited, absence);
    }
}

/// The files that were searched. A number each is enough to tell them apart.
#[derive(Default)]
struct Visited {
    state: RandomState,
    numbers: Mutex<Vec<u64>>,
}

impl Visited {
    fn add(&self, path: &Path) {
        let number = self.state.hash_one(path.as_os_str());
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }

    /// Makes ready to be asked.
    fn sort(&mut self) {
        self.numbers.get_mut().unwrap_or_else(PoisonError::into_inner).sort_unstable();
    }

    fn has(&self, path: &Path) -> bool {
        let number = self.state.hash_one(path.as_os_str());
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).binary_search(&number).is_ok()
    }
}

/// What is in the files that were searched.
struct Same {
    /// Lines that match in another case.
    other_case: u64,
    /// Binary files that match.
    binary: u64,
    /// Files in which the pattern would have other bytes.
    foreign: u64,
}

fn same_files(search: &Search<'_>, exact: &RegexMatcher, visited: &Visited) -> Same {
    let counters: [AtomicU64; 4] = Default::default();
    let [other_case, binary, foreign, seen] = &counters;
    let exact = Search { matcher: exact, ..*search };
    let is_ascii = search.grep.pattern.is_ascii();
    let visitor = || {
        let (mut any, mut same) = (Eye::new(search, Binary::Search), Eye::new(&exact, Binary::Search));
        move |path: &Path| {
            if seen.fetch_add(1, Ordering::Relaxed) >= FILES || search.clock.is_over() {
                return;
            }
            visited.add(path);
            let Ok(found) = any.look(path) else { return };
            let is_binary = found.binary.is_some();
            if !is_binary {
                other_case.fetch_add(found.count, Ordering::Relaxed);
            } else if found.count > 0 && same.look(path).is_ok_and(|found| found.count > 0) {
                binary.fetch_add(1, Ordering::Relaxed);
                return;
            }
            // Most encodings spell ASCII alike, so that their files need a look only for a pattern with more than that.
            if (is_binary || !is_ascii) && any.head(path).is_some_and(|head| is_foreign(&head)) {
                foreign.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    if search.start.kind == Kind::Folder {
        search.each(search.grep.noise, visitor);
    } else {
        visitor()(&search.start.real);
    }
    let [other_case, binary, foreign, _] = counters.map(AtomicU64::into_inner);
    Same { other_case, binary, foreign }
}

/// Whether these bytes begin a text that is not UTF-8 and that the searcher does not decode.
pub(crate) fn is_foreign(head: &[u8]) -> bool {
    // With a mark, the searcher reads it as what it is.
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return false;
    }
    if head.contains(&0) {
        return is_wide(head);
    }
    // The end of what was read may be in the middle of a letter.
    std::str::from_utf8(head).is_err_and(|error| error.error_len().is_some())
}

/// UTF-16 without a mark: of most pairs, one and the same half is zero.
fn is_wide(head: &[u8]) -> bool {
    let pairs = head.len() / 2;
    let zeros = |half: usize| head.chunks_exact(2).filter(|pair| pair[half] == 0 && pair[1 - half] != 0).count();
    pairs > 1 && zeros(0).max(zeros(1)) * 4 > pairs * 3
}

/// All files but those that were searched before, which do not match: a match is in one that was passed over.
fn passed_over(search: &Search<'_>, everything: Noise, visited: &Visited, absence: &mut Absence) {
    let counters: [AtomicU64; 5] = Default::default();
    let [seen, ignored, ignored_files, hidden, hidden_files] = &counters;
    search.each(everything, || {
        let mut eye = Eye::new(search, Binary::Leave);
        move |path: &Path| {
            let beneath_start = path.strip_prefix(&search.start.real).unwrap_or(path);
            // What a repository keeps for itself is nobody's text.
            let is_git = beneath_start.components().any(|part| part.as_os_str() == ".git");
            if is_git || visited.has(path) || seen.fetch_add(1, Ordering::Relaxed) >= FILES {
                return;
            }
            let Ok(found) = eye.look(path) else { return };
            if found.count > 0 {
                let is_hidden = !search.grep.noise.hidden && is_dotted(beneath_start);
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
    use super::is_foreign;

    #[test]
    fn text_that_the_searcher_cannot_read_is_known() {
        let wide: Vec<u8> = "hello\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert!(is_foreign(&wide));
        assert!(is_foreign(b"caf\xe9\n"), "Latin-1");
        assert!(!is_foreign("café\n".as_bytes()));
        assert!(!is_foreign(&"café".as_bytes()[..4]), "cut within a letter");
        assert!(!is_foreign(b"\xff\xfeh\0i\0"), "with a mark");
        assert!(!is_foreign(b"\x7fELF\0\0\0\x01\x02\x03\x04\0"), "a program");
    }
}
