//! `Workshop`: the shared state of all sessions in one program, built from the settings.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use helve_agent::{
    Budget, SessionFactory, SessionSpec, Supervisor, Wake,
    model::{self, ApiKey, DiscoveredModel, Endpoint, Model, ModelConfig, OpenAi, Prices},
};
use helve_contract::{
    Error, Result, Session,
    events::EventRecord,
    ids,
    ports::{Agents, Jobs, NoAgents, Store, User},
};
use helve_engine::{Approver, Dialect, Engine, Mode, ModeSwitch};
use helve_mcp::client::McpServers;
use helve_store::MessageListener;
use tokio::runtime::{Handle, Runtime};

use crate::{
    config::{Seconds, Settings},
    crew,
    fault::CliError,
    knobs::SessionKnobs,
    outside::Wanted as External,
    remark,
    session::{OpenSession, SessionBuilder},
    session_model::SessionModel,
    setup::{self, ExternalTools, SessionEnv, Wish},
    shell, state,
    undo::UndoLog,
};

/// The state that all sessions of a program share.
pub struct HelveRuntime {
    settings: Settings,
    state: PathBuf,
    /// A weak reference to itself, for tasks that must not keep it alive.
    me: Weak<Self>,
    pub(crate) imports: ExternalTools,
    /// The environment of plugins, if there are any.
    _plugin_env: Option<SessionEnv>,
    /// Where tasks of the program run.
    pub(crate) tasks: Handle,
    store: Arc<dyn Store>,
    jobs: Arc<dyn Jobs>,
    user_interface: OnceLock<UserInterface>,
    pub(crate) event_listener: OnceLock<EventListener>,
    /// Opens sessions that get a message from another one, if this program can.
    waker: OnceLock<Arc<dyn Wake>>,
    /// Whether this program runs schedules when they are due.
    drives_schedules: AtomicBool,
    /// The listener for messages; the store is created before it is set.
    message_listener: Arc<OnceLock<MessageListener>>,
    /// One for each dialect, made when it is first needed.
    supervisors: Mutex<BTreeMap<String, Arc<Supervisor>>>,
    mode: ModeSwitch,
    knobs: Arc<SessionKnobs>,
    /// Whether the process ends after one call.
    one_call: bool,
    undo_log: Arc<UndoLog>,
    tracked_sessions: Mutex<HashMap<String, Made>>,
    /// The session environments, oldest first. They are removed at exit, or when there are many and no session uses
    /// them: a session may be opened twice.
    session_envs: Mutex<Vec<(Weak<Session>, SessionEnv)>>,
    endpoint: OnceLock<Endpoint>,
    models: Mutex<BTreeMap<String, Arc<dyn Model>>>,
}

/// The users of the sessions.
#[derive(Clone)]
pub struct UserInterface {
    /// Who answers questions.
    pub user: Arc<dyn User>,
    /// The approver; `None` denies calls that need approval.
    pub approver: Option<Arc<dyn Approver>>,
    /// Which sessions can ask this person.
    pub scope: Reach,
}

/// Which sessions reach somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The foreground session: background work cannot ask, and all open sessions share its mode.
    #[default]
    Foreground,
    /// All sessions, including background work such as schedules. Each has the mode of its dialect, or the configured
    /// one.
    AllSessions,
}

/// Receives the events of every call, with its dialect.
pub type EventListener = Arc<dyn Fn(&str, &EventRecord) + Send + Sync>;

/// The maximum number of idle environments.
const MAX_IDLE_ENVS: usize = 64;
/// The maximum number of cached model clients.
const MAX_CACHED_MODELS: usize = 64;

/// The resources of a session, kept while the program runs.
struct Made {
    engine: Weak<Engine>,
    session: Weak<Session>,
    spill: PathBuf,
    /// Whether it, or the session that started it, runs in the background.
    unattended: bool,
}

impl HelveRuntime {
    /// Builds a workshop from the settings. Starts plugins and MCP servers once.
    pub fn new(settings: Settings, dialect: &Dialect, runtime: &Runtime) -> Result<Arc<Self>, CliError> {
        Self::with_external(settings, dialect, &External::Persistent, runtime)
    }

