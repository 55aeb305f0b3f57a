//! The far end: a host of this machine, served to whoever holds the other end of the pipe.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use helve_contract::{
    Error, Result, Workspace,
    ports::{Change, Host, Noticed, Process},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};

use super::wire::{self, Answer, Ask, Deed, OneChange, Order, Tell};

/// How many messages wait for the pipe before programs are slowed down.
const QUEUE: usize = 64;
/// How long the last words may take once the other end has stopped asking.
const PARTING: Duration = Duration::from_secs(1);

/// Serves `host` until the other end closes. Every program that is still running then is ended.
pub async fn serve(
    host: Arc<dyn Host>,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let Some(Ask::Hello { version, place }) = wire::receive(&mut from).await? else {
        return Err(io::Error::other("the other end did not greet"));
    };
    wire::send(&mut to, &Tell::Ready { version: wire::VERSION, level: host.level() }).await?;
    if version != wire::VERSION {
        return Err(io::Error::other(format!("the other end speaks version {version}, this one {}", wire::VERSION)));
    }
    let (out, mut queue) = mpsc::channel(QUEUE);
    let writer = tokio::spawn(wire::pass_on(async move || queue.recv().await, to));
    let mut desk = Desk {
        host,
        workspace: Arc::new(place.workspace()),
        out: Out(out),
        programs: HashMap::new(),
        works: JoinSet::new(),
        handles: HashMap::new(),
    };
    while let Ok(Some(ask)) = wire::receive::<Ask>(&mut from).await {
        desk.take(ask).await;
    }
    drop(desk);
    _ = tokio::time::timeout(PARTING, writer).await;
    Ok(())
}

/// The way back.
#[derive(Clone)]
struct Out(mpsc::Sender<Vec<u8>>);

impl Out {
    /// Answers a question; an answer that is too long becomes one that says so.
    async fn answer(&self, id: u64, answer: Result<Answer>) {
        let frame = wire::frame(&Tell::Done { id, answer: answer.map_err(Into::into) }).or_else(|error| {
            wire::frame(&Tell::Done { id, answer: Err(Error::failed(format!("the answer is {error}")).into()) })
        });
        if let Ok(frame) = frame {
            _ = self.0.send(frame).await;
        }
    }

    /// Tells what a program did; false when nobody listens.
    async fn notice(&self, process: u64, what: Noticed) -> bool {
        match wire::frame(&Tell::Noticed { process, what }) {
            Ok(frame) => self.0.send(frame).await.is_ok(),
            Err(_) => false,
        }
    }
}

/// What the far end is busy with. Dropping it gives all of it up.
struct Desk {
    host: Arc<dyn Host>,
    workspace: Arc<Workspace>,
    out: Out,
    /// Orders for the programs, each cared for by a task of its own.
    programs: HashMap<u64, mpsc::UnboundedSender<Told>>,
    works: JoinSet<()>,
    handles: HashMap<u64, AbortHandle>,
}

/// What a program's task is told.
enum Told {
    Order(u64, Order),
    Took,
}

impl Desk {
    async fn take(&mut self, ask: Ask) {
        match ask {
            // Done in turn, so that whatever is said about the program comes after it.
            Ask::Do { id, deed: Deed::Spawn(program) } => {
                let answer = self.start(id, program).await;
                self.out.answer(id, answer).await;
            }
            Ask::Do { id, deed } => self.work(id, deed),
            Ask::Forget { id } => {
                if let Some(handle) = self.handles.remove(&id) {
                    handle.abort();
                }
            }
            Ask::Order { id, process, order } => {
                let told = match self.programs.get(&process) {
                    Some(program) => program.send(Told::Order(id, order)).map_err(|unsent| unsent.0),
                    None => Err(Told::Order(id, order)),
                };
                if let Err(Told::Order(id, order)) = told {
                    self.out.answer(id, too_late(&order)).await;
                }
            }
            Ask::Took { process } => {
                if let Some(program) = self.programs.get(&process) {
                    _ = program.send(Told::Took);
                }
            }
            Ask::Drop { process } => _ = self.programs.remove(&process),
            Ask::Hello { .. } => {}
        }
    }

