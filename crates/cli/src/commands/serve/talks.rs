//! Sessions over HTTP: creates, continues, steers and stops them.

use std::{
    collections::{HashMap, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use futures::{FutureExt as _, future::join_all};
use helve_agent::{AgentEvent, AgentListener, TurnStopReason, Wake, scheduler::RunOutcome, scheduler::SessionDelivery};
use helve_contract::{
    CancellationToken, Error, async_trait,
    events::TurnEnd,
    ports::{Attachment, Delivery, InboxItem, MessagePart, MessageRole, SessionRecord},
};
use tokio::sync::{Notify, oneshot};

use super::{
    say::ApiError,
    turns::{ActiveTurn, ActiveTurns},
};
use crate::{
    fault::CliError,
    print::escape_for_terminal,
    remark, setup,
    talk::{self, How, OpenConversation, Wanted},
    workshop::HelveRuntime,
};

/// The maximum number of active sessions.
const MAX_WORKING: usize = 16;
/// The maximum number of sessions that stay open after their turn.
const MAX_OPEN: usize = 32;

/// How long a stopped turn has to end.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// The sessions that are open.
pub(super) struct SessionManager {
    me: Weak<Self>,
    runtime: Arc<HelveRuntime>,
    active_turns: Arc<ActiveTurns>,
    shutdown_token: CancellationToken,
    sessions: Mutex<HashMap<String, Arc<ManagedSession>>>,
    /// Opens one session at a time, so that none is opened twice.
    opening: tokio::sync::Mutex<()>,
}

/// A session that is open.
struct ManagedSession {
    session: OpenConversation,
    state: Mutex<ManagedState>,
    /// Notified at the first model request of a turn, and at its end.
    turn_started: Arc<Notify>,
}

struct ManagedState {
    working: bool,
    /// Messages with files that arrived during a turn. Each starts a separate turn, because files belong to a turn.
    queued: VecDeque<Said>,
    /// It was closed to free resources; later callers open it again.
    closed: bool,
    used: Instant,
}

/// A message with its files.
#[derive(Default)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) files: Vec<Attachment>,
}

impl From<&str> for Said {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), files: Vec::new() }
    }
}

/// What is said, and who waits for the answer.
struct QueuedMessage {
    said: Said,
    answer: Option<oneshot::Sender<RunOutcome>>,
}

