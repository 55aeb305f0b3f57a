//! The server side: serves a host of this machine over a pipe.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use helve_contract::{
    Error, Result, Workspace,
    ports::{FileChange, Host, Process, ProcessEvent},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};

use super::wire::{self, ClientMessage, HostRequest, HostResponse, ProcessControl, ServerMessage, WireChange};

/// The maximum number of queued frames before programs are slowed down.
const MAX_QUEUED_FRAMES: usize = 64;
/// How long the final messages may take after the client has closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves `host` until the client closes, then ends every running program.
pub async fn serve(
    host: Arc<dyn Host>,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let Some(ClientMessage::Hello { version, place }) = wire::receive(&mut from).await? else {
        return Err(io::Error::other("the other end did not greet"));
    };
    wire::send(&mut to, &ServerMessage::Ready { version: wire::VERSION, level: host.sandbox_level() }).await?;
    if version != wire::VERSION {
        return Err(io::Error::other(format!("the other end speaks version {version}, this one {}", wire::VERSION)));
    }
    let (out, mut queue) = mpsc::channel(MAX_QUEUED_FRAMES);
    let writer = tokio::spawn(wire::write_frames(async move || queue.recv().await, to));
    let mut desk = RemoteServer {
        host,
        workspace: Arc::new(place.workspace()),
        out: ResponseSender(out),
        programs: HashMap::new(),
        tasks: JoinSet::new(),
        handles: HashMap::new(),
    };
    while let Ok(Some(ask)) = wire::receive::<ClientMessage>(&mut from).await {
        desk.handle(ask).await;
    }
    drop(desk);
    _ = tokio::time::timeout(DRAIN_TIMEOUT, writer).await;
    Ok(())
}

#[derive(Clone)]
struct ResponseSender(mpsc::Sender<Vec<u8>>);

impl ResponseSender {
    /// Answers a request; an answer above the size limit becomes an error.
    async fn respond(&self, id: u64, answer: Result<HostResponse>) {
        let frame = wire::frame(&ServerMessage::Done { id, answer: answer.map_err(Into::into) }).or_else(|error| {
            wire::frame(&ServerMessage::Done {
                id,
                answer: Err(Error::failed(format!("the answer is {error}")).into()),
            })
        });
        if let Ok(frame) = frame {
            _ = self.0.send(frame).await;
        }
    }

    /// Sends an event of a program; returns false if the client is gone.
    async fn send_event(&self, process: u64, what: ProcessEvent) -> bool {
        match wire::frame(&ServerMessage::Noticed { process, what }) {
            Ok(frame) => self.0.send(frame).await.is_ok(),
            Err(_) => false,
        }
    }
}

/// The requests in progress. Dropping it cancels all of them.
struct RemoteServer {
    host: Arc<dyn Host>,
    workspace: Arc<Workspace>,
    out: ResponseSender,
    /// Control channels of the programs; a task drives each program.
    programs: HashMap<u64, mpsc::UnboundedSender<ProcessCommand>>,
    tasks: JoinSet<()>,
    handles: HashMap<u64, AbortHandle>,
}

enum ProcessCommand {
    Control(u64, ProcessControl),
    Ack,
}

impl RemoteServer {
    async fn handle(&mut self, ask: ClientMessage) {
        match ask {
            // Handled in order, so that later messages about the program find it.
            ClientMessage::Do { id, deed: HostRequest::Spawn(program) } => {
                let answer = self.start(id, program).await;
                self.out.respond(id, answer).await;
            }
            ClientMessage::Do { id, deed } => self.spawn_operation(id, deed),
            ClientMessage::Forget { id } => {
                if let Some(handle) = self.handles.remove(&id) {
                    handle.abort();
                }
            }
            ClientMessage::Order { id, process, order } => {
                let told = match self.programs.get(&process) {
                    Some(program) => program.send(ProcessCommand::Control(id, order)).map_err(|unsent| unsent.0),
                    None => Err(ProcessCommand::Control(id, order)),
                };
                if let Err(ProcessCommand::Control(id, order)) = told {
                    self.out.respond(id, control_after_exit(&order)).await;
                }
            }
            ClientMessage::Took { process } => {
                if let Some(program) = self.programs.get(&process) {
                    _ = program.send(ProcessCommand::Ack);
                }
            }
            ClientMessage::Drop { process } => _ = self.programs.remove(&process),
            ClientMessage::Hello { .. } => {}
        }
    }

