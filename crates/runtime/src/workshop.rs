//! The workshop of the command line: what a conversation needs, made by the settings.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use helve_agent::{
    Budget, Need, Workshop,
    model::{self, Endpoint, Found, Key, Model, OpenAi, Prices, Wanted},
};
use helve_contract::{
    Access, Error, Result, Session,
    ports::{Agents, Nobody, Store, User},
};
use helve_engine::{Approver, Builder, Dialect, Engine, Events, Gate, Listener, Mode, ModeSwitch, Spill};
use helve_mcp::client::Servers;
use helve_store::Heard;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{
    config::Settings,
    fault::Fault,
    guard, outside, schedules,
    setup::{self, Imports, Room, Wish},
    state,
    undo::{Memory, Remembering},
    web,
};

/// Everything that the conversations of one program share.
pub struct Bench {
    settings: Settings,
    state: PathBuf,
    imports: Imports,
    /// The room in which plugins work.
    _yard: Room,
    store: Arc<dyn Store>,
    person: OnceLock<Somebody>,
    ear: OnceLock<Ear>,
    /// Who hears what is said; the store was made before anybody listened.
    overheard: Arc<OnceLock<Heard>>,
    agents: Mutex<Option<Arc<dyn Agents>>>,
    mode: ModeSwitch,
    memory: Arc<Memory>,
    made: Mutex<HashMap<String, Made>>,
    /// Whose they are, oldest first. They are cleared away when the program ends, or when there are many and nobody is
    /// in them any more: a conversation may be opened twice.
    rooms: Mutex<Vec<(Weak<Session>, Room)>>,
    endpoint: OnceLock<Endpoint>,
    models: Mutex<BTreeMap<String, Arc<dyn Model>>>,
}

/// Whom the conversations are with.
pub struct Somebody {
    /// Who answers questions.
    pub user: Arc<dyn User>,
    /// Who allows a call; `None`: what would be asked is denied.
    pub approver: Option<Arc<dyn Approver>>,
    /// Which conversations reach him.
    pub reach: Reach,
}

/// Which conversations reach somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The one that he sits at: what works alone does so without him, and all that is open shares his mode.
    #[default]
    Seated,
    /// All, also what works alone, such as a schedule. Each has the mode of its dialect, or the configured one.
    Everywhere,
}

/// Hears of every call, and in which dialect it is.
pub type Ear = Arc<dyn Fn(&str, &Value) + Send + Sync>;

/// How many rooms stay as they were left.
const ROOMS: usize = 64;
/// How many models are kept at hand.
const MODELS: usize = 64;

/// What was made for a conversation, as long as the program runs.
struct Made {
    engine: Weak<Engine>,
    session: Weak<Session>,
    spill: PathBuf,
    /// Whether it works by itself, or what started it does.
    alone: bool,
}

