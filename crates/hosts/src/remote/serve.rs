//! The far end: a host of this machine, served to whoever holds the other end of the pipe.

use std::{collections::HashMap, io, sync::Arc};

use helve_contract::{
    Error, Result, Workspace,
    ports::{Change, Host, Noticed, Process, Signal},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};

use super::wire::{self, Answer, Ask, Deed, OneChange, Tell};

/// How many messages wait for the pipe before programs are slowed down.
const QUEUE: usize = 64;

/// What is done to a running program.
enum Order {
    Input(Vec<u8>),
    Close,
    Signal(Signal),
}

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
    let workspace = Arc::new(place.workspace());
    let (out, mut queue) = mpsc::channel::<Tell>(QUEUE);
    let writer = tokio::spawn(async move {
        while let Some(message) = queue.recv().await {
            if wire::send(&mut to, &message).await.is_err() {
                break;
            }
        }
    });

    let mut programs = Programs { next: 1, running: HashMap::new() };
    while let Ok(Some(ask)) = wire::receive::<Ask>(&mut from).await {
        match ask {
            Ask::Do { id, deed: Deed::Spawn(program) } => {
                let answer = programs.start(&*host, &workspace, program, &out).await.map_err(Into::into);
                _ = out.send(Tell::Done { id, answer }).await;
            }
            Ask::Do { id, deed } => {
                let (host, workspace, out) = (host.clone(), workspace.clone(), out.clone());
                tokio::spawn(async move {
                    let answer = perform(&*host, &workspace, deed).await.map_err(Into::into);
                    _ = out.send(Tell::Done { id, answer }).await;
                });
            }
            Ask::Input { process, bytes } => programs.order(process, Order::Input(bytes)),
            Ask::Close { process } => programs.order(process, Order::Close),
            Ask::Signal { process, signal } => programs.order(process, Order::Signal(signal)),
            Ask::Drop { process } => _ = programs.running.remove(&process),
            Ask::Hello { .. } => {}
        }
    }
    drop(programs);
    drop(out);
    _ = writer.await;
    Ok(())
}

/// The programs that run for the other end, each cared for by a task of its own.
struct Programs {
    next: u64,
    running: HashMap<u64, mpsc::UnboundedSender<Order>>,
}

impl Programs {
    async fn start(
        &mut self,
        host: &dyn Host,
        workspace: &Workspace,
        program: wire::Program,
        out: &mpsc::Sender<Tell>,
    ) -> Result<Answer> {
        let process = host.spawn(&program.command(workspace)?).await?;
        let level = process.level();
        let id = self.next;
        self.next += 1;
        let (orders, queue) = mpsc::unbounded_channel();
        self.running.insert(id, orders);
        tokio::spawn(care(id, process, queue, out.clone()));
        Ok(Answer::Process(id, level))
    }

    fn order(&self, process: u64, order: Order) {
        if let Some(orders) = self.running.get(&process) {
            _ = orders.send(order);
        }
    }
}

/// Passes on what a program does and what is done to it. Ends, and ends the program, when nobody gives orders any more.
async fn care(
    id: u64,
    mut process: Box<dyn Process>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    out: mpsc::Sender<Tell>,
) {
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                None => return,
                Some(Order::Input(bytes)) => _ = process.write(&bytes).await,
                Some(Order::Close) => _ = process.close().await,
                Some(Order::Signal(signal)) => _ = process.signal(signal).await,
            },
            what = process.next() => {
                let ended = matches!(what, Noticed::Exit(_));
                if out.send(Tell::Noticed { process: id, what }).await.is_err() || ended {
                    return;
                }
            }
        }
    }
}

async fn perform(host: &dyn Host, workspace: &Workspace, deed: Deed) -> Result<Answer> {
    Ok(match deed {
        Deed::Stat(path) => Answer::Stat(host.stat(&path.check(workspace)?).await?),
        Deed::Read(path, span) => Answer::Chunk(host.read(&path.check(workspace)?, span).await?),
        Deed::Write(path, bytes, expect) => Answer::Written(host.write(&path.check(workspace)?, &bytes, expect).await?),
        Deed::Change(changes) => {
            let changes = changes.into_iter().map(|it| checked(it, workspace)).collect::<Result<_>>()?;
            host.change(changes).await?;
            Answer::Nothing
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
