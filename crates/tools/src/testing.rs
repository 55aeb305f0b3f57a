//! An in-memory workspace for tests: set it up, make a call, inspect the files.
#![allow(dead_code, reason = "each tool's tests use what they need")]

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use helve_contract::{
    Access, Call, Entry, Error, FileErrorKind, Media, PathGlob, PathRules, PathStyle, Ports, Reply, Result, Root,
    SafePath, Session, Tool, Workspace, async_trait,
    ports::{
        ContentDigest, DirEntry, Documents, Expect, FileChange, FileChunk, FileKind, FileMatches, FileStamp, FindQuery,
        FindResult, FoundFile, GrepOutputMode, GrepQuery, GrepResult, Host, Image, MatchLine, MatchLineKind, PdfPages,
        Process, ProcessSpec, SortOrder, Span, Stat, WriteOutcome,
    },
};

/// Files by their path in the workspace.
pub(crate) type FileMap = BTreeMap<String, Vec<u8>>;

/// Calls a tool with JSON arguments in a workspace with these files (`name/` is an empty directory); returns the
/// reply and the files afterwards.
pub(crate) async fn call<T: Tool>(files: &[(&str, &str)], args: &str) -> (Reply, FileMap) {
    let memory = FakeHost::with(files);
    let reply = call_on::<T>(&memory, args).await;
    (reply, memory.files())
}

/// Calls a tool with JSON arguments in the test's workspace.
pub(crate) async fn call_on<T: Tool>(memory: &FakeHost, args: &str) -> Reply {
    let args = serde_json::from_str(args).unwrap();
    Entry::from_tool::<T>().run(args, memory.call()).await.unwrap_or_else(Into::into)
}

/// Runs a tool that the test built, in a workspace that the test made.
pub(crate) async fn run<T: Tool>(memory: &FakeHost, tool: T) -> Result<T::Output> {
    tool.run(&memory.call()).await
}

/// Asserts the text of a reply.
#[track_caller]
pub(crate) fn assert_text(reply: &Reply, want: &str) {
    assert_eq!(reply.full_text(), want);
}

/// What is in a file.
#[derive(Clone, Debug)]
pub(crate) enum FakeFile {
    /// These bytes.
    Bytes(Vec<u8>),
    /// One piece again and again, up to a size: files far too large for memory.
    Repeated(Vec<u8>, u64),
    /// A symbolic link to another path of the workspace.
    Link(String),
    /// A FIFO or the like.
    Fifo,
    /// A directory with nothing in it.
    Folder,
}

/// A path, and what somebody else will write there.
type ConcurrentWrite = (PathBuf, Vec<u8>);

/// A host whose files are in memory, beneath `/w`. Cheap to clone; clones share the files.
#[derive(Clone, Default)]
pub(crate) struct FakeHost {
    nodes: Arc<Mutex<BTreeMap<PathBuf, FakeFile>>>,
    concurrent_writes: Arc<Mutex<Vec<ConcurrentWrite>>>,
}

