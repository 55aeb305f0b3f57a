//! The `Host` port: file access and processes on this machine, in a sandbox, on another machine or in memory.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Error, Result, SafePath};

/// Files and processes. Every path is a [`SafePath`]; hosts open it beneath its root, including links.
///
/// A host reports a problem with a path as [`Error::File`], so that all hosts give the same messages.
#[async_trait]
pub trait Host: Send + Sync {
    /// A short name of this host: `local`, `ssh build-1`.
    fn name(&self) -> &str;

    /// The metadata of a path, following links.
    async fn stat(&self, path: &SafePath) -> Result<Stat>;

    /// The path beneath its root with links resolved, whether or not the file exists. The gate matches its rules
    /// against it. A host without links returns the path itself.
    async fn real_path(&self, path: &SafePath) -> Result<PathBuf> {
        Ok(path.relative().to_owned())
    }

    /// Reads a range of a regular file. Shorter only at the end of the file. Refuses a FIFO or device without blocking.
    async fn read(&self, path: &SafePath, span: Span) -> Result<FileChunk>;

    /// Creates or replaces a file and its parent directories: temporary file, sync, rename. A symbolic link at the path
    /// is preserved. Mode, owner and attributes are preserved where this user may set them; otherwise the outcome has a
    /// remark. `expect` is checked under a lock, so that concurrent writers lose no update.
    async fn write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<WriteOutcome>;

    /// Applies all changes or none. Checks and prepares everything first, and rolls back if one change fails. Returns
    /// what could not be preserved, as [`WriteOutcome::remarks`] does.
    async fn apply_changes(&self, changes: Vec<FileChange>) -> Result<Vec<String>>;

    /// Removes a file, a link (not its target), or a directory with its content. Returns the kind.
    async fn remove(&self, path: &SafePath) -> Result<FileKind>;

    /// The entries of a directory, sorted by name.
    async fn list(&self, path: &SafePath) -> Result<Vec<DirEntry>>;

    /// The first entries of a directory by name, and the number of omitted ones. Reads metadata of returned entries
    /// only.
    async fn list_with(&self, path: &SafePath, glance: ListOptions) -> Result<DirListing> {
        let mut items = self.list(path).await?;
        let all = items.len();
        items.retain(|it| glance.include_hidden || !it.name.starts_with('.'));
        let (hidden, rest) = (all - items.len(), items.len().saturating_sub(glance.limit));
        items.truncate(glance.limit);
        Ok(DirListing { entries: items, omitted: rest, hidden })
    }

    /// Finds files by name beneath a directory. Does not follow links.
    async fn find(&self, path: &SafePath, find: &FindQuery) -> Result<FindResult>;

    /// Searches the content of a file, or of the files beneath a directory.
    async fn grep(&self, path: &SafePath, grep: &GrepQuery) -> Result<GrepResult>;

    /// Starts a program.
    async fn spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>>;

    /// The sandbox level of processes on this host.
    fn sandbox_level(&self) -> SandboxLevel {
        SandboxLevel::None
    }
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Folder,
    /// A symbolic link.
    Link,
    /// A FIFO, device or socket.
    Other,
}

/// The metadata of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The kind of the file.
    pub kind: FileKind,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last change.
    pub modified: Option<SystemTime>,
}

/// A range of bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The offset of the first byte.
    pub start: u64,
    /// The maximum length.
    pub len: u64,
}

impl Span {
    /// The beginning of a file, up to `len` bytes.
    #[must_use]
    pub const fn first(len: u64) -> Self {
        Self { start: 0, len }
    }
}

/// A range of bytes read from a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChunk {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The size of the whole file when it was opened.
    pub size: u64,
    /// Identifies the state of the file. Equal stamps mean the same file in the same state.
    pub stamp: FileStamp,
}

/// Distinguishes two states of a file cheaply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp(pub [u64; 4]);

/// The state of a file that a writer expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect {
    /// Any state.
    Anything,
    /// The file does not exist; else fail with [`FileErrorKind::Exists`](crate::FileErrorKind::Exists).
    Absent,
    /// The file has this content; else fail with [`FileErrorKind::Changed`](crate::FileErrorKind::Changed).
    Content(ContentDigest),
}