    /// The same, with a choice of the MCP servers that are started.
    pub fn with_external(
        settings: Settings,
        dialect: &Dialect,
        external: &External<'_>,
        runtime: &Runtime,
    ) -> Result<Arc<Self>, CliError> {
        let state = setup::state_folder(&settings)?;
        setup::make_dirs(&state, &state::tenant_dir(&settings, &state))?;
        let yard = if !settings.config.has_programs() {
            None
        } else {
            let wish = Wish {
                session_id: ids::new_id(),
                workspace: None,
                path_style: dialect.path_style,
                persistent_tmp: false,
                extra_read_dirs: Vec::new(),
                one_call: false,
                is_kept: false,
            };
            Some(setup::create_session_env(&settings, &state, wish)?)
        };
        for note in runtime.block_on(shell::recover(&settings))? {
            remark!("helve: {note}");
        }
        let imports = setup::start_external_tools(&settings, dialect, external, (&state, yard.as_ref()), runtime)?;
        let mode = setup::mode(&settings).unwrap_or(dialect.mode);
        let one_call = matches!(external, External::WithTool(_));
        let overheard: Arc<OnceLock<MessageListener>> = Arc::default();
        let listener = overheard.clone();
        let store = setup::open_sqlite(&settings, &state).with_listener(Arc::new(move |session, messages| {
            if let Some(heard) = listener.get() {
                heard(session, messages);
            }
        }));
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            jobs: Arc::new(store.clone()),
            store: Arc::new(store),
            message_listener: overheard,
            undo_log: UndoLog::new(Arc::new(setup::blobs(&state::tenant_dir(&settings, &state)))),
            mode: ModeSwitch::new(mode),
            knobs: Arc::new(SessionKnobs::new(&settings, unused_model(me.clone(), one_call))),
            one_call,
            imports,
            _plugin_env: yard,
            tasks: runtime.handle().clone(),
            user_interface: OnceLock::new(),
            event_listener: OnceLock::new(),
            waker: OnceLock::new(),
            drives_schedules: AtomicBool::new(false),
            supervisors: Mutex::default(),
            tracked_sessions: Mutex::default(),
            session_envs: Mutex::default(),
            endpoint: OnceLock::new(),
            models: Mutex::default(),
            state,
            settings,
        }))
    }

    /// A weak reference, for owners that must not keep it alive.
    pub(crate) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    /// Whether the process ends after one call.
    pub(crate) fn serves_one_call(&self) -> bool {
        self.one_call
    }

    /// The name of a session's model, if it is known without a request.
    pub(crate) fn model_name(&self, session: &str) -> Option<String> {
        self.knobs.text(session, "model.name").or_else(|| Some(self.endpoint.get()?.model.clone()))
    }

    /// The settings that tools of every session read and set.
    pub fn knobs(&self) -> &Arc<SessionKnobs> {
        &self.knobs
    }

    /// The id of the session that has this label, of this user (else the configured one) in this workspace (else the
    /// configured one).
    pub fn labelled_id(&self, label: &str, user: Option<&str>, workspace: Option<&Path>) -> String {
        let user = user.map_or_else(|| setup::user(&self.settings), str::to_owned);
        let workspace = workspace.unwrap_or(&self.settings.workspace);
        ids::labelled_id(&self.settings.config.store.tenant, &user, &workspace.to_string_lossy(), label)
    }

    /// A session in the making.
    pub fn session(&self, need: SessionSpec) -> SessionBuilder<'_> {
        SessionBuilder::new(self, need)
    }

    /// The keeper of agents for sessions in this dialect.
    pub fn supervisor(&self, dialect: &str) -> Arc<Supervisor> {
        let mut all = self.supervisors.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(dialect.to_owned()).or_insert_with(|| crew::create_supervisor(self, self.me.clone(), dialect)).clone()
    }

    /// Ends the agents that a session started, and waits for their end.
    pub async fn end_agents(&self, session: &Session) {
        let all: Vec<_> = self.supervisors.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for supervisor in all {
            supervisor.stop_all(&session.id).await;
        }
    }

    /// Agents for a session without an agent loop in this program, such as an MCP client's. None without a model.
    pub fn agents_on_demand(&self, dialect: &str) -> Arc<dyn Agents> {
        if self.has_model() {
            Arc::new(crew::OnDemand::new(self.me.clone(), self.supervisor(dialect)))
        } else {
            Arc::new(NoAgents)
        }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The state directory.
    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    /// Where the tenant keeps what belongs to its sessions.
    pub fn tenant_dir(&self) -> PathBuf {
        state::tenant_dir(&self.settings, &self.state)
    }

    /// What is kept.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Jobs that outlive the process.
    pub fn jobs(&self) -> &Arc<dyn Jobs> {
        &self.jobs
    }

    /// What is asked before a call.
    pub fn mode(&self) -> &ModeSwitch {
        &self.mode
    }

    /// What the turns changed in files.
    pub fn undo_log(&self) -> &Arc<UndoLog> {
        &self.undo_log
    }

    /// The MCP servers in use.
    pub fn servers(&self) -> Option<&McpServers> {
        self.imports.servers.as_ref()
    }

    /// Sets the users of the sessions; before that, nobody can be asked.
    pub fn set_user_interface(&self, somebody: UserInterface) {
        _ = self.user_interface.set(somebody);
    }

    /// Says who hears of the calls of sessions that are opened from now on.
    pub fn set_event_listener(&self, ear: EventListener) {
        _ = self.event_listener.set(ear);
    }

    /// Says who hears what is said in every session, from now on.
    pub fn set_message_listener(&self, heard: MessageListener) {
        _ = self.message_listener.set(heard);
    }

    /// Says what opens sessions that get a message from another one.
    pub fn wake_with(&self, waker: Arc<dyn Wake>) {
        _ = self.waker.set(waker);
    }

    /// What opens sessions that get a message from another one.
    pub(crate) fn waker(&self) -> Option<&Arc<dyn Wake>> {
        self.waker.get()
    }

    /// Says that this program runs schedules when they are due. Sessions that are opened from now on know it.
    pub fn drive_schedules(&self) {
        self.drives_schedules.store(true, Ordering::SeqCst);
    }

    /// Whether this program runs schedules when they are due.
    pub(crate) fn drives_schedules(&self) -> bool {
        self.drives_schedules.load(Ordering::SeqCst)
    }

    /// What one turn may take, by the settings.
    pub fn budget(&self) -> Budget {
        let agent = &self.settings.config.agent;
        Budget {
            max_turns: Some(agent.max_turns),
            max_tokens: agent.max_tokens,
            max_cost: agent.max_cost,
            max_time: agent.max_time_secs.map(Seconds::duration),
        }
    }

    /// Resolves the model: from the settings, a well-known key, or a server on this machine. Returns a description.
    pub async fn resolve_model(&self, name: Option<String>) -> Result<String, CliError> {
        let mut wanted = self.wanted_model()?;
        wanted.model = name.or(wanted.model);
        let DiscoveredModel { endpoint, source: from } =
            model::discover(&variable, &wanted).await.map_err(|error| CliError::failed(error.to_string()))?;
        let told = format!("{} ({from})", endpoint.model);
        self.knobs.base().found_model(&endpoint.model);
        _ = self.endpoint.set(endpoint);
        Ok(told)
    }

    /// Finds the model unless it is found already.
    pub async fn ensure_model(&self) -> Result<()> {
        if self.endpoint.get().is_none() {
            self.resolve_model(None).await.map_err(|fault| Error::failed(fault.to_string()))?;
        }
        Ok(())
    }

    /// Whether a model was resolved, or is configured by the settings or a well-known variable. Makes no network
    /// request.
    pub fn has_model(&self) -> bool {
        self.endpoint.get().is_some()
            || self.wanted_model().is_ok_and(|wanted| model::is_configured(&variable, &wanted))
    }

    /// The model that answers questions about web pages: the small one, else the main one.
    pub async fn reading_model(&self) -> Result<Option<Arc<dyn Model>>> {
        if !self.has_model() {
            return Ok(None);
        }
        self.ensure_model().await?;
        self.model_named(self.settings.config.model.small.as_deref()).map(Some)
    }

    /// What the settings say about the model.
    fn wanted_model(&self) -> Result<ModelConfig, CliError> {
        let model = &self.settings.config.model;
        let key = match model.key_env.clone() {
            None => None,
            Some(name) => {
                let value = variable(&name).filter(|it| !it.trim().is_empty());
                let value = value.ok_or_else(|| {
                    CliError::usage(format!("model.key_env names the variable {name}, which is not set"))
                })?;
                Some(ApiKey::new(value, name))
            }
        };
        let a_million = |price: Option<f64>| price.map(|it| it / 1e6);
        let prices = match (a_million(model.price_in), a_million(model.price_out)) {
            (None, None) => None,
            (prompt, completion) => {
                Some(Prices { prompt: prompt.unwrap_or_default(), completion: completion.unwrap_or_default() })
            }
        };
        Ok(ModelConfig {
            base_url: model.base_url.clone(),
            key,
            model: model.name.clone(),
            context_window: model.window,
            prices,
            ..ModelConfig::default()
        })
    }

    /// The endpoint that was found.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.get()
    }

    fn tracked_sessions(&self) -> MutexGuard<'_, HashMap<String, Made>> {
        self.tracked_sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every open session with its engine.
    pub fn open_sessions(&self) -> Vec<(Arc<Engine>, Arc<Session>)> {
        let mut made = self.tracked_sessions();
        made.retain(|_, it| it.session.strong_count() > 0);
        made.values().filter_map(|it| Some((it.engine.upgrade()?, it.session.upgrade()?))).collect()
    }

    /// The engine of an open session.
    pub fn engine(&self, session: &str) -> Option<Arc<Engine>> {
        self.tracked_sessions().get(session)?.engine.upgrade()
    }

    /// Whether an open session runs in the background: a schedule, a webhook, an agent.
    pub fn is_unattended(&self, session: &str) -> bool {
        self.tracked_sessions().get(session).is_some_and(|it| it.unattended)
    }

    /// The timeout of approvals.
    pub fn approval_timeout(&self) -> Duration {
        self.settings.config.approval.patience_secs.duration()
    }

    /// Whom a session can ask.
    pub(crate) fn user_for(&self, need: &SessionSpec) -> Option<&UserInterface> {
        self.user_interface.get().filter(|it| !need.unattended || it.scope == Reach::AllSessions)
    }

    /// Creates an environment and keeps it while the session from `fill` is open.
    pub(crate) fn room(
        &self,
        wish: Wish,
        fill: impl FnOnce(&SessionEnv) -> Result<OpenSession, CliError>,
    ) -> Result<OpenSession, CliError> {
        // Held until the environment is in use, so that the cleanup does not remove it meanwhile.
        let mut rooms = self.session_envs.lock().unwrap_or_else(PoisonError::into_inner);
        let room = setup::create_session_env(&self.settings, &self.state, wish)?;
        let opened = fill(&room)?;
        rooms.push((Arc::downgrade(&opened.session), room));
        remove_idle_envs(&mut rooms);
        Ok(opened)
    }

    /// The engine of an open session, and where its outputs are kept in full.
    pub(crate) fn engine_and_spill(&self, session: &str) -> Option<(Arc<Engine>, PathBuf)> {
        let made = self.tracked_sessions();
        let made = made.get(session)?;
        Some((made.engine.upgrade()?, made.spill.clone()))
    }

    pub(crate) fn track(&self, need: &SessionSpec, (engine, session): (&Arc<Engine>, &Arc<Session>), spill: &Path) {
        let mut all = self.tracked_sessions();
        all.retain(|_, it| it.session.strong_count() > 0);
        let beneath = need.parent.as_ref().and_then(|it| all.get(&it.id)).is_some_and(|it| it.unattended);
        let made = Made {
            engine: Arc::downgrade(engine),
            session: Arc::downgrade(session),
            spill: spill.to_owned(),
            unattended: need.unattended || beneath,
        };
        all.insert(session.id.clone(), made);
    }
}

