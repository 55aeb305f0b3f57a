//! A host on another machine: the same program runs there and serves its local host over a pipe.
//!
//! Everything goes over one connection: files, searches, programs with their output and signals. When the pipe
//! closes, the far end ends every program it started for us. What carries the pipe is another matter: [`Ssh`] starts
//! the far end with the `ssh` program.

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
    Error, Result, SafePath, Workspace,
    ports::{
        Change, Chunk, Command, Exit, Expect, Find, Found, Grep, Host, Item, Kind, Level, Matches, Noticed, Process,
        Signal, Span, Stat, Written,
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
};

use self::wire::{Answer, Ask, Deed, OneChange, Place, Tell};
pub use self::{
    route::{Allowed, Routed, host_exec, run_forced},
    serve::serve,
    ssh::Ssh,
};

/// How long the far end may take to greet.
const GREETING: Duration = Duration::from_secs(30);

/// A host at the other end of a pipe.
pub struct Remote {
    name: String,
    level: Level,
    link: Arc<Link>,
}

/// The near end of the pipe. Closing it ends the far end.
struct Link {
    out: mpsc::UnboundedSender<Ask>,
    next: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    answers: HashMap<u64, oneshot::Sender<Result<Answer>>>,
    programs: HashMap<u64, mpsc::UnboundedSender<Noticed>>,
    /// What was told of a program before anybody listened to it.
    early: HashMap<u64, Vec<Noticed>>,
    closed: bool,
}

impl Remote {
    /// Greets the far end over a pipe.
    pub async fn connect(
        name: impl Into<String>,
        workspace: &Workspace,
        mut from: impl AsyncRead + Unpin + Send + 'static,
        mut to: impl AsyncWrite + Unpin + Send + 'static,
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
        let (out, queue) = mpsc::unbounded_channel();
        let link = Arc::new(Link { out, next: AtomicU64::new(1), waiting: Mutex::default() });
        tokio::spawn(write(queue, to));
        tokio::spawn(read(Arc::downgrade(&link), from));
        Ok(Self { name, level, link })
    }

    async fn ask(&self, deed: Deed) -> Result<Answer> {
        let id = self.link.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (answer, wait) = oneshot::channel();
        {
            let mut waiting = self.link.waiting();
            if waiting.closed {
                return Err(self.lost());
            }
            waiting.answers.insert(id, answer);
        }
        self.link.out.send(Ask::Do { id, deed }).map_err(|_| self.lost())?;
        wait.await.map_err(|_| self.lost())?
    }

    fn lost(&self) -> Error {
        Error::failed(format!("the connection to {} is lost; nothing more was done there", self.name))
    }

    fn confused(&self) -> Error {
        Error::failed(format!("{} answered something else than was asked", self.name))
    }
}

impl Link {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write(mut queue: mpsc::UnboundedReceiver<Ask>, mut to: impl AsyncWrite + Unpin) {
    while let Some(message) = queue.recv().await {
        if wire::send(&mut to, &message).await.is_err() {
            return;
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
            Ok(Some(Tell::Noticed { process, what })) => match waiting.programs.get(&process) {
                Some(listener) => _ = listener.send(what),
                None => waiting.early.entry(process).or_default().push(what),
            },
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
        &self.name
    }

    async fn stat(&self, path: &SafePath) -> Result<Stat> {
        asked!(self, Deed::Stat(path.into()), Answer::Stat)
    }

    async fn read(&self, path: &SafePath, span: Span) -> Result<Chunk> {
        asked!(self, Deed::Read(path.into(), span), Answer::Chunk)
    }

    async fn write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<Written> {
        asked!(self, Deed::Write(path.into(), bytes.to_vec(), expect), Answer::Written)
    }

    async fn change(&self, changes: Vec<Change>) -> Result<()> {
        let changes = changes
            .into_iter()
            .map(|change| match change {
                Change::Write { path, bytes, expect, like } => {
                    OneChange::Write { path: (&path).into(), bytes, expect, like: like.as_ref().map(Into::into) }
                }
                Change::Remove { path, expect } => OneChange::Remove { path: (&path).into(), expect },
            })
            .collect();
        match self.ask(Deed::Change(changes)).await? {
            Answer::Nothing => Ok(()),
            _ => Err(self.confused()),
        }
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
        let Answer::Process(id, level) = self.ask(Deed::Spawn(command.into())).await? else {
            return Err(self.confused());
        };
        let (listener, told) = mpsc::unbounded_channel();
        let mut waiting = self.link.waiting();
        for what in waiting.early.remove(&id).unwrap_or_default() {
            _ = listener.send(what);
        }
        if !waiting.closed {
            waiting.programs.insert(id, listener);
        }
        drop(waiting);
        Ok(Box::new(Program { id, level, told, link: self.link.clone(), end: None }))
    }

    fn level(&self) -> Level {
        self.level
    }
}

/// A program on the other machine.
struct Program {
    id: u64,
    level: Level,
    told: mpsc::UnboundedReceiver<Noticed>,
    link: Arc<Link>,
    end: Option<Exit>,
}

impl Program {
    fn send(&self, ask: Ask) -> Result<()> {
        self.link.out.send(ask).map_err(|_| Error::failed("the connection to the program's machine is lost"))
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
            Noticed::Exit(Exit { code: 255, signal: None, left_behind: false, denials })
        });
        if let Noticed::Exit(exit) = &what {
            self.end = Some(exit.clone());
        }
        what
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.send(Ask::Input { process: self.id, bytes: bytes.to_vec() })
    }

    async fn close(&mut self) -> Result<()> {
        self.send(Ask::Close { process: self.id })
    }

    async fn signal(&mut self, signal: Signal) -> Result<()> {
        self.send(Ask::Signal { process: self.id, signal })
    }

    fn level(&self) -> Level {
        self.level
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.link.waiting().programs.remove(&self.id);
        _ = self.link.out.send(Ask::Drop { process: self.id });
    }
}
