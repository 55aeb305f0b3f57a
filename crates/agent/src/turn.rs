//! One turn of the user: the model is asked, its calls run, until it has no more to do.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use helve_contract::{
    CancellationToken, Result,
    ports::{FinishReason, HeldLease, Part, Speaker, Spent},
};
use helve_engine::Mode;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::{
    Agent, Ended, Event, Outcome,
    circles::Circles,
    compact::Room,
    definitions,
    history::History,
    model::{Answer, Ask, Model, ModelError, Piece, fresh_id},
    prompt,
};

/// How often a broken answer is asked for again in a row.
const BROKEN: u32 = 2;
/// How often the conversation is made shorter for one answer.
const SQUEEZED: u32 = 3;

/// One turn of the user.
pub(crate) struct Turn<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) history: History,
    pub(crate) system: String,
    pub(crate) tools: Vec<Value>,
    /// Set when the user gives up.
    above: CancellationToken,
    /// Set when the user gives up, or the time is over.
    pub(crate) cancel: CancellationToken,
    _clock: Option<Clock>,
    pub(crate) circles: Circles,
    pub(crate) room: Room,
    ids: BTreeSet<String>,
    pub(crate) calls: u32,
    pub(crate) refused: u32,
    pub(crate) spent: Spent,
    turns: u32,
    text: String,
    broken: u32,
    cut: bool,
    empty: bool,
    squeezed: u32,
    /// The model has answered already, and nobody has said anything since.
    answered: Option<String>,
}

/// Ends the turn when its time is over.
struct Clock(JoinHandle<()>);

impl Drop for Clock {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Clock {
    fn start(time: Duration, cancel: &CancellationToken) -> Self {
        let cancel = cancel.clone();
        Self(tokio::spawn(async move {
            tokio::time::sleep(time).await;
            cancel.cancel();
        }))
    }
}

impl<'a> Turn<'a> {
    /// Begins a turn: the history is loaded and mended, the user's words are kept.
    pub(crate) async fn open(
        agent: &'a Agent,
        held: &Arc<HeldLease>,
        words: Option<Vec<Part>>,
        above: &CancellationToken,
    ) -> Result<Self> {
        let mut history = History::load(agent).await?.holding(held.clone());
        history.begin(agent, words.as_deref().unwrap_or_default()).await?;
        let mended = history.mend().await?;
        if mended > 0 {
            let words = format!("{mended} calls were interrupted; they do not run again");
            (agent.watcher)(&Event::Notice(words));
        }
        history.take_inbox().await?;
        let mut answered = None;
        match words.filter(|it| !it.is_empty()) {
            Some(words) => {
                history.tell_time().await?;
                _ = history.add(Speaker::User, words, Spent::default()).await?;
            }
            None => answered = last_answer(&mut history).await?,
        }
        let system = match agent.system.as_str() {
            "" => prompt::system(&agent.engine, &agent.session, "").await,
            given => given.to_owned(),
        };
        let cancel = above.child_token();
        Ok(Self {
            tools: definitions::of(&agent.engine),
            ids: history.ids(),
            room: Room::new(agent.model.window().or(agent.window)),
            _clock: agent.budget.time.map(|time| Clock::start(time, &cancel)),
            above: above.clone(),
            agent,
            history,
            system,
            cancel,
            circles: Circles::default(),
            calls: 0,
            refused: 0,
            spent: Spent::default(),
            turns: 0,
            text: String::new(),
            broken: 0,
            cut: false,
            empty: false,
            squeezed: 0,
            answered,
        })
    }

    /// Works until there is nothing more to do.
    pub(crate) async fn run(mut self) -> Result<Outcome> {
        if let Some(text) = self.answered.take() {
            return Ok(Outcome { text, ended: Ended::Done, turns: 0, calls: 0, refused: 0, spent: Spent::default() });
        }
        let ended = loop {
            if let Some(ended) = self.step().await? {
                break ended;
            }
        };
        self.take_charges();
        let Self { text, turns, calls, refused, spent, .. } = self;
        Ok(Outcome { text, ended, turns, calls, refused, spent })
    }

    /// Adds what agents of this conversation have used to its own bill.
    fn take_charges(&mut self) {
        let charges = self.agent.handle.take_charges();
        self.spent = self.spent + charges.spent;
        self.refused += charges.refused;
    }

    /// Tells the model when plan mode begins and when it has ended. The note stands at the end of the conversation, so
    /// that everything before it stays the same.
    async fn tell_plan_mode(&mut self) -> Result<()> {
        let is_planning = self.agent.engine.mode().get() == Mode::Plan;
        let was_planning = self.history.last_note_is(prompt::PLAN_MODE, prompt::PLAN_MODE_ENDED);
        let note = match (is_planning, was_planning) {
            (true, false) => prompt::plan_mode(&self.agent.engine),
            (false, true) => prompt::PLAN_MODE_ENDED.to_owned(),
            _ => return Ok(()),
        };
        self.history.add(Speaker::System, vec![Part::Text { text: note }], Spent::default()).await?;
        Ok(())
    }

