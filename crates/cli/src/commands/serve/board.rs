//! Pending approvals and questions of all sessions, and the latest answers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use helve_contract::{
    Call, Error, Result, async_trait,
    events::{
        ApprovalAnswer, ApprovalAsked, ApprovalDecided, ApprovalKind, SessionSetting, SessionTodos, ShownArgument,
        ShownQuestion,
    },
    jiff::Timestamp,
    ports::{self, PlanDecision, QuestionOption, Todo, User},
};
use helve_engine::{ApprovalDecision, ApprovalRequest, Approver, Mode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{hub::EventBus, say::ApiError};
use crate::{knobs::SessionKnobs, state, workshop::HelveRuntime};

/// The maximum number of pending questions.
const MAX_PENDING: usize = 200;
/// The maximum number of kept answers.
const MAX_DECIDED: usize = 100;
/// The tolerance between two timers that start together.
const CLOCK_SLACK: Duration = Duration::from_millis(100);
/// The maximum size of one text that is shown or entered.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// What goes on with a plan.
const APPROVE_PLAN_LABEL: &str = "Go on";
/// The same, and changes of files need no approval.
const ACCEPT_EDITS: &str = "Go on and accept edits";
/// What does not.
const REJECT_PLAN_LABEL: &str = "Change it";
/// Why a schedule does not wait.
const UNATTENDED_REASON: &str = "nobody has looked at the page in the last 60 s, and what works by itself does not wait; do what needs no \
    approval, and say in your answer what is left";

/// Where questions wait.
pub(super) struct ApprovalQueue {
    event_bus: Arc<EventBus>,
    runtime: Weak<HelveRuntime>,
    runtime_settings: Arc<SessionKnobs>,
    timeout: Duration,
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    /// Oldest first.
    pending: Vec<PendingItem>,
    /// Oldest first.
    decided: VecDeque<Value>,
    /// Whether no more questions are accepted.
    closed: bool,
}

struct PendingItem {
    id: String,
    dialect: String,
    json: ApprovalAsked,
    /// The number of answers that a question needs, single or multiple choice; `None` for a yes-or-no question.
    answer_counts: Option<Vec<AnswerCount>>,
    answer: oneshot::Sender<UserAnswer>,
}

/// How many answers may be chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerCount {
    One,
    Several,
}

/// A person's answer.
#[derive(Debug)]
enum UserAnswer {
    /// To a call.
    Answer(ApprovalDecision),
    /// To questions, in their order.
    Choices(Vec<Vec<String>>),
}

/// An answer as it comes in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    answer: Option<DecisionWord>,
    reason: Option<String>,
    answers: Option<Vec<Vec<String>>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DecisionWord {
    Once,
    Session,
    Deny,
}

impl ApprovalQueue {
    pub(super) fn new(hub: Arc<EventBus>, bench: &Arc<HelveRuntime>) -> Arc<Self> {
        Arc::new(Self {
            event_bus: hub,
            runtime: Arc::downgrade(bench),
            runtime_settings: bench.knobs().clone(),
            timeout: bench.approval_timeout(),
            state: Mutex::default(),
        })
    }

    /// What waits, and what was answered last.
    pub(super) fn to_json(&self) -> Value {
        self.event_bus.mark_watched();
        let kept = self.lock();
        let pending: Vec<_> = kept.pending.iter().map(|it| &it.json).collect();
        let decided: Vec<_> = kept.decided.iter().rev().collect();
        json!({ "pending": pending, "decided": decided })
    }

    /// How many wait.
    pub(super) fn pending_count(&self) -> usize {
        self.lock().pending.len()
    }

    /// Accepts an answer. The first one counts.
    pub(super) fn answer(&self, id: &str, body: &[u8]) -> Result<Value, ApiError> {
        let given: AnswerBody =
            serde_json::from_slice(body).map_err(|error| ApiError::bad_request(format!("the body: {error}")))?;
        self.event_bus.mark_watched();
        let mut kept = self.lock();
        let Some(place) = kept.pending.iter().position(|it| it.id == id) else {
            if kept.decided.iter().any(|it| it["id"] == id) {
                return Err(ApiError::conflict("this question is decided already; /api/approvals has the answer"));
            }
            return Err(ApiError::not_found("there is no such question; /api/approvals lists them"));
        };
        let wants = kept.pending.get(place).and_then(|it| it.answer_counts.clone());
        let (said, word, reason) = parse_answer(given, wants.as_deref())?;
        let asked = kept.pending.remove(place);
        if asked.answer.send(said).is_err() {
            self.record_decision(&mut kept, (&asked.dialect, &asked.json), ApprovalAnswer::Gone, None);
            return Err(ApiError::conflict("nobody waits for this answer any more"));
        }
        self.record_decision(&mut kept, (&asked.dialect, &asked.json), word, reason.as_deref());
        Ok(json!({ "id": id, "answer": word }))
    }

