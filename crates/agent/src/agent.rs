//! One session: user messages in, turns of the model and its tools, answers out.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use helve_contract::{
    CancellationToken, Error, Result, Session,
    events::TurnEnd,
    ports::{Attachment, HeldLease, InboxItem, Message, MessagePart, SESSION_LEASE, StoredAttachment, TokenUsage},
};
use helve_engine::Engine;
use tokio::task::JoinHandle;

use crate::{
    AgentEvent, AgentListener, SessionFactory, SessionSpec, attachments, history::History, model::Model, turn::Turn,
};

/// One session. Its messages are in the store, so that its id can resume it.
#[derive(Clone)]
pub struct Agent {
    /// The engine with the tools.
    pub engine: Arc<Engine>,
    /// The session with its ports. Its id is the stored session's.
    pub session: Arc<Session>,
    /// The model.
    pub model: Arc<dyn Model>,
    /// The system prompt; if empty, [`prompt::system_prompt`](crate::prompt::system_prompt).
    pub system_prompt: String,
    /// The budget of one user turn.
    pub budget: Budget,
    /// The listener for events.
    pub listener: AgentListener,
    /// Controls the session while it works.
    pub handle: AgentHandle,
    /// The title; `None`: the first line of the user's message.
    pub title: Option<String>,
    /// The session that started this one.
    pub parent: Option<String>,
    /// The model's context window in tokens, if the model does not know it.
    pub context_window: Option<u64>,
}

/// The budget of one user turn. `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Answers of the model.
    pub max_turns: Option<u32>,
    /// Tokens, both ways.
    pub max_tokens: Option<u64>,
    /// US dollars.
    pub max_cost: Option<f64>,
    /// Time.
    pub max_time: Option<Duration>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { max_turns: Some(100), max_tokens: None, max_cost: None, max_time: None }
    }
}

/// Controls a session while it works. Cheap to clone.
#[derive(Clone, Default)]
pub struct AgentHandle {
    inner: Arc<HandleState>,
}

#[derive(Default)]
struct HandleState {
    parent_cancel: CancellationToken,
    cancel: Mutex<CancellationToken>,
    steering: Mutex<Vec<String>>,
    charges: Mutex<Charges>,
    following: Mutex<VecDeque<String>>,
    busy: tokio::sync::Mutex<()>,
}

/// The usage of a session's agents that is not billed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Charges {
    /// Tokens and US dollars.
    pub spent: TokenUsage,
    /// Calls that were refused.
    pub refused: u32,
}

/// How a turn of the user ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnOutcome {
    /// The model's last text.
    pub text: String,
    /// Why it ended.
    pub stop_reason: TurnStopReason,
    /// Answers of the model.
    pub turns: u32,
    /// Calls of tools.
    pub tool_calls: u32,
    /// Calls that were refused without an approval or by a rule, including those of its agents.
    pub refused: u32,
    /// The usage, including that of its agents.
    pub usage: TokenUsage,
}

/// Why a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnStopReason {
    /// The model has finished.
    Completed,
    /// It was cancelled.
    Cancelled,
    /// A budget is used up; which one.
    BudgetExhausted(String),
    /// The model repeated itself; how.
    LoopDetected(String),
    /// The model request failed; why.
    ModelFailed(String),
}

impl TurnStopReason {
    /// The name of this end in events and JSON.
    pub fn turn_end(&self) -> TurnEnd {
        match self {
            Self::Completed => TurnEnd::Done,
            Self::Cancelled => TurnEnd::Cancelled,
            Self::BudgetExhausted(_) => TurnEnd::Budget,
            Self::LoopDetected(_) => TurnEnd::Circles,
            Self::ModelFailed(_) => TurnEnd::Model,
        }
    }

    /// Why, where there is more to say.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Completed | Self::Cancelled => None,
            Self::BudgetExhausted(why) | Self::LoopDetected(why) | Self::ModelFailed(why) => Some(why),
        }
    }
}

impl Agent {
    /// A session with the default prompt and budget, without a listener.
    pub fn new(engine: Arc<Engine>, session: Arc<Session>, model: Arc<dyn Model>) -> Self {
        Self {
            engine,
            session,
            model,
            system_prompt: String::new(),
            budget: Budget::default(),
            listener: Arc::new(|_| {}),
            handle: AgentHandle::default(),
            title: None,
            parent: None,
            context_window: None,
        }
    }

