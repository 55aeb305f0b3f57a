//! The board: every question that waits for a person, whoever asked it, and what was answered last.

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
    ports::{self, Choice, Todo, User, Verdict},
};
use helve_engine::{Answer, Approver, Mode, Question};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{hub::Hub, say::No};
use crate::{knobs::SessionKnobs, state, workshop::Bench};

/// How many questions may wait at once.
const WAITING: usize = 200;
/// How many answers are remembered.
const REMEMBERED: usize = 100;
/// How far apart two clocks are that began to tick together.
const LATE: Duration = Duration::from_millis(100);
/// Bytes of one text that is shown or written.
const LONGEST: usize = 64 << 10;
/// What goes on with a plan.
const GO_ON: &str = "Go on";
/// The same, and changes of files need no approval.
const ACCEPT_EDITS: &str = "Go on and accept edits";
/// What does not.
const CHANGE: &str = "Change it";
/// Why a schedule is not kept waiting.
const NOBODY: &str = "nobody has looked at the page in the last 60 s, and what works by itself does not wait; do what needs no \
    approval, and say in your answer what is left";

/// Where questions wait.
pub(super) struct Board {
    hub: Arc<Hub>,
    bench: Weak<Bench>,
    knobs: Arc<SessionKnobs>,
    patience: Duration,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Oldest first.
    waiting: Vec<Waiting>,
    /// Oldest first.
    decided: VecDeque<Value>,
    /// Nothing is asked any more.
    closed: bool,
}

struct Waiting {
    id: String,
    dialect: String,
    shown: ApprovalAsked,
    /// How many answers a question wants, each of one or of several; `None`: it wants a yes or a no.
    wants: Option<Vec<Count>>,
    answer: oneshot::Sender<Said>,
}

/// How many answers may be chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    One,
    Several,
}

/// What a person said.
#[derive(Debug)]
enum Said {
    /// To a call.
    Answer(Answer),
    /// To questions, in their order.
    Words(Vec<Vec<String>>),
}

/// An answer as it comes in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    answer: Option<Word>,
    reason: Option<String>,
    answers: Option<Vec<Vec<String>>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Once,
    Session,
    Deny,
}

impl Board {
    pub(super) fn new(hub: Arc<Hub>, bench: &Arc<Bench>) -> Arc<Self> {
        Arc::new(Self {
            hub,
            bench: Arc::downgrade(bench),
            knobs: bench.knobs().clone(),
            patience: bench.patience(),
            kept: Mutex::default(),
        })
    }

