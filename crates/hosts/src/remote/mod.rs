//! A host on another machine: the same program runs there and serves its local host over a pipe.
//!
//! One connection carries files, searches, and programs with their output and signals. When the pipe closes, the
//! server ends every program of this client. The transport is separate: [`SshConfig`] starts the server with `ssh`.

mod host;
mod route;
mod serve;
mod ssh;
mod wire;

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use async_trait::async_trait;
use helve_contract::{
    Error, FileErrorKind, Result, SafePath, Workspace,
    ports::{
        DirEntry, Expect, FileChange, FileChunk, FileKind, FindQuery, FindResult, GrepQuery, GrepResult, Host, Process,
        ProcessEvent, ProcessExit, ProcessSpec, SandboxLevel, Signal, Span, Stat, WriteOutcome,
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
};

pub(crate) use self::host::{Connect, check_folder};
use self::wire::{ClientMessage, HostRequest, HostResponse, ProcessControl, ServerMessage, WireChange, WorkspaceSpec};
pub use self::{
    host::RemoteHost,
    route::{CommandAllowlist, ForcedCommand, SshRoutedHost, check_forced_command, exec_forced_command},
    serve::serve,
    ssh::SshConfig,
};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of a host at the other end of a pipe.
pub struct RemoteClient {
    level: SandboxLevel,
    link: Arc<RemoteConnection>,
}

/// The client's side of the pipe. Closing it ends the server.
struct RemoteConnection {
    name: String,
    out: mpsc::UnboundedSender<Vec<u8>>,
    next: AtomicU64,
    waiting: Mutex<PendingReplies>,
    /// Keeps the transport alive as long as the connection.
    _transport: Box<dyn Send + Sync>,
}

#[derive(Default)]
struct PendingReplies {
    answers: HashMap<u64, oneshot::Sender<Result<HostResponse>>>,
    programs: HashMap<u64, mpsc::Sender<ProcessEvent>>,
    closed: bool,
}

impl RemoteClient {
    /// Performs the handshake over a pipe.
    pub async fn connect(
        name: impl Into<String>,
        workspace: &Workspace,
        from: impl AsyncRead + Unpin + Send + 'static,
        to: impl AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self> {
        Self::connect_over(name, workspace, from, to, ()).await
    }

    /// Like `connect`; keeps `carrier` alive until the last use of the host.
    pub(crate) async fn connect_over(
        name: impl Into<String>,
        workspace: &Workspace,
        mut from: impl AsyncRead + Unpin + Send + 'static,
        mut to: impl AsyncWrite + Unpin + Send + 'static,
        carrier: impl Send + Sync + 'static,
    ) -> Result<Self> {
        let name = name.into();
        let hello = ClientMessage::Hello { version: wire::VERSION, place: WorkspaceSpec::of(workspace) };
        let greeted = tokio::time::timeout(HANDSHAKE_TIMEOUT, async {
            wire::send(&mut to, &hello).await?;
            wire::receive::<ServerMessage>(&mut from).await
        });
        let level = match greeted.await {
            Ok(Ok(Some(ServerMessage::Ready { version: wire::VERSION, level }))) => level,
            Ok(Ok(Some(ServerMessage::Ready { version, .. }))) => {
                return Err(Error::failed(format!(
                    "{name} runs another version (protocol {version}, here {}); install the same helve there",
                    wire::VERSION
                )));
            }
            Ok(Ok(_)) => return Err(Error::failed(format!("{name} closed the connection before it greeted"))),
            Ok(Err(error)) => return Err(Error::failed(format!("{name} cannot be reached: {error}"))),
            Err(_) => {
                return Err(Error::failed(format!("{name} did not greet within {} s", HANDSHAKE_TIMEOUT.as_secs())));
            }
        };
        let (out, mut queue) = mpsc::unbounded_channel();
        let link = RemoteConnection {
            name,
            out,
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            _transport: Box::new(carrier),
        };
        let link = Arc::new(link);
        tokio::spawn(wire::write_frames(async move || queue.recv().await, to));
        tokio::spawn(read_loop(Arc::downgrade(&link), from));
        Ok(Self { level, link })
    }

    async fn request(&self, deed: HostRequest) -> Result<HostResponse> {
        let id = self.link.next_id();
        self.link.request(id, &ClientMessage::Do { id, deed }).await
    }

    /// Whether the connection is lost.
    pub fn is_closed(&self) -> bool {
        self.link.waiting().closed
    }

    fn unexpected_response(&self) -> Error {
        Error::failed(format!("{} answered something else than was asked", self.link.name))
    }
}

impl RemoteConnection {
    fn waiting(&self) -> std::sync::MutexGuard<'_, PendingReplies> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_id(&self) -> u64 {
        self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    /// Sends a request and waits for the answer. Cancellation notifies the server.
    async fn request(&self, id: u64, ask: &ClientMessage) -> Result<HostResponse> {
        let frame = wire::frame(ask).map_err(|error| Error::failed(format!("this is {error}")))?;
        let (answer, wait) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.closed {
                return Err(self.closed_error());
            }
            waiting.answers.insert(id, answer);
        }
        let mut asked = PendingRequest { link: self, id, answered: false };
        self.out.send(frame).map_err(|_| self.closed_error())?;
        let answer = wait.await.map_err(|_| self.closed_error());
        asked.answered = true;
        answer?
    }

    /// Sends a message without an answer. Does nothing if the connection is lost.
    fn notify(&self, ask: &ClientMessage) {
        if let Ok(frame) = wire::frame(ask) {
            _ = self.out.send(frame);
        }
    }

    fn closed_error(&self) -> Error {
        Error::failed(format!("the connection to {} is lost; nothing more was done there", self.name))
    }
}

/// A request in progress.
struct PendingRequest<'a> {
    link: &'a RemoteConnection,
    id: u64,
    answered: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.link.waiting().answers.remove(&self.id);
            self.link.notify(&ClientMessage::Forget { id: self.id });
        }
    }
}

