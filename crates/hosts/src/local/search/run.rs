//! One search over a file or a tree, on all cores.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use helve_contract::{
    Result,
    ports::{FileKind, FileMatches, GrepOutputMode, GrepQuery, GrepResult, IgnoreOptions, SkipReason},
};
use ignore::{DirEntry, WalkState};

use super::{
    kept::{SearchResults, max_bytes, max_matches},
    pattern::FileFilters,
    sink::{CollectOptions, HitCollector},
};
use crate::local::{
    beneath::Beneath,
    fault::FsError,
    files::READ_FLAGS,
    walk::{WalkDeadline, WalkRoot, builder},
};

/// The memory limit of one line, or of one file in multi-line searches.
const MAX_LINE_BYTES: usize = 64 << 20;

/// The maximum size of a binary file that a directory search checks for a match.
const MAX_BINARY: u64 = 8 << 20;

/// The maximum number of skipped files that are named.
const MAX_SKIPPED: usize = 10;

/// How many bytes are read to detect the encoding.
const ENCODING_PROBE_BYTES: u64 = 256 << 10;

/// The inputs of a search.
#[derive(Clone, Copy)]
pub(super) struct GrepRun<'a> {
    pub(super) beneath: &'a Beneath,
    pub(super) start: &'a WalkRoot<'a>,
    pub(super) grep: &'a GrepQuery,
    pub(super) matcher: &'a RegexMatcher,
    pub(super) filters: &'a FileFilters,
    pub(super) clock: &'a WalkDeadline,
}

/// How to treat a file with zero bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryMode {
    /// Stop at the first zero byte.
    Stop,
    /// Search the whole file, but report only that it matches.
    Search,
}

