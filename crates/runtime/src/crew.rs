//! Builds the supervisor of sub-agents from the settings.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use helve_agent::{
    AgentDefinitions, AgentLimits, Registration, SessionFactory, SessionSpec, Supervisor, Wake, model::Model,
};
use helve_contract::{
    Call, Error, Result, Session, async_trait,
    ports::{AgentKind, AgentOrder, AgentReport, Agents, CurrentAgent, Delivery, WaitUntil},
};
use helve_engine::Engine;

use crate::{
    config::{Settings, TrustStore, read_limited},
    remark,
    workshop::HelveRuntime,
};

/// A weak reference to a workshop.
struct Door(Weak<HelveRuntime>);

impl Door {
    fn upgrade(&self) -> Result<Arc<HelveRuntime>> {
        self.0.upgrade().ok_or_else(|| Error::failed("the program is about to end"))
    }
}

impl SessionFactory for Door {
    fn create_session(&self, need: &SessionSpec) -> Result<(Arc<Engine>, Arc<Session>)> {
        self.upgrade()?.create_session(need)
    }
    fn model(&self, name: Option<&str>) -> Result<Arc<dyn Model>> {
        self.upgrade()?.model(name)
    }
    fn session_model(&self, session: &str, model: Arc<dyn Model>) -> Arc<dyn Model> {
        match self.0.upgrade() {
            Some(bench) => bench.session_model(session, model),
            None => model,
        }
    }
}

/// A supervisor for sessions in this dialect.
pub(crate) fn create_supervisor(bench: &HelveRuntime, me: Weak<HelveRuntime>, dialect: &str) -> Arc<Supervisor> {
    let settings = bench.settings();
    let agents = &settings.config.agents;
    let mut remarks = Vec::new();
    let kinds = kinds(settings, bench.state_dir(), dialect, &mut remarks);
    for text in remarks {
        remark!("helve: {text}");
    }
    let mut limits = AgentLimits { max_concurrent: agents.max, ..AgentLimits::default() };
    let time = agents.time_secs.duration();
    if !time.is_zero() {
        (limits.delegate_time, limits.spawn_time) = (time, time);
    }
    let models = &agents.models;
    let models = [("sonnet", &models.sonnet), ("opus", &models.opus), ("haiku", &models.haiku)];
    let models = models.into_iter().filter_map(|(alias, model)| Some((alias.to_owned(), model.clone()?))).collect();
    let waker = Arc::new(Waker(me.clone()));
    Supervisor::configured(Arc::new(Door(me)), bench.store().clone(), kinds, limits, models, Some(waker))
}

/// Wakes sessions with the handler that the program sets later.
struct Waker(Weak<HelveRuntime>);

#[async_trait]
impl Wake for Waker {
    async fn deliver_agent_result(&self, session: &str, text: &str) -> Option<Delivery> {
        let bench = self.0.upgrade()?;
        bench.waker()?.deliver_agent_result(session, text).await
    }
}

/// The kinds of agents for this dialect: built in, from `agents.folders`, and from `.claude/agents` of the workspace if
/// `helve config trust` accepted the files. Problems are reported in `remarks`.
pub(crate) fn kinds(settings: &Settings, state: &Path, dialect: &str, remarks: &mut Vec<String>) -> AgentDefinitions {
    let mut kinds = AgentDefinitions::builtin(dialect);
    let agents = &settings.config.agents;
    for folder in &agents.folders {
        kinds.load_dir(folder, remarks);
    }
    if !agents.claude_folder {
        return kinds;
    }
    let trust = TrustStore::new(state);
    let mut ignored = 0;
    for path in project_agents(settings) {
        match read_limited(&path) {
            Ok(bytes) if trust.is_trusted(&path, &bytes) => {
                kinds.text(&path, &String::from_utf8_lossy(&bytes), remarks);
            }
            _ => ignored += 1,
        }
    }
    if ignored > 0 {
        remarks
            .push(format!("{ignored} agents in .claude/agents are ignored; read them, then run `helve config trust`"));
    }
    kinds
}

/// The files in `.claude/agents` of the workspace.
pub fn project_agents(settings: &Settings) -> Vec<PathBuf> {
    AgentDefinitions::files(&settings.workspace.join(".claude").join("agents"))
}

/// Agents for sessions without an agent loop in this program. The model is resolved when the first agent starts.
pub(crate) struct OnDemand {
    bench: Weak<HelveRuntime>,
    supervisor: Arc<Supervisor>,
    seats: Mutex<HashMap<String, Registration>>,
}

impl OnDemand {
    pub(crate) fn new(bench: Weak<HelveRuntime>, supervisor: Arc<Supervisor>) -> Self {
        Self { bench, supervisor, seats: Mutex::default() }
    }

    /// Registers the session of this call, so that it may start agents.
    async fn seat(&self, call: &Call) -> Result<()> {
        let bench = self.bench.upgrade().ok_or_else(|| Error::failed("the program is about to end"))?;
        bench.ensure_model().await?;
        let id = &call.session.id;
        let engine = bench.engine(id).ok_or_else(|| Error::failed(format!("the session {id} is not open here")))?;
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if !seats.contains_key(id) {
            let (session, model) = (call.session.clone(), bench.session_model(id, bench.model(None)?));
            seats.insert(id.clone(), self.supervisor.seat_external(engine, session, model, bench.budget()));
        }
        Ok(())
    }
}

#[async_trait]
impl Agents for OnDemand {
    fn kinds(&self) -> Vec<AgentKind> {
        self.supervisor.kinds()
    }
    fn reports_end(&self) -> bool {
        false
    }
    fn is_read_only(&self, call: &Call, kind: Option<&str>) -> bool {
        let engine = self.bench.upgrade().and_then(|bench| bench.engine(&call.session.id));
        engine.is_some_and(|engine| self.supervisor.kind_is_read_only(&engine, kind))
    }
    async fn start(&self, call: &Call, order: AgentOrder) -> Result<AgentReport> {
        if order.background && self.bench.upgrade().is_some_and(|bench| bench.serves_one_call()) {
            return Err(Error::failed(
                "an agent in the background would end with this call, because the process serves one call only; \
                 start it in the foreground",
            ));
        }
        self.seat(call).await?;
        self.supervisor.start(call, order).await
    }
    async fn running(&self, call: &Call) -> Vec<AgentReport> {
        self.supervisor.running(call).await
    }
    async fn report(&self, call: &Call, id: &str, until: WaitUntil) -> Result<Option<AgentReport>> {
        self.supervisor.report(call, id, until).await
    }
    async fn stop(&self, call: &Call, id: &str) -> Result<Option<AgentReport>> {
        self.supervisor.stop(call, id).await
    }
    async fn send_message(&self, call: &Call, session: &str, text: &str) -> Result<Option<Delivery>> {
        self.supervisor.send_message(call, session, text).await
    }
    async fn current(&self, call: &Call) -> Result<CurrentAgent> {
        let own = self.supervisor.current(call).await?;
        // Another program drives the session, so only the settings name a model: that of its agents.
        let configured = || self.bench.upgrade().and_then(|bench| bench.model_name(&call.session.id));
        Ok(CurrentAgent { model: own.model.or_else(configured), ..own })
    }
}
