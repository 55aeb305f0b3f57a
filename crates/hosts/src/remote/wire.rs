//! The wire protocol between two machines: requests, answers and frames.
//!
//! A frame is a length (four bytes, little endian) and a message in postcard format. Both sides are the same program;
//! the handshake refuses another version.

use std::{io, path::PathBuf, time::Duration};

use helve_contract::{
    Access, Error, FileErrorKind, PathRules, PathStyle, Result, Root, SafePath, Workspace,
    ports::{
        DirEntry, EnvVars, Expect, FileChunk, FileKind, FindQuery, FindResult, GrepQuery, GrepResult, NetworkAccess,
        ProcessEvent, ProcessSpec, SandboxLevel, Signal, Span, Stat, StdinSource, Streams, TerminalSize, WriteOutcome,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Increased with every change to a message.
pub(super) const VERSION: u32 = 4;
/// The maximum frame size: a file chunk and overhead.
const MAX_FRAME_BYTES: u32 = 80 << 20;
/// The maximum part of a file per request.
pub(super) const MAX_READ_BYTES: u64 = 32 << 20;
/// The number of output chunks in flight before the reader acknowledges one.
pub(super) const OUTPUT_WINDOW: usize = 32;

/// Messages from the client to the server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ClientMessage {
    /// The first message: the protocol version and the workspace.
    Hello { version: u32, place: WorkspaceSpec },
    /// Runs a request. A program that it starts gets the same id.
    Do { id: u64, deed: HostRequest },
    /// Cancels a request.
    Forget { id: u64 },
    /// Controls a program.
    Order { id: u64, process: u64, order: ProcessControl },
    /// Acknowledges an output chunk; the next may follow.
    Took { process: u64 },
    /// Ends a program that is no longer needed.
    Drop { process: u64 },
}

/// A control message for a running program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ProcessControl {
    Input(Vec<u8>),
    Close,
    Signal(Signal),
}

/// Messages from the server to the client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ServerMessage {
    /// The server is ready, with this sandbox level.
    Ready { version: u32, level: SandboxLevel },
    /// The answer to the request `id`.
    Done { id: u64, answer: Result<HostResponse, WireError> },
    /// An event of a program.
    Noticed { process: u64, what: ProcessEvent },
}

/// The roots and rules of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WorkspaceSpec {
    pub(super) roots: Vec<Root>,
    pub(super) rules: PathRules,
    pub(super) reading: PathStyle,
}

impl WorkspaceSpec {
    pub(super) fn of(workspace: &Workspace) -> Self {
        Self {
            roots: workspace.roots().iter().map(|root| Root::clone(root)).collect(),
            rules: workspace.rules().clone(),
            reading: workspace.path_style(),
        }
    }

    pub(super) fn workspace(self) -> Workspace {
        Workspace::new(self.roots, self.rules, self.reading)
    }
}

/// A path that the server can check again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WirePath {
    root: PathBuf,
    relative: PathBuf,
    access: Access,
}

impl From<&SafePath> for WirePath {
    fn from(path: &SafePath) -> Self {
        Self { root: path.root().dir.clone(), relative: path.relative().to_owned(), access: path.access() }
    }
}

impl WirePath {
    pub(super) fn check(self, workspace: &Workspace) -> Result<SafePath> {
        workspace.resolve_in_root(&self.root, self.relative, self.access)
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HostRequest {
    Stat(WirePath),
    RealPath(WirePath),
    Read(WirePath, Span),
    Write(WirePath, Vec<u8>, Expect),
    Change(Vec<WireChange>),
    Remove(WirePath),
    List(WirePath),
    Find(WirePath, FindQuery),
    Grep(WirePath, GrepQuery),
    Spawn(WireCommand),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WireChange {
    Write { path: WirePath, bytes: Vec<u8>, expect: Expect, like: Option<WirePath> },
    Remove { path: WirePath, expect: Expect },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireCommand {
    script: Option<String>,
    argv: Vec<String>,
    dir: WirePath,
    roots: Vec<WirePath>,
    env: EnvVars,
    input: StdinSource,
    network: NetworkAccess,
    terminal: Option<TerminalSize>,
    tell_dir: bool,
    streams: Streams,
}

impl From<&ProcessSpec> for WireCommand {
    fn from(command: &ProcessSpec) -> Self {
        Self {
            script: command.script.clone(),
            argv: command.argv.clone(),
            dir: (&command.cwd).into(),
            roots: command.roots.iter().map(WirePath::from).collect(),
            env: command.env.clone(),
            input: command.stdin.clone(),
            network: command.network.clone(),
            terminal: command.terminal,
            tell_dir: command.report_cwd,
            streams: command.streams,
        }
    }
}

impl WireCommand {
    pub(super) fn command(self, workspace: &Workspace) -> Result<ProcessSpec> {
        Ok(ProcessSpec {
            script: self.script,
            argv: self.argv,
            cwd: self.dir.check(workspace)?,
            roots: self.roots.into_iter().map(|root| root.check(workspace)).collect::<Result<_>>()?,
            env: self.env,
            stdin: self.input,
            network: self.network,
            terminal: self.terminal,
            report_cwd: self.tell_dir,
            streams: self.streams,
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HostResponse {
    Stat(Stat),
    RealPath(PathBuf),
    Chunk(FileChunk),
    Written(WriteOutcome),
    Nothing,
    Remarks(Vec<String>),
    Kind(FileKind),
    Items(Vec<DirEntry>),
    Found(FindResult),
    Matches(GrepResult),
    Process(SandboxLevel),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WireError {
    Denied(String),
    Timeout(Duration),
    Cancelled,
    File(String, FileErrorKind),
    Failed(String),
}

impl From<Error> for WireError {
    fn from(error: Error) -> Self {
        match error {
            Error::Denied(text) => Self::Denied(text),
            Error::Timeout(time) => Self::Timeout(time),
            Error::Cancelled => Self::Cancelled,
            Error::File { path, fault } => Self::File(path, fault),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<WireError> for Error {
    fn from(fault: WireError) -> Self {
        match fault {
            WireError::Denied(text) => Self::Denied(text),
            WireError::Timeout(time) => Self::Timeout(time),
            WireError::Cancelled => Self::Cancelled,
            WireError::File(path, fault) => Self::File { path, fault },
            WireError::Failed(text) => Self::Failed(text),
        }
    }
}

/// Encodes a message as a frame; fails if it is too long.
pub(super) fn frame<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut frame = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let length = u32::try_from(frame.len() - 4).ok().filter(|it| *it <= MAX_FRAME_BYTES);
    let length = length.ok_or_else(|| io::Error::other("too long to be sent to another machine at once"))?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// Writes one message.
pub(super) async fn send<T: Serialize>(out: &mut (impl AsyncWrite + Unpin), message: &T) -> io::Result<()> {
    out.write_all(&frame(message)?).await?;
    out.flush().await
}

/// Writes frames until the channel or the pipe closes, then shuts the pipe down.
pub(super) async fn write_frames(mut next: impl AsyncFnMut() -> Option<Vec<u8>>, mut out: impl AsyncWrite + Unpin) {
    while let Some(frame) = next().await {
        if out.write_all(&frame).await.is_err() || out.flush().await.is_err() {
            return;
        }
    }
    _ = out.shutdown().await;
}

/// Reads one frame; `None` at the end.
pub(super) async fn receive<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(length);
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::other("the other end does not speak this protocol"));
    }
    let mut body = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut body).await?;
    postcard::from_bytes(&body).map(Some).map_err(io::Error::other)
}