impl GrepRun<'_> {
    /// Runs the search and counts files that could not be searched.
    pub(super) fn run(&self, noise: IgnoreOptions) -> Result<GrepResult> {
        let kept = Mutex::new(SearchResults::new(self.grep));
        let searched = AtomicU64::new(0);
        let skipped = Mutex::new(Vec::new());
        let skip = |path: &Path, why: SkipReason| {
            skipped.lock().unwrap_or_else(PoisonError::into_inner).push((path.to_owned(), why));
        };
        let add = |path: &Path, found: HitCollector<'_>| {
            let units = if self.grep.output == GrepOutputMode::Lines { found.kept.max(1) } else { 1 };
            let counted = if self.grep.output == GrepOutputMode::Files { 1 } else { found.count };
            let bytes = found.bytes + path.as_os_str().len();
            let hits =
                FileMatches { path: path.to_owned(), count: found.count, hits: found.hits, binary: found.binary };
            kept.lock().unwrap_or_else(PoisonError::into_inner).add(hits, bytes, units, counted);
        };
        if self.start.kind == FileKind::Folder {
            let folders = self.for_each_file(noise, || {
                let (mut eye, mut whole) = (FileSearcher::new(self, BinaryMode::Stop), None);
                let (add, searched, skip) = (&add, &searched, &skip);
                move |path: &Path| match eye.search(path) {
                    Ok(found) => {
                        searched.fetch_add(1, Ordering::Relaxed);
                        let was_left = found.binary.is_some() && found.hits.is_empty();
                        if found.count > 0 {
                            add(path, found);
                        } else if was_left {
                            let whole = whole.get_or_insert_with(|| FileSearcher::new(self, BinaryMode::Search));
                            whole.look_at_binary(path).into_iter().for_each(|why| skip(path, why));
                        }
                    }
                    Err(SearchFailure::TooLarge) => skip(path, self.too_large()),
                    Err(SearchFailure::Unreadable(error)) if is_gone(&error) => {}
                    Err(SearchFailure::Unreadable(error)) => skip(path, SkipReason::Unreadable(reason(&error))),
                }
            });
            let denied = || SkipReason::Unreadable("permission denied".to_owned());
            for folder in &folders {
                skip(folder, denied());
            }
        } else {
            self.search_named_file(&add, &skip)?;
            searched.store(1, Ordering::Relaxed);
        }
        let mut matches = kept.into_inner().unwrap_or_else(PoisonError::into_inner).finish(self.grep);
        matches.absence.searched = searched.into_inner();
        let mut skipped = skipped.into_inner().unwrap_or_else(PoisonError::into_inner);
        skipped.sort();
        matches.skipped.total = skipped.len() as u64;
        skipped.truncate(MAX_SKIPPED);
        matches.skipped.first = skipped;
        Ok(matches)
    }

    /// The skip reason for a file that needs too much memory.
    fn too_large(&self) -> SkipReason {
        if self.grep.multiline {
            SkipReason::TooLarge(MAX_LINE_BYTES as u64)
        } else {
            SkipReason::LongLine(MAX_LINE_BYTES as u64)
        }
    }

    /// Searches a named file even if it is binary.
    fn search_named_file<'m>(
        &'m self,
        add: &dyn Fn(&Path, HitCollector<'m>),
        skip: &dyn Fn(&Path, SkipReason),
    ) -> Result<()> {
        let mut eye = FileSearcher::new(self, BinaryMode::Search);
        match eye.search(&self.start.real) {
            Ok(found) if found.count > 0 => add(&self.start.real, found),
            Ok(_) => {}
            Err(SearchFailure::TooLarge) => skip(&self.start.real, self.too_large()),
            Err(SearchFailure::Unreadable(error)) => {
                let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
                return Err(FsError::from(errno).with_path(self.start.path));
            }
        }
        Ok(())
    }

    /// Visits every file of the tree on all cores. Returns the directories that could not be read.
    pub(super) fn for_each_file<V: FnMut(&Path) + Send>(
        &self,
        noise: IgnoreOptions,
        visitor: impl Fn() -> V,
    ) -> Vec<PathBuf> {
        let closed = Mutex::new(Vec::new());
        let mut builder = builder(self.start, noise);
        builder.overrides(self.filters.globs.clone()).types(self.filters.types.clone());
        builder.build_parallel().run(|| {
            let mut visit = visitor();
            let closed = &closed;
            Box::new(move |entry: Result<DirEntry, ignore::Error>| {
                if self.clock.is_expired() {
                    return WalkState::Quit;
                }
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(error) => {
                        if error.io_error().is_some_and(is_closed) {
                            let path = path_of(&error).and_then(|path| self.start.relative(path));
                            let path = path.unwrap_or(&self.start.real).to_owned();
                            closed.lock().unwrap_or_else(PoisonError::into_inner).push(path);
                        }
                        return WalkState::Continue;
                    }
                };
                let Some(kind) = entry.file_type() else { return WalkState::Continue };
                if !kind.is_file() && !kind.is_dir() {
                    return WalkState::Continue;
                }
                let Some(path) = self.start.relative(entry.path()) else { return WalkState::Skip };
                if kind.is_file() {
                    visit(path);
                }
                WalkState::Continue
            })
        });
        closed.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The path of a walk error.
fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => path_of(err),
        _ => None,
    }
}

/// Whether the file no longer exists or is no longer regular; it does not count as skipped.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error().is_some_and(|code| matches!(code, libc::ELOOP | libc::EXDEV | libc::ENXIO))
}

fn reason(error: &io::Error) -> String {
    if is_closed(error) { "permission denied".to_owned() } else { error.kind().to_string() }
}

fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

pub(super) enum SearchFailure {
    /// A line, or the file in a multi-line search, needs too much memory.
    TooLarge,
    /// The file is gone, unreadable, or no longer a regular file.
    Unreadable(io::Error),
}

/// One thread's searcher, with its buffers.
pub(super) struct FileSearcher<'a> {
    search: &'a GrepRun<'a>,
    binary: BinaryMode,
    searcher: Searcher,
    /// Whether a long line has grown the searcher's buffer.
    buffer_grown: bool,
    ask: CollectOptions,
    slurp: SlurpMode,
}

/// The initial size of a searcher's buffer.
const SEARCH_BUFFER_BYTES: usize = 64 << 10;

/// Whether a file is read completely before the search.
#[derive(Clone, Copy)]
enum SlurpMode {
    Never,
    /// Files below this size. ripgrep maps a named file into memory and therefore sees all zero bytes.
    UpTo(u64),
}

