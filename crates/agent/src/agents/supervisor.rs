//! The supervisor: starts agents, tracks them, and ends them with their parent.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use helve_contract::{
    Call, Error, Result, Session, async_trait, ids,
    ports::{
        Activity, AgentKind, AgentOrder, AgentReport, AgentStatus, Agents, CurrentAgent, Delivery, Message,
        MessagePart, MessageRole, ProcessStatus, SessionRecord, Store, TimeLimit, WaitUntil,
    },
};
use helve_engine::Engine;
use helve_tools::agents::fence_report;
use tokio::sync::Semaphore;

use super::{
    child::{ChildAgent, ChildSpec, StopChildOnDrop},
    kinds::{AgentDefinition, AgentDefinitions},
    purse::BudgetTracker,
    rights::{self, ChildPermissions},
    transcript::Transcript,
};
use crate::{
    Agent, AgentEvent, AgentHandle, AgentListener, Budget, Charges, SessionFactory, SessionSpec, TurnOutcome,
    TurnStopReason, model::Model, prompt,
};

/// How long an agent that is stopped has to end by itself.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// How many agents that have ended are remembered.
const MAX_FINISHED: usize = 256;
/// How much of its words goes into the message about an agent's end.
const MAX_MESSAGE_BYTES: usize = 16 << 10;

/// Delivers a message to a session; `None` if the session is not open any more. It must not block.
pub type Inbox = Arc<dyn Fn(String) -> Option<Delivery> + Send + Sync>;

/// Opens sessions of the store that are not open, in a process that can run them.
#[async_trait]
pub trait Wake: Send + Sync {
    /// Begins a turn of a session with this message, or adds it to the turn that runs. `None`: this process does not
    /// run that session.
    async fn deliver_agent_result(&self, session: &str, text: &str) -> Option<Delivery>;
}

/// Bills a session for what an agent has used.
type Charge = Arc<dyn Fn(Charges) + Send + Sync>;

/// Names of models that an order may use and that no endpoint knows. A setting says what they stand for.
pub const MODEL_ALIASES: [&str; 3] = ["sonnet", "opus", "haiku"];

/// How much may be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentLimits {
    /// Agents that run at once.
    pub max_concurrent: usize,
    /// How deep: 1 is agents that start none themselves.
    pub max_depth: u32,
    /// Turns of an agent, when nobody says fewer.
    pub default_max_turns: u32,
    /// How long a delegated goal may take.
    pub delegate_time: Duration,
    /// How long a spawned session may take.
    pub spawn_time: Duration,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            max_concurrent: 16,
            max_depth: 1,
            default_max_turns: 50,
            delegate_time: Duration::from_secs(120),
            spawn_time: Duration::from_secs(300),
        }
    }
}

/// Starts and supervises agents for registered sessions.
pub struct Supervisor {
    me: Weak<Self>,
    session_factory: Arc<dyn SessionFactory>,
    store: Arc<dyn Store>,
    definitions: AgentDefinitions,
    limits: AgentLimits,
    /// What the names in [`MODEL_ALIASES`] stand for; one that is not here stands for the parent's model.
    models: BTreeMap<String, String>,
    waker: Option<Arc<dyn Wake>>,
    /// Calls of one answer start agents concurrently; those beyond the limit wait.
    start_permits: Semaphore,
    state: Mutex<SupervisorState>,
}

#[derive(Default)]
struct SupervisorState {
    sessions: HashMap<String, RegisteredSession>,
    /// Oldest first.
    children: Vec<Arc<ChildAgent>>,
}

/// A session that may start agents.
#[derive(Clone)]
struct RegisteredSession {
    engine: Arc<Engine>,
    model: Arc<dyn Model>,
    user: String,
    /// Its own budget first, and those of everybody above it.
    budgets: Vec<Arc<BudgetTracker>>,
    listener: AgentListener,
    inbox: Inbox,
    handle: AgentHandle,
    charge: Charge,
    /// Whether another program drives it, so that it has no turns here.
    is_external: bool,
    /// 0: nobody started it.
    depth: u32,
    /// Tells a seat from a later one of the same session.
    token: Arc<()>,
}