impl Bench {
    /// A workshop by the settings. Plugins and MCP servers are started here, once.
    pub fn new(settings: Settings, dialect: &Dialect, runtime: &Runtime) -> Result<Arc<Self>, Fault> {
        let state = setup::state_folder(&settings)?;
        let wish =
            Wish { run: state::random_id()?, top: None, reading: dialect.reading, lasting: false, reads: Vec::new() };
        let yard = setup::room(&settings, &state, wish)?;
        let imports = setup::imports(&settings, dialect, &outside::Wanted::Lasting, (&state, &yard), runtime);
        let mode = setup::mode(&settings).unwrap_or(dialect.mode);
        let overheard: Arc<OnceLock<Heard>> = Arc::default();
        let listener = overheard.clone();
        let store = setup::sqlite(&settings, &state).heard_by(Arc::new(move |session, messages| {
            if let Some(heard) = listener.get() {
                heard(session, messages);
            }
        }));
        Ok(Arc::new(Self {
            store: Arc::new(store),
            overheard,
            memory: Memory::new(state.join("undo")),
            mode: ModeSwitch::new(mode),
            imports,
            _yard: yard,
            person: OnceLock::new(),
            ear: OnceLock::new(),
            agents: Mutex::default(),
            made: Mutex::default(),
            rooms: Mutex::default(),
            endpoint: OnceLock::new(),
            models: Mutex::default(),
            state,
            settings,
        }))
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The state folder.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// What is kept.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What is asked before a call.
    pub fn mode(&self) -> &ModeSwitch {
        &self.mode
    }

    /// What the turns changed in files.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The MCP servers in use.
    pub fn servers(&self) -> Option<&Servers> {
        self.imports.servers.as_ref()
    }

    /// Says whom the conversations are with; before that, nobody can be asked.
    pub fn meet(&self, somebody: Somebody) {
        _ = self.person.set(somebody);
    }

    /// Says who hears of the calls of conversations that are opened from now on.
    pub fn listen(&self, ear: Ear) {
        _ = self.ear.set(ear);
    }

    /// Says who hears what is said in every conversation, from now on.
    pub fn overhear(&self, heard: Heard) {
        _ = self.overheard.set(heard);
    }

    /// Says who keeps the other agents of conversations from now on.
    pub fn employ(&self, agents: Arc<dyn Agents>) {
        *self.agents.lock().unwrap_or_else(PoisonError::into_inner) = Some(agents);
    }

    /// What one turn may take, by the settings.
    pub fn budget(&self) -> Budget {
        let number = |key: &str| Some(self.settings.number(key)).filter(|it| *it > 0);
        Budget {
            turns: number("agent.max_turns").and_then(|it| u32::try_from(it).ok()),
            tokens: number("agent.max_tokens"),
            cost: self.settings.amount("agent.max_cost"),
            time: number("agent.max_time_secs").map(Duration::from_secs),
        }
    }

    /// Finds out who answers: by the settings, by a well-known key, or by a server on this machine. In words, who.
    pub async fn find_model(&self, name: Option<String>) -> Result<String, Fault> {
        let text = |key: &str| self.settings.text(key).map(str::to_owned);
        let key = match text("model.key_env") {
            None => None,
            Some(variable) => {
                let value = std::env::var(&variable).ok().filter(|it| !it.trim().is_empty());
                let value = value.ok_or_else(|| {
                    Fault::usage(format!("model.key_env names the variable {variable}, which is not set"))
                })?;
                Some(Key::new(value, variable))
            }
        };
        let a_million = |key: &str| self.settings.amount(key).map(|it| it / 1e6);
        let prices = match (a_million("model.price_in"), a_million("model.price_out")) {
            (None, None) => None,
            (prompt, completion) => {
                Some(Prices { prompt: prompt.unwrap_or_default(), completion: completion.unwrap_or_default() })
            }
        };
        let wanted = Wanted {
            base_url: text("model.base_url"),
            key,
            model: name.or_else(|| text("model.name")),
            window: Some(self.settings.number("model.window")).filter(|it| *it > 0),
            prices,
            ..Wanted::default()
        };
        let variable = |name: &str| std::env::var(name).ok();
        let Found { endpoint, from } =
            model::find(&variable, &wanted).await.map_err(|error| Fault::failed(error.to_string()))?;
        let told = format!("{} ({from})", endpoint.model);
        _ = self.endpoint.set(endpoint);
        Ok(told)
    }

    /// The endpoint that was found.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.get()
    }

    fn made(&self) -> MutexGuard<'_, HashMap<String, Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every session that is open, with the door to its tools.
    pub fn open(&self) -> Vec<(Arc<Engine>, Arc<Session>)> {
        let mut made = self.made();
        made.retain(|_, it| it.session.strong_count() > 0);
        made.values().filter_map(|it| Some((it.engine.upgrade()?, it.session.upgrade()?))).collect()
    }

    /// The door to the tools of an open session.
    pub fn engine(&self, session: &str) -> Option<Arc<Engine>> {
        self.made().get(session)?.engine.upgrade()
    }

    /// Whether an open session works by itself: a schedule, a webhook, an agent in the background.
    pub fn is_alone(&self, session: &str) -> bool {
        self.made().get(session).is_some_and(|it| it.alone)
    }