/// Dispatches messages of the server until the connection ends or the client is dropped.
async fn read_loop(link: std::sync::Weak<RemoteConnection>, mut from: impl AsyncRead + Unpin) {
    loop {
        let told: io::Result<Option<ServerMessage>> = wire::receive(&mut from).await;
        let Some(link) = link.upgrade() else { return };
        let mut waiting = link.waiting();
        match told {
            Ok(Some(ServerMessage::Done { id, answer })) => {
                if let Some(wait) = waiting.answers.remove(&id) {
                    _ = wait.send(answer.map_err(Error::from));
                }
            }
            Ok(Some(ServerMessage::Noticed { process, what })) => {
                // The queue has room for the agreed window; excess messages are dropped.
                if waiting.programs.get(&process).is_some_and(|listener| listener.try_send(what).is_err()) {
                    waiting.programs.remove(&process);
                }
            }
            Ok(Some(ServerMessage::Ready { .. })) => {}
            Ok(None) | Err(_) => {
                *waiting = PendingReplies { closed: true, ..PendingReplies::default() };
                return;
            }
        }
    }
}

/// Sends a request and unwraps the answer of its kind.
macro_rules! asked {
    ($self:ident, $deed:expr, $kind:path) => {
        match $self.request($deed).await? {
            $kind(answer) => Ok(answer),
            _ => Err($self.unexpected_response()),
        }
    };
}

#[async_trait]
impl Host for RemoteClient {
    fn name(&self) -> &str {
        &self.link.name
    }

    async fn stat(&self, path: &SafePath) -> Result<Stat> {
        asked!(self, HostRequest::Stat(path.into()), HostResponse::Stat)
    }

    async fn real_path(&self, path: &SafePath) -> Result<std::path::PathBuf> {
        asked!(self, HostRequest::RealPath(path.into()), HostResponse::RealPath)
    }

    async fn read(&self, path: &SafePath, span: Span) -> Result<FileChunk> {
        let part =
            |start: u64, len: u64| HostRequest::Read(path.into(), Span { start, len: len.min(wire::MAX_READ_BYTES) });
        let mut chunk: FileChunk = asked!(self, part(span.start, span.len), HostResponse::Chunk)?;
        // A file that exceeds one message is read in several, all of the same state.
        while (chunk.bytes.len() as u64) < span.len && span.start.saturating_add(chunk.bytes.len() as u64) < chunk.size
        {
            let had = chunk.bytes.len() as u64;
            let more: FileChunk = asked!(self, part(span.start + had, span.len - had), HostResponse::Chunk)?;
            if more.stamp != chunk.stamp {
                return Err(Error::file(path, FileErrorKind::Changed));
            }
            if more.bytes.is_empty() {
                break;
            }
            chunk.bytes.extend(more.bytes);
        }
        Ok(chunk)
    }

