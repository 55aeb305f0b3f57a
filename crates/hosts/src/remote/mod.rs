//! A host on another machine: the same program runs there and serves its local host over a pipe.
//!
//! Everything goes over one connection: files, searches, programs with their output and signals. When the pipe
//! closes, the far end ends every program it started for us. What carries the pipe is another matter: [`Ssh`] starts
//! the far end with the `ssh` program.

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
    Error, FileFault, Result, SafePath, Workspace,
    ports::{
        Change, Chunk, Command, Exit, Expect, Find, Found, Grep, Host, Item, Kind, Level, Matches, Noticed, Process,
        Signal, Span, Stat, Written,
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
};

pub(crate) use self::host::{Connect, check_folder};
use self::wire::{Answer, Ask, Deed, OneChange, Order, Place, Tell};
pub use self::{
    host::RemoteHost,
    route::{Allowed, ForcedCommand, Routed, host_exec, run_forced},
    serve::serve,
    ssh::Ssh,
};

/// How long the far end may take to greet.
const GREETING: Duration = Duration::from_secs(30);

/// A host at the other end of a pipe.
pub struct Remote {
    level: Level,
    link: Arc<Link>,
}

/// The near end of the pipe. Closing it ends the far end.
struct Link {
    name: String,
    out: mpsc::UnboundedSender<Vec<u8>>,
    next: AtomicU64,
    waiting: Mutex<Waiting>,
    /// What carries the pipe, and goes with it.
    _carrier: Box<dyn Send + Sync>,
}

#[derive(Default)]
struct Waiting {
    answers: HashMap<u64, oneshot::Sender<Result<Answer>>>,
    programs: HashMap<u64, mpsc::Sender<Noticed>>,
    closed: bool,
}

impl Remote {
    /// Greets the far end over a pipe.
    pub async fn connect(
        name: impl Into<String>,
        workspace: &Workspace,
        from: impl AsyncRead + Unpin + Send + 'static,
        to: impl AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self> {
        Self::carried(name, workspace, from, to, ()).await
    }

    /// The same, over a pipe that lasts as long as `carrier` does: it is dropped after the last use of the host.
    pub(crate) async fn carried(
        name: impl Into<String>,
        workspace: &Workspace,
        mut from: impl AsyncRead + Unpin + Send + 'static,
        mut to: impl AsyncWrite + Unpin + Send + 'static,
        carrier: impl Send + Sync + 'static,
    ) -> Result<Self> {
        let name = name.into();
        let hello = Ask::Hello { version: wire::VERSION, place: Place::of(workspace) };
        let greeted = tokio::time::timeout(GREETING, async {
            wire::send(&mut to, &hello).await?;
            wire::receive::<Tell>(&mut from).await
        });
        let level = match greeted.await {
            Ok(Ok(Some(Tell::Ready { version: wire::VERSION, level }))) => level,
            Ok(Ok(Some(Tell::Ready { version, .. }))) => {
                return Err(Error::failed(format!(
                    "{name} runs another version (protocol {version}, here {}); install the same helve there",
                    wire::VERSION
                )));
            }
            Ok(Ok(_)) => return Err(Error::failed(format!("{name} closed the connection before it greeted"))),
            Ok(Err(error)) => return Err(Error::failed(format!("{name} cannot be reached: {error}"))),
            Err(_) => return Err(Error::failed(format!("{name} did not greet within {} s", GREETING.as_secs()))),
        };
        let (out, mut queue) = mpsc::unbounded_channel();
        let link = Link { name, out, next: AtomicU64::new(1), waiting: Mutex::default(), _carrier: Box::new(carrier) };
        let link = Arc::new(link);
        tokio::spawn(wire::pass_on(async move || queue.recv().await, to));
        tokio::spawn(read(Arc::downgrade(&link), from));
        Ok(Self { level, link })
    }

    async fn ask(&self, deed: Deed) -> Result<Answer> {
        let id = self.link.number();
        self.link.ask(id, &Ask::Do { id, deed }).await
    }

    /// Whether the connection is lost.
    pub fn is_closed(&self) -> bool {
        self.link.waiting().closed
    }

    fn confused(&self) -> Error {
        Error::failed(format!("{} answered something else than was asked", self.link.name))
    }
}

impl Link {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    /// Asks, and waits for the answer. When nobody waits any more, the far end is told.
    async fn ask(&self, id: u64, ask: &Ask) -> Result<Answer> {
        let frame = wire::frame(ask).map_err(|error| Error::failed(format!("this is {error}")))?;
        let (answer, wait) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.closed {
                return Err(self.lost());
            }
            waiting.answers.insert(id, answer);
        }
        let mut asked = Asked { link: self, id, answered: false };
        self.out.send(frame).map_err(|_| self.lost())?;
        let answer = wait.await.map_err(|_| self.lost());
        asked.answered = true;
        answer?
    }

