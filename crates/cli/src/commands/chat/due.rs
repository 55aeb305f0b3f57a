//! Schedules that are due while a conversation is open: what is for it is said in it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use helve_agent::{
    Handle, Inbox,
    scheduler::{Deliver, Fired, Notify},
};
use helve_contract::{
    CancellationToken, async_trait,
    ports::{Delivery, InboxItem, Part, RunStatus, Schedule, Speaker},
};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    task::JoinHandle,
};

use super::{Chat, spin};
use crate::{
    fault::Fault,
    notify::Told,
    print::harmless,
    schedules,
    terminal::{Screen, short},
};

/// What comes while the prompt waits.
pub(super) enum Come {
    /// A schedule is due in this conversation.
    Due(Due),
    /// An agent in the background has ended.
    Message(String),
    /// The result of a schedule that this conversation made.
    Note(String),
}

/// What a schedule has to say.
pub(super) struct Due {
    session: String,
    words: String,
    cancel: CancellationToken,
    /// Nothing: the conversation is not open here any more.
    answer: oneshot::Sender<Option<Fired>>,
}

/// What schedules have to say, in order.
pub(super) struct Dues {
    door: Arc<Door>,
    come: UnboundedReceiver<Come>,
}

/// Takes what is for the conversation that is open.
struct Door {
    open: Mutex<String>,
    send: UnboundedSender<Come>,
}

/// Schedules are driven until this ends.
pub(super) struct Driving {
    cancel: CancellationToken,
    work: Option<JoinHandle<()>>,
}

impl Dues {
    /// For a conversation that is about to be opened.
    pub(super) fn new() -> Self {
        let (send, come) = unbounded_channel();
        Self { door: Arc::new(Door { open: Mutex::default(), send }), come }
    }

    /// Another conversation is open now.
    pub(super) fn moved(&self, session: &str) {
        session.clone_into(&mut self.door.open.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The next one that somebody still waits for.
    pub(super) async fn next(&mut self) -> Come {
        loop {
            match self.come.recv().await {
                Some(Come::Due(due)) if due.answer.is_closed() => {}
                Some(come) => return come,
                // The door is here, so this is never reached; and then there is nothing to wait for.
                None => std::future::pending().await,
            }
        }
    }
}

impl Dues {
    /// Where the words of agents go that end in the background. They begin a turn when the prompt waits.
    pub(super) fn inbox(&self, handle: Arc<OnceLock<Handle>>) -> Inbox {
        let send = self.door.send.clone();
        Arc::new(move |words| {
            if let Some(handle) = handle.get().filter(|it| it.is_busy()) {
                // The turn that runs reads them when the model is done.
                handle.follow_up(words);
                return Some(Delivery::Running);
            }
            send.send(Come::Message(words)).ok()?;
            Some(Delivery::Woken)
        })
    }
}

impl Driving {
    /// Stops what runs; whoever drives next begins it again.
    pub(super) async fn end(self) {
        self.cancel.cancel();
        if let Some(work) = self.work {
            _ = work.await;
        }
    }
}

#[async_trait]
impl Deliver for Door {
    async fn deliver(&self, session: &str, words: &str, cancel: &CancellationToken) -> Option<Fired> {
        if *self.open.lock().unwrap_or_else(PoisonError::into_inner) != session {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        let (session, words) = (session.to_owned(), words.to_owned());
        self.send.send(Come::Due(Due { session, words, cancel: cancel.clone(), answer })).ok()?;
        tokio::select! {
            fired = answered => fired.ok()?,
            () = cancel.cancelled() => Some(Fired { status: RunStatus::Cancelled, ..Fired::failed("cancelled") }),
        }
    }

    async fn note(&self, session: &str, text: &str) -> bool {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) == session
            && self.send.send(Come::Note(text.to_owned())).is_ok()
    }
}

/// Notices of schedules, on the screen.
struct Aloud {
    screen: Screen,
    told: Told,
}

#[async_trait]
impl Notify for Aloud {
    async fn notify(&self, schedule: &Schedule, text: &str) -> bool {
        if schedule.channel.is_some() {
            return self.told.notify(schedule, text).await;
        }
        let name = schedule.name.as_deref().unwrap_or(&schedule.id);
        self.screen.line(&format!("[{}] {}", harmless(name), harmless(text)));
        self.screen.surface();
        true
    }
}

impl Chat {
    /// Drives the schedules while this conversation is open.
    pub(super) fn drive(&self) -> Result<Driving, Fault> {
        let cancel = CancellationToken::new();
        let settings = self.bench.settings();
        if !settings.config.schedule.in_chat {
            return Ok(Driving { cancel, work: None });
        }
        let notify = Arc::new(Aloud { screen: self.screen.clone(), told: Told::new(settings) });
        let driver = schedules::driver_beside(&self.bench, notify, Some(self.dues.door.clone()))?;
        let until = cancel.clone();
        Ok(Driving { cancel, work: Some(tokio::spawn(async move { driver.drive(until).await })) })
    }

    /// Sees to what came while the prompt waited.
    pub(super) async fn attend(&mut self, come: Come) -> Result<(), Fault> {
        match come {
            Come::Due(due) => self.attend_due(due).await,
            Come::Message(words) => {
                // Nobody waits for the answer; a line that was begun at the prompt stays as with a schedule.
                let (answer, _) = oneshot::channel();
                let session = self.agent.session.id.clone();
                self.attend_due(Due { session, words, cancel: CancellationToken::new(), answer }).await
            }
            Come::Note(text) => {
                self.screen.line(&harmless(&text));
                self.screen.surface();
                Ok(self.agent.leave(&InboxItem::text(Speaker::System, text)).await?)
            }
        }
    }

    /// One turn for a schedule.
    async fn attend_due(&mut self, due: Due) -> Result<(), Fault> {
        if due.session != self.agent.session.id {
            _ = due.answer.send(None);
            return Ok(());
        }
        let look = self.screen.look;
        self.screen.line(&look.dim(&short(&due.words, 200)));
        let store = self.bench.store().clone();
        let before = store.messages(&self.agent.session.id, None, 1).await?.last().map_or(0, |it| it.seq);
        self.bench.memory().begin();
        self.marks.push(before);
        self.screen.status(Some("thinking"));
        let spinning = tokio::spawn(spin(self.screen.clone()));
        let agent = self.agent.clone();
        let mut said = agent.handle.take_follow_ups();
        said.push(due.words);
        let work = agent.turn(said.into_iter().map(|text| Part::Text { text }).collect());
        tokio::pin!(work);
        let outcome = loop {
            tokio::select! {
                outcome = &mut work => break outcome,
                () = due.cancel.cancelled(), if !due.cancel.is_cancelled() => self.agent.handle.cancel(),
                () = self.stop.notified() => self.agent.handle.cancel(),
                _ = self.signals.interrupt.recv() => self.agent.handle.cancel(),
            }
        };
        spinning.abort();
        self.screen.status(None);
        self.screen.end_line();
        let outcome = outcome?;
        self.tell(&outcome);
        _ = due.answer.send(Some(outcome.into()));
        Ok(())
    }
}