impl Expect {
    /// Expects exactly these bytes.
    #[must_use]
    pub fn bytes(bytes: &[u8]) -> Self {
        Self::Content(ContentDigest::of(bytes))
    }
}

/// A collision-resistant hash of some bytes (BLAKE3), several times faster than SHA-256 on a large file. Compare it
/// only within a process, or between processes of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentDigest([u8; 32]);

impl ContentDigest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).into())
    }
}

/// Computes a [`ContentDigest`] from chunks.
#[derive(Clone, Debug, Default)]
pub struct ContentHasher(blake3::Hasher);

impl ContentHasher {
    /// Adds the next chunk.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The digest of all chunks so far.
    #[must_use]
    pub fn finalize(&self) -> ContentDigest {
        ContentDigest(self.0.finalize().into())
    }
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteOutcome {
    /// The file did not exist before.
    pub created: bool,
    /// Properties of the old file that could not be preserved, such as its owner, in sentences for the model.
    pub remarks: Vec<String>,
}

/// One change of [`Host::apply_changes`].
#[derive(Clone, Debug)]
pub enum FileChange {
    /// Create or replace a file.
    Write {
        /// The file.
        path: SafePath,
        /// Its new content.
        bytes: Vec<u8>,
        /// The expected state.
        expect: Expect,
        /// Take the mode from this file instead of the replaced one (for a move).
        like: Option<SafePath>,
    },
    /// Remove a file.
    Remove {
        /// The file.
        path: SafePath,
        /// The expected state.
        expect: Expect,
    },
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Its name; control characters and bytes that are not UTF-8 are escaped.
    pub name: String,
    /// The kind; links are not followed.
    pub kind: FileKind,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last change.
    pub modified: Option<SystemTime>,
    /// The target of a link.
    pub target: Option<String>,
}

/// Options for listing a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// Include names that start with a dot.
    pub include_hidden: bool,
    /// The maximum number of entries.
    pub limit: usize,
    /// Read sizes, times and link targets. Without it a host may omit them, which is faster.
    pub with_metadata: bool,
}

/// The first entries of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirListing {
    /// The entries, sorted by name.
    pub entries: Vec<DirEntry>,
    /// The number of further entries.
    pub omitted: usize,
    /// The number of entries omitted because their names start with a dot.
    pub hidden: usize,
}

/// Which files a walk includes although it skips them by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoreOptions {
    /// Include files that ignore files (`.gitignore`, `.ignore` …) exclude.
    pub ignored: bool,
    /// Include hidden files and directories.
    pub hidden: bool,
}

/// A search for files by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindQuery {
    /// The pattern. With a slash (`src/**/*.rs`) it is a glob over the path beneath the directory, otherwise over the
    /// name. Without any of `*?[{` it matches a part of the name. `None` finds all files.
    pub pattern: Option<String>,
    /// Whether a pattern without a slash must match the whole path beneath the directory (`glob`) or any name (`find`).
    pub whole_path: bool,
    /// Restricts the kind of file.
    pub kind: Option<FileKind>,
    /// Files to include although they are skipped by default.
    pub noise: IgnoreOptions,
    /// The order of the results.
    pub order: SortOrder,
    /// The maximum number of results.
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

/// The result of a search by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindResult {
    /// The files, in the requested order.
    pub files: Vec<FoundFile>,
    /// The total number of matching files.
    pub total: u64,
    /// The number of ignored and hidden files that would match; counted only if nothing was found.
    pub passed_over: u64,
    /// The walk stopped early (timeout or entry limit), so `total` is a lower bound.
    pub partial: bool,
}

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    /// The path beneath the root.
    pub path: PathBuf,
    /// The kind of the file.
    pub kind: FileKind,
    /// The size in bytes.
    pub size: u64,
}