impl FakeHost {
    /// These files; a name that ends in `/` is an empty directory.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let memory = Self::default();
        for (name, text) in files {
            match name.strip_suffix('/') {
                Some(folder) => memory.put(folder, FakeFile::Folder),
                None => memory.put(name, FakeFile::Bytes(text.as_bytes().to_vec())),
            }
        }
        memory
    }

    /// One file of bytes.
    pub(crate) fn of(name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        let memory = Self::default();
        memory.put(name, FakeFile::Bytes(bytes.into()));
        memory
    }

    /// Puts something at a path.
    pub(crate) fn put(&self, name: &str, data: FakeFile) {
        self.nodes().insert(name.into(), data);
    }

    /// Writes these bytes right after the next read of the file, as another process would. Several are queued.
    pub(crate) fn inject_write(&self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.concurrent_writes.lock().unwrap_or_else(PoisonError::into_inner).push((name.into(), bytes.into()));
    }

    /// The bytes of all files.
    pub(crate) fn files(&self) -> FileMap {
        self.nodes()
            .iter()
            .filter_map(|(path, data)| match data {
                FakeFile::Bytes(bytes) => Some((path.to_string_lossy().into_owned(), bytes.clone())),
                _ => None,
            })
            .collect()
    }

    /// The bytes of one file.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        self.files().remove(name).unwrap_or_default()
    }

    /// A call in a session on this host, whose paths are relative to the workspace.
    pub(crate) fn call(&self) -> Call {
        self.call_with_style(PathStyle::Relative)
    }

    /// The same, with paths written another way.
    pub(crate) fn call_with_style(&self, reading: PathStyle) -> Call {
        let workspace = Workspace::new([Root::writable("/w").with_name("shared")], PathRules::default(), reading);
        let ports = Ports { documents: Arc::new(FakeDocuments), ..Ports::new(Arc::new(self.clone())) };
        Call::new("call-1", Arc::new(Session::new("session-1", workspace, ports)))
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<PathBuf, FakeFile>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path that a path leads to, and what is there.
    fn follow(&self, path: &SafePath) -> Result<(PathBuf, FakeFile)> {
        let mut at = path.relative().to_owned();
        for _ in 0..40 {
            match self.node(&at) {
                Some(FakeFile::Link(target)) => at = target.into(),
                Some(data) => return Ok((at, data)),
                None => return Err(missing(path)),
            }
        }
        Err(Error::file(path, FileErrorKind::LinkLoop))
    }

    fn node(&self, at: &Path) -> Option<FakeFile> {
        let nodes = self.nodes();
        let folder = || nodes.keys().any(|key| key.starts_with(at)).then_some(FakeFile::Folder);
        if at.as_os_str().is_empty() { Some(FakeFile::Folder) } else { nodes.get(at).cloned().or_else(folder) }
    }

    fn file(&self, path: &SafePath) -> Result<(PathBuf, FakeFile)> {
        match self.follow(path)? {
            (_, FakeFile::Folder) => Err(Error::file(path, FileErrorKind::IsFolder)),
            (_, FakeFile::Fifo) => Err(Error::file(path, FileErrorKind::NotRegular)),
            found => Ok(found),
        }
    }

    fn check(&self, path: &SafePath, expect: Expect) -> Result<(PathBuf, bool)> {
        let found = match self.file(path) {
            Ok(found) => Some(found),
            Err(Error::File { fault: FileErrorKind::Missing { .. }, .. }) => None,
            Err(other) => return Err(other),
        };
        match (expect, &found) {
            (Expect::Absent, Some(_)) => return Err(Error::file(path, FileErrorKind::Exists)),
            (Expect::Content(hash), Some((_, FakeFile::Bytes(bytes)))) if ContentDigest::of(bytes) == hash => {}
            (Expect::Content(_), _) => return Err(Error::file(path, FileErrorKind::Changed)),
            (Expect::Anything | Expect::Absent, _) => {}
        }
        let created = found.is_none();
        Ok((found.map_or_else(|| path.relative().to_owned(), |(at, _)| at), created))
    }

    /// Every path, directories included, with what it is.
    fn walk(&self, beneath: &Path) -> Vec<(PathBuf, FakeFile)> {
        let mut all = BTreeMap::new();
        for (path, data) in self.nodes().iter() {
            for folder in path.ancestors().skip(1).filter(|it| !it.as_os_str().is_empty()) {
                all.insert(folder.to_owned(), FakeFile::Folder);
            }
            all.insert(path.clone(), data.clone());
        }
        all.into_iter().filter(|(path, _)| path.starts_with(beneath) && path != beneath).collect()
    }
}

fn missing(path: &SafePath) -> Error {
    Error::file(path, FileErrorKind::Missing { near: Vec::new() })
}

fn kind(data: &FakeFile) -> FileKind {
    match data {
        FakeFile::Bytes(_) | FakeFile::Repeated(..) => FileKind::File,
        FakeFile::Link(_) => FileKind::Link,
        FakeFile::Fifo => FileKind::Other,
        FakeFile::Folder => FileKind::Folder,
    }
}

fn size(data: &FakeFile) -> u64 {
    match data {
        FakeFile::Bytes(bytes) => bytes.len() as u64,
        FakeFile::Repeated(_, size) => *size,
        FakeFile::Link(target) => target.len() as u64,
        FakeFile::Fifo | FakeFile::Folder => 0,
    }
}

fn time() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

fn hidden(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().to_string_lossy().starts_with('.'))
}

