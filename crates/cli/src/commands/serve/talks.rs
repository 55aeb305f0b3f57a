//! Conversations over HTTP: begun, gone on with, steered and stopped.

use std::{
    collections::{HashMap, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use futures::{FutureExt as _, future::join_all};
use helve_agent::{Ended, Event, Wake, Watcher, scheduler::Deliver, scheduler::Fired};
use helve_contract::{
    CancellationToken, Error, async_trait,
    events::TurnEnd,
    ports::{Attachment, Delivery, InboxItem, Part, SessionRecord, Speaker},
};
use tokio::sync::{Notify, oneshot};

use super::{
    say::No,
    turns::{Turn, Turns},
};
use crate::{
    fault::Fault,
    print::harmless,
    remark, setup,
    talk::{self, How, Talk, Wanted},
    workshop::Bench,
};

/// How many conversations work at once.
const AT_ONCE: usize = 16;
/// How many stay open after their turn, with what they started.
const OPEN: usize = 32;

/// How long a turn that is stopped has to end by itself.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// The conversations that are open.
pub(super) struct Talks {
    me: Weak<Self>,
    bench: Arc<Bench>,
    turns: Arc<Turns>,
    closing: CancellationToken,
    open: Mutex<HashMap<String, Arc<Open>>>,
    /// One is opened at a time, so that none is opened twice.
    opening: tokio::sync::Mutex<()>,
}

/// A conversation that is open.
struct Open {
    talk: Talk,
    state: Mutex<State>,
    /// Rung when the model is first asked in a turn, and at its end.
    begun: Arc<Notify>,
}

struct State {
    working: bool,
    /// Messages with files that came while a turn runs. Each begins a turn of its own, because files belong to a turn.
    queued: VecDeque<Said>,
    /// It was closed to make room: whoever comes too late opens it anew.
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
struct Words {
    said: Said,
    answer: Option<oneshot::Sender<Fired>>,
}

impl Talks {
    pub(super) fn new(bench: Arc<Bench>, turns: Arc<Turns>, closing: CancellationToken) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            bench,
            turns,
            closing,
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        })
    }

    /// Who is at work.
    pub(super) fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// Begins a conversation; its id.
    pub(super) async fn begin(&self, said: Said, how: How) -> Result<String, No> {
        self.room()?;
        let open = self.enter(Wanted::New, how).await.map_err(|fault| No::bad(fault.to_string()))?;
        self.said(&open, said).await?;
        Ok(open.talk.agent.session.id.clone())
    }

    /// Says something in a conversation: in the middle of its turn, or as the beginning of one.
    pub(super) async fn say(&self, id: &str, said: Said) -> Result<(), No> {
        if let Some(open) = self.get(id) {
            if !open.lock().working {
                self.room()?;
            }
            return self.said(&open, said).await;
        }
        let record = self.record(id).await?;
        self.room()?;
        let _alone = self.opening.lock().await;
        let open = match self.get(id) {
            Some(open) => open,
            None => self.enter(Wanted::Of(Box::new(record)), How::default()).await.map_err(No::broken)?,
        };
        self.said(&open, said).await
    }

    /// Stops the turn of a conversation. `false`: none runs here.
    pub(super) fn stop(&self, id: &str) -> bool {
        let Some(open) = self.get(id) else { return false };
        let working = open.lock().working;
        if working {
            open.talk.agent.handle.cancel();
        }
        working
    }

    /// Ends everything, when the server ends.
    pub(super) async fn end(&self) {
        let all: Vec<_> = self.lock().drain().map(|(_, open)| open).collect();
        for open in &all {
            open.talk.agent.handle.cancel();
        }
        let ending = all.into_iter().map(|open| async move {
            // What it said so far is kept.
            let is_over = tokio::time::timeout(LAST_WORDS, open.idle()).await.is_ok();
            open.talk.supervisor.end(&open.talk.agent.session.id).await;
            if is_over {
                open.keep_unheard().await;
            }
            setup::end_tasks(open.talk.agent.session.clone()).await;
        });
        join_all(ending).await;
    }

    /// A conversation that can be gone on with here.
    async fn record(&self, id: &str) -> Result<SessionRecord, No> {
        let user = setup::user(self.bench.settings());
        let found = self.bench.store().conversation(id).await?.filter(|it| it.user == user);
        let record = found.ok_or_else(|| No::missing("there is no such conversation; /api/sessions lists them"))?;
        if record.workspace != self.bench.settings().workspace.to_string_lossy() {
            return Err(No::conflict(format!("this conversation works in {}; serve that folder", record.workspace)));
        }
        if let Some(parent) = &record.parent {
            return Err(No::conflict(format!("another conversation began this one: write to {parent}")));
        }
        if self.turns.is_working(id) {
            return Err(No::conflict("a schedule or a webhook is at work in this conversation; try again later"));
        }
        if let Some(holder) = self.bench.store().session_holder(id).await? {
            return Err(No::conflict(Error::SessionHeld(Box::new(holder)).to_string()));
        }
        Ok(record)
    }

    fn room(&self) -> Result<(), No> {
        if self.closing.is_cancelled() {
            return Err(No::busy("the server is about to end"));
        }
        if self.bench.endpoint().is_none() {
            return Err(No::no_model());
        }
        if self.turns.count() >= AT_ONCE {
            return Err(No::busy("too many conversations are at work; come back later"));
        }
        Ok(())
    }

    /// Opens a conversation, and closes the one that was used longest ago where there are too many.
    async fn enter(&self, wanted: Wanted, how: How) -> Result<Arc<Open>, Fault> {
        let begun = Arc::new(Notify::new());
        // Who hears of it needs its id, which is known only when it is open.
        let id: Arc<std::sync::OnceLock<String>> = Arc::default();
        let (me, named) = (self.me.clone(), id.clone());
        let how = How { inbox: Some(Arc::new(move |words| talks_of(&me, &named, words))), ..how };
        let watcher = self.watcher(&begun, &id);
        let talk = talk::open(&self.bench, wanted, how, watcher).await?;
        let session = talk.agent.session.id.clone();
        _ = id.set(session.clone());
        let state = Mutex::new(State { working: false, queued: VecDeque::new(), closed: false, used: Instant::now() });
        let open = Arc::new(Open { talk, state, begun });
        self.lock().insert(session, open.clone());
        self.close_oldest();
        Ok(open)
    }

    /// Hears that a turn has begun, and of agents that are started.
    fn watcher(&self, begun: &Arc<Notify>, id: &Arc<std::sync::OnceLock<String>>) -> Watcher {
        let (begun, id, turns) = (begun.clone(), id.clone(), self.turns.clone());
        let children: Mutex<HashMap<String, Turn>> = Mutex::default();
        Arc::new(move |event: &Event| match event {
            Event::Asking { .. } => begun.notify_waiters(),
            Event::Child { id: child, ended, .. } => {
                let mut children = children.lock().unwrap_or_else(PoisonError::into_inner);
                if *ended {
                    if let Some(turn) = children.remove(child) {
                        turn.over(TurnEnd::Done);
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
    async fn said(&self, open: &Arc<Open>, said: Said) -> Result<(), No> {
        let begun = open.begun.notified();
        tokio::pin!(begun);
        begun.as_mut().enable();
        if self.closing.is_cancelled() {
            return Err(No::busy("the server is about to end"));
        }
        match self.put(open, Words { said, answer: None }, When::Now) {
            Put::Began => begun.await,
            Put::Waits => {}
            Put::Closed => return Err(No::busy("this conversation was just closed to make room; try again")),
        }
        Ok(())
    }

    /// An agent in the background has ended, and its conversation should hear it.
    fn hear(&self, id: &str, text: String) -> Option<Delivery> {
        let open = self.get(id).filter(|_| !self.closing.is_cancelled())?;
        match self.put(&open, Words { said: text.as_str().into(), answer: None }, When::Later) {
            Put::Began => Some(Delivery::Woken),
            Put::Waits => Some(Delivery::Running),
            Put::Closed => None,
        }
    }

    /// Begins a turn with these words, or lets the one that runs hear them where nobody waits for the answer.
    fn put(&self, open: &Arc<Open>, words: Words, when: When) -> Put {
        let mut state = open.lock();
        if state.closed {
            return Put::Closed;
        }
        state.used = Instant::now();
        if state.working {
            match when {
                // Whoever wants the answer waits for a turn of his own.
                _ if words.answer.is_some() => {}
                _ if !words.said.files.is_empty() => state.queued.push_back(words.said),
                When::Now => open.talk.agent.handle.steer(words.said.text),
                When::Later => open.talk.agent.handle.follow_up(words.said.text),
            }
            return Put::Waits;
        }
        state.working = true;
        drop(state);
        let (open, turns, closing) = (open.clone(), self.turns.clone(), self.closing.clone());
        tokio::spawn(async move { work(&open, &turns, words, &closing).await });
        Put::Began
    }

    fn close_oldest(&self) {
        let mut open = self.lock();
        while open.len() > OPEN {
            let idle = open.iter().filter(|(_, it)| !it.lock().working);
            let Some(oldest) = idle.min_by_key(|(_, it)| it.lock().used).map(|(id, _)| id.clone()) else { return };
            let Some(gone) = open.get(&oldest).cloned() else { return };
            let mut state = gone.lock();
            // Somebody may have spoken since.
            if state.working {
                continue;
            }
            state.closed = true;
            drop(state);
            open.remove(&oldest);
            tokio::spawn(async move {
                gone.keep_unheard().await;
                setup::end_tasks(gone.talk.agent.session.clone()).await;
            });
        }
    }

    fn get(&self, id: &str) -> Option<Arc<Open>> {
        self.lock().get(id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives words to a conversation of a server that may have ended.
fn talks_of(talks: &Weak<Talks>, id: &std::sync::OnceLock<String>, words: String) -> Option<Delivery> {
    talks.upgrade()?.hear(id.get()?, words)
}

#[async_trait]
impl Wake for Talks {
    async fn wake(&self, session: &str, text: &str) -> Option<Delivery> {
        if let Some(delivery) = self.hear(session, text.to_owned()) {
            return Some(delivery);
        }
        // What another conversation sends is no request of a client: it says nothing where it cannot be taken.
        self.say(session, text.into()).await.ok().map(|()| Delivery::Woken)
    }
}

/// What became of words.
enum Put {
    /// A turn begins with them.
    Began,
    /// Another turn runs.
    Waits,
    /// Nothing: the conversation is not open any more.
    Closed,
}

/// What became of words from elsewhere, for a conversation.
pub(super) enum Handed {
    /// It is not open here.
    Away,
    /// It was in the middle of something until the end.
    Unheard,
    /// This is the answer.
    Heard(Fired),
}

/// When words are heard that come while a turn runs.
#[derive(Clone, Copy)]
enum When {
    /// Next: calls that have not begun are skipped.
    Now,
    /// When the model is done.
    Later,
}

/// Works until nobody has anything more to say.
async fn work(open: &Open, turns: &Arc<Turns>, words: Words, closing: &CancellationToken) {
    let agent = open.talk.agent.clone();
    let Words { mut said, mut answer } = words;
    loop {
        let turn = turns.begin(&agent.session.id, agent.engine.dialect().name, None);
        // A turn that breaks must not leave the conversation at work for ever.
        let Said { text, files } = std::mem::take(&mut said);
        let parts = if text.is_empty() { Vec::new() } else { vec![Part::Text { text: text.clone() }] };
        let worked = AssertUnwindSafe(agent.turn_with(parts, files)).catch_unwind().await;
        let outcome = worked.unwrap_or_else(|_| Err(Error::failed("it broke off; this is a bug in Helve")));
        if let Err(error) = &outcome {
            remark!("helve: the conversation {}: {}", agent.session.id, harmless(&error.to_string()));
        }
        if matches!(outcome, Err(Error::SessionHeld(_))) && !text.is_empty() {
            open.leave(text).await;
        }
        turn.end(&outcome);
        open.begun.notify_waiters();
        let done = matches!(&outcome, Ok(it) if it.ended == Ended::Done) && !closing.is_cancelled();
        if let Some(answer) = answer.take() {
            _ = answer.send(outcome.map_or_else(Fired::failed, Fired::from));
        }
        // Whoever speaks now finds it at work, or idle: nothing is said in between.
        let mut state = open.lock();
        let mut more = if done { agent.handle.take_steering() } else { Vec::new() };
        if done {
            more.extend(agent.handle.take_follow_ups());
        }
        state.used = Instant::now();
        // A turn that was stopped does not take the next message with it.
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

impl Open {
    /// Waits until no turn runs.
    async fn idle(&self) {
        loop {
            let rung = self.begun.notified();
            if !self.lock().working {
                return;
            }
            _ = tokio::time::timeout(Duration::from_millis(100), rung).await;
        }
    }

    /// Keeps words that came while a turn ran and that the model has not heard: whoever goes on finds them.
    async fn keep_unheard(&self) {
        let agent = &self.talk.agent;
        let words = agent.handle.take_steering().into_iter().chain(agent.handle.take_follow_ups());
        let queued = std::mem::take(&mut self.lock().queued);
        let queued = queued.into_iter().map(|Said { text, files }| {
            files.iter().fold(text, |text, file| format!("{text}\n[attached, and lost: {}]", file.describe()))
        });
        for text in words.chain(queued) {
            self.leave(text).await;
        }
    }

    /// Leaves a message of the user in the conversation.
    async fn leave(&self, text: String) {
        let agent = &self.talk.agent;
        if let Err(error) = agent.leave(&InboxItem::text(Speaker::User, text)).await {
            remark!("helve: the conversation {}: {}", agent.session.id, harmless(&error.to_string()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Talks {
    /// Hands words from elsewhere to a conversation that is open, and waits for the answer.
    pub(super) async fn hand(
        &self,
        session: &str,
        words: &str,
        files: &[Attachment],
        cancel: &CancellationToken,
    ) -> Handed {
        let Some(open) = self.get(session) else { return Handed::Away };
        let answered = loop {
            // A turn that runs is not disturbed: what is due waits for its end.
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Handed::Unheard,
                () = open.idle() => {}
            }
            let (answer, answered) = oneshot::channel();
            let said = Said { text: words.to_owned(), files: files.to_vec() };
            match self.put(&open, Words { said, answer: Some(answer) }, When::Later) {
                Put::Began => break answered,
                Put::Waits => {}
                Put::Closed => return Handed::Away,
            }
        };
        tokio::select! {
            fired = answered => Handed::Heard(fired.unwrap_or_else(|_| Fired::failed("it broke off"))),
            () = cancel.cancelled() => {
                open.talk.agent.handle.cancel();
                Handed::Heard(Fired::failed("cancelled"))
            }
        }
    }
}

#[async_trait]
impl Deliver for Talks {
    async fn deliver(&self, session: &str, words: &str, cancel: &CancellationToken) -> Option<Fired> {
        match self.hand(session, words, &[], cancel).await {
            Handed::Away => None,
            Handed::Unheard => Some(Fired::failed("cancelled")),
            Handed::Heard(fired) => Some(fired),
        }
    }

    async fn note(&self, session: &str, text: &str) -> bool {
        let Some(open) = self.get(session) else { return false };
        if open.lock().working {
            open.talk.agent.handle.follow_up(text);
            return true;
        }
        // Nothing runs there, so it goes into the store like a note for any other conversation.
        false
    }
}