    /// Denies all pending and later questions.
    pub(super) fn close(&self) {
        let mut kept = self.lock();
        kept.closed = true;
        // Waiting callers learn that nobody will answer.
        for asked in std::mem::take(&mut kept.pending) {
            self.record_decision(&mut kept, (&asked.dialect, &asked.json), ApprovalAnswer::Gone, None);
        }
    }

    /// Posts a question and waits. The error says why there is no answer.
    async fn enqueue_and_wait(
        &self,
        call: &Call,
        mut shown: ApprovalAsked,
        wants: Option<Vec<AnswerCount>>,
    ) -> Result<UserAnswer, &'static str> {
        if self.runtime.upgrade().is_some_and(|it| it.is_unattended(&call.session.id)) && !self.event_bus.is_watched() {
            return Err(UNATTENDED_REASON);
        }
        let id = state::random_id().map_err(|_| "no question could be asked")?;
        let dialect = self.dialect_of(&call.session.id);
        shown.id.clone_from(&id);
        shown.at = Timestamp::now();
        shown.dialect.clone_from(&dialect);
        shown.session.clone_from(&call.session.id);
        shown.agent.clone_from(&call.session.agent);
        let (answer, answered) = oneshot::channel();
        {
            let mut kept = self.lock();
            if kept.closed {
                return Err("the server is about to end");
            }
            if kept.pending.len() >= MAX_PENDING {
                return Err("too many questions wait for the user already; try again later");
            }
            let asked = PendingItem {
                id: id.clone(),
                dialect: dialect.clone(),
                json: shown.clone(),
                answer_counts: wants,
                answer,
            };
            kept.pending.push(asked);
        }
        self.event_bus.publish(&dialect, shown);
        // The question is removed however the wait ends.
        let _pin = PendingGuard { queue: self, id, since: Instant::now() };
        // The gate has the same timeout and a better message; plain questions have no gate.
        match tokio::time::timeout(self.timeout + CLOCK_SLACK, answered).await {
            Ok(Ok(said)) => Ok(said),
            Ok(Err(_)) => Err("the server is about to end"),
            Err(_) => Err("the user did not answer in time"),
        }
    }

    /// Removes an unanswered question.
    fn withdraw(&self, id: &str, how: ApprovalAnswer) {
        let mut kept = self.lock();
        if let Some(place) = kept.pending.iter().position(|it| it.id == id) {
            let asked = kept.pending.remove(place);
            self.record_decision(&mut kept, (&asked.dialect, &asked.json), how, None);
        }
    }

    /// Records how a question ended and sends an event.
    fn record_decision(
        &self,
        kept: &mut QueueState,
        (dialect, shown): (&str, &ApprovalAsked),
        answer: ApprovalAnswer,
        reason: Option<&str>,
    ) {
        let decided = json!({
            "id": shown.id, "kind": shown.kind, "tool": shown.tool, "summary": shown.summary,
            "session": shown.session, "at": shown.at, "decided_at": Timestamp::now().to_string(),
            "answer": answer, "reason": reason,
        });
        kept.decided.push_back(decided);
        while kept.decided.len() > MAX_DECIDED {
            kept.decided.pop_front();
        }
        let (id, session, reason) = (shown.id.clone(), shown.session.clone(), reason.map(str::to_owned));
        self.event_bus.publish(dialect, ApprovalDecided { id, session, answer, reason });
    }

    /// The dialect of a session; MCP clients use the configured one.
    fn dialect_of(&self, session: &str) -> String {
        let Some(bench) = self.runtime.upgrade() else { return String::new() };
        bench.engine(session).map_or_else(|| bench.settings().dialect().to_owned(), |it| it.dialect().name.to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question on the board.
struct PendingGuard<'a> {
    queue: &'a ApprovalQueue,
    id: String,
    since: Instant,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        // The gate started its timer slightly earlier.
        let late = self.since.elapsed() + CLOCK_SLACK >= self.queue.timeout;
        self.queue.withdraw(&self.id, if late { ApprovalAnswer::Timeout } else { ApprovalAnswer::Gone });
    }
}