impl SessionManager {
    pub(super) fn new(bench: Arc<HelveRuntime>, turns: Arc<ActiveTurns>, closing: CancellationToken) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            runtime: bench,
            active_turns: turns,
            shutdown_token: closing,
            sessions: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        })
    }

    /// Who is at work.
    pub(super) fn turns(&self) -> &Arc<ActiveTurns> {
        &self.active_turns
    }

    /// Begins a session; its id.
    pub(super) async fn create(&self, said: Said, how: How) -> Result<String, ApiError> {
        self.check_capacity()?;
        let open = self.open(Wanted::New, how).await.map_err(|fault| ApiError::bad_request(fault.to_string()))?;
        self.send_and_wait_stored(&open, said).await?;
        Ok(open.session.agent.session.id.clone())
    }

    /// Sends a message to a session: into its running turn, or as the start of a new one.
    pub(super) async fn send(&self, id: &str, said: Said) -> Result<(), ApiError> {
        if let Some(open) = self.get(id) {
            if !open.lock().working {
                self.check_capacity()?;
            }
            return self.send_and_wait_stored(&open, said).await;
        }
        let record = self.resumable_record(id).await?;
        self.check_capacity()?;
        let _alone = self.opening.lock().await;
        let open = match self.get(id) {
            Some(open) => open,
            None => self.open(Wanted::Existing(Box::new(record)), How::default()).await.map_err(ApiError::internal)?,
        };
        self.send_and_wait_stored(&open, said).await
    }

    /// Stops the turn of a session. `false` if none runs here.
    pub(super) fn stop(&self, id: &str) -> bool {
        let Some(open) = self.get(id) else { return false };
        let working = open.lock().working;
        if working {
            open.session.agent.handle.cancel();
        }
        working
    }

    /// Ends everything, when the server ends.
    pub(super) async fn shutdown(&self) {
        let all: Vec<_> = self.lock().drain().map(|(_, open)| open).collect();
        for open in &all {
            open.session.agent.handle.cancel();
        }
        let ending = all.into_iter().map(|open| async move {
            // Its text so far is stored.
            let is_over = tokio::time::timeout(STOP_GRACE, open.wait_idle()).await.is_ok();
            open.session.supervisor.stop_all(&open.session.agent.session.id).await;
            if is_over {
                open.store_undelivered().await;
            }
            setup::stop_tasks(open.session.agent.session.clone()).await;
        });
        join_all(ending).await;
    }

    /// A session that can be continued here.
    async fn resumable_record(&self, id: &str) -> Result<SessionRecord, ApiError> {
        let user = setup::user(self.runtime.settings());
        let found = self.runtime.store().get_session(id).await?.filter(|it| it.user == user);
        let record =
            found.ok_or_else(|| ApiError::not_found("there is no such conversation; /api/sessions lists them"))?;
        if record.workspace != self.runtime.settings().workspace.to_string_lossy() {
            return Err(ApiError::conflict(format!(
                "this conversation works in {}; serve that folder",
                record.workspace
            )));
        }
        if let Some(parent) = &record.parent {
            return Err(ApiError::conflict(format!("another conversation began this one: write to {parent}")));
        }
        if self.active_turns.is_working(id) {
            return Err(ApiError::conflict("a schedule or a webhook is at work in this conversation; try again later"));
        }
        if let Some(holder) = self.runtime.store().session_holder(id).await? {
            return Err(ApiError::conflict(Error::SessionHeld(Box::new(holder)).to_string()));
        }
        Ok(record)
    }

    fn check_capacity(&self) -> Result<(), ApiError> {
        if self.shutdown_token.is_cancelled() {
            return Err(ApiError::unavailable("the server is about to end"));
        }
        if self.runtime.endpoint().is_none() {
            return Err(ApiError::no_model_configured());
        }
        if self.active_turns.count() >= MAX_WORKING {
            return Err(ApiError::unavailable("too many conversations are at work; come back later"));
        }
        Ok(())
    }

    /// Opens a session, and closes the least recently used one if there are too many.
    async fn open(&self, wanted: Wanted, how: How) -> Result<Arc<ManagedSession>, CliError> {
        let begun = Arc::new(Notify::new());
        // The listener needs the id, which is known only once the session is open.
        let id: Arc<std::sync::OnceLock<String>> = Arc::default();
        let (me, named) = (self.me.clone(), id.clone());
        let how = How { inbox: Some(Arc::new(move |words| talks_of(&me, &named, words))), ..how };
        let watcher = self.listener(&begun, &id);
        let talk = talk::open(&self.runtime, wanted, how, watcher).await?;
        let session = talk.agent.session.id.clone();
        _ = id.set(session.clone());
        let state =
            Mutex::new(ManagedState { working: false, queued: VecDeque::new(), closed: false, used: Instant::now() });
        let open = Arc::new(ManagedSession { session: talk, state, turn_started: begun });
        self.lock().insert(session, open.clone());
        self.close_oldest();
        Ok(open)
    }

    /// Hears that a turn has begun, and of agents that are started.
    fn listener(&self, begun: &Arc<Notify>, id: &Arc<std::sync::OnceLock<String>>) -> AgentListener {
        let (begun, id, turns) = (begun.clone(), id.clone(), self.active_turns.clone());
        let children: Mutex<HashMap<String, ActiveTurn>> = Mutex::default();
        Arc::new(move |event: &AgentEvent| match event {
            AgentEvent::ModelRequested { .. } => begun.notify_waiters(),
            AgentEvent::SubAgent { id: child, ended, .. } => {
                let mut children = children.lock().unwrap_or_else(PoisonError::into_inner);
                if *ended {
                    if let Some(turn) = children.remove(child) {
                        turn.end_with(TurnEnd::Done);
                    }
                } else {
                    let turn = turns.begin(child, "", id.get().map(String::as_str));
                    children.insert(child.clone(), turn);
                }
            }
            _ => {}
        })
    }

    /// Says something, and waits until it is kept.
    async fn send_and_wait_stored(&self, open: &Arc<ManagedSession>, said: Said) -> Result<(), ApiError> {
        let begun = open.turn_started.notified();
        tokio::pin!(begun);
        begun.as_mut().enable();
        if self.shutdown_token.is_cancelled() {
            return Err(ApiError::unavailable("the server is about to end"));
        }
        match self.submit(open, QueuedMessage { said, answer: None }, DeliveryTime::Now) {
            SubmitResult::Started => begun.await,
            SubmitResult::Queued => {}
            SubmitResult::Closed => {
                return Err(ApiError::unavailable("this conversation was just closed to make room; try again"));
            }
        }
        Ok(())
    }

    /// Reports the end of a background agent to its session.
    fn hear(&self, id: &str, text: String) -> Option<Delivery> {
        let open = self.get(id).filter(|_| !self.shutdown_token.is_cancelled())?;
        match self.submit(&open, QueuedMessage { said: text.as_str().into(), answer: None }, DeliveryTime::Later) {
            SubmitResult::Started => Some(Delivery::Woken),
            SubmitResult::Queued => Some(Delivery::Running),
            SubmitResult::Closed => None,
        }
    }

    /// Starts a turn with this message, or adds it to the running turn if nobody waits for the answer.
    fn submit(&self, open: &Arc<ManagedSession>, words: QueuedMessage, when: DeliveryTime) -> SubmitResult {
        let mut state = open.lock();
        if state.closed {
            return SubmitResult::Closed;
        }
        state.used = Instant::now();
        if state.working {
            match when {
                // A caller that waits for the answer gets a separate turn.
                _ if words.answer.is_some() => {}
                _ if !words.said.files.is_empty() => state.queued.push_back(words.said),
                DeliveryTime::Now => open.session.agent.handle.steer(words.said.text),
                DeliveryTime::Later => open.session.agent.handle.follow_up(words.said.text),
            }
            return SubmitResult::Queued;
        }
        state.working = true;
        drop(state);
        let (open, turns, closing) = (open.clone(), self.active_turns.clone(), self.shutdown_token.clone());
        tokio::spawn(async move { run_turns(&open, &turns, words, &closing).await });
        SubmitResult::Started
    }

    fn close_oldest(&self) {
        let mut open = self.lock();
        while open.len() > MAX_OPEN {
            let idle = open.iter().filter(|(_, it)| !it.lock().working);
            let Some(oldest) = idle.min_by_key(|(_, it)| it.lock().used).map(|(id, _)| id.clone()) else { return };
            let Some(gone) = open.get(&oldest).cloned() else { return };
            let mut state = gone.lock();
            // A message may have arrived meanwhile.
            if state.working {
                continue;
            }
            state.closed = true;
            drop(state);
            open.remove(&oldest);
            tokio::spawn(async move {
                gone.store_undelivered().await;
                setup::stop_tasks(gone.session.agent.session.clone()).await;
            });
        }
    }

    fn get(&self, id: &str) -> Option<Arc<ManagedSession>> {
        self.lock().get(id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<ManagedSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives words to a session of a server that may have ended.
fn talks_of(talks: &Weak<SessionManager>, id: &std::sync::OnceLock<String>, words: String) -> Option<Delivery> {
    talks.upgrade()?.hear(id.get()?, words)
}

#[async_trait]
impl Wake for SessionManager {
    async fn deliver_agent_result(&self, session: &str, text: &str) -> Option<Delivery> {
        if let Some(delivery) = self.hear(session, text.to_owned()) {
            return Some(delivery);
        }
        // What another session sends is no request of a client: it says nothing where it cannot be taken.
        self.send(session, text.into()).await.ok().map(|()| Delivery::Woken)
    }
}

/// The result of delivering a message.
enum SubmitResult {
    /// A turn begins with them.
    Started,
    /// Another turn runs.
    Queued,
    /// Nothing: the session is not open any more.
    Closed,
}

/// What became of words from elsewhere, for a session.
pub(super) enum DeliveryResult {
    /// It is not open here.
    NotOpen,
    /// It was in the middle of something until the end.
    NotDelivered,
    /// This is the answer.
    Answered(RunOutcome),
}

/// When a message that arrives during a turn is read.
#[derive(Clone, Copy)]
enum DeliveryTime {
    /// Next: calls that have not started are skipped.
    Now,
    /// When the model is done.
    Later,
}

/// Runs turns until there are no more messages.
async fn run_turns(open: &ManagedSession, turns: &Arc<ActiveTurns>, words: QueuedMessage, closing: &CancellationToken) {
    let agent = open.session.agent.clone();
    let QueuedMessage { mut said, mut answer } = words;
    loop {
        let turn = turns.begin(&agent.session.id, agent.engine.dialect().name, None);
        // A failed turn must not leave the session marked as active.
        let Said { text, files } = std::mem::take(&mut said);
        let parts = if text.is_empty() { Vec::new() } else { vec![MessagePart::Text { text: text.clone() }] };
        let worked = AssertUnwindSafe(agent.turn_with(parts, files)).catch_unwind().await;
        let outcome = worked.unwrap_or_else(|_| Err(Error::failed("it broke off; this is a bug in Helve")));
        if let Err(error) = &outcome {
            remark!("helve: the conversation {}: {}", agent.session.id, escape_for_terminal(&error.to_string()));
        }
        if matches!(outcome, Err(Error::SessionHeld(_))) && !text.is_empty() {
            open.leave(text).await;
        }
        turn.end(&outcome);
        open.turn_started.notify_waiters();
        let done = matches!(&outcome, Ok(it) if it.stop_reason == TurnStopReason::Completed) && !closing.is_cancelled();
        if let Some(answer) = answer.take() {
            _ = answer.send(outcome.map_or_else(RunOutcome::failed, RunOutcome::from));
        }
        // Under the lock, a sender sees the session either active or idle.
        let mut state = open.lock();
        let mut more = if done { agent.handle.take_steering() } else { Vec::new() };
        if done {
            more.extend(agent.handle.take_follow_ups());
        }
        state.used = Instant::now();
        // Stopping a turn does not drop the next message.
        let next = if closing.is_cancelled() || !more.is_empty() { None } else { state.queued.pop_front() };
        said = match next {
            Some(next) => next,
            None if more.is_empty() => {
                state.working = false;
                return;
            }
            None => more.join("\n\n").as_str().into(),
        };
    }
}

impl ManagedSession {
    /// Waits until no turn runs.
    async fn wait_idle(&self) {
        loop {
            let rung = self.turn_started.notified();
            if !self.lock().working {
                return;
            }
            _ = tokio::time::timeout(Duration::from_millis(100), rung).await;
        }
    }

    /// Stores messages that arrived during a turn and that the model has not read.
    async fn store_undelivered(&self) {
        let agent = &self.session.agent;
        let words = agent.handle.take_steering().into_iter().chain(agent.handle.take_follow_ups());
        let queued = std::mem::take(&mut self.lock().queued);
        let queued = queued.into_iter().map(|Said { text, files }| {
            files.iter().fold(text, |text, file| format!("{text}\n[attached, and lost: {}]", file.describe()))
        });
        for text in words.chain(queued) {
            self.leave(text).await;
        }
    }

    /// Leaves a message of the user in the session.
    async fn leave(&self, text: String) {
        let agent = &self.session.agent;
        if let Err(error) = agent.leave(&InboxItem::text(MessageRole::User, text)).await {
            remark!("helve: the conversation {}: {}", agent.session.id, escape_for_terminal(&error.to_string()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, ManagedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionManager {
    /// Hands words from elsewhere to a session that is open, and waits for the answer.
    pub(super) async fn deliver_and_wait(
        &self,
        session: &str,
        words: &str,
        files: &[Attachment],
        cancel: &CancellationToken,
    ) -> DeliveryResult {
        let Some(open) = self.get(session) else { return DeliveryResult::NotOpen };
        let answered = loop {
            // A running turn is not interrupted: due work waits for its end.
            tokio::select! {
                biased;
                () = cancel.cancelled() => return DeliveryResult::NotDelivered,
                () = open.wait_idle() => {}
            }
            let (answer, answered) = oneshot::channel();
            let said = Said { text: words.to_owned(), files: files.to_vec() };
            match self.submit(&open, QueuedMessage { said, answer: Some(answer) }, DeliveryTime::Later) {
                SubmitResult::Started => break answered,
                SubmitResult::Queued => {}
                SubmitResult::Closed => return DeliveryResult::NotOpen,
            }
        };
        tokio::select! {
            fired = answered => DeliveryResult::Answered(fired.unwrap_or_else(|_| RunOutcome::failed("it broke off"))),
            () = cancel.cancelled() => {
                open.session.agent.handle.cancel();
                DeliveryResult::Answered(RunOutcome::failed("cancelled"))
            }
        }
    }
}

#[async_trait]
impl SessionDelivery for SessionManager {
    async fn deliver(&self, session: &str, words: &str, cancel: &CancellationToken) -> Option<RunOutcome> {
        match self.deliver_and_wait(session, words, &[], cancel).await {
            DeliveryResult::NotOpen => None,
            DeliveryResult::NotDelivered => Some(RunOutcome::failed("cancelled")),
            DeliveryResult::Answered(fired) => Some(fired),
        }
    }

    async fn note(&self, session: &str, text: &str) -> bool {
        let Some(open) = self.get(session) else { return false };
        if open.lock().working {
            open.session.agent.handle.follow_up(text);
            return true;
        }
        // Nothing runs there, so the message goes to the store's inbox.
        false
    }
}