    /// What waits, and what was answered last.
    pub(super) fn shown(&self) -> Value {
        self.hub.look();
        let kept = self.lock();
        let pending: Vec<_> = kept.waiting.iter().map(|it| &it.shown).collect();
        let decided: Vec<_> = kept.decided.iter().rev().collect();
        json!({ "pending": pending, "decided": decided })
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Takes an answer. The first one counts.
    pub(super) fn decide(&self, id: &str, body: &[u8]) -> Result<Value, No> {
        let given: Given = serde_json::from_slice(body).map_err(|error| No::bad(format!("the body: {error}")))?;
        self.hub.look();
        let mut kept = self.lock();
        let Some(place) = kept.waiting.iter().position(|it| it.id == id) else {
            if kept.decided.iter().any(|it| it["id"] == id) {
                return Err(No::conflict("this question is decided already; /api/approvals has the answer"));
            }
            return Err(No::missing("there is no such question; /api/approvals lists them"));
        };
        let wants = kept.waiting.get(place).and_then(|it| it.wants.clone());
        let (said, word, reason) = read(given, wants.as_deref())?;
        let asked = kept.waiting.remove(place);
        if asked.answer.send(said).is_err() {
            self.note(&mut kept, (&asked.dialect, &asked.shown), ApprovalAnswer::Gone, None);
            return Err(No::conflict("nobody waits for this answer any more"));
        }
        self.note(&mut kept, (&asked.dialect, &asked.shown), word, reason.as_deref());
        Ok(json!({ "id": id, "answer": word }))
    }

    /// Says no to everything that waits, and to what comes.
    pub(super) fn close(&self) {
        let mut kept = self.lock();
        kept.closed = true;
        // Whoever waits hears that nobody will answer.
        for asked in std::mem::take(&mut kept.waiting) {
            self.note(&mut kept, (&asked.dialect, &asked.shown), ApprovalAnswer::Gone, None);
        }
    }

    /// Puts a question up, and waits. The error says why there is no answer.
    async fn put(
        &self,
        call: &Call,
        mut shown: ApprovalAsked,
        wants: Option<Vec<Count>>,
    ) -> Result<Said, &'static str> {
        if self.bench.upgrade().is_some_and(|it| it.is_alone(&call.session.id)) && !self.hub.is_watched() {
            return Err(NOBODY);
        }
        let id = state::random_id().map_err(|_| "no question could be asked")?;
        let dialect = self.dialect(&call.session.id);
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
            if kept.waiting.len() >= WAITING {
                return Err("too many questions wait for the user already; try again later");
            }
            let asked = Waiting { id: id.clone(), dialect: dialect.clone(), shown: shown.clone(), wants, answer };
            kept.waiting.push(asked);
        }
        self.hub.tell(&dialect, shown);
        // Whatever ends the wait, the question does not stay.
        let _pin = Pin { board: self, id, since: Instant::now() };
        // The gate has the same patience, and the better words; questions have no gate.
        match tokio::time::timeout(self.patience + LATE, answered).await {
            Ok(Ok(said)) => Ok(said),
            Ok(Err(_)) => Err("the server is about to end"),
            Err(_) => Err("the user did not answer in time"),
        }
    }

    /// Takes a question down that nobody answered.
    fn take_down(&self, id: &str, how: ApprovalAnswer) {
        let mut kept = self.lock();
        if let Some(place) = kept.waiting.iter().position(|it| it.id == id) {
            let asked = kept.waiting.remove(place);
            self.note(&mut kept, (&asked.dialect, &asked.shown), how, None);
        }
    }

    /// Remembers how a question ended, and tells it.
    fn note(
        &self,
        kept: &mut Kept,
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
        while kept.decided.len() > REMEMBERED {
            kept.decided.pop_front();
        }
        let (id, session, reason) = (shown.id.clone(), shown.session.clone(), reason.map(str::to_owned));
        self.hub.tell(dialect, ApprovalDecided { id, session, answer, reason });
    }

    /// The dialect of a session; clients of MCP all speak the configured one.
    fn dialect(&self, session: &str) -> String {
        let Some(bench) = self.bench.upgrade() else { return String::new() };
        bench.engine(session).map_or_else(|| bench.settings().dialect().to_owned(), |it| it.dialect().name.to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question on the board.
struct Pin<'a> {
    board: &'a Board,
    id: String,
    since: Instant,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        // The gate began to wait a moment before.
        let late = self.since.elapsed() + LATE >= self.board.patience;
        self.board.take_down(&self.id, if late { ApprovalAnswer::Timeout } else { ApprovalAnswer::Gone });
    }
}

/// Reads an answer to a question that wants these.
fn read(given: Given, wants: Option<&[Count]>) -> Result<(Said, ApprovalAnswer, Option<String>), No> {
    if given.reason.as_ref().is_some_and(|it| it.len() > LONGEST) {
        return Err(No::bad(format!("a reason has {LONGEST} bytes at most")));
    }
    match (given.answer, given.answers, wants) {
        (Some(Word::Deny), None, _) => {
            let why = given.reason.clone().unwrap_or_default();
            Ok((Said::Answer(Answer::Deny(why)), ApprovalAnswer::Deny, given.reason))
        }
        (Some(Word::Once), None, None) => Ok((Said::Answer(Answer::Once), ApprovalAnswer::Once, given.reason)),
        (Some(Word::Session), None, None) => Ok((Said::Answer(Answer::Session), ApprovalAnswer::Session, given.reason)),
        (None, Some(answers), Some(wants)) => {
            if answers.len() != wants.len() {
                return Err(No::bad(format!("answers must have {} lists, one a question", wants.len())));
            }
            if answers.iter().zip(wants).any(|(it, count)| *count == Count::One && it.len() > 1) {
                return Err(No::bad("one answer at most fits a question that is not multi"));
            }
            if answers.iter().flatten().map(String::len).sum::<usize>() > LONGEST {
                return Err(No::bad(format!("answers have {LONGEST} bytes at most")));
            }
            Ok((Said::Words(answers), ApprovalAnswer::Answered, given.reason))
        }
        (_, _, None) => Err(No::bad("this is about a call: answer must be once, session or deny")),
        (_, _, Some(_)) => Err(No::bad("this is a question: send answers, a list for each, or answer: deny")),
    }
}

