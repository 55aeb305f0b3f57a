//! Where files live and programs run: this machine, a sandbox on it, another machine, or memory.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Error, Result, SafePath};

/// Files and programs. Every path is a [`SafePath`], opened beneath its root, links and all.
///
/// A host answers with [`Error::File`] for what is wrong with a path, so that every host words it alike.
#[async_trait]
pub trait Host: Send + Sync {
    /// What this host is, in a word or two: `local`, `ssh build-1`.
    fn name(&self) -> &str;

    /// What a path is, following links.
    async fn stat(&self, path: &SafePath) -> Result<Stat>;

    /// Where a path really is beneath its root, with links resolved, whether or not the file exists. The gate matches
    /// its rules against it. A host without links answers with the path itself.
    async fn real_path(&self, path: &SafePath) -> Result<PathBuf> {
        Ok(path.relative().to_owned())
    }

    /// Some bytes of a regular file. Short only at the file's end; a FIFO or device is refused without blocking.
    async fn read(&self, path: &SafePath, span: Span) -> Result<FileChunk>;

    /// Creates or replaces a file and the folders above it: temporary file, sync, rename. A symbolic link in its place is
    /// kept, and so are mode, owner and attributes where this user may set them; otherwise the answer says so. `expect` is checked under a lock, so that two writers never lose an update.
    async fn write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<WriteOutcome>;

    /// Several changes, all or none: everything is checked and prepared first, and undone when one fails. Says what of the
    /// old files could not be kept, as [`WriteOutcome::remarks`] does.
    async fn apply_changes(&self, changes: Vec<FileChange>) -> Result<Vec<String>>;

    /// Removes a file, a link (not what it points to), or a folder with all that is in it. Says which it was.
    async fn remove(&self, path: &SafePath) -> Result<FileKind>;

    /// The entries of a folder, sorted by name.
    async fn list(&self, path: &SafePath) -> Result<Vec<DirEntry>>;

    /// The first entries of a folder by name, and how many there are besides. Nothing is looked at that is not shown.
    async fn list_with(&self, path: &SafePath, glance: ListOptions) -> Result<DirListing> {
        let mut items = self.list(path).await?;
        let all = items.len();
        items.retain(|it| glance.include_hidden || !it.name.starts_with('.'));
        let (hidden, rest) = (all - items.len(), items.len().saturating_sub(glance.limit));
        items.truncate(glance.limit);
        Ok(DirListing { entries: items, omitted: rest, hidden })
    }

    /// Finds files by name, beneath a folder. Links are not followed.
    async fn find(&self, path: &SafePath, find: &FindQuery) -> Result<FindResult>;

    /// Searches the contents of a file, or of the files beneath a folder.
    async fn grep(&self, path: &SafePath, grep: &GrepQuery) -> Result<GrepResult>;

    /// Starts a program.
    async fn spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>>;

    /// The walls around programs here.
    fn sandbox_level(&self) -> SandboxLevel {
        SandboxLevel::None
    }
}

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A FIFO, device or socket.
    Other,
}

/// What there is to know about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Last change.
    pub modified: Option<SystemTime>,
}

/// Which bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first.
    pub start: u64,
    /// How many at most.
    pub len: u64,
}

impl Span {
    /// A file from its beginning, up to a limit.
    #[must_use]
    pub const fn first(len: u64) -> Self {
        Self { start: 0, len }
    }
}

/// Some bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChunk {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Bytes of the whole file when it was opened.
    pub size: u64,
    /// Tells whether two chunks are of the same file in the same state.
    pub stamp: FileStamp,
}

/// Tells two states of a file apart, cheaply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp(pub [u64; 4]);

/// What a writer believes is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect {
    /// Anything or nothing.
    Anything,
    /// Nothing: fail with [`FileErrorKind::Exists`](crate::FileErrorKind::Exists).
    Absent,
    /// Exactly this content: else fail with [`FileErrorKind::Changed`](crate::FileErrorKind::Changed).
    Content(ContentDigest),
}

impl Expect {
    /// Exactly these bytes.
    #[must_use]
    pub fn bytes(bytes: &[u8]) -> Self {
        Self::Content(ContentDigest::of(bytes))
    }
}

/// Stands for some bytes: no others have the same, not even if somebody looks for them. For the life of a process, and
/// between processes of one version; it is a BLAKE3, which reads a large file several times faster than a SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentDigest([u8; 32]);

impl ContentDigest {
    /// What stands for these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).into())
    }
}

