//! Why nothing was found: what was passed over is searched too, for a short while.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
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
    let same_files = Search { grep: &any, matcher: &any_case, clock: &clock, ..*search };
    let (other_case, binary) = other_case(&same_files, search.matcher);
    absence.other_case = if search.grep.ignore_case { 0 } else { other_case };
    absence.binary = binary;

    let everything = Noise { ignored: true, hidden: true };
    if search.start.kind == Kind::Folder && search.grep.noise != everything {
        let more_files = Search { grep: &grep, clock: &clock, ..*search };
        passed_over(&more_files, everything, absence);
    }
}

/// The same files: lines that match in another case, and binary files that match.
fn other_case(search: &Search<'_>, exact: &RegexMatcher) -> (u64, u64) {
    let (other_case, binary, seen) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let exact = Search { matcher: exact, ..*search };
    let visitor = || {
        let (mut any, mut same) = (Eye::new(search, Binary::Search), Eye::new(&exact, Binary::Search));
        let (other_case, binary, seen) = (&other_case, &binary, &seen);
        move |path: &Path| {
            if seen.fetch_add(1, Ordering::Relaxed) >= FILES {
                return;
            }
            let Ok(found) = any.look(path) else { return };
            if found.binary.is_none() {
                other_case.fetch_add(found.count, Ordering::Relaxed);
            } else if found.count > 0 && same.look(path).is_ok_and(|found| found.count > 0) {
                binary.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    if search.start.kind == Kind::Folder {
        search.each(search.grep.noise, visitor);
    } else {
        visitor()(&search.start.real);
    }
    (other_case.into_inner(), binary.into_inner())
}

/// All files: those that were searched before do not match, so that a match is in one that was passed over.
fn passed_over(search: &Search<'_>, everything: Noise, absence: &mut Absence) {
    let counters: [AtomicU64; 5] = Default::default();
    let [seen, ignored, ignored_files, hidden, hidden_files] = &counters;
    search.each(everything, || {
        let mut eye = Eye::new(search, Binary::Leave);
        move |path: &Path| {
            let beneath_start = path.strip_prefix(&search.start.real).unwrap_or(path);
            // What a repository keeps for itself is nobody's text.
            let is_git = beneath_start.components().any(|part| part.as_os_str() == ".git");
            if is_git || seen.fetch_add(1, Ordering::Relaxed) >= FILES {
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
