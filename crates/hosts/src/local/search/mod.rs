//! Content search with ripgrep's searcher and matcher. The tools format the results.

mod absence;
mod kept;
mod pattern;
mod run;
mod sink;

use helve_contract::{
    Error, FileErrorKind, Result, SafePath,
    ports::{FileKind, GrepQuery, GrepResult},
};

use super::{
    beneath::Beneath,
    walk::{WalkDeadline, WalkRoot},
};
use run::GrepRun;

// Shared with the search in memory.
pub(crate) use absence::is_unsupported_encoding;
pub(crate) use kept::{SearchResults, max_bytes, max_matches};
pub(crate) use pattern::{FileFilters, filters, matcher};
pub(crate) use run::{BinaryMode, searcher};
pub(crate) use sink::{CollectOptions, HitCollector};

/// Searches a file, or the files beneath a directory.
pub(super) fn grep(beneath: &Beneath, path: &SafePath, grep: &GrepQuery, clock: &WalkDeadline) -> Result<GrepResult> {
    let start = WalkRoot::resolve(beneath, path)?;
    if matches!(start.kind, FileKind::Other | FileKind::Link) {
        return Err(Error::file(path, FileErrorKind::NotRegular));
    }
    let matcher = matcher(grep)?;
    let filters = filters(&start.path.root().dir, grep)?;

    let search = GrepRun { beneath, start: &start, grep, matcher: &matcher, filters: &filters, clock };
    let mut matches = search.run(grep.noise)?;
    matches.partial = clock.was_hit();
    if matches.total_files == 0 && !matches.partial {
        absence::diagnose(&search, &mut matches.absence);
    }
    Ok(matches)
}