/// Reads an answer to a question that wants these.
fn parse_answer(
    given: AnswerBody,
    wants: Option<&[AnswerCount]>,
) -> Result<(UserAnswer, ApprovalAnswer, Option<String>), ApiError> {
    if given.reason.as_ref().is_some_and(|it| it.len() > MAX_TEXT_BYTES) {
        return Err(ApiError::bad_request(format!("a reason has {MAX_TEXT_BYTES} bytes at most")));
    }
    match (given.answer, given.answers, wants) {
        (Some(DecisionWord::Deny), None, _) => {
            let why = given.reason.clone().unwrap_or_default();
            Ok((UserAnswer::Answer(ApprovalDecision::Deny(why)), ApprovalAnswer::Deny, given.reason))
        }
        (Some(DecisionWord::Once), None, None) => {
            Ok((UserAnswer::Answer(ApprovalDecision::AllowOnce), ApprovalAnswer::Once, given.reason))
        }
        (Some(DecisionWord::Session), None, None) => {
            Ok((UserAnswer::Answer(ApprovalDecision::AllowForSession), ApprovalAnswer::Session, given.reason))
        }
        (None, Some(answers), Some(wants)) => {
            if answers.len() != wants.len() {
                return Err(ApiError::bad_request(format!("answers must have {} lists, one a question", wants.len())));
            }
            if answers.iter().zip(wants).any(|(it, count)| *count == AnswerCount::One && it.len() > 1) {
                return Err(ApiError::bad_request("one answer at most fits a question that is not multi"));
            }
            if answers.iter().flatten().map(String::len).sum::<usize>() > MAX_TEXT_BYTES {
                return Err(ApiError::bad_request(format!("answers have {MAX_TEXT_BYTES} bytes at most")));
            }
            Ok((UserAnswer::Choices(answers), ApprovalAnswer::Answered, given.reason))
        }
        (_, _, None) => Err(ApiError::bad_request("this is about a call: answer must be once, session or deny")),
        (_, _, Some(_)) => {
            Err(ApiError::bad_request("this is a question: send answers, a list for each, or answer: deny"))
        }
    }
}

#[async_trait]
impl Approver for ApprovalQueue {
    async fn request_approval(&self, question: &ApprovalRequest, call: &Call) -> ApprovalDecision {
        let argument = |it: &helve_engine::Argument| ShownArgument { name: it.name.clone(), text: it.text.clone() };
        let shown = ApprovalAsked {
            kind: ApprovalKind::Approval,
            commands: question.commands.clone(),
            paths: question.paths.clone(),
            diff: question.diff.clone(),
            rules: Some(question.rules.clone()),
            broader: Some(question.broader.clone()),
            arguments: Some(question.arguments.iter().map(argument).collect()),
            folder: question.cwd.clone(),
            why: question.reason.clone(),
            grant: question.session_grant.clone(),
            effects: question.effects.names().map(str::to_owned).collect(),
            questions: None,
            plan: None,
            ..question_json(&question.tool, &question.summary, Vec::new(), None)
        };
        match self.enqueue_and_wait(call, shown, None).await {
            Ok(UserAnswer::Answer(answer)) => answer,
            Ok(UserAnswer::Choices(_)) => ApprovalDecision::Deny(String::new()),
            Err(why) => ApprovalDecision::Deny(why.to_owned()),
        }
    }
}

#[async_trait]
impl User for ApprovalQueue {
    async fn ask(&self, call: &Call, questions: &[ports::Question]) -> Result<BTreeMap<String, String>> {
        let listed = questions.iter().map(|it| ShownQuestion {
            question: it.question.clone(),
            header: it.header.clone(),
            options: it.options.clone(),
            multi: it.multi_select,
        });
        let summary = questions.first().map(|it| it.question.clone()).unwrap_or_default();
        let shown = question_json("AskUserQuestion", &summary, listed.collect(), None);
        let count = |it: &ports::Question| if it.multi_select { AnswerCount::Several } else { AnswerCount::One };
        let wants = questions.iter().map(count).collect();
        let why = match self.enqueue_and_wait(call, shown, Some(wants)).await {
            Ok(UserAnswer::Choices(answers)) => {
                let pairs = questions.iter().zip(answers).filter(|(_, chosen)| !chosen.is_empty());
                return Ok(pairs.map(|(it, chosen)| (it.question.clone(), chosen.join(", "))).collect());
            }
            Ok(UserAnswer::Answer(ApprovalDecision::Deny(why))) if !why.trim().is_empty() => {
                format!("the user did not answer: {why}")
            }
            Ok(UserAnswer::Answer(_)) => "the user did not answer".to_owned(),
            Err(why) => why.to_owned(),
        };
        Err(Error::failed(format!("{why}; go on with what you know, and say in your answer what you assumed")))
    }

    async fn show_todos(&self, call: &Call, todos: &[Todo]) {
        let event = SessionTodos { session: call.session.id.clone(), todos: todos.to_vec() };
        self.event_bus.publish(&self.dialect_of(&call.session.id), event);
    }

    async fn is_planning(&self, call: &Call) -> bool {
        let engine = self.runtime.upgrade().and_then(|it| it.engine(&call.session.id));
        engine.is_none_or(|it| it.mode().get() == Mode::Plan)
    }