/// Bytes that come in pieces, on their way to a [`ContentDigest`].
#[derive(Clone, Debug, Default)]
pub struct ContentHasher(blake3::Hasher);

impl ContentHasher {
    /// Takes the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// What stands for all pieces so far.
    #[must_use]
    pub fn finalize(&self) -> ContentDigest {
        ContentDigest(self.0.finalize().into())
    }
}

/// How a write went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteOutcome {
    /// The file was not there before.
    pub created: bool,
    /// What of the old file could not be kept, such as its owner, in sentences for the model.
    pub remarks: Vec<String>,
}

/// One of several changes.
#[derive(Clone, Debug)]
pub enum FileChange {
    /// Create or replace a file.
    Write {
        /// Which.
        path: SafePath,
        /// Its new content.
        bytes: Vec<u8>,
        /// What must be there now.
        expect: Expect,
        /// Take the mode of this file instead of the one replaced (a move).
        like: Option<SafePath>,
    },
    /// Remove a file.
    Remove {
        /// Which.
        path: SafePath,
        /// What must be there now.
        expect: Expect,
    },
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Its name, with control characters and bytes that are not UTF-8 made visible.
    pub name: String,
    /// What it is; a link is a link.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Last change.
    pub modified: Option<SystemTime>,
    /// Where a link points.
    pub target: Option<String>,
}

/// Which entries of a folder, and how closely they are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// Those whose names begin with a dot, too.
    pub include_hidden: bool,
    /// How many at most.
    pub limit: usize,
    /// With sizes, times and targets; without, they may be left out, to be quicker.
    pub with_metadata: bool,
}

/// The first entries of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirListing {
    /// The entries, sorted by name.
    pub entries: Vec<DirEntry>,
    /// How many follow.
    pub omitted: usize,
    /// How many were passed over because their names begin with a dot.
    pub hidden: usize,
}

/// What a walk passes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoreOptions {
    /// Include what ignore files (`.gitignore`, `.ignore` …) leave out.
    pub ignored: bool,
    /// Include hidden files and folders.
    pub hidden: bool,
}

/// Finding files by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindQuery {
    /// Which: a glob over the path beneath the folder where it has a slash (`src/**/*.rs`), over the name otherwise;
    /// without any of `*?[{` a part of the name. `None` finds all.
    pub pattern: Option<String>,
    /// Whether a pattern without a slash must match the whole path beneath the folder (`glob`) and not any name (`find`).
    pub whole_path: bool,
    /// Only this kind.
    pub kind: Option<FileKind>,
    /// What is passed over.
    pub noise: IgnoreOptions,
    /// In which order.
    pub order: SortOrder,
    /// How many at most.
    pub limit: usize,
}

/// An order of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SortOrder {
    /// By path.
    Path,
    /// The newest first, then by path.
    Newest,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindResult {
    /// The files, in the order asked for.
    pub files: Vec<FoundFile>,
    /// How many there are in all.
    pub total: u64,
    /// How many would also match, were ignored and hidden files included; counted only when nothing was found.
    pub passed_over: u64,
    /// The walk ended early (time or number of entries), so that `total` is a lower bound.
    pub partial: bool,
}

/// One file that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    /// Path beneath the root of the walk's start.
    pub path: PathBuf,
    /// What it is.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
}

/// Searching contents, with ripgrep's meaning of each field.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrepQuery {
    /// What to look for: a regular expression of the `regex` crate.
    pub pattern: String,
    /// Take the pattern literally.
    pub literal: bool,
    /// Without regard to case.
    pub ignore_case: bool,
    /// A match may span lines, and `.` matches a newline.
    pub multiline: bool,
    /// Only files that match one of these globs (`*.rs`, `!*.md`, `{a,b}`).
    pub globs: Vec<String>,
    /// Only files of this type, in ripgrep's names (`rust`, `py`).
    pub file_type: Option<String>,
    /// What is passed over.
    pub noise: IgnoreOptions,
    /// Lines of context before and after each match.
    pub context: (usize, usize),
    /// Collect lines, or only count them by file.
    pub output: GrepOutputMode,
    /// Each match by itself instead of its line.
    pub only_matching: bool,
    /// How many matching lines at most (files, when only files are asked for); the rest is counted, not kept.
    pub limit: Option<usize>,
    /// Leave out this many of them first.
    pub offset: usize,
    /// How many bytes of lines to keep at most.
    pub max_bytes: usize,
}

/// What a search collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrepOutputMode {
    /// The matching lines.
    Lines,
    /// How many lines match, by file.
    Counts,
    /// Which files match.
    Files,
}