    /// Resumes a stored session with its dialect and directory.
    pub async fn resume(workshop: &dyn SessionFactory, id: &str) -> Result<Self> {
        let mut need = SessionSpec { id: id.to_owned(), ..SessionSpec::default() };
        let (_, session) = workshop.create_session(&need)?;
        let record = session.ports.store.get_session(id).await?;
        let record = record.ok_or_else(|| Error::failed(format!("there is no conversation `{id}`")))?;
        need.dialect = Some(record.dialect.clone()).filter(|it| !it.is_empty());
        need.workspace = Some(record.workspace.clone()).filter(|it| !it.is_empty()).map(Into::into);
        need.user = Some(record.user.clone());
        need.agent = Some(record.agent.clone());
        let (engine, session) = workshop.create_session(&need)?;
        let model = workshop.model(Some(record.model.as_str()).filter(|it| !it.is_empty()))?;
        let model = workshop.session_model(id, model);
        Ok(Self { title: Some(record.title), parent: record.parent, ..Self::new(engine, session, model) })
    }

    /// Sends a message to the model and works until it has answered; then handles follow-ups. The history is always
    /// valid, and every message is stored before the next step. An error comes from the store.
    pub async fn run_turn(&self, words: Vec<MessagePart>) -> Result<TurnOutcome> {
        self.turn_with(words, Vec::new()).await
    }

    /// Like `run_turn`, with files. Tools can save them until the next turn starts. The model sees images, text and
    /// the names of all others; contents are tagged as untrusted.
    pub async fn turn_with(&self, words: Vec<MessagePart>, files: Vec<Attachment>) -> Result<TurnOutcome> {
        for part in &words {
            if let MessagePart::Text { text } = part {
                self.session.taint.on_user_message(text);
            }
        }
        self.run_turns(Some((words, files))).await
    }

    /// Says something in plain words.
    pub async fn send_text(&self, words: &str) -> Result<TurnOutcome> {
        self.run_turn(vec![text_part(words)]).await
    }

    /// Continues the session: after a crash, or after another process added a message.
    pub async fn continue_turn(&self) -> Result<TurnOutcome> {
        self.run_turns(None).await
    }

    /// What the model sees of the session.
    pub async fn history(&self) -> Result<Vec<Message>> {
        Ok(History::load(self).await?.view)
    }

    /// Summarises older messages now. Returns whether it changed anything.
    pub async fn compact(&self) -> Result<bool> {
        let _alone = self.handle.inner.busy.lock().await;
        if self.history().await?.is_empty() {
            return Ok(false);
        }
        let cancel = self.handle.begin_turn();
        let held = self.session.hold().await?;
        let squeezed = {
            let _renewing = Renewing::start(&held, &cancel);
            async { Turn::open(self, &held, None, &cancel).await?.compact_after_overflow(2).await }.await
        };
        self.session.release(held).await?;
        squeezed
    }