impl<'a> FileSearcher<'a> {
    pub(super) fn new(search: &'a GrepRun<'a>, binary: BinaryMode) -> Self {
        let grep = search.grep;
        let searcher = searcher(grep, binary);
        let ask = CollectOptions {
            output: grep.output,
            only_matching: grep.only_matching,
            multiline: grep.multiline,
            most: max_matches(grep),
            bytes: max_bytes(grep),
        };
        let whole = match binary {
            BinaryMode::Search if search.start.kind == FileKind::File => SlurpMode::UpTo(MAX_LINE_BYTES as u64),
            _ => SlurpMode::Never,
        };
        Self { search, binary, searcher, buffer_grown: false, ask, slurp: whole }
    }

    /// Reads the start of a file to detect its encoding.
    pub(super) fn head(&self, path: &Path) -> Option<Vec<u8>> {
        let GrepRun { beneath, start, .. } = *self.search;
        let file = File::from(beneath.open_no_links(&start.top, path, READ_FLAGS).ok()?);
        let mut bytes = Vec::new();
        file.take(ENCODING_PROBE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Searches a skipped binary file for a match, unless it is very large.
    fn look_at_binary(&mut self, path: &Path) -> Option<SkipReason> {
        let GrepRun { beneath, start, .. } = *self.search;
        let file = File::from(beneath.open_no_links(&start.top, path, READ_FLAGS).ok()?);
        if file.metadata().ok()?.len() > MAX_BINARY {
            return Some(SkipReason::LargeBinary(MAX_BINARY));
        }
        let found = self.search(path).ok()?;
        (found.count > 0).then_some(SkipReason::BinaryMatch)
    }

    /// Searches a file, which must have no link in its path.
    pub(super) fn search(&mut self, path: &Path) -> Result<HitCollector<'a>, SearchFailure> {
        let GrepRun { beneath, start, matcher, clock, .. } = *self.search;
        let fd = beneath
            .open_no_links(&start.top, path, READ_FLAGS)
            .map_err(|errno| SearchFailure::Unreadable(errno.into()))?;
        // A grown buffer would detect zero bytes earlier, so the result would depend on the previous file.
        if std::mem::take(&mut self.buffer_grown) {
            self.searcher = searcher(self.search.grep, self.binary);
        }
        let mut found = HitCollector::new(self.ask, matcher);
        let mut file = DeadlineReader { file: File::from(fd), clock, grown: &mut self.buffer_grown };
        let result = match self.slurp {
            SlurpMode::Never => self.searcher.search_reader(matcher, file, &mut found),
            SlurpMode::UpTo(limit) => {
                let mut bytes = Vec::new();
                match (&mut file).take(limit).read_to_end(&mut bytes) {
                    Ok(len) if (len as u64) < limit => self.searcher.search_slice(matcher, &bytes, &mut found),
                    Ok(_) => self.searcher.search_reader(matcher, bytes.as_slice().chain(file), &mut found),
                    Err(error) => Err(error),
                }
            }
        };
        match result {
            Ok(()) => Ok(found),
            Err(error) if error.to_string().contains("allocation limit") => Err(SearchFailure::TooLarge),
            Err(error) => Err(SearchFailure::Unreadable(error)),
        }
    }
}

/// A searcher with its buffers.
pub(crate) fn searcher(grep: &GrepQuery, binary: BinaryMode) -> Searcher {
    let is_lines = grep.output == GrepOutputMode::Lines;
    SearcherBuilder::new()
        .line_number(is_lines)
        .multi_line(grep.multiline)
        .before_context(if is_lines { grep.context.0 } else { 0 })
        .after_context(if is_lines { grep.context.1 } else { 0 })
        .binary_detection(match binary {
            BinaryMode::Stop => BinaryDetection::quit(0),
            BinaryMode::Search => BinaryDetection::convert(0),
        })
        .heap_limit(Some(MAX_LINE_BYTES))
        .build()
}

/// A reader that ends at the deadline and records the largest requested read.
struct DeadlineReader<'a> {
    file: File,
    clock: &'a WalkDeadline,
    grown: &'a mut bool,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.clock.is_expired() {
            return Ok(0);
        }
        *self.grown |= buffer.len() > SEARCH_BUFFER_BYTES;
        self.file.read(buffer)
    }
}