    fn spawn_operation(&mut self, id: u64, deed: HostRequest) {
        while self.tasks.try_join_next().is_some() {}
        self.handles.retain(|_, handle| !handle.is_finished());
        let (host, workspace, out) = (self.host.clone(), self.workspace.clone(), self.out.clone());
        let handle = self.tasks.spawn(async move {
            let answer = perform(&*host, &workspace, deed).await;
            out.respond(id, answer).await;
        });
        self.handles.insert(id, handle);
    }

    async fn start(&mut self, id: u64, program: wire::WireCommand) -> Result<HostResponse> {
        let process = self.host.spawn(&program.command(&self.workspace)?).await?;
        let level = process.sandbox_level();
        let (orders, queue) = mpsc::unbounded_channel();
        self.programs.insert(id, orders);
        tokio::spawn(drive_process(id, process, queue, self.out.clone()));
        Ok(HostResponse::Process(level))
    }
}

/// The answer to a control message for a program that has exited.
fn control_after_exit(order: &ProcessControl) -> Result<HostResponse> {
    match order {
        ProcessControl::Input(_) => Err(Error::failed("the program has ended; nothing reads its input any more")),
        ProcessControl::Close | ProcessControl::Signal(_) => Ok(HostResponse::Nothing),
    }
}

/// Forwards a program's events and control messages. Ends the program when the control channel closes.
async fn drive_process(
    id: u64,
    mut process: Box<dyn Process>,
    mut queue: mpsc::UnboundedReceiver<ProcessCommand>,
    out: ResponseSender,
) {
    // The window bounds output in flight: a program that writes faster than its reader waits, as at a pipe.
    let mut room = wire::OUTPUT_WINDOW;
    loop {
        tokio::select! {
            told = queue.recv() => match told {
                None => return,
                Some(ProcessCommand::Ack) => room += 1,
                Some(ProcessCommand::Control(order_id, order)) => {
                    let done = match order {
                        ProcessControl::Input(bytes) => process.write(&bytes).await,
                        ProcessControl::Close => process.close_stdin().await,
                        ProcessControl::Signal(signal) => process.signal(signal).await,
                    };
                    out.respond(order_id, done.map(|()| HostResponse::Nothing)).await;
                }
            },
            what = process.next(), if room > 0 => {
                room -= 1;
                let ended = matches!(what, ProcessEvent::Exit(_));
                if !out.send_event(id, what).await || ended {
                    break;
                }
            }
        }
    }
    // Control messages that crossed the exit are answered too.
    queue.close();
    while let Some(told) = queue.recv().await {
        if let ProcessCommand::Control(order_id, order) = told {
            out.respond(order_id, control_after_exit(&order)).await;
        }
    }
}

async fn perform(host: &dyn Host, workspace: &Workspace, deed: HostRequest) -> Result<HostResponse> {
    Ok(match deed {
        HostRequest::Stat(path) => HostResponse::Stat(host.stat(&path.check(workspace)?).await?),
        HostRequest::RealPath(path) => HostResponse::RealPath(host.real_path(&path.check(workspace)?).await?),
        HostRequest::Read(path, span) => HostResponse::Chunk(host.read(&path.check(workspace)?, span).await?),
        HostRequest::Write(path, bytes, expect) => {
            HostResponse::Written(host.write(&path.check(workspace)?, &bytes, expect).await?)
        }
        HostRequest::Change(changes) => {
            let changes = changes.into_iter().map(|it| check_change(it, workspace)).collect::<Result<_>>()?;
            HostResponse::Remarks(host.apply_changes(changes).await?)
        }
        HostRequest::Remove(path) => HostResponse::Kind(host.remove(&path.check(workspace)?).await?),
        HostRequest::List(path) => HostResponse::Items(host.list(&path.check(workspace)?).await?),
        HostRequest::Find(path, find) => HostResponse::Found(host.find(&path.check(workspace)?, &find).await?),
        HostRequest::Grep(path, grep) => HostResponse::Matches(host.grep(&path.check(workspace)?, &grep).await?),
        HostRequest::Spawn(_) => return Err(Error::failed("a program is started elsewhere")),
    })
}

fn check_change(change: WireChange, workspace: &Workspace) -> Result<FileChange> {
    Ok(match change {
        WireChange::Write { path, bytes, expect, like } => FileChange::Write {
            path: path.check(workspace)?,
            bytes,
            expect,
            like: like.map(|it| it.check(workspace)).transpose()?,
        },
        WireChange::Remove { path, expect } => FileChange::Remove { path: path.check(workspace)?, expect },
    })
}
