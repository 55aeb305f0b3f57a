//! One user turn: asks the model and runs its calls until it has finished.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use helve_contract::{
    CancellationToken, Result,
    ports::{FinishReason, HeldLease, MessagePart, MessageRole, TokenUsage},
};
use helve_engine::Mode;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::{
    Agent, AgentEvent, TurnOutcome, TurnStopReason,
    circles::LoopDetector,
    compact::ContextWindow,
    definitions,
    history::History,
    model::{Model, ModelError, ModelRequest, ModelResponse, StreamChunk, generate_call_id},
    prompt,
};

/// How often a broken answer is asked for again in a row.
const MAX_BROKEN_RESPONSES: u32 = 2;
/// How often the session is made shorter for one answer.
const MAX_COMPACTIONS: u32 = 3;

/// One turn of the user.
pub(crate) struct Turn<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) history: History,
    pub(crate) system: String,
    pub(crate) tools: Vec<Value>,
    /// Set when the user gives up.
    user_cancel: CancellationToken,
    /// Set when the user gives up, or the time is over.
    pub(crate) cancel: CancellationToken,
    _clock: Option<TurnDeadline>,
    pub(crate) loop_detector: LoopDetector,
    pub(crate) context_window: ContextWindow,
    ids: BTreeSet<String>,
    pub(crate) calls: u32,
    pub(crate) refused: u32,
    pub(crate) usage: TokenUsage,
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
struct TurnDeadline(JoinHandle<()>);

