//! One agent at work: what it has said, what it took, and how it stands.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use helve_contract::{
    CancellationToken, Media, Progress, Refusal,
    ports::{AgentReport, AgentState, Spent, Until},
};
use helve_engine::Engine;
use tokio::sync::watch;

use super::{purse::Purse, transcript::Transcript};
use crate::{Charges, Event, Watcher};

/// How much of what it said is kept in memory; the transcript has all.
const SAID: usize = 256 << 10;
/// The most that it forwards.
const MOST_MEDIA: usize = 8;
const MEDIA_BYTES: usize = 16 << 20;

/// One agent, running or ended.
pub(super) struct Child {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) title: String,
    /// A name of its own, by which it can be asked for as well.
    pub(super) name: Option<String>,
    /// The session that started it.
    pub(super) parent: String,
    pub(super) model: String,
    pub(super) cancel: CancellationToken,
    pub(super) transcript: Transcript,
    pub(super) background: bool,
    began: Instant,
    done: Mutex<Done>,
    state: watch::Sender<AgentState>,
}

#[derive(Default)]
struct Done {
    said: String,
    turns: u32,
    calls: u32,
    spent: Spent,
    refused: u32,
    media: Vec<Media>,
    ran: Option<Duration>,
    /// Why it is being ended, when that is not the caller's wish.
    fault: Option<String>,
}

/// Who an agent is, before it begins.
pub(super) struct Birth {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) title: String,
    pub(super) name: Option<String>,
    pub(super) parent: String,
    pub(super) model: String,
    pub(super) transcript: Transcript,
    pub(super) background: bool,
}

impl Child {
    pub(super) fn new(birth: Birth) -> Arc<Self> {
        let Birth { id, kind, title, name, parent, model, transcript, background } = birth;
        Arc::new(Self {
            id,
            kind,
            title,
            name,
            parent,
            model,
            cancel: CancellationToken::new(),
            transcript,
            background,
            began: Instant::now(),
            done: Mutex::default(),
            state: watch::Sender::new(AgentState::Running),
        })
    }

    pub(super) fn is_running(&self) -> bool {
        *self.state.borrow() == AgentState::Running
    }

    /// How it stands now.
    pub(super) fn report(&self) -> AgentReport {
        let done = self.done();
        AgentReport {
            id: self.id.clone(),
            kind: self.kind.clone(),
            title: self.title.clone(),
            state: self.state.borrow().clone(),
            text: done.said.clone(),
            media: done.media.clone(),
            model: self.model.clone(),
            turns: done.turns,
            calls: done.calls,
            spent: done.spent,
            ran: done.ran.unwrap_or_else(|| self.began.elapsed()),
            file: self.transcript.shown.clone(),
        }
    }

    /// Waits for its end, as long as the caller wants to.
    pub(super) async fn wait(&self, until: Until, given_up: &CancellationToken) {
        let mut state = self.state.subscribe();
        let ended = async { _ = state.wait_for(|state| *state != AgentState::Running).await };
        let waiting = async {
            match until {
                Until::Now => {}
                Until::For(time) => _ = tokio::time::timeout(time, ended).await,
                Until::End => ended.await,
            }
        };
        given_up.run_until_cancelled(waiting).await;
    }

    /// Ends it for a reason of its own; the reason is told.
    pub(super) fn fail(&self, why: &str) {
        self.done().fault.get_or_insert_with(|| why.to_owned());
        self.cancel.cancel();
    }

    /// Why it is being ended, if somebody said so.
    pub(super) fn fault(&self) -> Option<String> {
        self.done().fault.clone()
    }

    /// It has ended. Its last words are `words`, if it had any.
    pub(super) fn end(&self, state: AgentState, words: &str) {
        let mut done = self.done();
        if !words.trim().is_empty() {
            words.clone_into(&mut done.said);
        }
        done.ran = Some(self.began.elapsed());
        drop(done);
        self.transcript.write(&format!("\n[ended: {}]\n", helve_tools::agents::word(&state)));
        self.state.send_replace(state);
    }

    /// Hears what it does: keeps it, writes it down, pays for it, and shows its calls to whoever waits.
    pub(super) fn ear(
        self: &Arc<Self>,
        engine: Arc<Engine>,
        purses: Vec<Arc<Purse>>,
        progress: Option<Progress>,
    ) -> Watcher {
        let child = self.clone();
        Arc::new(move |event: &Event| {
            child.transcript.hear(event);
            match event {
                Event::Asking { .. } => child.asked(),
                Event::Text(piece) => child.says(piece),
                Event::Calling { name, input, .. } => {
                    child.done().calls += 1;
                    if let Some(progress) = &progress {
                        let input: String = input.chars().take(200).collect();
                        progress(&format!("{name} {input}\n"));
                    }
                }
                Event::Called { name, reply, .. } => {
                    if reply.refusal.is_some_and(Refusal::leaves_work) {
                        child.done().refused += 1;
                    }
                    child.sent(&engine, name, &reply.media);
                }
                Event::Spent(spent) => child.pays(*spent, &purses),
                _ => {}
            }
        })
    }

    /// What it and its own agents have used.
    pub(super) fn charges(&self) -> Charges {
        let done = self.done();
        Charges { spent: done.spent, refused: done.refused }
    }

    /// Adds what an agent of its own has used.
    pub(super) fn charge(&self, charges: Charges) {
        let mut done = self.done();
        done.spent = done.spent + charges.spent;
        done.refused += charges.refused;
    }

    fn asked(&self) {
        let mut done = self.done();
        done.turns += 1;
        if !done.said.is_empty() && !done.said.ends_with('\n') {
            done.said.push_str("\n\n");
        }
    }

    fn says(&self, piece: &str) {
        let said = &mut self.done().said;
        said.push_str(piece);
        if said.len() > SAID {
            let from = said.ceil_char_boundary(said.len() - SAID / 2);
            said.drain(..from);
        }
    }

    /// Pictures that it made or sent are forwarded; those that it only looked at are not.
    fn sent(&self, engine: &Engine, tool: &str, media: &[Media]) {
        if media.is_empty() || engine.get(tool).is_none_or(|entry| entry.spec.effects.is_read_only()) {
            return;
        }
        let mut done = self.done();
        for one in media {
            let bytes: usize = done.media.iter().map(|it| it.bytes.len()).sum();
            if done.media.len() < MOST_MEDIA && bytes + one.bytes.len() <= MEDIA_BYTES {
                done.media.push(one.clone());
            }
        }
    }

    /// Everybody above pays with it; when one of them has no more, it ends.
    fn pays(&self, spent: Spent, purses: &[Arc<Purse>]) {
        let mut done = self.done();
        done.spent = done.spent + spent;
        drop(done);
        for purse in purses {
            purse.pay(spent);
            if let Some(why) = purse.empty() {
                self.fail(why);
            }
        }
    }

    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends an agent that nobody waits for any more: the call that started it was given up.
pub(super) struct Leash(pub(super) Option<Arc<Child>>);

impl Drop for Leash {
    fn drop(&mut self) {
        if let Some(child) = &self.0 {
            child.cancel.cancel();
        }
    }
}