/// Removes unused environments, the oldest first, if there are many.
fn remove_idle_envs(rooms: &mut Vec<(Weak<Session>, SessionEnv)>) {
    while rooms.len() > MAX_IDLE_ENVS {
        let is_open = |it: &(Weak<Session>, SessionEnv)| it.0.strong_count() > 0;
        // Two environments of one session share their directories.
        let used: HashSet<&Path> = rooms.iter().filter(|it| is_open(it)).map(|it| it.1.spill.as_path()).collect();
        let Some(place) = rooms.iter().position(|it| !used.contains(it.1.spill.as_path())) else { return };
        rooms.remove(place);
    }
}

impl SessionFactory for HelveRuntime {
    fn create_session(&self, need: &SessionSpec) -> Result<(Arc<Engine>, Arc<Session>)> {
        let opened = self.session(need.clone()).build().map_err(|fault| Error::failed(fault.to_string()))?;
        Ok((opened.engine, opened.session))
    }

    fn model(&self, name: Option<&str>) -> Result<Arc<dyn Model>> {
        self.model_named(name)
    }

    fn session_model(&self, session: &str, model: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(SessionModel::new(self.me.clone(), session, model))
    }
}

impl HelveRuntime {
    /// A model by name; `None`: the usual one.
    pub(crate) fn model_named(&self, name: Option<&str>) -> Result<Arc<dyn Model>> {
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
            (endpoint.context_window, endpoint.prices) = (None, None);
        }
        let model: Arc<dyn Model> = Arc::new(OpenAi::new(endpoint).map_err(|error| Error::failed(error.to_string()))?);
        // Whoever begins a session may name any.
        if models.len() >= MAX_CACHED_MODELS {
            models.pop_first();
        }
        models.insert(name.to_owned(), model.clone());
        Ok(model)
    }
}

/// Says why no model of this program would use a model that a session sets, if that is so.
fn unused_model(bench: Weak<HelveRuntime>, one_call: bool) -> impl Fn() -> Option<&'static str> + Send + Sync {
    move || {
        if one_call {
            return Some(
                "this process ends after one call, so no model would use it. Write `--set model.name=NAME` behind the \
                 command that runs a model",
            );
        }
        let has_model = bench.upgrade().is_some_and(|bench| bench.has_model());
        (!has_model).then_some(
            "no model is configured here, so none would use it. An MCP client chooses its own model in its own \
             settings; a model for agents and web pages needs `model.base_url` or a key that `helve doctor` lists",
        )
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The mode in words.
pub fn parse_mode(name: &str) -> Result<Mode, CliError> {
    name.parse().map_err(CliError::usage)
}