    /// Tells the far end something that has no answer. Where the pipe is lost there is nobody to tell.
    fn tell(&self, ask: &Ask) {
        if let Ok(frame) = wire::frame(ask) {
            _ = self.out.send(frame);
        }
    }

    fn lost(&self) -> Error {
        Error::failed(format!("the connection to {} is lost; nothing more was done there", self.name))
    }
}

/// A question under way.
struct Asked<'a> {
    link: &'a Link,
    id: u64,
    answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.link.waiting().answers.remove(&self.id);
            self.link.tell(&Ask::Forget { id: self.id });
        }
    }
}

/// Hands out what the far end tells, until it ends or nobody holds the near end.
async fn read(link: std::sync::Weak<Link>, mut from: impl AsyncRead + Unpin) {
    loop {
        let told: io::Result<Option<Tell>> = wire::receive(&mut from).await;
        let Some(link) = link.upgrade() else { return };
        let mut waiting = link.waiting();
        match told {
            Ok(Some(Tell::Done { id, answer })) => {
                if let Some(wait) = waiting.answers.remove(&id) {
                    _ = wait.send(answer.map_err(Error::from));
                }
            }
            Ok(Some(Tell::Noticed { process, what })) => {
                // There is room for all that the far end may send; one that sends more is not listened to.
                if waiting.programs.get(&process).is_some_and(|listener| listener.try_send(what).is_err()) {
                    waiting.programs.remove(&process);
                }
            }
            Ok(Some(Tell::Ready { .. })) => {}
            Ok(None) | Err(_) => {
                *waiting = Waiting { closed: true, ..Waiting::default() };
                return;
            }
        }
    }
}

/// One operation: ask, and take the answer of its kind.
macro_rules! asked {
    ($self:ident, $deed:expr, $kind:path) => {
        match $self.ask($deed).await? {
            $kind(answer) => Ok(answer),
            _ => Err($self.confused()),
        }
    };
}

#[async_trait]
impl Host for Remote {
    fn name(&self) -> &str {
        &self.link.name
    }

    async fn stat(&self, path: &SafePath) -> Result<Stat> {
        asked!(self, Deed::Stat(path.into()), Answer::Stat)
    }

    async fn real_path(&self, path: &SafePath) -> Result<std::path::PathBuf> {
        asked!(self, Deed::RealPath(path.into()), Answer::RealPath)
    }

    async fn read(&self, path: &SafePath, span: Span) -> Result<Chunk> {
        let part = |start: u64, len: u64| Deed::Read(path.into(), Span { start, len: len.min(wire::PART) });
        let mut chunk: Chunk = asked!(self, part(span.start, span.len), Answer::Chunk)?;
        // A file that does not fit into one message comes in several, all of the same state.
        while (chunk.bytes.len() as u64) < span.len && span.start.saturating_add(chunk.bytes.len() as u64) < chunk.size
        {
            let had = chunk.bytes.len() as u64;
            let more: Chunk = asked!(self, part(span.start + had, span.len - had), Answer::Chunk)?;
            if more.stamp != chunk.stamp {
                return Err(Error::file(path, FileFault::Changed));
            }
            if more.bytes.is_empty() {
                break;
            }
            chunk.bytes.extend(more.bytes);
        }
        Ok(chunk)
    }