/// The registration of a session. When it is dropped, the session's agents end.
pub struct Registration {
    supervisor: Weak<Supervisor>,
    session: String,
    token: Arc<()>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(supervisor) = self.supervisor.upgrade() {
            supervisor.unregister(&self.session, &self.token);
        }
    }
}

impl Supervisor {
    /// A supervisor of agents of these kinds.
    pub fn new(
        workshop: Arc<dyn SessionFactory>,
        store: Arc<dyn Store>,
        kinds: AgentDefinitions,
        limits: AgentLimits,
    ) -> Arc<Self> {
        Self::configured(workshop, store, kinds, limits, BTreeMap::new(), None)
    }

    /// Like `new`, with model aliases, and with a waker for sessions that are not registered here.
    pub fn configured(
        workshop: Arc<dyn SessionFactory>,
        store: Arc<dyn Store>,
        kinds: AgentDefinitions,
        limits: AgentLimits,
        models: BTreeMap<String, String>,
        waker: Option<Arc<dyn Wake>>,
    ) -> Arc<Self> {
        let turns = Semaphore::new(limits.max_concurrent);
        let book = Mutex::default();
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            session_factory: workshop,
            store,
            definitions: kinds,
            limits,
            models,
            waker,
            start_permits: turns,
            state: book,
        })
    }

    /// Registers a session: it may start agents and is notified of their end after its turn. Its listener is replaced
    /// by one that also records usage.
    pub fn register(&self, agent: &mut Agent) -> Registration {
        let inbox = waiting_inbox(&agent.handle);
        self.register_with_inbox(agent, inbox)
    }

    /// Registers a session that another program drives, such as one over MCP: its calls may start agents.
    pub fn seat_external(
        &self,
        engine: Arc<Engine>,
        session: Arc<Session>,
        model: Arc<dyn Model>,
        budget: Budget,
    ) -> Registration {
        let mut agent = Agent { budget, ..Agent::new(engine, session, model) };
        let inbox = waiting_inbox(&agent.handle);
        self.seated(&mut agent, inbox, true)
    }

    /// Like `register`, with another inbox: one that wakes an idle session.
    pub fn register_with_inbox(&self, agent: &mut Agent, inbox: Inbox) -> Registration {
        self.seated(agent, inbox, false)
    }

    fn seated(&self, agent: &mut Agent, inbox: Inbox, is_external: bool) -> Registration {
        let handle = agent.handle.clone();
        let purse = BudgetTracker::new(agent.budget);
        let member = RegisteredSession {
            engine: agent.engine.clone(),
            model: agent.model.clone(),
            user: agent.session.user.clone(),
            listener: agent.listener.clone(),
            budgets: vec![purse.clone()],
            inbox,
            charge: Arc::new(move |charges| handle.charge(charges)),
            handle: agent.handle.clone(),
            is_external,
            depth: 0,
            token: Arc::new(()),
        };
        agent.listener = purse.counting_listener(agent.listener.clone());
        let (session, seat) = (agent.session.id.clone(), member.token.clone());
        self.state().sessions.insert(session.clone(), member);
        Registration { supervisor: self.me.clone(), session, token: seat }
    }

    /// Whether an agent of this kind (`None`: the plain one), started by a session with this engine, would have only
    /// tools that change nothing here.
    pub fn kind_is_read_only(&self, engine: &Engine, kind: Option<&str>) -> bool {
        self.definitions.get(kind).is_some_and(|kind| rights::is_read_only(engine, kind))
    }

    /// Waits until no agent of this session runs, or the caller has had enough of waiting.
    pub async fn wait_idle(&self, session: &str) {
        let never = helve_contract::CancellationToken::new();
        for child in self.children(session) {
            child.wait(WaitUntil::Exit, &never).await;
        }
    }

    /// Stops all agents of a session, and waits for their end.
    pub async fn stop_all(&self, session: &str) {
        let never = helve_contract::CancellationToken::new();
        let children = self.children(session);
        for child in &children {
            child.cancel.cancel();
        }
        for child in children {
            child.wait(WaitUntil::For(STOP_GRACE + STOP_GRACE), &never).await;
        }
    }

    /// The agents of a session that run.
    fn children(&self, session: &str) -> Vec<Arc<ChildAgent>> {
        let book = self.state();
        book.children.iter().filter(|child| child.parent == session && child.is_running()).cloned().collect()
    }

    fn unregister(&self, session: &str, seat: &Arc<()>) {
        let mut book = self.state();
        if book.sessions.get(session).is_some_and(|member| Arc::ptr_eq(&member.token, seat)) {
            book.sessions.remove(session);
        }
        drop(book);
        for child in self.children(session) {
            child.cancel.cancel();
        }
    }

    /// The agent of this id or name that this session started.
    fn child(&self, call: &Call, id: &str) -> Option<Arc<ChildAgent>> {
        let book = self.state();
        let mut own = book.children.iter().rev().filter(|child| child.parent == call.session.id);
        own.find(|child| child.id == id || child.name.as_deref() == Some(id)).cloned()
    }

    fn registered(&self, call: &Call) -> Result<RegisteredSession> {
        self.state().sessions.get(&call.session.id).cloned().ok_or_else(|| {
            Error::failed(
                "no other agent can be started here, because no model drives this session; do the work yourself",
            )
        })
    }

    fn check_capacity(&self, book: &SupervisorState) -> Result<()> {
        let running = book.children.iter().filter(|child| child.is_running()).count();
        if running < self.limits.max_concurrent {
            return Ok(());
        }
        Err(Error::failed(format!(
            "{running} agents run already, and no more may run at once; wait for one to end, stop one, or do it yourself"
        )))
    }

    /// An agent that this session started before, from the store.
    async fn stored_child(&self, call: &Call, id: &str) -> Result<Option<SessionRecord>> {
        let record = self.store.get_session(id).await?;
        Ok(record.filter(|record| record.parent.as_deref() == Some(call.session.id.as_str())))
    }

    /// The id and the kind of the agent: a new one, or one that goes on.
    async fn resolve_identity(&self, call: &Call, order: &AgentOrder) -> Result<(String, &AgentDefinition)> {
        let Some(resumed) = &order.resume else {
            return Ok((ids::new_id(), rights::find_definition(&self.definitions, order.kind.as_deref())?));
        };
        let id = match self.child(call, resumed) {
            Some(child) if child.is_running() => {
                return Err(Error::failed(format!(
                    "agent {} still runs; wait for its end, or stop it first",
                    child.id
                )));
            }
            Some(child) => child.id.clone(),
            None => resumed.clone(),
        };
        let unknown = || {
            let shown: String = resumed.chars().take(64).collect();
            Error::failed(format!("no agent `{}` was started here; start a new one", shown.escape_debug()))
        };
        let record = self.stored_child(call, &id).await?.ok_or_else(unknown)?;
        // A resumed agent keeps its kind; a missing kind is replaced by the requested one.
        let kind = match self.definitions.get(Some(&record.agent)) {
            Some(kind) => kind,
            None => rights::find_definition(&self.definitions, order.kind.as_deref())?,
        };
        Ok((id, kind))
    }

    /// Everything that an agent needs, within its parent's rights.
    async fn build_child(
        &self,
        call: &Call,
        parent: &RegisteredSession,
        order: &AgentOrder,
    ) -> Result<(Arc<ChildAgent>, Agent)> {
        let (id, kind) = self.resolve_identity(call, order).await?;
        if parent.is_external && self.children(&call.session.id).is_empty() {
            // The turns of an external program are unknown, so a budget holds for agents that run together.
            parent.budgets.iter().for_each(|purse| purse.reset());
        }
        if let Some(why) = parent.budgets.iter().find_map(|purse| purse.exhausted()) {
            return Err(Error::failed(format!("no agent can be started: {why}; end your turn")));
        }
        let left = parent.budgets.first().map(|purse| purse.remaining()).unwrap_or_default();
        let may_start = parent.depth + 1 < self.limits.max_depth;
        let rights =
            ChildPermissions::derive(&parent.engine, kind, order, left, self.limits.default_max_turns, may_start)?;
        let dialect = parent.engine.dialect();
        let need = SessionSpec {
            id: id.clone(),
            dialect: Some(dialect.name.to_owned()),
            user: Some(call.session.user.clone()),
            agent: Some(kind.name.clone()),
            role: kind.role.clone().or_else(|| call.session.role.clone()),
            tools: Some(rights.tools.clone()),
            mode: Some(rights.mode),
            unattended: order.background,
            parent: Some(call.session.clone()),
            agents: self.me.upgrade().map(|me| me as Arc<dyn Agents>),
            ..SessionSpec::default()
        };
        let (engine, session) = self.session_factory.create_session(&need)?;
        rights::ensure_separate_engines(&engine, &parent.engine)?;
        rights.verify(&engine, &session, &call.session)?;
        let model = match order.model.as_deref().or(kind.model.as_deref()).and_then(|name| self.model_name(name)) {
            Some(name) => self.session_factory.model(Some(name))?,
            None => parent.model.clone(),
        };
        let model = self.session_factory.session_model(&id, model);
        let child = ChildAgent::new(ChildSpec {
            kind: kind.name.clone(),
            title: order.title.clone(),
            name: order.name.clone(),
            parent: call.session.id.clone(),
            model: model.name(),
            transcript: Transcript::open(&call.session, &id),
            background: order.background,
            id,
        });
        let system =
            prompt::system_prompt(&engine, &session, &rights::child_system_prompt(kind, order.background)).await;
        let progress = if order.background { None } else { call.progress.clone() };
        let agent = Agent {
            system_prompt: system,
            budget: rights.budget,
            listener: child.listener(engine.clone(), parent.budgets.clone(), progress),
            handle: AgentHandle::child_of(&child.cancel),
            title: Some(order.title.clone()).filter(|title| !title.is_empty()),
            parent: Some(call.session.id.clone()),
            ..Agent::new(engine, session, model)
        };
        Ok((child, agent))
    }

    /// The model that a name stands for; `None`: the parent's.
    fn model_name<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        match self.models.get(name) {
            Some(model) => Some(model),
            None if MODEL_ALIASES.contains(&name) => None,
            None => Some(name),
        }
    }

    /// Enters an agent into the books, unless there are too many.
    fn track_child(&self, child: &Arc<ChildAgent>, agent: &mut Agent, parent: &RegisteredSession) -> Result<()> {
        let purse = BudgetTracker::new(agent.budget);
        let (handle, of_child) = (agent.handle.clone(), child.clone());
        let member = RegisteredSession {
            engine: agent.engine.clone(),
            model: agent.model.clone(),
            user: agent.session.user.clone(),
            budgets: std::iter::once(purse.clone()).chain(parent.budgets.iter().cloned()).collect(),
            listener: agent.listener.clone(),
            inbox: waiting_inbox(&agent.handle),
            charge: Arc::new(move |charges| {
                handle.charge(charges);
                of_child.charge(charges);
            }),
            handle: agent.handle.clone(),
            is_external: false,
            depth: parent.depth + 1,
            token: Arc::new(()),
        };
        let mut book = self.state();
        self.check_capacity(&book)?;
        let ended = book.children.iter().filter(|child| !child.is_running()).count();
        if ended > MAX_FINISHED
            && let Some(oldest) = book.children.iter().position(|child| !child.is_running())
        {
            book.children.remove(oldest);
        }
        book.children.retain(|old| old.id != child.id);
        book.children.push(child.clone());
        book.sessions.insert(child.id.clone(), member);
        drop(book);
        agent.listener = purse.counting_listener(agent.listener.clone());
        Ok(())
    }

    /// Works until the agent has ended, and tells whom it concerns.
    async fn run_child(
        self: Arc<Self>,
        child: Arc<ChildAgent>,
        agent: Agent,
        words: String,
        parent: RegisteredSession,
    ) {
        let told = |ended| AgentEvent::SubAgent { id: child.id.clone(), title: child.title.clone(), ended };
        (parent.listener)(&told(false));
        let turn = agent.run_turn(vec![MessagePart::Text { text: words }]);
        tokio::pin!(turn);
        let outcome = tokio::select! {
            outcome = &mut turn => Some(outcome),
            () = child.cancel.cancelled() => tokio::time::timeout(STOP_GRACE, &mut turn).await.ok(),
        };
        let (state, text) = final_state(&child, outcome);
        self.stop_all(&child.id).await;
        stop_background_tasks(&agent.session).await;
        self.state().sessions.remove(&child.id);
        let stopped = state == AgentStatus::Stopped;
        // Charged before waiters continue, so that the parent's usage is complete.
        let charges = child.charges();
        // A session that another program keeps has no record here, and needs none.
        _ = self.store.add_cost(&child.parent, charges.spent).await;
        (parent.charge)(charges);
        child.finish(state, &text);
        (parent.listener)(&told(true));
        // Who stopped it knows.
        if child.background && !stopped {
            _ = (parent.inbox)(completion_message(&child));
        }
    }

    fn state(&self) -> MutexGuard<'_, SupervisorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an agent ended, and its last words.