/// A content search; each field means the same as in ripgrep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrepQuery {
    /// A regular expression in the syntax of the `regex` crate.
    pub pattern: String,
    /// Take the pattern literally.
    pub literal: bool,
    /// Ignore case.
    pub ignore_case: bool,
    /// A match may span lines, and `.` matches a newline.
    pub multiline: bool,
    /// Only files that match one of these globs (`*.rs`, `!*.md`, `{a,b}`).
    pub globs: Vec<String>,
    /// Only files of this type, in ripgrep's names (`rust`, `py`).
    pub file_type: Option<String>,
    /// Files to include although they are skipped by default.
    pub noise: IgnoreOptions,
    /// Lines of context before and after each match.
    pub context: (usize, usize),
    /// Whether to collect lines or only count them.
    pub output: GrepOutputMode,
    /// Return each match instead of its line.
    pub only_matching: bool,
    /// The maximum number of matching lines, or of files in `Files` mode. Further matches are only counted.
    pub limit: Option<usize>,
    /// The number of matches to skip first.
    pub offset: usize,
    /// The maximum number of bytes of lines to return.
    pub max_bytes: usize,
}

/// What a content search returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrepOutputMode {
    /// The matching lines.
    Lines,
    /// The number of matching lines for each file.
    Counts,
    /// The matching files.
    Files,
}

/// The result of a content search, with files sorted by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepResult {
    /// Files with at least one returned match.
    pub files: Vec<FileMatches>,
    /// The total number of matching lines, returned or not (of files in `Files` mode).
    pub total: u64,
    /// The total number of matching files.
    pub total_files: u64,
    /// The search stopped early (timeout or entry limit).
    pub partial: bool,
    /// Hints on why nothing matched.
    pub absence: NoMatchDiagnostics,
    /// Files and directories that could not be searched.
    pub skipped: Skipped,
}

/// Files that a search could not include.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The first of them by path, beneath the root.
    pub first: Vec<(PathBuf, SkipReason)>,
    /// The total number.
    pub total: u64,
}

/// Why a search skipped a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SkipReason {
    /// A line exceeds this many bytes.
    LongLine(u64),
    /// The file exceeds this many bytes, and the search is multi-line.
    TooLarge(u64),
    /// The file is binary and matches.
    BinaryMatch,
    /// The file is binary and exceeds this many bytes, so it was not searched.
    LargeBinary(u64),
    /// The operating system refused access, for this reason.
    Unreadable(String),
}

/// The matches in one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMatches {
    /// The path beneath the root.
    pub path: PathBuf,
    /// The number of matching lines.
    pub count: u64,
    /// The matching lines and their context, in order.
    pub hits: Vec<MatchLine>,
    /// The offset of the first binary byte, if the file is binary. It matches, but its lines are not returned.
    pub binary: Option<u64>,
}

/// A line of a file, or one match in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchLine {
    /// Whether the line matches or is context.
    pub kind: MatchLineKind,
    /// Line number, counted from 1.
    pub line: u64,
    /// The line without its line ending. For a very long line: the part around the first match.
    pub text: Vec<u8>,
    /// The offset in `text` at which the first match of a long line starts.
    pub at: usize,
    /// The number of bytes omitted before and after `text`.
    pub left_out: (usize, usize),
}

impl MatchLine {
    /// A whole line.
    #[must_use]
    pub fn line(kind: MatchLineKind, line: u64, text: impl Into<Vec<u8>>) -> Self {
        Self { kind, line, text: text.into(), at: 0, left_out: (0, 0) }
    }
}

/// The kind of a line in a search result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchLineKind {
    /// It matches.
    Match,
    /// Context near a match.
    Context,
    /// A gap between groups of lines; has no text.
    Gap,
}

/// Where the pattern would have matched with other options. Filled only if nothing was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoMatchDiagnostics {
    /// Matching lines and files that ignore files exclude.
    pub ignored: (u64, u64),
    /// Matching lines and files that are hidden.
    pub hidden: (u64, u64),
    /// Binary files that match.
    pub binary: u64,
    /// Lines that match if case is ignored.
    pub other_case: u64,
    /// Files that were searched.
    pub searched: u64,
    /// Files in an encoding other than UTF-8, in which the pattern cannot be found.
    pub foreign: u64,
}