#[async_trait]
impl Approver for Board {
    async fn ask(&self, question: &Question, call: &Call) -> Answer {
        let argument = |it: &helve_engine::Argument| ShownArgument { name: it.name.clone(), text: it.text.clone() };
        let shown = ApprovalAsked {
            kind: ApprovalKind::Approval,
            commands: question.commands.clone(),
            paths: question.paths.clone(),
            diff: question.diff.clone(),
            rules: Some(question.rules.clone()),
            broader: Some(question.broader.clone()),
            arguments: Some(question.arguments.iter().map(argument).collect()),
            folder: question.folder.clone(),
            why: question.why.clone(),
            grant: question.grant.clone(),
            effects: question.effects.names().map(str::to_owned).collect(),
            questions: None,
            plan: None,
            ..asked(&question.tool, &question.summary, Vec::new(), None)
        };
        match self.put(call, shown, None).await {
            Ok(Said::Answer(answer)) => answer,
            Ok(Said::Words(_)) => Answer::Deny(String::new()),
            Err(why) => Answer::Deny(why.to_owned()),
        }
    }
}

#[async_trait]
impl User for Board {
    async fn ask(&self, call: &Call, questions: &[ports::Question]) -> Result<BTreeMap<String, String>> {
        let listed = questions.iter().map(|it| ShownQuestion {
            question: it.question.clone(),
            header: it.header.clone(),
            options: it.options.clone(),
            multi: it.multi_select,
        });
        let summary = questions.first().map(|it| it.question.clone()).unwrap_or_default();
        let shown = asked("AskUserQuestion", &summary, listed.collect(), None);
        let count = |it: &ports::Question| if it.multi_select { Count::Several } else { Count::One };
        let wants = questions.iter().map(count).collect();
        let why = match self.put(call, shown, Some(wants)).await {
            Ok(Said::Words(answers)) => {
                let pairs = questions.iter().zip(answers).filter(|(_, chosen)| !chosen.is_empty());
                return Ok(pairs.map(|(it, chosen)| (it.question.clone(), chosen.join(", "))).collect());
            }
            Ok(Said::Answer(Answer::Deny(why))) if !why.trim().is_empty() => format!("the user did not answer: {why}"),
            Ok(Said::Answer(_)) => "the user did not answer".to_owned(),
            Err(why) => why.to_owned(),
        };
        Err(Error::failed(format!("{why}; go on with what you know, and say in your answer what you assumed")))
    }

    async fn show_todos(&self, call: &Call, todos: &[Todo]) {
        let event = SessionTodos { session: call.session.id.clone(), todos: todos.to_vec() };
        self.hub.tell(&self.dialect(&call.session.id), event);
    }

    async fn planning(&self, call: &Call) -> bool {
        let engine = self.bench.upgrade().and_then(|it| it.engine(&call.session.id));
        engine.is_none_or(|it| it.mode().get() == Mode::Plan)
    }