    async fn approve_plan(&self, call: &Call, plan: &str) -> Result<PlanDecision> {
        let options = [
            (APPROVE_PLAN_LABEL, "The plan is carried out."),
            (ACCEPT_EDITS, "The plan is carried out, and changes of files need no approval."),
            (REJECT_PLAN_LABEL, "Write what should be different."),
        ];
        let question = ShownQuestion {
            question: "Go on with this plan?".to_owned(),
            header: "Plan".to_owned(),
            options: options
                .map(|(label, about)| QuestionOption { label: label.into(), description: about.into() })
                .into(),
            multi: false,
        };
        let shown = question_json("ExitPlanMode", "Go on with this plan?", vec![question], Some(truncate_text(plan)));
        let verdict = match self.enqueue_and_wait(call, shown, Some(vec![AnswerCount::One])).await {
            Ok(UserAnswer::Choices(answers)) => match answers.concat().join(", ").as_str() {
                APPROVE_PLAN_LABEL => PlanDecision::Approved,
                ACCEPT_EDITS => PlanDecision::YesAcceptEdits,
                "" | REJECT_PLAN_LABEL => PlanDecision::Rejected(String::new()),
                words => PlanDecision::Rejected(words.to_owned()),
            },
            Ok(UserAnswer::Answer(ApprovalDecision::Deny(why))) => PlanDecision::Rejected(why),
            Ok(UserAnswer::Answer(_)) => PlanDecision::Rejected(String::new()),
            Err(why) => PlanDecision::Rejected(why.to_owned()),
        };
        if !matches!(verdict, PlanDecision::Rejected(_))
            && let Some(engine) = self.runtime.upgrade().and_then(|it| it.engine(&call.session.id))
        {
            engine.mode().end_plan();
            if verdict == PlanDecision::YesAcceptEdits {
                engine.mode().accept_edits();
            }
        }
        Ok(verdict)
    }

    async fn setting(&self, call: &Call, name: &str) -> Result<Option<Value>> {
        Ok(self.runtime_settings.get(&call.session.id, name))
    }

    async fn set_setting(&self, call: &Call, name: &str, value: Value) -> Result<Value> {
        let session = &call.session.id;
        let (before, now) = self.runtime_settings.set(session, name, value)?;
        let event = SessionSetting { session: session.clone(), setting: name.to_owned(), value: now };
        self.event_bus.publish(&self.dialect_of(session), event);
        Ok(before)
    }
}

/// A question with answers to choose from, as it is shown.
fn question_json(tool: &str, summary: &str, questions: Vec<ShownQuestion>, plan: Option<String>) -> ApprovalAsked {
    ApprovalAsked {
        kind: ApprovalKind::Question,
        tool: tool.to_owned(),
        summary: summary.to_owned(),
        commands: Vec::new(),
        paths: Vec::new(),
        diff: None,
        rules: None,
        broader: None,
        arguments: None,
        folder: None,
        why: "the model asks".to_owned(),
        grant: String::new(),
        effects: Vec::new(),
        questions: Some(questions),
        plan: Some(plan),
        // The remaining fields are set when the question is posted.
        id: String::new(),
        at: Timestamp::default(),
        dialect: String::new(),
        session: String::new(),
        agent: String::new(),
    }
}

/// As much of a text as is shown.
pub(super) fn truncate_text(text: &str) -> String {
    match text.len() {
        ..=MAX_TEXT_BYTES => text.to_owned(),
        _ => format!("{}…", &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(given: Value, wants: Option<&[AnswerCount]>) -> String {
        let given = serde_json::from_value(given).unwrap();
        match parse_answer(given, wants) {
            Ok((said, word, reason)) => format!("{word} {said:?} {reason:?}"),
            Err(no) => format!("{no:?}"),
        }
    }

    #[test]
    fn a_call_wants_a_word() {
        assert_eq!(heard(json!({ "answer": "once" }), None), "once Answer(AllowOnce) None");
        let no = heard(json!({ "answer": "deny", "reason": "not now" }), None);
        assert_eq!(no, "deny Answer(Deny(\"not now\")) Some(\"not now\")");
        for wrong in [json!({}), json!({ "answers": [["x"]] }), json!({ "answer": "once", "answers": [] })] {
            assert!(heard(wrong, None).contains("answer must be once, session or deny"));
        }
    }

    #[test]
    fn questions_want_a_list_each() {
        let wants = [AnswerCount::One, AnswerCount::Several];
        let read = |given| heard(given, Some(&wants));
        assert_eq!(read(json!({ "answers": [["A"], ["B", "C"]] })), "answered Choices([[\"A\"], [\"B\", \"C\"]]) None");
        assert!(read(json!({ "answers": [["A"]] })).contains("2 lists"));
        assert!(read(json!({ "answers": [["A", "B"], []] })).contains("one answer at most"));
        assert!(read(json!({ "answer": "once" })).contains("this is a question"));
        assert!(read(json!({ "answer": "deny" })).starts_with("deny"));
    }
}
