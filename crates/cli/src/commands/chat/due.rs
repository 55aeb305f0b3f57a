//! Schedules that are due while a session is open in `helve chat`; their results appear in it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use helve_agent::{
    AgentHandle, Inbox,
    scheduler::{RunOutcome, ScheduleNotifier, SessionDelivery},
};
use helve_contract::{
    CancellationToken, async_trait,
    ports::{Delivery, InboxItem, MessagePart, MessageRole, Schedule, ScheduleRunStatus},
};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    task::JoinHandle,
};

use super::{Chat, redraw_loop};
use crate::{
    fault::CliError,
    notify::Told,
    print::escape_for_terminal,
    schedules,
    terminal::{Screen, one_line},
};

/// An event that arrives while the prompt waits.
pub(super) enum Come {
    /// A schedule is due in this session.
    Due(ScheduledMessage),
    /// An agent in the background has ended.
    Message(String),
    /// The result of a schedule that this session created.
    Note(String),
}

/// What a schedule has to say.
pub(super) struct ScheduledMessage {
    session: String,
    text: String,
    cancel: CancellationToken,
    /// Nothing: the session is no longer open here.
    answer: oneshot::Sender<Option<RunOutcome>>,
}

/// What schedules have to say, in order.
pub(super) struct ScheduledMessages {
    delivery: Arc<ChatDelivery>,
    receiver: UnboundedReceiver<Come>,
}

/// Takes what is for the session that is open.
struct ChatDelivery {
    session_id: Mutex<String>,
    sender: UnboundedSender<Come>,
}

/// The schedules run until this is dropped.
pub(super) struct SchedulerTask {
    cancel: CancellationToken,
    work: Option<JoinHandle<()>>,
}

impl ScheduledMessages {
    /// For a session that is about to be opened.
    pub(super) fn new() -> Self {
        let (send, come) = unbounded_channel();
        Self { delivery: Arc::new(ChatDelivery { session_id: Mutex::default(), sender: send }), receiver: come }
    }

