//! One conversation: words in, turns of the model and its tools, words out.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use helve_contract::{
    CancellationToken, Error, Result, Session,
    events::TurnEnd,
    ports::{Attachment, HeldLease, InboxItem, Message, Part, SESSION_LEASE, Spent, StoredAttachment},
};
use helve_engine::Engine;
use tokio::task::JoinHandle;

use crate::{Event, Need, Watcher, Workshop, attachments, history::History, model::Model, turn::Turn};

/// One conversation. Its messages are in the session's store, so that it can be taken up again by its id.
#[derive(Clone)]
pub struct Agent {
    /// The door to the tools.
    pub engine: Arc<Engine>,
    /// Who, where, and what can be reached. Its id is the conversation's.
    pub session: Arc<Session>,
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// What the model is told first; empty: what [`prompt::system`](crate::prompt::system) says.
    pub system: String,
    /// What may be spent on one turn of the user.
    pub budget: Budget,
    /// Who hears what happens.
    pub watcher: Watcher,
    /// How others reach in while it works.
    pub handle: Handle,
    /// What the conversation is about; `None`: the first line of the user's words.
    pub title: Option<String>,
    /// The conversation that started this one.
    pub parent: Option<String>,
    /// How many tokens fit into the model's window, where it does not know itself.
    pub window: Option<u64>,
}

/// What may be spent on one turn of the user. What is `None` has no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Answers of the model.
    pub turns: Option<u32>,
    /// Tokens, both ways.
    pub tokens: Option<u64>,
    /// US dollars.
    pub cost: Option<f64>,
    /// Time.
    pub time: Option<Duration>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { turns: Some(100), tokens: None, cost: None, time: None }
    }
}

/// How others reach into a conversation while it works. Cheap to clone.
#[derive(Clone, Default)]
pub struct Handle {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    above: CancellationToken,
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
    pub spent: Spent,
    /// Calls that were refused.
    pub refused: u32,
}

/// How a turn of the user ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The model's last words.
    pub text: String,
    /// Why it ended.
    pub ended: Ended,
    /// Answers of the model.
    pub turns: u32,
    /// Calls of tools.
    pub calls: u32,
    /// Calls that were refused for want of an approval or by a rule, with those of its agents.
    pub refused: u32,
    /// What it took, with what its agents took.
    pub spent: Spent,
}

/// Why a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model had no more to do.
    Done,
    /// It was cancelled.
    Cancelled,
    /// A budget is used up; which, in words.
    Budget(String),
    /// It went round in circles; how, in words.
    Circles(String),
    /// The model could not be asked; why, in words.
    Model(String),
}

impl Ended {
    /// The name of this end in events and JSON.
    pub fn turn_end(&self) -> TurnEnd {
        match self {
            Self::Done => TurnEnd::Done,
            Self::Cancelled => TurnEnd::Cancelled,
            Self::Budget(_) => TurnEnd::Budget,
            Self::Circles(_) => TurnEnd::Circles,
            Self::Model(_) => TurnEnd::Model,
        }
    }

    /// Why, where there is more to say.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Done | Self::Cancelled => None,
            Self::Budget(why) | Self::Circles(why) | Self::Model(why) => Some(why),
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
            system: String::new(),
            budget: Budget::default(),
            watcher: Arc::new(|_| {}),
            handle: Handle::default(),
            title: None,
            parent: None,
            window: None,
        }
    }

    /// Takes up a conversation that is in the store, with the dialect and in the folder it had.
    pub async fn resume(workshop: &dyn Workshop, id: &str) -> Result<Self> {
        let mut need = Need { id: id.to_owned(), ..Need::default() };
        let (_, session) = workshop.equip(&need)?;
        let record = session.ports.store.conversation(id).await?;
        let record = record.ok_or_else(|| Error::failed(format!("there is no conversation `{id}`")))?;
        need.dialect = Some(record.dialect.clone()).filter(|it| !it.is_empty());
        need.workspace = Some(record.workspace.clone()).filter(|it| !it.is_empty()).map(Into::into);
        need.user = Some(record.user.clone());
        need.agent = Some(record.agent.clone());
        let (engine, session) = workshop.equip(&need)?;
        let model = workshop.model(Some(record.model.as_str()).filter(|it| !it.is_empty()))?;
        let model = workshop.session_model(id, model);
        Ok(Self { title: Some(record.title), parent: record.parent, ..Self::new(engine, session, model) })
    }

    /// Says something to the model, and works until it has answered; then what was to follow. The history is valid
    /// whatever happens, and every message in it is kept before the next step is taken. An error is the store's.
    pub async fn turn(&self, words: Vec<Part>) -> Result<Outcome> {
        self.turn_with(words, Vec::new()).await
    }

    /// The same, with files. Tools can save them until the next turn begins. The model sees images, text and the names
    /// of everything else; contents are tagged as untrusted.
    pub async fn turn_with(&self, words: Vec<Part>, files: Vec<Attachment>) -> Result<Outcome> {
        for part in &words {
            if let Part::Text { text } = part {
                self.session.taint.hears(text);
            }
        }
        self.work(Some((words, files))).await
    }

    /// Says something in plain words.
    pub async fn say(&self, words: &str) -> Result<Outcome> {
        self.turn(vec![text(words)]).await
    }

    /// Goes on where the conversation stands: after a crash, or when somebody else has added a message.
    pub async fn go_on(&self) -> Result<Outcome> {
        self.work(None).await
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
        let cancel = self.handle.arm();
        let held = self.session.hold().await?;
        let squeezed = {
            let _renewing = Renewing::start(&held, &cancel);
            async { Turn::open(self, &held, None, &cancel).await?.squeeze(2).await }.await
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

    async fn work(&self, said: Option<(Vec<Part>, Vec<Attachment>)>) -> Result<Outcome> {
        let _alone = self.handle.inner.busy.lock().await;
        let cancel = self.handle.arm();
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
        (self.watcher)(&Event::Ended(outcome.clone()));
        Ok(outcome)
    }
}

impl Agent {
    async fn work_holding(
        &self,
        held: &Arc<HeldLease>,
        said: Option<(Vec<Part>, Vec<StoredAttachment>)>,
        cancel: &CancellationToken,
    ) -> Result<Outcome> {
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
        while outcome.ended == Ended::Done
            && let Some(next) = self.handle.next_follow_up()
        {
            let more = Turn::open(self, held, Some(vec![text(&next)]), cancel).await?.run().await?;
            outcome = outcome.then(more);
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

fn text(words: &str) -> Part {
    Part::Text { text: words.to_owned() }
}

impl Outcome {
    /// This, and what followed.
    #[must_use]
    pub fn then(self, more: Self) -> Self {
        Self {
            turns: self.turns + more.turns,
            calls: self.calls + more.calls,
            refused: self.refused + more.refused,
            spent: self.spent + more.spent,
            ..more
        }
    }
}

impl Handle {
    /// One that is cancelled with its parent.
    pub fn under(parent: &CancellationToken) -> Self {
        Self { inner: Arc::new(Inner { above: parent.clone(), ..Inner::default() }) }
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
    fn arm(&self) -> CancellationToken {
        let token = self.inner.above.child_token();
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