    /// Adds an item to the session between two turns. If another process works in it, that one delivers it.
    pub async fn leave(&self, item: &InboxItem) -> Result<()> {
        let store = &self.session.ports.store;
        store.post(&self.session.id, item).await?;
        match self.session.hold().await {
            Ok(held) => {
                let moved = store.take_inbox(&held.get()).await;
                self.session.release(held).await?;
                moved.map(drop)
            }
            Err(Error::SessionHeld(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn run_turns(&self, said: Option<(Vec<MessagePart>, Vec<Attachment>)>) -> Result<TurnOutcome> {
        let _alone = self.handle.inner.busy.lock().await;
        let cancel = self.handle.begin_turn();
        let words = match said {
            None => None,
            Some((mut words, files)) => {
                words.extend(attachments::parts(&self.engine, &self.session, &files).await);
                Some((words, attachments::store(&self.session, files).await?))
            }
        };
        let held = self.session.hold().await?;
        let outcome = {
            let _renewing = Renewing::start(&held, &cancel);
            self.work_holding(&held, words, &cancel).await
        };
        self.session.release(held).await?;
        let outcome = outcome?;
        // Rules approved with a plan end with its turn.
        self.session.set_plan_rules(Vec::new());
        (self.listener)(&AgentEvent::TurnEnded(outcome.clone()));
        Ok(outcome)
    }
}

impl Agent {
    async fn work_holding(
        &self,
        held: &Arc<HeldLease>,
        said: Option<(Vec<MessagePart>, Vec<StoredAttachment>)>,
        cancel: &CancellationToken,
    ) -> Result<TurnOutcome> {
        let words = match said {
            None => None,
            Some((words, files)) => {
                if self.session.stores_attachments() {
                    self.session.list_attachments(held, &files).await?;
                }
                Some(words)
            }
        };
        let mut outcome = Turn::open(self, held, words, cancel).await?.run().await?;
        while outcome.stop_reason == TurnStopReason::Completed
            && let Some(next) = self.handle.next_follow_up()
        {
            let more = Turn::open(self, held, Some(vec![text_part(&next)]), cancel).await?.run().await?;
            outcome = outcome.merge(more);
        }
        Ok(outcome)
    }
}

/// Renews the session's lease during a turn. A turn whose lease was lost is cancelled.
struct Renewing(JoinHandle<()>);

impl Renewing {
    fn start(held: &Arc<HeldLease>, cancel: &CancellationToken) -> Self {
        let (held, cancel) = (Arc::downgrade(held), cancel.clone());
        Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(SESSION_LEASE / 3).await;
                let Some(held) = held.upgrade() else { return };
                // The store may become reachable again; every write checks the lease.
                if matches!(held.renew().await, Err(Error::LeaseLost(_))) {
                    return cancel.cancel();
                }
            }
        }))
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn text_part(words: &str) -> MessagePart {
    MessagePart::Text { text: words.to_owned() }
}

impl TurnOutcome {
    /// This, and what followed.
    #[must_use]
    pub fn merge(self, more: Self) -> Self {
        Self {
            turns: self.turns + more.turns,
            tool_calls: self.tool_calls + more.tool_calls,
            refused: self.refused + more.refused,
            usage: self.usage + more.usage,
            ..more
        }
    }
}

impl AgentHandle {
    /// One that is cancelled with its parent.
    pub fn child_of(parent: &CancellationToken) -> Self {
        Self { inner: Arc::new(HandleState { parent_cancel: parent.clone(), ..HandleState::default() }) }
    }

    /// Stops the turn that runs. What ran so far stays in the history.
    pub fn cancel(&self) {
        lock(&self.inner.cancel).cancel();
    }

    /// Sends a message during a turn: calls that have not started are skipped, and the model reads it next.
    pub fn steer(&self, words: impl Into<String>) {
        lock(&self.inner.steering).push(words.into());
    }

    /// Queues a message until the turn ends.
    pub fn follow_up(&self, words: impl Into<String>) {
        lock(&self.inner.following).push_back(words.into());
    }

    /// Takes back what waits for the end of the turn.
    pub fn take_follow_ups(&self) -> Vec<String> {
        lock(&self.inner.following).drain(..).collect()
    }

    /// Bills the session for what an agent of it has used.
    pub fn charge(&self, charges: Charges) {
        let mut all = lock(&self.inner.charges);
        *all = Charges { spent: all.spent + charges.spent, refused: all.refused + charges.refused };
    }

    /// Takes what agents have used since this was last asked.
    pub fn take_charges(&self) -> Charges {
        std::mem::take(&mut *lock(&self.inner.charges))
    }

    /// Whether a turn runs.
    pub fn is_busy(&self) -> bool {
        self.inner.busy.try_lock().is_err()
    }

    /// The cancellation token of the turn that starts now. Cancelling the previous turn does not affect it.
    fn begin_turn(&self) -> CancellationToken {
        let token = self.inner.parent_cancel.child_token();
        lock(&self.inner.cancel).clone_from(&token);
        token
    }

    pub(crate) fn has_steering(&self) -> bool {
        !lock(&self.inner.steering).is_empty()
    }

    /// Takes back what was said in the middle of a turn and not heard yet.
    pub fn take_steering(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.inner.steering))
    }

    fn next_follow_up(&self) -> Option<String> {
        lock(&self.inner.following).pop_front()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