fn matches_pattern(pattern: Option<&str>, path: &Path, whole_path: bool) -> bool {
    let Some(pattern) = pattern else { return true };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !pattern.contains(['*', '?', '[', '{']) && !whole_path {
        return name.contains(pattern);
    }
    let anchored = if whole_path { format!("/{pattern}") } else { pattern.to_owned() };
    // The contract's globs also cover what is beneath a match; here the match itself is wanted.
    let glob = PathGlob::new(&anchored);
    glob.matches(path) && !path.parent().is_some_and(|it| !it.as_os_str().is_empty() && glob.matches(it))
}

#[async_trait]
impl Host for FakeHost {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn stat(&self, path: &SafePath) -> Result<Stat> {
        let (_, data) = self.follow(path)?;
        Ok(Stat { kind: kind(&data), size: size(&data), modified: Some(time()) })
    }

    async fn read(&self, path: &SafePath, span: Span) -> Result<FileChunk> {
        let (at, data) = self.file(path)?;
        let size = size(&data);
        let end = span.start.saturating_add(span.len).min(size);
        let start = span.start.min(end);
        let bytes = match &data {
            FakeFile::Bytes(bytes) => bytes[start as usize..end as usize].to_vec(),
            FakeFile::Repeated(piece, _) => {
                let from = (start % piece.len() as u64) as usize;
                let length = (end - start) as usize;
                piece.repeat((from + length) / piece.len() + 1)[from..from + length].to_vec()
            }
            _ => return Err(Error::file(path, FileErrorKind::NotRegular)),
        };
        let mut meddlers = self.concurrent_writes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = meddlers.iter().position(|(other, _)| *other == at) {
            let (at, bytes) = meddlers.remove(turn);
            self.nodes().insert(at, FakeFile::Bytes(bytes));
        }
        Ok(FileChunk { bytes, size, stamp: FileStamp([size, 0, 0, 0]) })
    }

    async fn write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<WriteOutcome> {
        let (at, created) = self.check(path, expect)?;
        self.nodes().insert(at, FakeFile::Bytes(bytes.to_vec()));
        Ok(WriteOutcome { created, remarks: Vec::new() })
    }

    async fn apply_changes(&self, changes: Vec<FileChange>) -> Result<Vec<String>> {
        for change in &changes {
            let (FileChange::Write { path, expect, .. } | FileChange::Remove { path, expect }) = change;
            let (_, absent) = self.check(path, *expect)?;
            if absent && matches!(change, FileChange::Remove { .. }) {
                return Err(missing(path));
            }
        }
        for change in changes {
            match change {
                FileChange::Write { path, bytes, .. } => {
                    let (at, _) = self.check(&path, Expect::Anything)?;
                    self.nodes().insert(at, FakeFile::Bytes(bytes));
                }
                FileChange::Remove { path, .. } => _ = self.nodes().remove(path.relative()),
            }
        }
        Ok(Vec::new())
    }

    async fn remove(&self, path: &SafePath) -> Result<FileKind> {
        let at = path.relative();
        let data = self.node(at).ok_or_else(|| missing(path))?;
        self.nodes().retain(|key, _| !key.starts_with(at));
        Ok(kind(&data))
    }

    async fn list(&self, path: &SafePath) -> Result<Vec<DirEntry>> {
        let (at, FakeFile::Folder) = self.follow(path)? else {
            return Err(Error::file(path, FileErrorKind::NotFolder));
        };
        let depth = at.components().count() + 1;
        let here = self.walk(&at).into_iter().filter(|(path, _)| path.components().count() == depth);
        Ok(here
            .map(|(path, data)| DirEntry {
                name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                kind: kind(&data),
                size: size(&data),
                modified: Some(time()),
                target: if let FakeFile::Link(target) = data { Some(target) } else { None },
            })
            .collect())
    }

