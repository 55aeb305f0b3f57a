//! One conversation: words in, turns of the model and its tools, words out.

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

/// One conversation. Its messages are in the session's store, so that it can be taken up again by its id.
#[derive(Clone)]
pub struct Agent {
    /// The door to the tools.
    pub engine: Arc<Engine>,
    /// Who, where, and what can be reached. Its id is the conversation's.
    pub session: Arc<Session>,
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// What the model is told first; empty: what [`prompt::system_prompt`](crate::prompt::system_prompt) says.
    pub system_prompt: String,
    /// What may be spent on one turn of the user.
    pub budget: Budget,
    /// Who hears what happens.
    pub listener: AgentListener,
    /// How others reach in while it works.
    pub handle: AgentHandle,
    /// What the conversation is about; `None`: the first line of the user's words.
    pub title: Option<String>,
    /// The conversation that started this one.
    pub parent: Option<String>,
    /// How many tokens fit into the model's window, where it does not know itself.
    pub context_window: Option<u64>,
}

/// What may be spent on one turn of the user. What is `None` has no limit.
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

/// How others reach into a conversation while it works. Cheap to clone.
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

/// What agents that a conversation started have used and not been billed for yet.
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
    /// The model's last words.
    pub text: String,
    /// Why it ended.
    pub stop_reason: TurnStopReason,
    /// Answers of the model.
    pub turns: u32,
    /// Calls of tools.
    pub tool_calls: u32,
    /// Calls that were refused for want of an approval or by a rule, with those of its agents.
    pub refused: u32,
    /// What it took, with what its agents took.
    pub usage: TokenUsage,
}

/// Why a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnStopReason {
    /// The model had no more to do.
    Completed,
    /// It was cancelled.
    Cancelled,
    /// A budget is used up; which, in words.
    BudgetExhausted(String),
    /// It went round in circles; how, in words.
    LoopDetected(String),
    /// The model could not be asked; why, in words.
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
    /// A conversation with the usual prompt and budget, which nobody watches.
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

    /// Takes up a conversation that is in the store, with the dialect and in the folder it had.
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

    /// Says something to the model, and works until it has answered; then what was to follow. The history is valid
    /// whatever happens, and every message in it is kept before the next step is taken. An error is the store's.
    pub async fn run_turn(&self, words: Vec<MessagePart>) -> Result<TurnOutcome> {
        self.turn_with(words, Vec::new()).await
    }

    /// The same, with files. Tools can save them until the next turn begins. The model sees images, text and the names
    /// of everything else; contents are tagged as untrusted.
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

    /// Goes on where the conversation stands: after a crash, or when somebody else has added a message.
    pub async fn continue_turn(&self) -> Result<TurnOutcome> {
        self.run_turns(None).await
    }

    /// What the model sees of the conversation.
    pub async fn history(&self) -> Result<Vec<Message>> {
        Ok(History::load(self).await?.view)
    }

    /// Sums older messages up now, however much room there is. Whether anything came of it.
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

    /// Leaves something in the conversation between two turns. While another process works in it, that one moves it in.
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
        // What was approved with a plan holds for its work, which is over.
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

/// Renews the lease of a session while a turn runs. A turn whose lease was lost is cancelled at once.
struct Renewing(JoinHandle<()>);

impl Renewing {
    fn start(held: &Arc<HeldLease>, cancel: &CancellationToken) -> Self {
        let (held, cancel) = (Arc::downgrade(held), cancel.clone());
        Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(SESSION_LEASE / 3).await;
                let Some(held) = held.upgrade() else { return };
                // A store that cannot be reached may come back; every write is checked by itself.
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

    /// Says something in the middle of a turn: the calls that have not begun are skipped, and the model hears it next.
    pub fn steer(&self, words: impl Into<String>) {
        lock(&self.inner.steering).push(words.into());
    }

    /// Says something that waits until the turn is over.
    pub fn follow_up(&self, words: impl Into<String>) {
        lock(&self.inner.following).push_back(words.into());
    }

    /// Takes back what waits for the end of the turn.
    pub fn take_follow_ups(&self) -> Vec<String> {
        lock(&self.inner.following).drain(..).collect()
    }

    /// Bills the conversation for what an agent of it has used.
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

    /// What cancels the turn that begins now. A cancel of the last turn does not reach it.
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