    async fn write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<WriteOutcome> {
        asked!(self, HostRequest::Write(path.into(), bytes.to_vec(), expect), HostResponse::Written)
    }

    async fn apply_changes(&self, changes: Vec<FileChange>) -> Result<Vec<String>> {
        let changes = changes
            .into_iter()
            .map(|change| match change {
                FileChange::Write { path, bytes, expect, like } => {
                    WireChange::Write { path: (&path).into(), bytes, expect, like: like.as_ref().map(Into::into) }
                }
                FileChange::Remove { path, expect } => WireChange::Remove { path: (&path).into(), expect },
            })
            .collect();
        asked!(self, HostRequest::Change(changes), HostResponse::Remarks)
    }

    async fn remove(&self, path: &SafePath) -> Result<FileKind> {
        asked!(self, HostRequest::Remove(path.into()), HostResponse::Kind)
    }

    async fn list(&self, path: &SafePath) -> Result<Vec<DirEntry>> {
        asked!(self, HostRequest::List(path.into()), HostResponse::Items)
    }

    async fn find(&self, path: &SafePath, find: &FindQuery) -> Result<FindResult> {
        asked!(self, HostRequest::Find(path.into(), find.clone()), HostResponse::Found)
    }

    async fn grep(&self, path: &SafePath, grep: &GrepQuery) -> Result<GrepResult> {
        asked!(self, HostRequest::Grep(path.into(), grep.clone()), HostResponse::Matches)
    }

    async fn spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>> {
        let (listener, told) = mpsc::channel(wire::OUTPUT_WINDOW);
        let id = self.link.next_id();
        self.link.waiting().programs.insert(id, listener);
        // Registered before the request, so that a cancelled start ends the program.
        let mut program =
            RemoteProcess { id, level: SandboxLevel::None, events: told, link: self.link.clone(), end: None };
        let HostResponse::Process(level) =
            self.link.request(id, &ClientMessage::Do { id, deed: HostRequest::Spawn(command.into()) }).await?
        else {
            return Err(self.unexpected_response());
        };
        if self.link.waiting().closed {
            return Err(self.link.closed_error());
        }
        program.level = level;
        Ok(Box::new(program))
    }

    fn sandbox_level(&self) -> SandboxLevel {
        self.level
    }
}

/// A program on the other machine.
struct RemoteProcess {
    id: u64,
    level: SandboxLevel,
    events: mpsc::Receiver<ProcessEvent>,
    link: Arc<RemoteConnection>,
    end: Option<ProcessExit>,
}

impl RemoteProcess {
    async fn control(&self, order: ProcessControl) -> Result<()> {
        let id = self.link.next_id();
        self.link.request(id, &ClientMessage::Order { id, process: self.id, order }).await.map(drop)
    }
}

#[async_trait]
impl Process for RemoteProcess {
    async fn next(&mut self) -> ProcessEvent {
        if let Some(end) = &self.end {
            return ProcessEvent::Exit(end.clone());
        }
        let what = self.events.recv().await.unwrap_or_else(|| {
            let denials = vec!["the connection to the program's machine was lost; the program was ended there".into()];
            ProcessEvent::Exit(ProcessExit { code: 255, signal: None, left_behind: false, denials, dir: None })
        });
        match &what {
            ProcessEvent::Exit(exit) => self.end = Some(exit.clone()),
            ProcessEvent::Stdout(_) | ProcessEvent::Stderr(_) => {
                self.link.notify(&ClientMessage::Took { process: self.id });
            }
        }
        what
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.control(ProcessControl::Input(bytes.to_vec())).await
    }

    async fn close_stdin(&mut self) -> Result<()> {
        self.control(ProcessControl::Close).await
    }

    async fn signal(&mut self, signal: Signal) -> Result<()> {
        self.control(ProcessControl::Signal(signal)).await
    }

    fn sandbox_level(&self) -> SandboxLevel {
        self.level
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        self.link.waiting().programs.remove(&self.id);
        self.link.notify(&ClientMessage::Drop { process: self.id });
    }
}
