//! Finding files by name and by what is in them.

use std::path::Path;

use bashkit::FileSystem;
use grep_regex::RegexMatcher;
use helve_contract::{
    Error, FileFault, Result, SafePath,
    ports::{FileHits, Find, Found, FoundFile, Grep, Kind, Matches, Noise, Order, Output},
};

use super::{
    fault::fault,
    place::{self, Last, kind},
    walk::{Sieve, walk},
};
use crate::local::{
    names::is_dotted,
    search::{Ask, Binary, Collect, Filters, Kept, filters, is_foreign, matcher, most, room, searcher},
    walk::Wanted,
};

const EVERYTHING: Noise = Noise { ignored: true, hidden: true };

/// A path beneath the root of the walk's start; nothing for what must not be seen.
fn beneath<'p>(start: &SafePath, met: &'p Path) -> Option<&'p Path> {
    let relative = met.strip_prefix(&start.root().dir).ok()?;
    (relative == start.relative() || start.may_find(relative)).then_some(relative)
}

pub(super) async fn find(files: &dyn FileSystem, path: &SafePath, find: &Find) -> Result<Found> {
    let start = place::need(files, path, Last::Follow).await?;
    if kind(&start.meta) != Kind::Folder {
        return Err(Error::file(path, FileFault::NotFolder));
    }
    let wanted = Wanted::read(find)?;
    let look = async |noise| {
        let mut met = walk(files, &start.here, &Sieve { noise, globs: None, types: None }).await;
        met.retain(|it| {
            let inside = it.path.strip_prefix(&start.here).unwrap_or(&it.path);
            find.kind.is_none_or(|only| only == it.kind) && wanted.matches(inside) && beneath(path, &it.path).is_some()
        });
        met
    };
    let mut met = look(find.noise).await;
    let mut found = Found { total: met.len() as u64, ..Found::default() };
    if met.is_empty() && find.noise != EVERYTHING {
        found.passed_over = look(EVERYTHING).await.len() as u64;
    }
    if find.order == Order::Newest {
        met.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
    }
    for it in met.into_iter().take(find.limit) {
        if let Some(path) = beneath(path, &it.path) {
            found.files.push(FoundFile { path: path.to_owned(), kind: it.kind, size: it.size });
        }
    }
    Ok(found)
}

/// Everything that a search needs to know.
struct Search<'a> {
    files: &'a dyn FileSystem,
    path: &'a SafePath,
    start: &'a Path,
    kind: Kind,
    grep: &'a Grep,
    filters: &'a Filters,
}

pub(super) async fn grep(files: &dyn FileSystem, path: &SafePath, grep: &Grep) -> Result<Matches> {
    let start = place::need(files, path, Last::Follow).await?;
    let kind = kind(&start.meta);
    if matches!(kind, Kind::Other | Kind::Link) {
        return Err(Error::file(path, FileFault::NotRegular));
    }
    let exact = matcher(grep)?;
    let filters = filters(&path.root().dir, grep)?;
    let search = Search { files, path, start: &start.here, kind, grep, filters: &filters };
    let mut matches = search.run(&exact).await?;
    if matches.total_files == 0 {
        search.absence(&exact, &mut matches).await;
    }
    Ok(matches)
}

impl Search<'_> {
    /// The files to search: their paths beneath the root, and what is in them.
    async fn each(&self, noise: Noise, mut visit: impl FnMut(&Path, &[u8])) -> Result<()> {
        if self.kind == Kind::File {
            let bytes = self.files.read_file(self.start).await;
            let bytes = bytes.map_err(|error| Error::file(self.path, fault(&error)))?;
            visit(self.path.relative(), &bytes);
            return Ok(());
        }
        let sieve = Sieve { noise, globs: Some(&self.filters.globs), types: Some(&self.filters.types) };
        for met in walk(self.files, self.start, &sieve).await {
            if let Some(beneath) = beneath(self.path, &met.path).filter(|_| met.kind == Kind::File)
                && let Ok(bytes) = self.files.read_file(&met.path).await
            {
                visit(beneath, &bytes);
            }
        }
        Ok(())
    }

    async fn run(&self, exact: &RegexMatcher) -> Result<Matches> {
        let mut kept = Kept::new(self.grep);
        let mut searched = 0;
        let binary = if self.kind == Kind::File { Binary::Search } else { Binary::Leave };
        self.each(self.grep.noise, |path, bytes| {
            searched += 1;
            let found = look(self.grep, exact, binary, bytes);
            if found.count > 0 {
                let units = if self.grep.output == Output::Lines { found.kept.max(1) } else { 1 };
                let counted = if self.grep.output == Output::Files { 1 } else { found.count };
                let weight = found.bytes + path.as_os_str().len();
                let hits =
                    FileHits { path: path.to_owned(), count: found.count, hits: found.hits, binary: found.binary };
                kept.add(hits, weight, units, counted);
            }
        })
        .await?;
        let mut matches = kept.answer(self.grep);
        matches.absence.searched = searched;
        Ok(matches)
    }

    /// Where the pattern would have matched.
    async fn absence(&self, exact: &RegexMatcher, matches: &mut Matches) {
        let counting =
            Grep { output: Output::Counts, only_matching: false, limit: None, offset: 0, ..self.grep.clone() };
        let any = Grep { ignore_case: true, ..counting.clone() };
        let Ok(any_case) = matcher(&any) else { return };
        let absence = &mut matches.absence;
        let is_ascii = self.grep.pattern.is_ascii();
        let same = self.each(self.grep.noise, |_, bytes| {
            let found = look(&any, &any_case, Binary::Search, bytes);
            if found.binary.is_none() {
                absence.other_case += if self.grep.ignore_case { 0 } else { found.count };
            } else if found.count > 0 && look(&counting, exact, Binary::Search, bytes).count > 0 {
                absence.binary += 1;
                return;
            }
            if (found.binary.is_some() || !is_ascii) && is_foreign(bytes) {
                absence.foreign += 1;
            }
        });
        // A file that is gone by now has nothing to tell.
        _ = same.await;
        if self.kind != Kind::Folder || self.grep.noise == EVERYTHING {
            return;
        }
        let start = self.start.strip_prefix(&self.path.root().dir).unwrap_or(self.start);
        let more = self.each(EVERYTHING, |path, bytes| {
            let inside = path.strip_prefix(start).unwrap_or(path);
            if inside.components().any(|part| part.as_os_str() == ".git") {
                return;
            }
            let count = look(&counting, exact, Binary::Leave, bytes).count;
            if count > 0 {
                let is_hidden = !self.grep.noise.hidden && is_dotted(inside);
                let (lines, files) = if is_hidden { &mut absence.hidden } else { &mut absence.ignored };
                *lines += count;
                *files += 1;
            }
        });
        _ = more.await;
    }
}

fn look<'m>(grep: &Grep, matcher: &'m RegexMatcher, binary: Binary, bytes: &[u8]) -> Collect<'m> {
    let ask = Ask {
        output: grep.output,
        each: grep.only_matching,
        multiline: grep.multiline,
        most: most(grep),
        bytes: room(grep),
    };
    let mut found = Collect::new(ask, matcher);
    // A reader and not a slice, so that zero bytes are seen where a file on a disk has them seen.
    let reading = match binary {
        Binary::Leave => searcher(grep, binary).search_reader(matcher, bytes, &mut found),
        Binary::Search => searcher(grep, binary).search_slice(matcher, bytes, &mut found),
    };
    match reading {
        Ok(()) => found,
        Err(_) => Collect::new(ask, matcher),
    }
}