fn final_state(child: &ChildAgent, outcome: Option<Result<TurnOutcome>>) -> (AgentStatus, String) {
    let (how, text) = match outcome {
        Some(Ok(outcome)) => (outcome.stop_reason, outcome.text),
        Some(Err(error)) => (TurnStopReason::ModelFailed(error.to_string()), String::new()),
        None => (TurnStopReason::Cancelled, String::new()),
    };
    let state = match (child.failure(), how) {
        (_, TurnStopReason::Completed) => AgentStatus::Done,
        (Some(why), _)
        | (
            None,
            TurnStopReason::BudgetExhausted(why) | TurnStopReason::LoopDetected(why) | TurnStopReason::ModelFailed(why),
        ) => AgentStatus::Failed(why),
        (None, TurnStopReason::Cancelled) => AgentStatus::Stopped,
    };
    (state, text)
}

/// Ends what an agent left running in the background.
async fn stop_background_tasks(session: &Arc<Session>) {
    let call = Call::new("end", session.clone());
    let ending = async {
        for task in call.tasks().list(&call).await {
            if task.status == ProcessStatus::Running {
                _ = call.tasks().stop(&call, &task.id).await;
            }
        }
    };
    _ = tokio::time::timeout(STOP_GRACE, ending).await;
}

/// What the parent is told when an agent in the background has ended.
fn completion_message(child: &ChildAgent) -> String {
    let mut report = child.report();
    if report.text.len() > MAX_MESSAGE_BYTES {
        let rest = report.transcript_file.as_ref().map_or_else(String::new, |file| format!("; all of it is in {file}"));
        report.text.truncate(report.text.floor_char_boundary(MAX_MESSAGE_BYTES));
        report.text.push_str(&format!("\n[cut here{rest}]"));
    }
    let name = child.name.as_deref().unwrap_or(&child.kind);
    let how = match &report.status {
        AgentStatus::Failed(why) => format!("did not finish: {why}"),
        _ => "finished".to_owned(),
    };
    format!("[agent {name} {} {how}: {}]\n{}", child.id, child.title, fence_report(&report).full_text())
}