    async fn find(&self, path: &SafePath, find: &FindQuery) -> Result<FindResult> {
        let (at, FakeFile::Folder) = self.follow(path)? else {
            return Err(Error::file(path, FileErrorKind::NotFolder));
        };
        let all: Vec<_> = self
            .walk(&at)
            .into_iter()
            .filter(|(path, data)| {
                let beneath = path.strip_prefix(&at).unwrap_or(path);
                find.kind.is_none_or(|it| it == kind(data))
                    && matches_pattern(find.pattern.as_deref(), beneath, find.whole_path)
            })
            .collect();
        let (seen, unseen): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(path, _)| find.noise.hidden || !hidden(path.strip_prefix(&at).unwrap_or(path)));
        let total = seen.len() as u64;
        let files = seen
            .into_iter()
            .take(find.limit)
            .map(|(path, data)| FoundFile { kind: kind(&data), size: size(&data), path })
            .collect();
        debug_assert!(matches!(find.order, SortOrder::Path | SortOrder::Newest), "all files here are equally old");
        Ok(FindResult { files, total, passed_over: if total == 0 { unseen.len() as u64 } else { 0 }, partial: false })
    }

    async fn grep(&self, path: &SafePath, grep: &GrepQuery) -> Result<GrepResult> {
        let (at, data) = self.follow(path)?;
        let pattern = if grep.literal { regex::escape(&grep.pattern) } else { grep.pattern.clone() };
        let regex = regex::bytes::RegexBuilder::new(&pattern)
            .case_insensitive(grep.ignore_case)
            .build()
            .map_err(|error| Error::failed(error.to_string()))?;
        let files = if matches!(data, FakeFile::Folder) { self.walk(&at) } else { vec![(at.clone(), data)] };
        let mut matches = GrepResult::default();
        let mut kept = 0;
        for (path, data) in files {
            let beneath = path.strip_prefix(&at).unwrap_or(&path);
            let FakeFile::Bytes(bytes) = data else { continue };
            let globbed =
                grep.globs.is_empty() || grep.globs.iter().any(|it| matches_pattern(Some(it), beneath, false));
            if !globbed || (hidden(beneath) && !grep.noise.hidden) {
                continue;
            }
            matches.absence.searched += 1;
            let mut hits = Vec::new();
            let mut count = 0;
            let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            for (line, text) in text.split(|byte| *byte == b'\n').enumerate() {
                if !regex.is_match(text) {
                    continue;
                }
                count += 1;
                matches.total += u64::from(grep.output != GrepOutputMode::Files);
                let within = matches.total > grep.offset as u64 && grep.limit.is_none_or(|it| kept < it);
                if within && grep.output == GrepOutputMode::Lines {
                    kept += 1;
                    hits.push(MatchLine::line(MatchLineKind::Match, line as u64 + 1, text));
                }
            }
            if count == 0 {
                continue;
            }
            matches.total_files += 1;
            matches.total += u64::from(grep.output == GrepOutputMode::Files);
            if grep.output != GrepOutputMode::Lines || !hits.is_empty() {
                matches.files.push(FileMatches { path, count, hits, binary: None });
            }
        }
        Ok(matches)
    }

    async fn spawn(&self, _: &ProcessSpec) -> Result<Box<dyn Process>> {
        Err(Error::denied("no programs run in memory"))
    }
}

/// Fake documents: a PDF has three pages, an image has the size that it states.
struct FakeDocuments;

#[async_trait]
impl Documents for FakeDocuments {
    async fn pdf(&self, _: &Call, _: Vec<u8>, pages: Option<RangeInclusive<u32>>) -> Result<PdfPages> {
        let pages = pages.unwrap_or(1..=3);
        let end = (*pages.end()).min(3);
        Ok(PdfPages {
            pages: (*pages.start()..=end).map(|page| (page, format!("text of page {page}"))).collect(),
            total: 3,
        })
    }

    async fn image(&self, _: &Call, bytes: Vec<u8>) -> Result<Image> {
        Ok(Image { media: Media { mime: "image/png".into(), bytes }, original_size: (640, 480), size: (320, 240) })
    }
}

#[tokio::test]
async fn a_workspace_in_memory_reads_finds_and_forgets() {
    let memory = FakeHost::with(&[("src/a.rs", "fn a() {}\n"), ("b.txt", "b\n"), (".hid", "x"), ("empty/", "")]);
    let call = memory.call();
    let names: Vec<_> =
        memory.list(&call.workspace_root().unwrap()).await.unwrap().into_iter().map(|it| it.name).collect();
    assert_eq!(names, [".hid", "b.txt", "empty", "src"]);
    let file = call.session.workspace.check(Path::new("src/a.rs"), Access::Write, None).unwrap();
    assert_eq!(memory.read(&file, Span { start: 3, len: 3 }).await.unwrap().bytes, b"a()");
    assert_eq!(memory.remove(&file).await.unwrap(), FileKind::File);
    assert_eq!(memory.files().into_keys().collect::<Vec<_>>(), [".hid", "b.txt"]);
}