    pub(crate) fn tell(&self, event: Event) {
        (self.agent.watcher)(&event);
    }

    /// One answer of the model, and the calls in it.
    async fn step(&mut self) -> Result<Option<Ended>> {
        for words in self.agent.handle.take_steering() {
            self.history.add(Speaker::User, vec![Part::Text { text: words }], Spent::default()).await?;
        }
        // Every call has its result here, so a message from outside stands between none of them.
        self.history.take_inbox().await?;
        self.take_charges();
        if let Some(ended) = self.over() {
            return Ok(Some(ended));
        }
        self.tell_plan_mode().await?;
        self.make_room().await?;
        self.turns += 1;
        self.tell(Event::Asking { turn: self.turns });
        match self.ask().await {
            Ok(answer) => self.take(answer).await,
            Err(error) => self.without(error).await,
        }
    }

    /// Whether the turn is over: it was cancelled, or a budget is used up.
    pub(crate) fn over(&self) -> Option<Ended> {
        let budget = &self.agent.budget;
        let used = |words: String| Some(Ended::Budget(words));
        if self.above.is_cancelled() {
            return Some(Ended::Cancelled);
        }
        if self.cancel.is_cancelled() {
            let time = budget.time.unwrap_or_default().as_secs_f64();
            return used(format!("the {time} s that the turn may take are over"));
        }
        if let Some(turns) = budget.turns.filter(|it| self.turns >= *it) {
            return used(format!("the model has answered {turns} times, which is as often as it may in one turn"));
        }
        let tokens = self.spent.prompt_tokens + self.spent.completion_tokens;
        if let Some(most) = budget.tokens.filter(|it| tokens >= *it) {
            return used(format!("{tokens} tokens are used, and {most} may be"));
        }
        let cost = self.spent.cost;
        if let Some(most) = budget.cost.filter(|it| cost >= *it) {
            return used(format!("{cost:.4} US dollars are spent, and {most} may be"));
        }
        None
    }

    async fn ask(&self) -> Result<Answer, ModelError> {
        let watcher = self.agent.watcher.clone();
        let ear = move |piece: Piece<'_>| match piece {
            Piece::Text(text) => watcher(&Event::Text(text.to_owned())),
            Piece::Reasoning(text) => watcher(&Event::Reasoning(text.to_owned())),
            Piece::Retry(why, ms) => {
                watcher(&Event::Retrying { why: why.to_owned(), after: Duration::from_millis(ms) });
            }
        };
        let ask = Ask {
            system: &self.system,
            messages: &self.history.view,
            tools: &self.tools,
            max_tokens: None,
            cancel: self.cancel.clone(),
        };
        self.agent.model.answer(&ask, &ear).await
    }

    /// Takes an answer: keeps it, and runs its calls.
    async fn take(&mut self, mut answer: Answer) -> Result<Option<Ended>> {
        self.spent = self.spent + answer.spent;
        self.room.learn(answer.spent.prompt_tokens, self.tokens());
        self.tell(Event::Spent(answer.spent));
        (self.broken, self.squeezed) = (0, 0);
        for call in &mut answer.calls {
            // Some endpoints count from 0 in every answer.
            if !self.ids.insert(call.id.clone()) {
                call.id = fresh_id();
                self.ids.insert(call.id.clone());
            }
        }
        if !answer.text.trim().is_empty() {
            self.text.clone_from(&answer.text);
        }
        let reason = match (&answer, answer.calls.is_empty()) {
            (answer, _) if answer.cut => FinishReason::Limit,
            (_, true) => FinishReason::EndTurn,
            (_, false) => FinishReason::ToolUse,
        };
        self.history.add(Speaker::Assistant, parts(&*self.agent.model, &answer, &reason), answer.spent).await?;
        if !answer.calls.is_empty() {
            let calls = std::mem::take(&mut answer.calls);
            if let Some(ended) = self.run_calls(calls).await? {
                return Ok(Some(ended));
            }
        }
        self.after(&answer, &reason).await
    }