/// A process to start.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// A shell script, for bash, or sh if bash is missing; no profile is read. Commands that the engine builds use
    /// `argv`.
    pub script: Option<String>,
    /// Program and arguments, to start without a shell.
    pub argv: Vec<String>,
    /// The working directory.
    pub cwd: SafePath,
    /// All roots of the session, which define what it may read and write. The host must hide the vault from the command
    /// ([`SafePath::is_in_vault`]) or refuse the command.
    pub roots: Vec<SafePath>,
    /// Further environment variables from the caller; the host filters them.
    pub env: EnvVars,
    /// The source of standard input.
    pub stdin: StdinSource,
    /// Whether it may use the network.
    pub network: NetworkAccess,
    /// The size of its terminal, if it gets one.
    pub terminal: Option<TerminalSize>,
    /// Report the directory in which its shell ends, if the host can.
    pub report_cwd: bool,
    /// Whether standard output and standard error share one pipe.
    pub streams: Streams,
}

/// How a program's standard output and standard error reach the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Streams {
    /// Through one pipe, which preserves the order of bytes. All are reported as [`ProcessEvent::Stdout`].
    #[default]
    Merged,
    /// Through two pipes. The order between the two is lost.
    Separate,
}

/// Names and values of environment variables.
pub type EnvVars = Vec<(String, String)>;

/// What a process reads from standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinSource {
    /// Nothing: end of file.
    #[default]
    Closed,
    /// These bytes, then end of file.
    Bytes(Vec<u8>),
    /// Bytes that the caller writes later.
    Open,
}

/// Whether a process may use the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkAccess {
    /// As configured for the host.
    #[default]
    Configured,
    /// No network.
    Off,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// A running process. Dropping it kills the process and its descendants.
#[async_trait]
pub trait Process: Send {
    /// The next output or the exit. After the exit it returns the same exit again.
    async fn next(&mut self) -> ProcessEvent;

    /// Writes to its standard input.
    async fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Closes its standard input.
    async fn close_stdin(&mut self) -> Result<()>;

    /// Sends a signal to the whole process tree.
    async fn signal(&mut self, signal: Signal) -> Result<()>;

    /// The sandbox level of the process.
    fn sandbox_level(&self) -> SandboxLevel;
}

/// An event of a running process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessEvent {
    /// It wrote to standard output, or to either stream with [`Streams::Merged`].
    Stdout(Vec<u8>),
    /// It wrote to standard error.
    Stderr(Vec<u8>),
    /// It exited.
    Exit(ProcessExit),
}

/// How a process exited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessExit {
    /// The exit code, or 128 plus the signal.
    pub code: i32,
    /// The signal that terminated it.
    pub signal: Option<i32>,
    /// It left processes that held its output open; they were terminated.
    pub left_behind: bool,
    /// Remarks for the model: what the sandbox denied, or that the process ran on another machine than expected.
    pub denials: Vec<String>,
    /// The directory in which its shell ended, if requested and reported. It is not verified.
    #[serde(default)]
    pub dir: Option<PathBuf>,
}

/// A signal that may be sent to a process.
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
    /// All signals.
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

    /// Parses a name, with or without `SIG`, in any case.
    pub fn parse(text: &str) -> Result<Self> {
        let plain = text.trim().to_ascii_uppercase();
        let plain = plain.strip_prefix("SIG").unwrap_or(&plain);
        Self::ALL.into_iter().find(|it| &it.name()[3..] == plain).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|it| it.name()).collect();
            Error::failed(format!("unknown signal `{text}`; send one of {}", names.join(", ")))
        })
    }
}

/// The strength of the sandbox around a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SandboxLevel {
    /// L0: no sandbox.
    None,
    /// The operator declares the machine or container to be the sandbox.
    External,
    /// L1: Landlock, seccomp and resource limits, without namespaces.
    Rules,
    /// L2: with namespaces, but nested or without a fresh `/proc`.
    Nested,
    /// L3: all of these.
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

/// How long a process has to exit after SIGTERM.
pub const TERMINATION_GRACE: Duration = Duration::from_millis(500);

/// No files and no processes, for sessions whose tools need neither.
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