/// How an agent stands that only the store remembers.
fn report_from_record(record: SessionRecord, messages: &[Message]) -> AgentReport {
    let said = messages.iter().rev().filter(|message| message.role == MessageRole::Assistant).find_map(|message| {
        message
            .parts
            .iter()
            .find_map(|part| if let MessagePart::Text { text } = part { Some(text.clone()) } else { None })
    });
    AgentReport {
        elapsed: Duration::try_from(record.updated.duration_since(record.created)).unwrap_or_default(),
        id: record.id,
        kind: record.agent,
        title: record.title,
        status: AgentStatus::Done,
        text: said.unwrap_or_default(),
        media: Vec::new(),
        model: record.model,
        turns: messages
            .iter()
            .filter(|message| message.role == MessageRole::Assistant)
            .count()
            .try_into()
            .unwrap_or(u32::MAX),
        tool_calls: 0,
        usage: record.spent,
        transcript_file: None,
    }
}

#[async_trait]
impl Agents for Supervisor {
    fn kinds(&self) -> Vec<AgentKind> {
        self.definitions.list()
    }

    fn is_read_only(&self, call: &Call, kind: Option<&str>) -> bool {
        self.registered(call).is_ok_and(|member| self.kind_is_read_only(&member.engine, kind))
    }

    async fn start(&self, call: &Call, order: AgentOrder) -> Result<AgentReport> {
        let parent = self.registered(call)?;
        if parent.depth >= self.limits.max_depth {
            return Err(Error::failed(
                "an agent that was started by another one starts none here; do the work yourself",
            ));
        }
        // A sub-agent has its own slot; waiting for another could deadlock.
        let _turn = if order.background || parent.depth > 0 {
            None
        } else {
            call.cancel.run_until_cancelled(self.start_permits.acquire()).await.ok_or(Error::Cancelled)?.ok()
        };
        self.check_capacity(&self.state())?;
        let mut order = order;
        order.timeout = order.timeout.or(match order.limit {
            TimeLimit::Unlimited => None,
            TimeLimit::Delegate => Some(self.limits.delegate_time),
            TimeLimit::Spawn => Some(self.limits.spawn_time),
        });
        let (child, mut agent) = self.build_child(call, &parent, &order).await?;
        self.track_child(&child, &mut agent, &parent)?;
        let me = self.me.upgrade().ok_or(Error::Cancelled)?;
        tokio::spawn(me.run_child(child.clone(), agent, rights::task_prompt(&order), parent));
        if order.background {
            if let Some(time) = order.timeout {
                let child = child.clone();
                tokio::spawn(async move { wait_or_cancel(&child, time).await });
            }
            return Ok(child.report());
        }
        let mut leash = StopChildOnDrop(Some(child.clone()));
        let waiting = async {
            match order.timeout {
                Some(time) => wait_or_cancel(&child, time).await,
                None => child.wait(WaitUntil::Exit, &call.cancel).await,
            }
        };
        if call.cancel.run_until_cancelled(waiting).await.is_none() || child.is_running() {
            child.cancel.cancel();
            child
                .wait(
                    WaitUntil::For(STOP_GRACE + Duration::from_millis(500)),
                    &helve_contract::CancellationToken::new(),
                )
                .await;
        }
        leash.0 = None;
        Ok(child.report())
    }

