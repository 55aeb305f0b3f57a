//! Finding files by name.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use globset::{GlobBuilder, GlobSet};
use helve_contract::{
    Error, FileErrorKind, Result, SafePath,
    ports::{FileKind, FindQuery, FindResult, FoundFile, IgnoreOptions, SortOrder},
};
use ignore::{DirEntry, WalkState};
use rustix::fs::{AtFlags, OFlags, fstat, statat};

use super::{WalkDeadline, WalkRoot, builder, start::strip_dir};
use crate::local::{
    beneath::Beneath,
    files::{kind, modified},
};

/// How long skipped files are searched after an empty result.
const SKIPPED_SEARCH_TIMEOUT: Duration = Duration::from_secs(2);

/// Finds files by name beneath a directory. Does not follow links.
pub(in crate::local) fn find(
    beneath: &Beneath,
    path: &SafePath,
    find: &FindQuery,
    clock: &WalkDeadline,
) -> Result<FindResult> {
    let start = WalkRoot::resolve(beneath, path)?;
    if start.kind != FileKind::Folder {
        return Err(Error::file(path, FileErrorKind::NotFolder));
    }
    let wanted = Arc::new(NameFilter::read(find)?);

    let all = walk(&start, find, &wanted, find.noise, clock);
    let mut found = FindResult { total: all.total, partial: clock.was_hit(), ..FindResult::default() };
    let everything = IgnoreOptions { ignored: true, hidden: true };
    if all.total == 0 && !found.partial && find.noise != everything {
        found.passed_over = walk(&start, find, &wanted, everything, &clock.shorter(SKIPPED_SEARCH_TIMEOUT)).total;
    }
    // Each hit is opened again beneath the root, so that a swapped directory shows nothing from outside.
    for hit in all.hits {
        if let Ok(fd) = beneath.open_no_links(&start.top, &hit.path, OFlags::PATH | OFlags::NOFOLLOW)
            && let Ok(stat) = fstat(&fd)
        {
            found.files.push(FoundFile { path: hit.path, kind: kind(&stat), size: stat.st_size as u64 });
        }
    }
    Ok(found)
}

pub(crate) enum NameFilter {
    All,
    Contains(Vec<u8>),
    Name(GlobSet),
    /// The path beneath the start matches; it has this literal prefix.
    Path(GlobSet, PathBuf),
}

impl NameFilter {
    pub(crate) fn read(find: &FindQuery) -> Result<Self> {
        let Some(pattern) = &find.pattern else { return Ok(Self::All) };
        let pattern = pattern.trim_start_matches("./");
        let is_wild = |text: &str| text.contains(['*', '?', '[', '{']);
        if !find.whole_path && !pattern.contains('/') && !is_wild(pattern) {
            return Ok(Self::Contains(pattern.as_bytes().to_vec()));
        }
        // `**/NAME` matches the name alone, which is cheaper.
        let name = pattern.strip_prefix("**/").filter(|it| !it.is_empty() && !it.contains('/'));
        let glob = GlobBuilder::new(name.unwrap_or(pattern))
            .literal_separator(true)
            .backslash_escape(true)
            .empty_alternates(true)
            .build()
            // A set of one glob: unlike a single matcher, it has fast paths for patterns such as `**/*.rs`.
            .and_then(|glob| GlobSet::builder().add(glob).build())
            .map_err(|error| Error::failed(format!("the pattern `{pattern}` is not a glob: {}", error.kind())))?;
        if name.is_some() || !find.whole_path && !pattern.contains('/') {
            return Ok(Self::Name(glob));
        }
        let mut folders: Vec<&str> =
            pattern.split('/').take_while(|part| !is_wild(part) && !part.contains('\\')).collect();
        if folders.len() == pattern.split('/').count() {
            folders.pop();
        }
        Ok(Self::Path(glob, folders.into_iter().collect()))
    }

    pub(crate) fn matches(&self, beneath_start: &Path) -> bool {
        let name = || beneath_start.file_name().unwrap_or_default();
        match self {
            Self::All => true,
            Self::Contains(part) => memchr::memmem::find(name().as_encoded_bytes(), part).is_some(),
            Self::Name(glob) => glob.is_match(name()),
            Self::Path(glob, _) => glob.is_match(beneath_start),
        }
    }