    /// How long a person may think about an approval.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.settings.number("approval.patience_secs"))
    }

    /// Tools and a session of its own, with somebody else to ask.
    pub fn equip_for(&self, need: &Need, somebody: &Somebody) -> Result<(Arc<Engine>, Arc<Session>), Fault> {
        self.top(need, Some(somebody))
    }

    /// Whom a conversation can ask.
    fn whom(&self, need: &Need) -> Option<&Somebody> {
        self.person.get().filter(|it| !need.alone || it.reach == Reach::Everywhere)
    }

    /// A conversation of its own.
    fn top(&self, need: &Need, somebody: Option<&Somebody>) -> Result<(Arc<Engine>, Arc<Session>), Fault> {
        let dialect = named(need.dialect.as_deref().unwrap_or(self.settings.dialect()))?;
        let wish = Wish {
            run: folder_name(&need.id)?.to_owned(),
            top: need.workspace.clone().filter(|it| *it != self.settings.workspace),
            reading: dialect.reading,
            lasting: true,
            reads: need.reads.clone(),
        };
        // Held until the room has somebody in it: none is cleared away that another one is about to move into.
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let room = setup::room(&self.settings, &self.state, wish)?;
        let host = Arc::new(Remembering::new(room.host.clone(), self.memory.clone()));
        let mut ports = setup::ports(&self.settings, &self.state, host, room.tasks.clone());
        ports.store = self.store.clone();
        // Without an endpoint nobody answers at all, and pages are read by their words.
        if let Some(small) = self.settings.text("model.small").and_then(|name| self.model(Some(name)).ok()) {
            ports.web = web::read_by(small, ports.web);
        }
        let usual = self.agents.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(agents) = need.agents.clone().or(usual) {
            ports.agents = agents;
        }
        if let Some(somebody) = somebody {
            ports.user = somebody.user.clone();
        }
        let mode = match (need.mode, somebody.map(|it| it.reach).unwrap_or_default()) {
            (Some(mode), _) => ModeSwitch::new(mode),
            (None, Reach::Seated) => self.mode.clone(),
            (None, Reach::Everywhere) => ModeSwitch::new(setup::mode(&self.settings).unwrap_or(dialect.mode)),
        };
        let gate = self.gate(mode, somebody)?;
        let role = need.role.clone().or_else(|| self.settings.role(dialect.name).map(str::to_owned));
        let mut session = Session::new(need.id.clone(), room.workspace.clone(), ports);
        session.role = role;
        session.tolerant = self.settings.flag("tools.tolerant_edit");
        session.scheduling = schedules::rules(&self.settings, Some(dialect.name));
        session.errand.clone_from(&need.errand);
        session.draft = setup::draft(&self.settings, dialect.name, &session);
        guard::prepare(&self.settings, &mut session)?;
        named_in(&mut session, need);

        let imports = outside::free(&dialect, self.imports.entries(&dialect));
        let builder = imports.into_iter().fold(setup::chosen(&self.settings, dialect.clone()), Builder::tool);
        let engine = self.built(builder, need, gate, &room.spill)?;
        self.imports.record.goes_to(&engine);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.imports.follow(&engine, dialect, &runtime);
        }
        let session = Arc::new(session);
        self.keep(need, (&engine, &session), &room.spill);
        rooms.push((Arc::downgrade(&session), room));
        clear_away(&mut rooms);
        Ok((engine, session))
    }

    /// A conversation that another one started: never more than that one has.
    fn child(&self, need: &Need, parent: &Session) -> Result<(Arc<Engine>, Arc<Session>), Fault> {
        let (above, spill) = match self.made().get(&parent.id) {
            Some(made) => (made.engine.upgrade(), made.spill.clone()),
            None => (None, PathBuf::new()),
        };
        let above = above.ok_or_else(|| Fault::failed(format!("the conversation {} is not open here", parent.id)))?;
        let mut dialect = named(need.dialect.as_deref().unwrap_or(above.dialect().name))?;
        // What the parent's role and settings leave out, its child does not have either, by whatever name.
        let names: HashSet<String> = above.specs().map(|spec| spec.name.clone()).collect();
        let tools: HashSet<_> = above.specs().filter_map(|spec| above.get(&spec.name)?.tool()).collect();
        dialect.tools.retain(|entry| {
            names.contains(entry.spec.name.as_str()) || entry.tool().is_some_and(|tool| tools.contains(tool))
        });
        let imports = outside::free(&dialect, self.imports.entries(&dialect));
        let imports = imports.into_iter().filter(|entry| names.contains(entry.spec.name.as_str()));
        let builder = imports.fold(setup::chosen(&self.settings, dialect), Builder::tool);

        let mut ports = parent.ports.clone();
        let somebody = self.whom(need);
        if somebody.is_none() {
            ports.user = Arc::new(Nobody);
        }
        let mode = match need.mode {
            None => above.mode().clone(),
            Some(mode) => ModeSwitch::new(mode.at_most(above.mode().get())),
        };
        let gate = self.gate(mode, somebody)?;
        let mut session = Session::new(need.id.clone(), parent.workspace.clone(), ports);
        if let Some(folder) = &need.workspace {
            // The roots stay: a rule that holds from their top would say something else from another one.
            session.go_to(parent.workspace.check(folder, Access::Read, None)?);
        }
        session.user.clone_from(&parent.user);
        session.role.clone_from(&need.role);
        session.tolerant = parent.tolerant;
        session.scheduling = parent.scheduling.clone();
        session.errand = need.errand.clone().or_else(|| parent.errand.clone());
        session.draft.clone_from(&parent.draft);
        session.taint = parent.taint.beneath();
        session.salt.clone_from(&parent.salt);
        named_in(&mut session, need);
        let engine = self.built(builder, need, gate, &spill)?;
        let session = Arc::new(session);
        self.keep(need, (&engine, &session), &spill);
        Ok((engine, session))
    }

    fn keep(&self, need: &Need, (engine, session): (&Arc<Engine>, &Arc<Session>), spill: &Path) {
        let mut all = self.made();
        all.retain(|_, it| it.session.strong_count() > 0);
        let beneath = need.parent.as_ref().and_then(|it| all.get(&it.id)).is_some_and(|it| it.alone);
        let made = Made {
            engine: Arc::downgrade(engine),
            session: Arc::downgrade(session),
            spill: spill.to_owned(),
            alone: need.alone || beneath,
        };
        all.insert(session.id.clone(), made);
    }

    /// Where the calls of a conversation are recorded: in a planned run all in one file, by task and attempt.
    fn events(&self, need: &Need) -> Result<Events, Fault> {
        let events = match (&need.record, &need.errand) {
            (Some(file), Some(errand)) => {
                let events = Events::file(file, &errand.run)?;
                match &errand.task {
                    Some(task) => events.within(task, Some(errand.attempt.to_string())),
                    None => events,
                }
            }
            _ => setup::events(&self.settings, &self.state, folder_name(&need.id)?, true)?,
        };
        let Some(ear) = self.ear.get().cloned() else { return Ok(events) };
        let dialect = need.dialect.clone().unwrap_or_else(|| self.settings.dialect().to_owned());
        let listener: Listener = Arc::new(move |event| ear(&dialect, event));
        Ok(if events.is_on() { events.also(listener) } else { Events::callback(need.id.clone(), listener) })
    }

    /// A gate at this switch, with the rules of the settings.
    fn gate(&self, mode: ModeSwitch, somebody: Option<&Somebody>) -> Result<Gate, Fault> {
        let gate = setup::ruled(&self.settings, Gate::new(mode))?.patience(self.patience());
        Ok(match somebody.and_then(|it| it.approver.clone()) {
            Some(approver) => gate.approver(approver),
            None => gate,
        })
    }

    fn built(&self, mut builder: Builder, need: &Need, gate: Gate, spill: &Path) -> Result<Arc<Engine>, Fault> {
        if let Some(only) = &need.tools {
            builder = builder.only(only.clone());
        }
        if let Some(role) = &need.role {
            builder = builder.role(role);
        }
        let builder = builder
            .without(need.without.clone())
            .gate(gate)
            .events(self.events(need)?)
            .spill(Spill::new(spill.to_owned(), setup::keep(&self.settings)));
        setup::finish(guard::guarded(&self.settings, builder)).map(Arc::new)
    }
}

