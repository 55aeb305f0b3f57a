//! Finds files by name and by content.

use std::path::Path;

use bashkit::FileSystem;
use grep_regex::RegexMatcher;
use helve_contract::{
    Error, FileErrorKind, Result, SafePath,
    ports::{
        FileKind, FileMatches, FindQuery, FindResult, FoundFile, GrepOutputMode, GrepQuery, GrepResult, IgnoreOptions,
        SortOrder,
    },
};

use super::{
    fault::from_bashkit_error,
    place::{self, FinalSymlink, kind},
    walk::{WalkFilter, walk},
};
use crate::local::{
    names::has_hidden_component,
    search::{
        BinaryMode, CollectOptions, FileFilters, HitCollector, SearchResults, filters, is_unsupported_encoding,
        matcher, max_bytes, max_matches, searcher,
    },
    walk::NameFilter,
};

const EVERYTHING: IgnoreOptions = IgnoreOptions { ignored: true, hidden: true };

/// The path beneath the root of the walk's start; `None` if a rule hides it.
fn relative_to_start<'p>(start: &SafePath, met: &'p Path) -> Option<&'p Path> {
    let relative = met.strip_prefix(&start.root().dir).ok()?;
    (relative == start.relative() || start.may_find(relative)).then_some(relative)
}

pub(super) async fn find(files: &dyn FileSystem, path: &SafePath, find: &FindQuery) -> Result<FindResult> {
    let start = place::resolve_existing(files, path, FinalSymlink::Follow).await?;
    if kind(&start.meta) != FileKind::Folder {
        return Err(Error::file(path, FileErrorKind::NotFolder));
    }
    let wanted = NameFilter::read(find)?;
    let look = async |noise| {
        let mut met = walk(files, &start.here, &WalkFilter { noise, globs: None, types: None }).await;
        met.retain(|it| {
            let inside = it.path.strip_prefix(&start.here).unwrap_or(&it.path);
            find.kind.is_none_or(|only| only == it.kind)
                && wanted.matches(inside)
                && relative_to_start(path, &it.path).is_some()
        });
        met
    };
    let mut met = look(find.noise).await;
    let mut found = FindResult { total: met.len() as u64, ..FindResult::default() };
    if met.is_empty() && find.noise != EVERYTHING {
        found.passed_over = look(EVERYTHING).await.len() as u64;
    }
    if find.order == SortOrder::Newest {
        met.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
    }
    for it in met.into_iter().take(find.limit) {
        if let Some(path) = relative_to_start(path, &it.path) {
            found.files.push(FoundFile { path: path.to_owned(), kind: it.kind, size: it.size });
        }
    }
    Ok(found)
}

/// The inputs of a search.
struct MemoryGrep<'a> {
    files: &'a dyn FileSystem,
    path: &'a SafePath,
    start: &'a Path,
    kind: FileKind,
    grep: &'a GrepQuery,
    filters: &'a FileFilters,
}

pub(super) async fn grep(files: &dyn FileSystem, path: &SafePath, grep: &GrepQuery) -> Result<GrepResult> {
    let start = place::resolve_existing(files, path, FinalSymlink::Follow).await?;
    let kind = kind(&start.meta);
    if matches!(kind, FileKind::Other | FileKind::Link) {
        return Err(Error::file(path, FileErrorKind::NotRegular));
    }
    let exact = matcher(grep)?;
    let filters = filters(&path.root().dir, grep)?;
    let search = MemoryGrep { files, path, start: &start.here, kind, grep, filters: &filters };
    let mut matches = search.run(&exact).await?;
    if matches.total_files == 0 {
        search.absence(&exact, &mut matches).await;
    }
    Ok(matches)
}