    /// What follows an answer whose calls have run.
    async fn after(&mut self, answer: &Answer, reason: &FinishReason) -> Result<Option<Ended>> {
        if answer.cut {
            let lost = match answer.lost.as_slice() {
                [] => String::new(),
                lost => format!(" The call of {} was not complete and did not run.", lost.join(", ")),
            };
            if std::mem::replace(&mut self.cut, true) && *reason == FinishReason::Limit && answer.lost.is_empty() {
                self.tell(Event::Notice("The answer was cut by the limit of the model again.".into()));
                return Ok(Some(Ended::Done));
            }
            self.note(format!(
                "Your answer was cut because it was too long.{lost} Go on where it stops, in smaller steps."
            ))
            .await?;
            return Ok(None);
        }
        if *reason == FinishReason::ToolUse || self.agent.handle.has_steering() {
            return Ok(None);
        }
        if answer.text.trim().is_empty() && !std::mem::replace(&mut self.empty, true) {
            self.note("Your answer was empty. Go on with the work, or say what came of it.".to_owned()).await?;
            return Ok(None);
        }
        Ok(Some(Ended::Done))
    }

    /// Says something to the model that the user did not say.
    async fn note(&mut self, words: String) -> Result<()> {
        self.tell(Event::Notice(words.clone()));
        self.history.add(Speaker::System, vec![Part::Text { text: words }], Spent::default()).await?;
        Ok(())
    }

    /// There is no answer.
    async fn without(&mut self, error: ModelError) -> Result<Option<Ended>> {
        match error {
            ModelError::Cancelled { said } => {
                self.keep_said(said, FinishReason::Canceled, "[stopped here]").await?;
                Ok(self.over().or(Some(Ended::Cancelled)))
            }
            ModelError::Broken { why, said } => {
                self.keep_said(said, FinishReason::Error, "[the connection broke here]").await?;
                self.broken += 1;
                if self.broken > BROKEN {
                    return Ok(Some(Ended::Model(why)));
                }
                self.note(format!("{why}. What came stands above; no tool ran. Go on from there.")).await?;
                Ok(None)
            }
            ModelError::TooLong(why) => {
                self.squeezed += 1;
                self.turns = self.turns.saturating_sub(1);
                if self.squeezed > SQUEEZED || !self.squeeze(self.squeezed).await? {
                    return Ok(Some(Ended::Model(format!("{why}. Begin a new conversation, or say less at once."))));
                }
                Ok(None)
            }
            ModelError::Refused(why) | ModelError::Unreachable(why) => Ok(Some(Ended::Model(why))),
        }
    }

    /// Keeps what was said before the end, with a mark.
    async fn keep_said(&mut self, said: String, reason: FinishReason, mark: &str) -> Result<()> {
        if said.trim().is_empty() {
            return Ok(());
        }
        self.text.clone_from(&said);
        let parts = vec![Part::Text { text: format!("{said}\n{mark}") }, Part::Finish { reason }];
        // Nobody said what it took; what was said is counted about.
        let spent = Spent { completion_tokens: (said.len() / 4) as u64, ..Spent::default() };
        self.spent = self.spent + spent;
        self.history.add(Speaker::Assistant, parts, spent).await?;
        Ok(())
    }
}

/// What the model said last, if nothing is left to do. What it could not finish it is asked to go on with.
async fn last_answer(history: &mut History) -> Result<Option<String>> {
    let Some(last) = history.view.last().filter(|it| it.role == Speaker::Assistant) else { return Ok(None) };
    let whole = last.parts.iter().any(|it| matches!(it, Part::Finish { reason: FinishReason::EndTurn }));
    if whole {
        let words =
            last.parts.iter().filter_map(|it| if let Part::Text { text } = it { Some(text.as_str()) } else { None });
        return Ok(Some(words.collect()));
    }
    let text = "You were interrupted. Go on from where you stopped.".to_owned();
    history.add(Speaker::System, vec![Part::Text { text }], Spent::default()).await?;
    Ok(None)
}

fn parts(model: &dyn Model, answer: &Answer, reason: &FinishReason) -> Vec<Part> {
    let opaque = |data: &Value| Part::Opaque { api: model.api().to_owned(), model: model.name(), data: data.clone() };
    let mut parts: Vec<Part> = answer.opaque.iter().map(opaque).collect();
    if !answer.reasoning.is_empty() {
        parts.push(Part::Reasoning { thinking: answer.reasoning.clone() });
    }
    if !answer.text.is_empty() {
        parts.push(Part::Text { text: answer.text.clone() });
    }
    for call in &answer.calls {
        // The provider's item stands before the call that it belongs to.
        parts.extend(call.opaque.as_ref().map(opaque));
        parts.push(Part::ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            input: call.input.clone(),
            finished: true,
        });
    }
    parts.push(Part::Finish { reason: reason.clone() });
    parts
}

/// A way to hear a running call.
pub(crate) fn progress(agent: &Agent, id: &str) -> helve_contract::Progress {
    let (watcher, id) = (agent.watcher.clone(), id.to_owned());
    Arc::new(move |text: &str| watcher(&Event::Progress { id: id.clone(), text: text.to_owned() }))
}