    /// Whether a directory can contain matches.
    fn can_be_in(&self, folder: &Path) -> bool {
        match self {
            Self::Path(_, first) => folder.starts_with(first) || first.starts_with(folder),
            _ => true,
        }
    }
}

struct FindMatch {
    /// The modification time, if the order needs it.
    modified: Option<SystemTime>,
    path: PathBuf,
}

/// The first `limit` matches in order, and the total.
#[derive(Default)]
struct FindMatches {
    hits: Vec<FindMatch>,
    total: u64,
}

impl FindMatches {
    /// Keeps the first matches. Called repeatedly during the walk to bound memory.
    fn trim(&mut self, limit: usize) {
        // In path order all times are unset and equal.
        self.hits.sort_unstable_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
        self.hits.truncate(limit);
    }
}

fn walk(
    start: &WalkRoot<'_>,
    find: &FindQuery,
    wanted: &Arc<NameFilter>,
    noise: IgnoreOptions,
    clock: &WalkDeadline,
) -> FindMatches {
    let all = Mutex::new(FindMatches::default());
    let mut builder = builder(start, noise);
    // Most names do not match. The filter drops them before the walker processes them.
    let (top, sought) = (start.on_host(), wanted.clone());
    builder.filter_entry(move |entry| {
        entry.file_type().is_some_and(|it| it.is_dir())
            || strip_dir(&top, entry.path()).is_none_or(|path| sought.matches(path))
    });
    builder.build_parallel().run(|| {
        let mut finder = FindVisitor { start, find, wanted, clock, visited: 0, own: FindMatches::default(), all: &all };
        Box::new(move |entry| finder.visit(entry.ok()))
    });
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.trim(find.limit);
    all
}

/// One thread's part of a walk; merged when dropped.
struct FindVisitor<'a> {
    start: &'a WalkRoot<'a>,
    find: &'a FindQuery,
    wanted: &'a NameFilter,
    clock: &'a WalkDeadline,
    /// The number of directories and matching names seen.
    visited: u32,
    own: FindMatches,
    all: &'a Mutex<FindMatches>,
}

impl FindVisitor<'_> {
    fn visit(&mut self, entry: Option<DirEntry>) -> WalkState {
        // Checking the clock costs as much as matching a name.
        if self.visited.is_multiple_of(16) && self.clock.is_expired() {
            return WalkState::Quit;
        }
        self.visited = self.visited.wrapping_add(1);
        let Some(entry) = entry.filter(|entry| entry.depth() > 0) else { return WalkState::Continue };
        let Some(path) = self.start.relative(entry.path()) else { return WalkState::Skip };
        let beneath_start = strip_dir(&self.start.real, path).unwrap_or(path);
        let kind = match entry.file_type() {
            Some(it) if it.is_dir() => FileKind::Folder,
            Some(it) if it.is_file() => FileKind::File,
            Some(it) if it.is_symlink() => FileKind::Link,
            _ => FileKind::Other,
        };
        if kind == FileKind::Folder && !self.wanted.can_be_in(beneath_start) {
            return WalkState::Skip;
        }
        if self.find.kind.is_none_or(|only| only == kind) && self.wanted.matches(beneath_start) {
            self.record(path);
        }
        WalkState::Continue
    }

    fn record(&mut self, path: &Path) {
        let modified = match self.find.order {
            SortOrder::Path => None,
            SortOrder::Newest => {
                statat(&self.start.top, path, AtFlags::SYMLINK_NOFOLLOW).ok().and_then(|stat| modified(&stat))
            }
        };
        self.own.total += 1;
        self.own.hits.push(FindMatch { modified, path: path.to_owned() });
        if self.own.hits.len() > self.find.limit.saturating_mul(2).saturating_add(4096) {
            self.own.trim(self.find.limit);
        }
    }
}

impl Drop for FindVisitor<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.total += self.own.total;
        all.hits.append(&mut self.own.hits);
    }
}