    async fn approve_plan(&self, call: &Call, plan: &str) -> Result<Verdict> {
        let options = [
            (GO_ON, "The plan is carried out."),
            (ACCEPT_EDITS, "The plan is carried out, and changes of files need no approval."),
            (CHANGE, "Write what should be different."),
        ];
        let question = ShownQuestion {
            question: "Go on with this plan?".to_owned(),
            header: "Plan".to_owned(),
            options: options.map(|(label, about)| Choice { label: label.into(), description: about.into() }).into(),
            multi: false,
        };
        let shown = asked("ExitPlanMode", "Go on with this plan?", vec![question], Some(bounded(plan)));
        let verdict = match self.put(call, shown, Some(vec![Count::One])).await {
            Ok(Said::Words(answers)) => match answers.concat().join(", ").as_str() {
                GO_ON => Verdict::Yes,
                ACCEPT_EDITS => Verdict::YesAcceptEdits,
                "" | CHANGE => Verdict::No(String::new()),
                words => Verdict::No(words.to_owned()),
            },
            Ok(Said::Answer(Answer::Deny(why))) => Verdict::No(why),
            Ok(Said::Answer(_)) => Verdict::No(String::new()),
            Err(why) => Verdict::No(why.to_owned()),
        };
        if !matches!(verdict, Verdict::No(_))
            && let Some(engine) = self.bench.upgrade().and_then(|it| it.engine(&call.session.id))
        {
            engine.mode().end_plan();
            if verdict == Verdict::YesAcceptEdits {
                engine.mode().accept_edits();
            }
        }
        Ok(verdict)
    }

    async fn setting(&self, call: &Call, name: &str) -> Result<Option<Value>> {
        Ok(self.knobs.get(&call.session.id, name))
    }

    async fn set_setting(&self, call: &Call, name: &str, value: Value) -> Result<Value> {
        let session = &call.session.id;
        let (before, now) = self.knobs.set(session, name, value)?;
        let event = SessionSetting { session: session.clone(), setting: name.to_owned(), value: now };
        self.hub.tell(&self.dialect(session), event);
        Ok(before)
    }
}

/// A question with answers to choose from, as it is shown.
fn asked(tool: &str, summary: &str, questions: Vec<ShownQuestion>, plan: Option<String>) -> ApprovalAsked {
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
        // The board fills in the rest when it puts the question up.
        id: String::new(),
        at: Timestamp::default(),
        dialect: String::new(),
        session: String::new(),
        agent: String::new(),
    }
}

/// As much of a text as is shown.
pub(super) fn bounded(text: &str) -> String {
    match text.len() {
        ..=LONGEST => text.to_owned(),
        _ => format!("{}…", &text[..text.floor_char_boundary(LONGEST)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(given: Value, wants: Option<&[Count]>) -> String {
        let given = serde_json::from_value(given).unwrap();
        match read(given, wants) {
            Ok((said, word, reason)) => format!("{word} {said:?} {reason:?}"),
            Err(no) => format!("{no:?}"),
        }
    }

    #[test]
    fn a_call_wants_a_word() {
        assert_eq!(heard(json!({ "answer": "once" }), None), "once Answer(Once) None");
        let no = heard(json!({ "answer": "deny", "reason": "not now" }), None);
        assert_eq!(no, "deny Answer(Deny(\"not now\")) Some(\"not now\")");
        for wrong in [json!({}), json!({ "answers": [["x"]] }), json!({ "answer": "once", "answers": [] })] {
            assert!(heard(wrong, None).contains("answer must be once, session or deny"));
        }
    }

    #[test]
    fn questions_want_a_list_each() {
        let wants = [Count::One, Count::Several];
        let read = |given| heard(given, Some(&wants));
        assert_eq!(read(json!({ "answers": [["A"], ["B", "C"]] })), "answered Words([[\"A\"], [\"B\", \"C\"]]) None");
        assert!(read(json!({ "answers": [["A"]] })).contains("2 lists"));
        assert!(read(json!({ "answers": [["A", "B"], []] })).contains("one answer at most"));
        assert!(read(json!({ "answer": "once" })).contains("this is a question"));
        assert!(read(json!({ "answer": "deny" })).starts_with("deny"));
    }
}