/// What a search found, files sorted by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepResult {
    /// Files with at least one match that was kept.
    pub files: Vec<FileMatches>,
    /// How many lines match in all, kept or not (files, when only files are asked for).
    pub total: u64,
    /// How many files match in all.
    pub total_files: u64,
    /// Not everything was searched (time or number of entries).
    pub partial: bool,
    /// Why there is nothing, when there is nothing.
    pub absence: NoMatchDiagnostics,
    /// Files and folders that should have been searched and were not.
    pub skipped: Skipped,
}

/// What a search left out although it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The first of them by path, beneath the root of the search's start.
    pub first: Vec<(PathBuf, SkipReason)>,
    /// How many there are.
    pub total: u64,
}

/// Why a search left out a file or folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SkipReason {
    /// It has a line of more bytes than this.
    LongLine(u64),
    /// It has more bytes than this, and matches may span lines.
    TooLarge(u64),
    /// It is binary, and it matches.
    BinaryMatch,
    /// It is binary, and too large to be searched for a match. In bytes, the most that is searched.
    LargeBinary(u64),
    /// The operating system did not let us read it: why.
    Unreadable(String),
}

/// The hits of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMatches {
    /// Path beneath the root of the search's start.
    pub path: PathBuf,
    /// How many lines match in it.
    pub count: u64,
    /// The lines and their context, in order.
    pub hits: Vec<MatchLine>,
    /// The file is binary: it matches, and its lines are not shown. At which byte.
    pub binary: Option<u64>,
}

/// One line of a file, or one match of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchLine {
    /// A match or its surroundings.
    pub kind: MatchLineKind,
    /// Line number, counted from 1.
    pub line: u64,
    /// The line, without its end. Of a very long line the part around the first match.
    pub text: Vec<u8>,
    /// Where in the text the first match of a long line begins.
    pub at: usize,
    /// How many bytes of the line were left out before and after the text.
    pub left_out: (usize, usize),
}

impl MatchLine {
    /// A whole line.
    #[must_use]
    pub fn line(kind: MatchLineKind, line: u64, text: impl Into<Vec<u8>>) -> Self {
        Self { kind, line, text: text.into(), at: 0, left_out: (0, 0) }
    }
}

/// What a line of a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchLineKind {
    /// It matches.
    Match,
    /// It is near one that does.
    Context,
    /// A gap between groups of lines; has no text.
    Gap,
}

/// Where a pattern would have matched, had more been searched. Filled only when nothing was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoMatchDiagnostics {
    /// Lines and files left out by ignore files.
    pub ignored: (u64, u64),
    /// Lines and files that are hidden.
    pub hidden: (u64, u64),
    /// Binary files that match.
    pub binary: u64,
    /// Lines that match without regard to case.
    pub other_case: u64,
    /// Files that were searched.
    pub searched: u64,
    /// Files in another encoding than UTF-8, where the pattern could not be found even if it is there.
    pub foreign: u64,
}

/// A program to start.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// A shell command (bash, or sh where there is none; no profile is read). An engine-built command uses `argv`.
    pub script: Option<String>,
    /// Program and arguments, where no shell is wanted.
    pub argv: Vec<String>,
    /// Where it starts.
    pub cwd: SafePath,
    /// Every root of the session: what it may read and write. A host keeps the vault out of the command's sight
    /// ([`SafePath::is_in_vault`]), or refuses the command where it cannot.
    pub roots: Vec<SafePath>,
    /// What else is in its environment, from the caller; filtered by the host.
    pub env: EnvVars,
    /// What it reads.
    pub stdin: StdinSource,
    /// Whether it may use the network.
    pub network: NetworkAccess,
    /// Give it a terminal of this size.
    pub terminal: Option<TerminalSize>,
    /// Find out which folder its shell ends in, where the host can.
    pub report_cwd: bool,
    /// Whether standard output and standard error share one pipe.
    pub streams: Streams,
}

/// How a program's standard output and standard error reach the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Streams {
    /// Through one pipe, so that bytes arrive in the order written. All of them are reported as [`ProcessEvent::Stdout`].
    #[default]
    Merged,
    /// Through two pipes. The order between the two is lost.
    Separate,
}

/// Names and values for a child's environment.
pub type EnvVars = Vec<(String, String)>;

/// What a program reads from its standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinSource {
    /// Nothing: it is at its end.
    #[default]
    Closed,
    /// This, and then the end.
    Bytes(Vec<u8>),
    /// What is written to it later.
    Open,
}

/// Whether a program may use the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkAccess {
    /// As the host is configured.
    #[default]
    Configured,
    /// Not at all.
    Off,
}