    async fn write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<Written> {
        asked!(self, Deed::Write(path.into(), bytes.to_vec(), expect), Answer::Written)
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Vec<String>> {
        let changes = changes
            .into_iter()
            .map(|change| match change {
                Change::Write { path, bytes, expect, like } => {
                    OneChange::Write { path: (&path).into(), bytes, expect, like: like.as_ref().map(Into::into) }
                }
                Change::Remove { path, expect } => OneChange::Remove { path: (&path).into(), expect },
            })
            .collect();
        asked!(self, Deed::Change(changes), Answer::Remarks)
    }

    async fn remove(&self, path: &SafePath) -> Result<Kind> {
        asked!(self, Deed::Remove(path.into()), Answer::Kind)
    }

    async fn list(&self, path: &SafePath) -> Result<Vec<Item>> {
        asked!(self, Deed::List(path.into()), Answer::Items)
    }

    async fn find(&self, path: &SafePath, find: &Find) -> Result<Found> {
        asked!(self, Deed::Find(path.into(), find.clone()), Answer::Found)
    }

    async fn grep(&self, path: &SafePath, grep: &Grep) -> Result<Matches> {
        asked!(self, Deed::Grep(path.into(), grep.clone()), Answer::Matches)
    }

    async fn spawn(&self, command: &Command) -> Result<Box<dyn Process>> {
        let (listener, told) = mpsc::channel(wire::WINDOW);
        let id = self.link.number();
        self.link.waiting().programs.insert(id, listener);
        // Made before it is asked for: whoever gives up on the way ends it.
        let mut program = Program { id, level: Level::None, told, link: self.link.clone(), end: None };
        let Answer::Process(level) = self.link.ask(id, &Ask::Do { id, deed: Deed::Spawn(command.into()) }).await?
        else {
            return Err(self.confused());
        };
        if self.link.waiting().closed {
            return Err(self.link.lost());
        }
        program.level = level;
        Ok(Box::new(program))
    }

    fn level(&self) -> Level {
        self.level
    }
}

/// A program on the other machine.
struct Program {
    id: u64,
    level: Level,
    told: mpsc::Receiver<Noticed>,
    link: Arc<Link>,
    end: Option<Exit>,
}

impl Program {
    async fn order(&self, order: Order) -> Result<()> {
        let id = self.link.number();
        self.link.ask(id, &Ask::Order { id, process: self.id, order }).await.map(drop)
    }
}

#[async_trait]
impl Process for Program {
    async fn next(&mut self) -> Noticed {
        if let Some(end) = &self.end {
            return Noticed::Exit(end.clone());
        }
        let what = self.told.recv().await.unwrap_or_else(|| {
            let denials = vec!["the connection to the program's machine was lost; the program was ended there".into()];
            Noticed::Exit(Exit { code: 255, signal: None, left_behind: false, denials, dir: None })
        });
        match &what {
            Noticed::Exit(exit) => self.end = Some(exit.clone()),
            Noticed::Stdout(_) | Noticed::Stderr(_) => self.link.tell(&Ask::Took { process: self.id }),
        }
        what
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.order(Order::Input(bytes.to_vec())).await
    }

    async fn close(&mut self) -> Result<()> {
        self.order(Order::Close).await
    }

    async fn signal(&mut self, signal: Signal) -> Result<()> {
        self.order(Order::Signal(signal)).await
    }

    fn level(&self) -> Level {
        self.level
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.link.waiting().programs.remove(&self.id);
        self.link.tell(&Ask::Drop { process: self.id });
    }
}