    /// Another session is open now.
    pub(super) fn set_session(&self, session: &str) {
        session.clone_into(&mut self.delivery.session_id.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The next one that somebody still waits for.
    pub(super) async fn next(&mut self) -> Come {
        loop {
            match self.receiver.recv().await {
                Some(Come::Due(due)) if due.answer.is_closed() => {}
                Some(come) => return come,
                // Unreachable while this object holds the sender.
                None => std::future::pending().await,
            }
        }
    }
}

impl ScheduledMessages {
    /// Receives reports of background agents. They start a turn when the prompt waits.
    pub(super) fn inbox(&self, handle: Arc<OnceLock<AgentHandle>>) -> Inbox {
        let send = self.delivery.sender.clone();
        Arc::new(move |words| {
            if let Some(handle) = handle.get().filter(|it| it.is_busy()) {
                // The running turn reads them when the model is done.
                handle.follow_up(words);
                return Some(Delivery::Running);
            }
            send.send(Come::Message(words)).ok()?;
            Some(Delivery::Woken)
        })
    }
}

impl SchedulerTask {
    /// Stops running schedules; the next scheduler restarts them.
    pub(super) async fn stop(self) {
        self.cancel.cancel();
        if let Some(work) = self.work {
            _ = work.await;
        }
    }
}

#[async_trait]
impl SessionDelivery for ChatDelivery {
    async fn deliver(&self, session: &str, words: &str, cancel: &CancellationToken) -> Option<RunOutcome> {
        if *self.session_id.lock().unwrap_or_else(PoisonError::into_inner) != session {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        let (session, words) = (session.to_owned(), words.to_owned());
        self.sender.send(Come::Due(ScheduledMessage { session, text: words, cancel: cancel.clone(), answer })).ok()?;
        tokio::select! {
            fired = answered => fired.ok()?,
            () = cancel.cancelled() => Some(RunOutcome { status: ScheduleRunStatus::Cancelled, ..RunOutcome::failed("cancelled") }),
        }
    }

    async fn note(&self, session: &str, text: &str) -> bool {
        *self.session_id.lock().unwrap_or_else(PoisonError::into_inner) == session
            && self.sender.send(Come::Note(text.to_owned())).is_ok()
    }
}

/// Notices of schedules, on the screen.
struct ScreenNotifier {
    screen: Screen,
    inner: Told,
}

#[async_trait]
impl ScheduleNotifier for ScreenNotifier {
    async fn notify(&self, schedule: &Schedule, text: &str) -> bool {
        if schedule.channel.is_some() {
            return self.inner.notify(schedule, text).await;
        }
        let name = schedule.name.as_deref().unwrap_or(&schedule.id);
        self.screen.line(&format!("[{}] {}", escape_for_terminal(name), escape_for_terminal(text)));
        self.screen.flush_above();
        true
    }
}

impl Chat {
    /// Runs the schedules while this session is open.
    pub(super) fn start_scheduler(&self) -> Result<SchedulerTask, CliError> {
        let cancel = CancellationToken::new();
        let settings = self.runtime.settings();
        if !settings.config.schedule.in_chat {
            return Ok(SchedulerTask { cancel, work: None });
        }
        let notify = Arc::new(ScreenNotifier { screen: self.screen.clone(), inner: Told::new(settings) });
        let driver = schedules::driver_beside(&self.runtime, notify, Some(self.scheduled_messages.delivery.clone()))?;
        let until = cancel.clone();
        Ok(SchedulerTask { cancel, work: Some(tokio::spawn(async move { driver.run_loop(until).await })) })
    }

    /// Handles events that arrived while the prompt waited.
    pub(super) async fn run_scheduled(&mut self, come: Come) -> Result<(), CliError> {
        match come {
            Come::Due(due) => self.attend_due(due).await,
            Come::Message(words) => {
                // Nobody waits for the answer; a partially typed line stays, as with a schedule.
                let (answer, _) = oneshot::channel();
                let session = self.agent.session.id.clone();
                self.attend_due(ScheduledMessage { session, text: words, cancel: CancellationToken::new(), answer })
                    .await
            }
            Come::Note(text) => {
                self.screen.line(&escape_for_terminal(&text));
                self.screen.flush_above();
                Ok(self.agent.leave(&InboxItem::text(MessageRole::System, text)).await?)
            }
        }
    }

    /// One turn for a schedule.
    async fn attend_due(&mut self, due: ScheduledMessage) -> Result<(), CliError> {
        if due.session != self.agent.session.id {
            _ = due.answer.send(None);
            return Ok(());
        }
        let look = self.screen.capabilities;
        self.screen.line(&look.dim(&one_line(&due.text, 200)));
        let store = self.runtime.store().clone();
        let before = store.messages(&self.agent.session.id, None, 1).await?.last().map_or(0, |it| it.seq);
        self.runtime.undo_log().begin_turn();
        self.undo_points.push(before);
        self.screen.set_status(Some("thinking"));
        let spinning = tokio::spawn(redraw_loop(self.screen.clone()));
        let agent = self.agent.clone();
        let mut said = agent.handle.take_follow_ups();
        said.push(due.text);
        let work = agent.run_turn(said.into_iter().map(|text| MessagePart::Text { text }).collect());
        tokio::pin!(work);
        let outcome = loop {
            tokio::select! {
                outcome = &mut work => break outcome,
                () = due.cancel.cancelled(), if !due.cancel.is_cancelled() => self.agent.handle.cancel(),
                () = self.stop_requested.notified() => self.agent.handle.cancel(),
                _ = self.signals.interrupt.recv() => self.agent.handle.cancel(),
            }
        };
        spinning.abort();
        self.screen.set_status(None);
        self.screen.end_line();
        let outcome = outcome?;
        self.print_outcome(&outcome);
        _ = due.answer.send(Some(outcome.into()));
        Ok(())
    }
}
