//! Other agents of a session: their supervisor, by the settings.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use helve_agent::{Agent, Kinds, Limits, Need, Seat, Supervisor, Workshop, model::Model};
use helve_contract::{
    Call, Error, Result, Session, async_trait,
    ports::{AgentKind, AgentOrder, AgentReport, Agents, OwnAgent, Until},
};
use helve_engine::Engine;

use crate::{remark, workshop::Bench};

/// A workshop that does not keep itself open.
struct Door(Weak<Bench>);

impl Door {
    fn bench(&self) -> Result<Arc<Bench>> {
        self.0.upgrade().ok_or_else(|| Error::failed("the program is about to end"))
    }
}

impl Workshop for Door {
    fn equip(&self, need: &Need) -> Result<(Arc<Engine>, Arc<Session>)> {
        self.bench()?.equip(need)
    }
    fn model(&self, name: Option<&str>) -> Result<Arc<dyn Model>> {
        self.bench()?.model(name)
    }
}

/// A supervisor for sessions in this dialect.
pub(crate) fn hire(bench: &Bench, me: Weak<Bench>, dialect: &str) -> Arc<Supervisor> {
    let settings = bench.settings();
    let mut kinds = Kinds::of_dialect(dialect);
    let mut remarks = Vec::new();
    let agents = &settings.config.agents;
    for folder in &agents.folders {
        kinds.folder(folder, &mut remarks);
    }
    for text in remarks {
        remark!("helve: {text}");
    }
    let limits = Limits { at_once: agents.max, ..Limits::default() };
    Supervisor::new(Arc::new(Door(me)), bench.store().clone(), kinds, limits)
}

/// Agents for sessions that no loop of this program drives: the model is looked for when the first agent is started.
pub(crate) struct OnDemand {
    bench: Weak<Bench>,
    supervisor: Arc<Supervisor>,
    seats: Mutex<HashMap<String, Seat>>,
}

impl OnDemand {
    pub(crate) fn new(bench: Weak<Bench>, supervisor: Arc<Supervisor>) -> Self {
        Self { bench, supervisor, seats: Mutex::default() }
    }

    /// Gives the session of this call a seat, so that it may start agents.
    async fn seat(&self, call: &Call) -> Result<()> {
        let bench = self.bench.upgrade().ok_or_else(|| Error::failed("the program is about to end"))?;
        bench.ensure_model().await?;
        let id = &call.session.id;
        let engine = bench.engine(id).ok_or_else(|| Error::failed(format!("the session {id} is not open here")))?;
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if !seats.contains_key(id) {
            let mut agent = Agent::new(engine, call.session.clone(), bench.model(None)?);
            agent.budget = bench.budget();
            seats.insert(id.clone(), self.supervisor.seat(&mut agent));
        }
        Ok(())
    }
}

#[async_trait]
impl Agents for OnDemand {
    fn kinds(&self) -> Vec<AgentKind> {
        self.supervisor.kinds()
    }
    async fn start(&self, call: &Call, order: AgentOrder) -> Result<AgentReport> {
        self.seat(call).await?;
        self.supervisor.start(call, order).await
    }
    async fn running(&self, call: &Call) -> Vec<AgentReport> {
        self.supervisor.running(call).await
    }
    async fn report(&self, call: &Call, id: &str, until: Until) -> Result<Option<AgentReport>> {
        self.supervisor.report(call, id, until).await
    }
    async fn stop(&self, call: &Call, id: &str) -> Result<Option<AgentReport>> {
        self.supervisor.stop(call, id).await
    }
    async fn tell(&self, call: &Call, session: &str, text: &str) -> Result<()> {
        self.supervisor.tell(call, session, text).await
    }
    async fn own(&self, call: &Call) -> Result<OwnAgent> {
        self.supervisor.own(call).await
    }
}
