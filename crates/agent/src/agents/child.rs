//! One running agent: its text, usage and state.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use helve_contract::{
    CancellationToken, Media, ProgressFn, Refusal,
    ports::{AgentReport, AgentStatus, TokenUsage, WaitUntil},
};
use helve_engine::Engine;
use tokio::sync::watch;

use super::{purse::BudgetTracker, transcript::Transcript};
use crate::{AgentEvent, AgentListener, Charges};

/// How much of what it said is kept in memory; the transcript has all.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// The most that it forwards.
const MAX_MEDIA: usize = 8;
const MAX_MEDIA_BYTES: usize = 16 << 20;

/// One agent, running or ended.
pub(super) struct ChildAgent {
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
    started: Instant,
    progress: Mutex<ChildProgress>,
    state: watch::Sender<AgentStatus>,
}

#[derive(Default)]
struct ChildProgress {
    text: String,
    turns: u32,
    tool_calls: u32,
    usage: TokenUsage,
    refused: u32,
    media: Vec<Media>,
    elapsed: Option<Duration>,
    /// Why it is being ended, if the caller did not request it.
    failure: Option<String>,
}

/// Who an agent is, before it begins.
pub(super) struct ChildSpec {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) title: String,
    pub(super) name: Option<String>,
    pub(super) parent: String,
    pub(super) model: String,
    pub(super) transcript: Transcript,
    pub(super) background: bool,
}

impl ChildAgent {
    pub(super) fn new(birth: ChildSpec) -> Arc<Self> {
        let ChildSpec { id, kind, title, name, parent, model, transcript, background } = birth;
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
            started: Instant::now(),
            progress: Mutex::default(),
            state: watch::Sender::new(AgentStatus::Running),
        })
    }

    pub(super) fn is_running(&self) -> bool {
        *self.state.borrow() == AgentStatus::Running
    }

    /// How it stands now.
    pub(super) fn report(&self) -> AgentReport {
        let done = self.progress();
        AgentReport {
            id: self.id.clone(),
            kind: self.kind.clone(),
            title: self.title.clone(),
            status: self.state.borrow().clone(),
            text: done.text.clone(),
            media: done.media.clone(),
            model: self.model.clone(),
            turns: done.turns,
            tool_calls: done.tool_calls,
            usage: done.usage,
            elapsed: done.elapsed.unwrap_or_else(|| self.started.elapsed()),
            transcript_file: self.transcript.display_path.clone(),
        }
    }

    /// Waits for its end, as long as the caller wants to.
    pub(super) async fn wait(&self, until: WaitUntil, given_up: &CancellationToken) {
        let mut state = self.state.subscribe();
        let ended = async { _ = state.wait_for(|state| *state != AgentStatus::Running).await };
        let waiting = async {
            match until {
                WaitUntil::Now => {}
                WaitUntil::For(time) => _ = tokio::time::timeout(time, ended).await,
                WaitUntil::Exit => ended.await,
            }
        };
        given_up.run_until_cancelled(waiting).await;
    }

    /// Ends it for a reason of its own; the reason is told.
    pub(super) fn fail(&self, why: &str) {
        self.progress().failure.get_or_insert_with(|| why.to_owned());
        self.cancel.cancel();
    }

    /// Why it is being ended, if somebody said so.
    pub(super) fn failure(&self) -> Option<String> {
        self.progress().failure.clone()
    }

    /// It has ended. Its last words are `words`, if it had any.
    pub(super) fn finish(&self, state: AgentStatus, words: &str) {
        let mut done = self.progress();
        if !words.trim().is_empty() {
            words.clone_into(&mut done.text);
        }
        done.elapsed = Some(self.started.elapsed());
        drop(done);
        self.transcript.write(&format!("\n[ended: {}]\n", helve_tools::agents::state_label(&state)));
        self.state.send_replace(state);
    }

    /// The listener for its events: stores and records them, charges the budgets, and forwards its calls.
    pub(super) fn listener(
        self: &Arc<Self>,
        engine: Arc<Engine>,
        purses: Vec<Arc<BudgetTracker>>,
        progress: Option<ProgressFn>,
    ) -> AgentListener {
        let child = self.clone();
        Arc::new(move |event: &AgentEvent| {
            child.transcript.record(event);
            match event {
                AgentEvent::ModelRequested { .. } => child.record_turn(),
                AgentEvent::Text(piece) => child.append_text(piece),
                AgentEvent::ToolCallStarted { name, input, .. } => {
                    child.progress().tool_calls += 1;
                    if let Some(progress) = &progress {
                        let input: String = input.chars().take(200).collect();
                        progress(&format!("{name} {input}\n"));
                    }
                }
                AgentEvent::ToolCallFinished { name, reply, .. } => {
                    if reply.refusal.is_some_and(Refusal::leaves_work) {
                        child.progress().refused += 1;
                    }
                    child.forward_media(&engine, name, &reply.media);
                }
                AgentEvent::Usage(spent) => child.record_usage(*spent, &purses),
                _ => {}
            }
        })
    }

    /// What it and its own agents have used.
    pub(super) fn charges(&self) -> Charges {
        let done = self.progress();
        Charges { spent: done.usage, refused: done.refused }
    }

    /// Adds what an agent of its own has used.
    pub(super) fn charge(&self, charges: Charges) {
        let mut done = self.progress();
        done.usage = done.usage + charges.spent;
        done.refused += charges.refused;
    }

    fn record_turn(&self) {
        let mut done = self.progress();
        done.turns += 1;
        if !done.text.is_empty() && !done.text.ends_with('\n') {
            done.text.push_str("\n\n");
        }
    }

    fn append_text(&self, piece: &str) {
        let said = &mut self.progress().text;
        said.push_str(piece);
        if said.len() > MAX_TEXT_BYTES {
            let from = said.ceil_char_boundary(said.len() - MAX_TEXT_BYTES / 2);
            said.drain(..from);
        }
    }

    /// images that it made or sent are forwarded; those that it only looked at are not.
    fn forward_media(&self, engine: &Engine, tool: &str, media: &[Media]) {
        if media.is_empty() || engine.get(tool).is_none_or(|entry| entry.spec.effects.is_read_only()) {
            return;
        }
        let mut done = self.progress();
        for one in media {
            let bytes: usize = done.media.iter().map(|it| it.bytes.len()).sum();
            if done.media.len() < MAX_MEDIA && bytes + one.bytes.len() <= MAX_MEDIA_BYTES {
                done.media.push(one.clone());
            }
        }
    }

    /// Charges all ancestors; ends the agent when a budget is exhausted.
    fn record_usage(&self, spent: TokenUsage, purses: &[Arc<BudgetTracker>]) {
        let mut done = self.progress();
        done.usage = done.usage + spent;
        drop(done);
        for purse in purses {
            purse.record(spent);
            if let Some(why) = purse.exhausted() {
                self.fail(why);
            }
        }
    }

    fn progress(&self) -> MutexGuard<'_, ChildProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends an agent whose starting call was dropped.
pub(super) struct StopChildOnDrop(pub(super) Option<Arc<ChildAgent>>);

impl Drop for StopChildOnDrop {
    fn drop(&mut self) {
        if let Some(child) = &self.0 {
            child.cancel.cancel();
        }
    }
}