    fn work(&mut self, id: u64, deed: Deed) {
        while self.works.try_join_next().is_some() {}
        self.handles.retain(|_, handle| !handle.is_finished());
        let (host, workspace, out) = (self.host.clone(), self.workspace.clone(), self.out.clone());
        let handle = self.works.spawn(async move {
            let answer = perform(&*host, &workspace, deed).await;
            out.answer(id, answer).await;
        });
        self.handles.insert(id, handle);
    }

    async fn start(&mut self, id: u64, program: wire::Program) -> Result<Answer> {
        let process = self.host.spawn(&program.command(&self.workspace)?).await?;
        let level = process.level();
        let (orders, queue) = mpsc::unbounded_channel();
        self.programs.insert(id, orders);
        tokio::spawn(care(id, process, queue, self.out.clone()));
        Ok(Answer::Process(level))
    }
}

/// What an order to a program that has ended comes to.
fn too_late(order: &Order) -> Result<Answer> {
    match order {
        Order::Input(_) => Err(Error::failed("the program has ended; nothing reads its input any more")),
        Order::Close | Order::Signal(_) => Ok(Answer::Nothing),
    }
}

/// Passes on what a program does and what is done to it. Ends, and ends the program, when nobody gives orders any more.
async fn care(id: u64, mut process: Box<dyn Process>, mut queue: mpsc::UnboundedReceiver<Told>, out: Out) {
    // Only so much is under way: a program that writes faster than it is read waits, as it would at a pipe.
    let mut room = wire::WINDOW;
    loop {
        tokio::select! {
            told = queue.recv() => match told {
                None => return,
                Some(Told::Took) => room += 1,
                Some(Told::Order(order_id, order)) => {
                    let done = match order {
                        Order::Input(bytes) => process.write(&bytes).await,
                        Order::Close => process.close().await,
                        Order::Signal(signal) => process.signal(signal).await,
                    };
                    out.answer(order_id, done.map(|()| Answer::Nothing)).await;
                }
            },
            what = process.next(), if room > 0 => {
                room -= 1;
                let ended = matches!(what, Noticed::Exit(_));
                if !out.notice(id, what).await || ended {
                    break;
                }
            }
        }
    }
    // Orders that crossed the end on their way are answered too.
    queue.close();
    while let Some(told) = queue.recv().await {
        if let Told::Order(order_id, order) = told {
            out.answer(order_id, too_late(&order)).await;
        }
    }
}

async fn perform(host: &dyn Host, workspace: &Workspace, deed: Deed) -> Result<Answer> {
    Ok(match deed {
        Deed::Stat(path) => Answer::Stat(host.stat(&path.check(workspace)?).await?),
        Deed::RealPath(path) => Answer::RealPath(host.real_path(&path.check(workspace)?).await?),
        Deed::Read(path, span) => Answer::Chunk(host.read(&path.check(workspace)?, span).await?),
        Deed::Write(path, bytes, expect) => Answer::Written(host.write(&path.check(workspace)?, &bytes, expect).await?),
        Deed::Change(changes) => {
            let changes = changes.into_iter().map(|it| checked(it, workspace)).collect::<Result<_>>()?;
            Answer::Remarks(host.change(changes).await?)
        }
        Deed::Remove(path) => Answer::Kind(host.remove(&path.check(workspace)?).await?),
        Deed::List(path) => Answer::Items(host.list(&path.check(workspace)?).await?),
        Deed::Find(path, find) => Answer::Found(host.find(&path.check(workspace)?, &find).await?),
        Deed::Grep(path, grep) => Answer::Matches(host.grep(&path.check(workspace)?, &grep).await?),
        Deed::Spawn(_) => return Err(Error::failed("a program is started elsewhere")),
    })
}

fn checked(change: OneChange, workspace: &Workspace) -> Result<Change> {
    Ok(match change {
        OneChange::Write { path, bytes, expect, like } => Change::Write {
            path: path.check(workspace)?,
            bytes,
            expect,
            like: like.map(|it| it.check(workspace)).transpose()?,
        },
        OneChange::Remove { path, expect } => Change::Remove { path: path.check(workspace)?, expect },
    })
}