/// Clears rooms away that nobody is in, the oldest first, where there are many.
fn clear_away(rooms: &mut Vec<(Weak<Session>, Room)>) {
    while rooms.len() > ROOMS {
        let is_open = |it: &(Weak<Session>, Room)| it.0.strong_count() > 0;
        // Two rooms of one conversation share their folders.
        let used: HashSet<&Path> = rooms.iter().filter(|it| is_open(it)).map(|it| it.1.spill.as_path()).collect();
        let Some(place) = rooms.iter().position(|it| !used.contains(it.1.spill.as_path())) else { return };
        rooms.remove(place);
    }
}

impl Workshop for Bench {
    fn equip(&self, need: &Need) -> Result<(Arc<Engine>, Arc<Session>)> {
        let made = match &need.parent {
            None => self.top(need, self.whom(need)),
            Some(parent) => self.child(need, parent),
        };
        made.map_err(|fault| Error::failed(fault.to_string()))
    }

    fn model(&self, name: Option<&str>) -> Result<Arc<dyn Model>> {
        let endpoint = self.endpoint.get().ok_or_else(|| Error::failed("no model is configured here"))?;
        let name = name.unwrap_or(&endpoint.model);
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = models.get(name) {
            return Ok(model.clone());
        }
        let mut endpoint = endpoint.clone();
        if endpoint.model != name {
            // What is known about one model says nothing about another.
            name.clone_into(&mut endpoint.model);
            (endpoint.window, endpoint.prices) = (None, None);
        }
        let model: Arc<dyn Model> = Arc::new(OpenAi::new(endpoint).map_err(|error| Error::failed(error.to_string()))?);
        // Whoever begins a conversation may name any.
        if models.len() >= MODELS {
            models.pop_first();
        }
        models.insert(name.to_owned(), model.clone());
        Ok(model)
    }
}

fn named(name: &str) -> Result<Dialect, Fault> {
    helve_dialects::by_name(name).ok_or_else(|| Fault::usage(format!("there is no dialect `{name}`")))
}

/// Whose the session is, and who speaks in it.
fn named_in(session: &mut Session, need: &Need) {
    if let Some(user) = &need.user {
        session.user.clone_from(user);
    }
    if let Some(agent) = &need.agent {
        session.agent.clone_from(agent);
    }
}

/// An id that can name a folder.
fn folder_name(id: &str) -> Result<&str, Fault> {
    let plain = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_' || it == '.' || it == ':';
    if id.is_empty() || id.len() > 128 || id.starts_with('.') || !id.chars().all(plain) {
        return Err(Fault::usage(format!("`{}` cannot be the id of a conversation", id.escape_debug())));
    }
    Ok(id)
}

/// The mode in words.
pub fn mode_named(name: &str) -> Result<Mode, Fault> {
    name.parse().map_err(Fault::usage)
}