impl Drop for TurnDeadline {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl TurnDeadline {
    fn start(time: Duration, cancel: &CancellationToken) -> Self {
        let cancel = cancel.clone();
        Self(tokio::spawn(async move {
            tokio::time::sleep(time).await;
            cancel.cancel();
        }))
    }
}

impl<'a> Turn<'a> {
    /// Begins a turn: the history is loaded and repaired, the user's words are kept.
    pub(crate) async fn open(
        agent: &'a Agent,
        held: &Arc<HeldLease>,
        words: Option<Vec<MessagePart>>,
        above: &CancellationToken,
    ) -> Result<Self> {
        let mut history = History::load(agent).await?.holding(held.clone());
        history.create_if_new(agent, words.as_deref().unwrap_or_default()).await?;
        let mended = history.close_open_calls().await?;
        if mended > 0 {
            let words = format!("{mended} calls were interrupted; they do not run again");
            (agent.listener)(&AgentEvent::Notice(words));
        }
        history.take_inbox().await?;
        let mut answered = None;
        match words.filter(|it| !it.is_empty()) {
            Some(words) => {
                history.tell_time().await?;
                _ = history.add(MessageRole::User, words, TokenUsage::default()).await?;
            }
            None => answered = last_response_text(&mut history).await?,
        }
        let system = match agent.system_prompt.as_str() {
            "" => prompt::system_prompt(&agent.engine, &agent.session, "").await,
            given => given.to_owned(),
        };
        let cancel = above.child_token();
        Ok(Self {
            tools: definitions::tool_definitions(&agent.engine),
            ids: history.call_ids(),
            context_window: ContextWindow::new(agent.model.context_window().or(agent.context_window)),
            _clock: agent.budget.max_time.map(|time| TurnDeadline::start(time, &cancel)),
            user_cancel: above.clone(),
            agent,
            history,
            system,
            cancel,
            loop_detector: LoopDetector::default(),
            calls: 0,
            refused: 0,
            usage: TokenUsage::default(),
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
    pub(crate) async fn run(mut self) -> Result<TurnOutcome> {
        if let Some(text) = self.answered.take() {
            return Ok(TurnOutcome {
                text,
                stop_reason: TurnStopReason::Completed,
                turns: 0,
                tool_calls: 0,
                refused: 0,
                usage: TokenUsage::default(),
            });
        }
        let ended = loop {
            if let Some(ended) = self.step().await? {
                break ended;
            }
        };
        self.take_charges();
        let Self { text, turns, calls, refused, usage: spent, .. } = self;
        Ok(TurnOutcome { text, stop_reason: ended, turns, tool_calls: calls, refused, usage: spent })
    }

    /// Adds the usage of sub-agents to the session's.
    fn take_charges(&mut self) {
        let charges = self.agent.handle.take_charges();
        self.usage = self.usage + charges.spent;
        self.refused += charges.refused;
    }

    /// Tells the model when plan mode starts and ends. The note is at the end of the session, so that the prefix
    /// stays cacheable.
    async fn tell_plan_mode(&mut self) -> Result<()> {
        let is_planning = self.agent.engine.mode().get() == Mode::Plan;
        let was_planning = self.history.last_note_is(prompt::PLAN_MODE, prompt::PLAN_MODE_ENDED);
        let note = match (is_planning, was_planning) {
            (true, false) => prompt::plan_mode(&self.agent.engine),
            (false, true) => prompt::PLAN_MODE_ENDED.to_owned(),
            _ => return Ok(()),
        };
        self.history.add(MessageRole::System, vec![MessagePart::Text { text: note }], TokenUsage::default()).await?;
        Ok(())
    }

    pub(crate) fn emit(&self, event: AgentEvent) {
        (self.agent.listener)(&event);
    }

    /// One answer of the model, and the calls in it.
    async fn step(&mut self) -> Result<Option<TurnStopReason>> {
        for words in self.agent.handle.take_steering() {
            self.history.add(MessageRole::User, vec![MessagePart::Text { text: words }], TokenUsage::default()).await?;
        }
        // Every call has its result here, so an inbox message cannot separate them.
        self.history.take_inbox().await?;
        self.take_charges();
        if let Some(ended) = self.stop_reason() {
            return Ok(Some(ended));
        }
        self.tell_plan_mode().await?;
        self.compact_if_needed().await?;
        self.turns += 1;
        self.emit(AgentEvent::ModelRequested { turn: self.turns });
        match self.ask_model().await {
            Ok(answer) => self.handle_response(answer).await,
            Err(error) => self.handle_model_error(error).await,
        }
    }

    /// Whether the turn is over: it was cancelled, or a budget is used up.
    pub(crate) fn stop_reason(&self) -> Option<TurnStopReason> {
        let budget = &self.agent.budget;
        let used = |words: String| Some(TurnStopReason::BudgetExhausted(words));
        if self.user_cancel.is_cancelled() {
            return Some(TurnStopReason::Cancelled);
        }
        if self.cancel.is_cancelled() {
            let time = budget.max_time.unwrap_or_default().as_secs_f64();
            return used(format!("the {time} s that the turn may take are over"));
        }
        if let Some(turns) = budget.max_turns.filter(|it| self.turns >= *it) {
            return used(format!("the model has answered {turns} times, which is as often as it may in one turn"));
        }
        let tokens = self.usage.prompt_tokens + self.usage.completion_tokens;
        if let Some(most) = budget.max_tokens.filter(|it| tokens >= *it) {
            return used(format!("{tokens} tokens are used, and {most} may be"));
        }
        let cost = self.usage.cost;
        if let Some(most) = budget.max_cost.filter(|it| cost >= *it) {
            return used(format!("{cost:.4} US dollars are spent, and {most} may be"));
        }
        None
    }

    async fn ask_model(&self) -> Result<ModelResponse, ModelError> {
        let watcher = self.agent.listener.clone();
        let ear = move |piece: StreamChunk<'_>| match piece {
            StreamChunk::Text(text) => watcher(&AgentEvent::Text(text.to_owned())),
            StreamChunk::Reasoning(text) => watcher(&AgentEvent::Reasoning(text.to_owned())),
            StreamChunk::Retry(why, ms) => {
                watcher(&AgentEvent::Retrying { why: why.to_owned(), after: Duration::from_millis(ms) });
            }
        };
        let ask = ModelRequest {
            system_prompt: &self.system,
            messages: &self.history.view,
            tools: &self.tools,
            max_tokens: None,
            cancel: self.cancel.clone(),
        };
        self.agent.model.complete(&ask, &ear).await
    }

    /// Takes an answer: keeps it, and runs its calls.
    async fn handle_response(&mut self, mut answer: ModelResponse) -> Result<Option<TurnStopReason>> {
        self.usage = self.usage + answer.usage;
        self.context_window.calibrate(answer.usage.prompt_tokens, self.estimate_tokens());
        self.emit(AgentEvent::Usage(answer.usage));
        (self.broken, self.squeezed) = (0, 0);
        for call in &mut answer.calls {
            // Some endpoints count from 0 in every answer.
            if !self.ids.insert(call.id.clone()) {
                call.id = generate_call_id();
                self.ids.insert(call.id.clone());
            }
        }
        if !answer.text.trim().is_empty() {
            self.text.clone_from(&answer.text);
        }
        let reason = match (&answer, answer.calls.is_empty()) {
            (answer, _) if answer.is_truncated => FinishReason::Limit,
            (_, true) => FinishReason::EndTurn,
            (_, false) => FinishReason::ToolUse,
        };
        self.history
            .add(MessageRole::Assistant, response_parts(&*self.agent.model, &answer, &reason), answer.usage)
            .await?;
        if !answer.calls.is_empty() {
            let calls = std::mem::take(&mut answer.calls);
            if let Some(ended) = self.run_calls(calls).await? {
                return Ok(Some(ended));
            }
        }
        self.after_calls(&answer, &reason).await
    }

    /// What follows an answer whose calls have run.
    async fn after_calls(&mut self, answer: &ModelResponse, reason: &FinishReason) -> Result<Option<TurnStopReason>> {
        if answer.is_truncated {
            let lost = match answer.incomplete_calls.as_slice() {
                [] => String::new(),
                lost => format!(" The call of {} was not complete and did not run.", lost.join(", ")),
            };
            if std::mem::replace(&mut self.cut, true)
                && *reason == FinishReason::Limit
                && answer.incomplete_calls.is_empty()
            {
                self.emit(AgentEvent::Notice("The answer was cut by the limit of the model again.".into()));
                return Ok(Some(TurnStopReason::Completed));
            }
            self.add_note(format!(
                "Your answer was cut because it was too long.{lost} Go on where it stops, in smaller steps."
            ))
            .await?;
            return Ok(None);
        }
        if *reason == FinishReason::ToolUse || self.agent.handle.has_steering() {
            return Ok(None);
        }
        if answer.text.trim().is_empty() && !std::mem::replace(&mut self.empty, true) {
            self.add_note("Your answer was empty. Go on with the work, or say what came of it.".to_owned()).await?;
            return Ok(None);
        }
        Ok(Some(TurnStopReason::Completed))
    }

    /// Says something to the model that the user did not say.
    async fn add_note(&mut self, words: String) -> Result<()> {
        self.emit(AgentEvent::Notice(words.clone()));
        self.history.add(MessageRole::System, vec![MessagePart::Text { text: words }], TokenUsage::default()).await?;
        Ok(())
    }

    /// There is no answer.
    async fn handle_model_error(&mut self, error: ModelError) -> Result<Option<TurnStopReason>> {
        match error {
            ModelError::Cancelled { said } => {
                self.store_partial_text(said, FinishReason::Canceled, "[stopped here]").await?;
                Ok(self.stop_reason().or(Some(TurnStopReason::Cancelled)))
            }
            ModelError::StreamBroken { why, said } => {
                self.store_partial_text(said, FinishReason::Error, "[the connection broke here]").await?;
                self.broken += 1;
                if self.broken > MAX_BROKEN_RESPONSES {
                    return Ok(Some(TurnStopReason::ModelFailed(why)));
                }
                self.add_note(format!("{why}. What came stands above; no tool ran. Go on from there.")).await?;
                Ok(None)
            }
            ModelError::ContextTooLong(why) => {
                self.squeezed += 1;
                self.turns = self.turns.saturating_sub(1);
                if self.squeezed > MAX_COMPACTIONS || !self.compact_after_overflow(self.squeezed).await? {
                    return Ok(Some(TurnStopReason::ModelFailed(format!(
                        "{why}. Begin a new conversation, or say less at once."
                    ))));
                }
                Ok(None)
            }
            ModelError::Refused(why) | ModelError::Unreachable(why) => Ok(Some(TurnStopReason::ModelFailed(why))),
        }
    }

    /// Stores partial text with a mark.
    async fn store_partial_text(&mut self, said: String, reason: FinishReason, mark: &str) -> Result<()> {
        if said.trim().is_empty() {
            return Ok(());
        }
        self.text.clone_from(&said);
        let parts = vec![MessagePart::Text { text: format!("{said}\n{mark}") }, MessagePart::Finish { reason }];
        // Nobody said what it took; what was said is counted about.
        let spent = TokenUsage { completion_tokens: (said.len() / 4) as u64, ..TokenUsage::default() };
        self.usage = self.usage + spent;
        self.history.add(MessageRole::Assistant, parts, spent).await?;
        Ok(())
    }
}

/// What the model said last, if nothing is left to do. What it could not finish it is asked to go on with.
async fn last_response_text(history: &mut History) -> Result<Option<String>> {
    let Some(last) = history.view.last().filter(|it| it.role == MessageRole::Assistant) else { return Ok(None) };
    let whole = last.parts.iter().any(|it| matches!(it, MessagePart::Finish { reason: FinishReason::EndTurn }));
    if whole {
        let words = last
            .parts
            .iter()
            .filter_map(|it| if let MessagePart::Text { text } = it { Some(text.as_str()) } else { None });
        return Ok(Some(words.collect()));
    }
    let text = "You were interrupted. Go on from where you stopped.".to_owned();
    history.add(MessageRole::System, vec![MessagePart::Text { text }], TokenUsage::default()).await?;
    Ok(None)
}

fn response_parts(model: &dyn Model, answer: &ModelResponse, reason: &FinishReason) -> Vec<MessagePart> {
    let opaque =
        |data: &Value| MessagePart::Opaque { api: model.api().to_owned(), model: model.name(), data: data.clone() };
    let mut parts: Vec<MessagePart> = answer.opaque.iter().map(opaque).collect();
    if !answer.reasoning.is_empty() {
        parts.push(MessagePart::Reasoning { thinking: answer.reasoning.clone() });
    }
    if !answer.text.is_empty() {
        parts.push(MessagePart::Text { text: answer.text.clone() });
    }
    for call in &answer.calls {
        // The provider's item stands before the call that it belongs to.
        parts.extend(call.opaque.as_ref().map(opaque));
        parts.push(MessagePart::ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            input: call.input.clone(),
            finished: true,
        });
    }
    parts.push(MessagePart::Finish { reason: reason.clone() });
    parts
}

/// A way to hear a running call.
pub(crate) fn progress_fn(agent: &Agent, id: &str) -> helve_contract::ProgressFn {
    let (watcher, id) = (agent.listener.clone(), id.to_owned());
    Arc::new(move |text: &str| watcher(&AgentEvent::Progress { id: id.clone(), text: text.to_owned() }))
}
