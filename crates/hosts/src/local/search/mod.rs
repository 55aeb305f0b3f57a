//! Searching contents as ripgrep does, with its own searcher and matcher; what is shown is decided elsewhere.

mod absence;
mod kept;
mod pattern;
mod run;
mod sink;

use helve_contract::{
    Error, FileFault, Result, SafePath,
    ports::{Grep, Kind, Matches},
};

use super::{
    beneath::Beneath,
    walk::{Clock, Start},
};
use run::Search;

// What a search in memory shares.
pub(crate) use absence::is_foreign;
pub(crate) use kept::{Kept, most, room};
pub(crate) use pattern::{Filters, filters, matcher};
pub(crate) use run::{Binary, searcher};
pub(crate) use sink::{Ask, Collect};

/// Searches a file, or the files beneath a folder.
pub(super) fn grep(beneath: &Beneath, path: &SafePath, grep: &Grep, clock: &Clock) -> Result<Matches> {
    let start = Start::find(beneath, path)?;
    if matches!(start.kind, Kind::Other | Kind::Link) {
        return Err(Error::file(path, FileFault::NotRegular));
    }
    let matcher = matcher(grep)?;
    let filters = filters(&start.path.root().dir, grep)?;

    let search = Search { beneath, start: &start, grep, matcher: &matcher, filters: &filters, clock };
    let mut matches = search.run(grep.noise)?;
    matches.partial = clock.cut_short();
    if matches.total_files == 0 && !matches.partial {
        absence::look(&search, &mut matches.absence);
    }
    Ok(matches)
}