impl MemoryGrep<'_> {
    /// Visits the files to search, with their paths beneath the root and content.
    async fn each(&self, noise: IgnoreOptions, mut visit: impl FnMut(&Path, &[u8])) -> Result<()> {
        if self.kind == FileKind::File {
            let bytes = self.files.read_file(self.start).await;
            let bytes = bytes.map_err(|error| Error::file(self.path, from_bashkit_error(&error)))?;
            visit(self.path.relative(), &bytes);
            return Ok(());
        }
        let sieve = WalkFilter { noise, globs: Some(&self.filters.globs), types: Some(&self.filters.types) };
        for met in walk(self.files, self.start, &sieve).await {
            if let Some(beneath) = relative_to_start(self.path, &met.path).filter(|_| met.kind == FileKind::File)
                && let Ok(bytes) = self.files.read_file(&met.path).await
            {
                visit(beneath, &bytes);
            }
        }
        Ok(())
    }

    async fn run(&self, exact: &RegexMatcher) -> Result<GrepResult> {
        let mut kept = SearchResults::new(self.grep);
        let mut searched = 0;
        let binary = if self.kind == FileKind::File { BinaryMode::Search } else { BinaryMode::Stop };
        self.each(self.grep.noise, |path, bytes| {
            searched += 1;
            let found = search_bytes(self.grep, exact, binary, bytes);
            if found.count > 0 {
                let units = if self.grep.output == GrepOutputMode::Lines { found.kept.max(1) } else { 1 };
                let counted = if self.grep.output == GrepOutputMode::Files { 1 } else { found.count };
                let weight = found.bytes + path.as_os_str().len();
                let hits =
                    FileMatches { path: path.to_owned(), count: found.count, hits: found.hits, binary: found.binary };
                kept.add(hits, weight, units, counted);
            }
        })
        .await?;
        let mut matches = kept.finish(self.grep);
        matches.absence.searched = searched;
        Ok(matches)
    }

    /// Records where the pattern would have matched.
    async fn absence(&self, exact: &RegexMatcher, matches: &mut GrepResult) {
        let counting = GrepQuery {
            output: GrepOutputMode::Counts,
            only_matching: false,
            limit: None,
            offset: 0,
            ..self.grep.clone()
        };
        let any = GrepQuery { ignore_case: true, ..counting.clone() };
        let Ok(any_case) = matcher(&any) else { return };
        let absence = &mut matches.absence;
        let is_ascii = self.grep.pattern.is_ascii();
        let same = self.each(self.grep.noise, |_, bytes| {
            let found = search_bytes(&any, &any_case, BinaryMode::Search, bytes);
            if found.binary.is_none() {
                absence.other_case += if self.grep.ignore_case { 0 } else { found.count };
            } else if found.count > 0 && search_bytes(&counting, exact, BinaryMode::Search, bytes).count > 0 {
                absence.binary += 1;
                return;
            }
            if (found.binary.is_some() || !is_ascii) && is_unsupported_encoding(bytes) {
                absence.foreign += 1;
            }
        });
        // A file that no longer exists is skipped.
        _ = same.await;
        if self.kind != FileKind::Folder || self.grep.noise == EVERYTHING {
            return;
        }
        let start = self.start.strip_prefix(&self.path.root().dir).unwrap_or(self.start);
        let more = self.each(EVERYTHING, |path, bytes| {
            let inside = path.strip_prefix(start).unwrap_or(path);
            if inside.components().any(|part| part.as_os_str() == ".git") {
                return;
            }
            let count = search_bytes(&counting, exact, BinaryMode::Stop, bytes).count;
            if count > 0 {
                let is_hidden = !self.grep.noise.hidden && has_hidden_component(inside);
                let (lines, files) = if is_hidden { &mut absence.hidden } else { &mut absence.ignored };
                *lines += count;
                *files += 1;
            }
        });
        _ = more.await;
    }
}

fn search_bytes<'m>(grep: &GrepQuery, matcher: &'m RegexMatcher, binary: BinaryMode, bytes: &[u8]) -> HitCollector<'m> {
    let ask = CollectOptions {
        output: grep.output,
        only_matching: grep.only_matching,
        multiline: grep.multiline,
        most: max_matches(grep),
        bytes: max_bytes(grep),
    };
    let mut found = HitCollector::new(ask, matcher);
    // A reader instead of a slice, so that zero bytes are detected as in a file on disk.
    let reading = match binary {
        BinaryMode::Stop => searcher(grep, binary).search_reader(matcher, bytes, &mut found),
        BinaryMode::Search => searcher(grep, binary).search_slice(matcher, bytes, &mut found),
    };
    match reading {
        Ok(()) => found,
        Err(_) => HitCollector::new(ask, matcher),
    }
}