/// A terminal's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// A program that runs. Dropping it kills it with all that it started.
#[async_trait]
pub trait Process: Send {
    /// The next piece of output, or how it ended. After the end: the same end again.
    async fn next(&mut self) -> ProcessEvent;

    /// Writes to its standard input.
    async fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Closes its standard input.
    async fn close_stdin(&mut self) -> Result<()>;

    /// Sends a signal to the whole tree of processes.
    async fn signal(&mut self, signal: Signal) -> Result<()>;

    /// The walls around it.
    fn sandbox_level(&self) -> SandboxLevel;
}

/// Something that a running program did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessEvent {
    /// It wrote to standard output, or to either stream with [`Streams::Merged`].
    Stdout(Vec<u8>),
    /// It wrote to standard error.
    Stderr(Vec<u8>),
    /// It ended.
    Exit(ProcessExit),
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessExit {
    /// Exit code, or 128 plus the signal.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// It left processes behind that held its output open; they were ended.
    pub left_behind: bool,
    /// Remarks for the model: what the sandbox refused while it ran, or that it ran on another machine than expected.
    pub denials: Vec<String>,
    /// The folder that its shell ended in, where that was asked for and the shell said it. Nobody has checked it.
    #[serde(default)]
    pub dir: Option<PathBuf>,
}

/// A signal that may be sent to a process: a fixed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// SIGHUP.
    HangUp,
    /// SIGQUIT.
    Quit,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Interrupt,
        Self::Terminate,
        Self::Kill,
        Self::HangUp,
        Self::Quit,
        Self::Stop,
        Self::Continue,
        Self::User1,
        Self::User2,
    ];

    /// Its name, such as `SIGTERM`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
            Self::HangUp => "SIGHUP",
            Self::Quit => "SIGQUIT",
            Self::Stop => "SIGSTOP",
            Self::Continue => "SIGCONT",
            Self::User1 => "SIGUSR1",
            Self::User2 => "SIGUSR2",
        }
    }

    /// Reads a name, with or without `SIG`, in any case.
    pub fn parse(text: &str) -> Result<Self> {
        let plain = text.trim().to_ascii_uppercase();
        let plain = plain.strip_prefix("SIG").unwrap_or(&plain);
        Self::ALL.into_iter().find(|it| &it.name()[3..] == plain).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|it| it.name()).collect();
            Error::failed(format!("unknown signal `{text}`; send one of {}", names.join(", ")))
        })
    }
}

/// The walls around a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SandboxLevel {
    /// L0: none.
    None,
    /// The operator says that the machine or container is the sandbox.
    External,
    /// L1: Landlock, seccomp and limits, without namespaces.
    Rules,
    /// L2: namespaces too, but nested or without a fresh `/proc`.
    Nested,
    /// L3: all of it.
    Full,
}

impl SandboxLevel {
    /// Its short name: `L3`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "L0",
            Self::External => "external",
            Self::Rules => "L1",
            Self::Nested => "L2",
            Self::Full => "L3",
        }
    }
}

/// How long a program gets to end by itself after SIGTERM.
pub const TERMINATION_GRACE: Duration = Duration::from_millis(500);

/// No files and no programs: for sessions whose tools need neither.
pub struct NoHost;

fn no_host_error<T>() -> Result<T> {
    Err(Error::failed("there are no files in this session"))
}

#[async_trait]
impl Host for NoHost {
    fn name(&self) -> &'static str {
        "nowhere"
    }
    async fn stat(&self, _: &SafePath) -> Result<Stat> {
        no_host_error()
    }
    async fn read(&self, _: &SafePath, _: Span) -> Result<FileChunk> {
        no_host_error()
    }
    async fn write(&self, _: &SafePath, _: &[u8], _: Expect) -> Result<WriteOutcome> {
        no_host_error()
    }
    async fn apply_changes(&self, _: Vec<FileChange>) -> Result<Vec<String>> {
        no_host_error()
    }
    async fn remove(&self, _: &SafePath) -> Result<FileKind> {
        no_host_error()
    }
    async fn list(&self, _: &SafePath) -> Result<Vec<DirEntry>> {
        no_host_error()
    }
    async fn find(&self, _: &SafePath, _: &FindQuery) -> Result<FindResult> {
        no_host_error()
    }
    async fn grep(&self, _: &SafePath, _: &GrepQuery) -> Result<GrepResult> {
        no_host_error()
    }
    async fn spawn(&self, _: &ProcessSpec) -> Result<Box<dyn Process>> {
        no_host_error()
    }
}