    async fn running(&self, call: &Call) -> Vec<AgentReport> {
        self.children(&call.session.id).iter().map(|child| child.report()).collect()
    }

    async fn report(&self, call: &Call, id: &str, until: WaitUntil) -> Result<Option<AgentReport>> {
        if let Some(child) = self.child(call, id) {
            child.wait(until, &call.cancel).await;
            return Ok(Some(child.report()));
        }
        let Some(record) = self.stored_child(call, id).await? else { return Ok(None) };
        let messages = self.store.messages(id, None, 200).await?;
        Ok(Some(report_from_record(record, &messages)))
    }

    async fn stop(&self, call: &Call, id: &str) -> Result<Option<AgentReport>> {
        let Some(child) = self.child(call, id) else { return Ok(None) };
        child.cancel.cancel();
        child.wait(WaitUntil::For(STOP_GRACE + STOP_GRACE), &call.cancel).await;
        Ok(Some(child.report()))
    }

    async fn send_message(&self, call: &Call, session: &str, text: &str) -> Result<Option<Delivery>> {
        let live = self.state().sessions.get(session).cloned().filter(|member| !member.is_external);
        if let Some(member) = live.filter(|member| member.user == call.session.user)
            && let Some(delivery) = (member.inbox)(text.to_owned())
        {
            return Ok(Some(delivery));
        }
        match &self.waker {
            Some(waker) => Ok(waker.deliver_agent_result(session, text).await),
            None => Ok(None),
        }
    }

    async fn current(&self, call: &Call) -> Result<CurrentAgent> {
        let name = call.session.agent.clone();
        Ok(match self.registered(call).ok().filter(|member| !member.is_external) {
            Some(member) => {
                let activity = if member.handle.is_busy() { Activity::Active } else { Activity::Idle };
                CurrentAgent { name, model: Some(member.model.name()), activity }
            }
            None => CurrentAgent { name, ..CurrentAgent::default() },
        })
    }
}

/// An inbox whose messages are read after the turn that runs, or at the next one.
fn waiting_inbox(handle: &AgentHandle) -> Inbox {
    let handle = handle.clone();
    Arc::new(move |words| {
        handle.follow_up(words);
        Some(if handle.is_busy() { Delivery::Running } else { Delivery::Waiting })
    })
}

/// Waits for an agent's end; one that takes too long is ended.
async fn wait_or_cancel(child: &ChildAgent, time: Duration) {
    let never = helve_contract::CancellationToken::new();
    child.wait(WaitUntil::For(time), &never).await;
    if child.is_running() {
        child.fail(&format!("it had no answer within {} s", time.as_secs()));
        child.wait(WaitUntil::For(STOP_GRACE + STOP_GRACE), &never).await;
    }
}
