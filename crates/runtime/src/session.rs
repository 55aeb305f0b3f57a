//! Assembles sessions. `helve call`, `batch`, `mcp`, `serve`, `run`, `chat`, schedules, planned runs and sub-agents all
//! get their engine and their session from [`SessionBuilder`].

use std::{collections::HashSet, path::Path, sync::Arc};

use helve_agent::SessionSpec;
use helve_contract::{
    Access, PathStyle, Port, PortSet, Ports, Session, ids,
    ports::{Host, NoUser, User},
};
use helve_engine::{
    Dialect, Engine, EngineBuilder, EventCallback, EventLog, Gate, LimitSettings, Mode, ModeSwitch, Spill,
};

use crate::{
    agent_user::AgentUser,
    channels::Files,
    config::Settings,
    crew,
    fault::CliError,
    guard,
    knobs::SettingsUser,
    outside, schedules,
    setup::{self, CLI_RUN_ID, SessionEnv, Wish},
    undo::UndoHost,
    web,
    workshop::{HelveRuntime, Reach, UserInterface},
};

/// Who makes the calls of a session. It decides about approvals, markers and records.
#[derive(Clone, Default)]
pub enum Caller {
    /// A person at the command line. Nothing needs approval unless an option sets a mode, and replies have no markers
    /// around untrusted content.
    Person,
    /// A program that calls for a person, over the API. Nothing needs approval unless an option sets a mode.
    Program,
    /// An MCP client, which asks its own user. Prompts of this session go to that user.
    Client(UserInterface, ModeSwitch),
    /// A model that Helve drives.
    #[default]
    Model,
}

/// An open session with its engine.
#[derive(Clone)]
pub struct OpenSession {
    /// Runs the calls.
    pub engine: Arc<Engine>,
    /// Who calls.
    pub session: Arc<Session>,
}

/// Assembles one session from the settings, the request and the caller.
///
/// A session without a parent gets its own workspace from the settings. A session with a parent gets a subset of the
/// parent's rights: never another root, another tool or a less strict mode.
pub struct SessionBuilder<'a> {
    bench: &'a HelveRuntime,
    need: SessionSpec,
    label: Option<String>,
    caller: Caller,
}

impl<'a> SessionBuilder<'a> {
    /// A session for this need, whose calls a model makes.
    pub fn new(bench: &'a HelveRuntime, need: SessionSpec) -> Self {
        Self { bench, need, label: None, caller: Caller::default() }
    }

    /// Says who makes the calls.
    #[must_use]
    pub fn caller(mut self, caller: Caller) -> Self {
        if matches!(caller, Caller::Person) && self.need.id.is_empty() {
            CLI_RUN_ID.clone_into(&mut self.need.id);
        }
        self.caller = caller;
        self
    }

    /// Builds the engine and the session.
    pub fn build(mut self) -> Result<OpenSession, CliError> {
        self.identify()?;
        match self.need.parent.clone() {
            None => self.top(),
            Some(parent) => self.child(&parent),
        }
    }

    /// Sets the session's id. A text that is not a UUID is a label, which names one session of this user in this
    /// workspace. Without either, the session is new.
    fn identify(&mut self) -> Result<(), CliError> {
        let need = &mut self.need;
        self.label = need.label.take();
        if need.id.is_empty() {
            need.id = ids::new_id();
        } else if !ids::is_id(&need.id) {
            let name = validate_dir_name(&need.id)?.to_owned();
            need.id = self.bench.labelled_id(&name, need.user.as_deref(), need.workspace.as_deref());
            self.label.get_or_insert(name);
        }
        Ok(())
    }

    fn top(&self) -> Result<OpenSession, CliError> {
        let (bench, need) = (self.bench, &self.need);
        let mut dialect = dialect(need.dialect.as_deref().unwrap_or(bench.settings().dialect()))?;
        if matches!(self.caller, Caller::Person) {
            // A direct caller may call every tool, unless a role was requested.
            dialect.default_role = None;
        }
        let kinds = crew::kinds(bench.settings(), bench.state_dir(), dialect.name, &mut Vec::new());
        let dialect = helve_dialects::with_agent_kinds(dialect, &kinds.list());
        let lasting = dialect.path_style == PathStyle::Virtual || !matches!(self.caller, Caller::Person);
        let wish = Wish {
            session_id: need.id.clone(),
            is_kept: self.label.as_deref() == Some(CLI_RUN_ID),
            workspace: need.workspace.clone().filter(|it| *it != bench.settings().workspace),
            path_style: dialect.path_style,
            persistent_tmp: lasting,
            extra_read_dirs: need.extra_read_dirs.clone(),
            one_call: matches!(self.caller, Caller::Person),
        };
        bench.room(wish, |room| self.in_room(dialect, room))
    }

    fn in_room(&self, dialect: Dialect, room: &SessionEnv) -> Result<OpenSession, CliError> {
        let (bench, need, settings) = (self.bench, &self.need, self.bench.settings());
        let mut session = Session::new(need.id.clone(), room.workspace.clone(), self.ports(&dialect, room));
        session.role = need.role.clone().or_else(|| settings.role(dialect.name).map(str::to_owned));
        session.lenient_edits = settings.config.tools.tolerant_edit;
        session.command_timeout = settings.command_timeout();
        session.schedule_rules = schedules::rules(settings, Some(dialect.name));
        session.schedule_rules.is_driven = bench.drives_schedules();
        session.user = setup::user(settings);
        session.task.clone_from(&need.task);
        session.draft_session = setup::draft_session(settings, &dialect, &session);
        guard::init_taint(settings, &mut session)?;
        self.name(&mut session);

        let imports = outside::drop_name_clashes(&dialect, bench.imports.entries(&dialect));
        let builder = imports.into_iter().fold(setup::chosen(settings, dialect.clone()), EngineBuilder::tool);
        let builder = builder.available(self.available(&session));
        let engine = self.engine(builder, self.gate(self.mode(&dialect), self.somebody())?, &room.spill)?;
        bench.imports.wasm_log.attach(&engine);
        room.record.attach(&engine);
        if !matches!(self.caller, Caller::Person) {
            bench.imports.watch(&engine, dialect, &bench.tasks);
        }
        Ok(self.opened(engine, session, &room.spill))
    }

    fn child(&self, parent: &Session) -> Result<OpenSession, CliError> {
        let (bench, need) = (self.bench, &self.need);
        let (above, spill) = bench
            .engine_and_spill(&parent.id)
            .ok_or_else(|| CliError::failed(format!("the session {} is not open here", parent.id)))?;
        let mut dialect = dialect(need.dialect.as_deref().unwrap_or(above.dialect().name))?;
        // A child does not get tools that the parent's role or settings exclude, under any name.
        let names: HashSet<String> = above.specs().map(|spec| spec.name.clone()).collect();
        let tools: HashSet<_> = above.specs().filter_map(|spec| above.get(&spec.name)?.tool_name()).collect();
        dialect.tools.retain(|entry| {
            names.contains(entry.spec.name.as_str()) || entry.tool_name().is_some_and(|tool| tools.contains(tool))
        });
        let imports = outside::drop_name_clashes(&dialect, bench.imports.entries(&dialect));
        let imports = imports.into_iter().filter(|entry| names.contains(entry.spec.name.as_str()));
        let builder = imports.fold(setup::chosen(bench.settings(), dialect), EngineBuilder::tool);

        let mut ports = parent.ports.clone();
        let somebody = bench.user_for(need);
        if somebody.is_none() {
            ports.user = self.nobody();
        }
        ports.user = Arc::new(AgentUser(ports.user));
        let mode = match need.mode {
            None => above.mode().clone(),
            Some(mode) => ModeSwitch::new(mode.stricter(above.mode().get())),
        };
        let mut session = Session::new(need.id.clone(), parent.workspace.clone(), ports);
        if let Some(folder) = &need.workspace {
            // The roots stay: rules relative to their top would mean something else with other roots.
            session.set_cwd(parent.workspace.check(folder, Access::Read, None)?);
        }
        inherit(&mut session, parent);
        session.role.clone_from(&need.role);
        session.task = need.task.clone().or_else(|| parent.task.clone());
        session.draft_session.clone_from(&parent.draft_session);
        session.taint = parent.taint.child();
        session.salt.clone_from(&parent.salt);
        self.name(&mut session);
        let mut gate = self.gate(mode, somebody)?.scripts(above.script_snapshot().clone());
        if above.mode().get() != Mode::Plan {
            // Plan mode reads pages without approval; a parent that would be asked cannot pass that on.
            gate = gate.asking_web_in_plan();
        }
        let builder = builder.available(self.available(&session));
        let engine = self.engine(builder, gate, &spill)?;
        Ok(self.opened(engine, session, &spill))
    }

    /// What the session can reach.
    fn ports(&self, dialect: &Dialect, room: &SessionEnv) -> Ports {
        let bench = self.bench;
        let host: Arc<dyn Host> = match self.caller {
            // File changes by a model can be undone.
            Caller::Model => Arc::new(UndoHost::new(room.host.clone(), bench.undo_log().clone())),
            _ => room.host.clone(),
        };
        let files = if matches!(self.caller, Caller::Model) { Files::WithTurns } else { Files::Never };
        let mut ports = setup::build_ports(bench.settings(), bench.state_dir(), (host, room.tasks.clone()), files);
        ports.store = bench.store().clone();
        ports.web = web::read_by(bench.weak(), ports.web);
        ports.agents = self.need.agents.clone().unwrap_or_else(|| bench.agents_on_demand(dialect.name));
        ports.user = self.somebody().map_or_else(|| self.nobody(), |it| it.user.clone());
        ports
    }

    /// The ports that the session has and the settings leave on.
    fn available(&self, session: &Session) -> PortSet {
        let config = &self.bench.settings().config;
        let mut ports = session.available();
        if self.bench.servers().is_some() {
            ports = ports | PortSet::of(&[Port::McpServers]);
        }
        if !config.memory.enabled {
            ports = ports.without(Port::Memory);
        }
        if !config.schedule.enabled {
            ports = ports.without(Port::Schedules);
        }
        ports
    }

    /// A user who cannot be asked, with the settings of the session.
    fn nobody(&self) -> Arc<dyn User> {
        Arc::new(SettingsUser::new(Arc::new(NoUser), self.bench.knobs().clone()))
    }

    /// The user port of the session.
    fn somebody(&self) -> Option<&UserInterface> {
        match &self.caller {
            Caller::Person | Caller::Program => None,
            Caller::Client(somebody, _) => Some(somebody),
            Caller::Model => self.bench.user_for(&self.need),
        }
    }

    fn mode(&self, dialect: &Dialect) -> ModeSwitch {
        let settings = self.bench.settings();
        if let Some(mode) = self.need.mode {
            return ModeSwitch::new(mode);
        }
        ModeSwitch::new(match &self.caller {
            Caller::Person | Caller::Program => setup::command_line_mode(settings),
            Caller::Client(_, mode) => return mode.clone(),
            Caller::Model => match self.somebody().map(|it| it.scope).unwrap_or_default() {
                Reach::Foreground => return self.bench.mode().clone(),
                Reach::AllSessions => setup::mode(settings).unwrap_or(dialect.mode),
            },
        })
    }

    /// A gate at this switch, with the rules of the settings.
    fn gate(&self, mode: ModeSwitch, somebody: Option<&UserInterface>) -> Result<Gate, CliError> {
        let bench = self.bench;
        let gate = setup::apply_rules(bench.settings(), Gate::new(mode))?.approval_timeout(bench.approval_timeout());
        Ok(match somebody.and_then(|it| it.approver.clone()) {
            Some(approver) => gate.approver(approver),
            None => gate,
        })
    }

    fn engine(&self, mut builder: EngineBuilder, gate: Gate, spill: &Path) -> Result<Arc<Engine>, CliError> {
        let (need, settings) = (&self.need, self.bench.settings());
        if let Some(only) = &need.tools {
            builder = builder.only(only.clone());
        }
        if let Some(role) = &need.role {
            builder = builder.role(role);
        }
        let builder = builder
            .exclude(need.exclude_tools.clone())
            .gate(gate)
            .events(self.events()?)
            .limits(limits(settings))
            .spill(Spill::new(spill.to_owned(), setup::keep(settings)));
        let mut builder = guard::guarded(settings, builder);
        if matches!(self.caller, Caller::Person) {
            // A person gets the reply unchanged.
            builder = builder.trust_tools(vec!["*".into()]);
        }
        setup::finish(builder).map(Arc::new)
    }

    /// Where calls are recorded: in a planned run all in one file, by task and attempt.
    fn events(&self) -> Result<EventLog, CliError> {
        let (bench, need) = (self.bench, &self.need);
        let events = match (&need.event_file, &need.task) {
            (Some(file), Some(errand)) => {
                let events = EventLog::file(file, &errand.run)?;
                match &errand.task {
                    Some(task) => events.within(task, Some(errand.attempt.to_string())),
                    None => events,
                }
            }
            _ => {
                let keeps_stdout_free = !matches!(self.caller, Caller::Person);
                // Direct calls have one record for all workspaces.
                let run = self.label.as_deref().filter(|it| *it == CLI_RUN_ID).unwrap_or(&need.id);
                setup::events(bench.settings(), bench.state_dir(), run, keeps_stdout_free)?
            }
        };
        let Some(listener) = bench.event_listener.get().cloned() else { return Ok(events) };
        let dialect = need.dialect.clone().unwrap_or_else(|| bench.settings().dialect().to_owned());
        let listener: EventCallback = Arc::new(move |event| listener(&dialect, event));
        Ok(if events.is_on() { events.also(listener) } else { EventLog::callback(need.id.clone(), listener) })
    }

    fn opened(&self, engine: Arc<Engine>, session: Session, spill: &Path) -> OpenSession {
        let session = Arc::new(session);
        self.bench.track(&self.need, (&engine, &session), spill);
        OpenSession { engine, session }
    }

    /// The owner and the agent of the session.
    fn name(&self, session: &mut Session) {
        session.label.clone_from(&self.label);
        if let Some(user) = &self.need.user {
            session.user.clone_from(user);
        }
        if let Some(agent) = &self.need.agent {
            session.agent.clone_from(agent);
        }
    }
}

/// What a session inherits from its parent.
fn inherit(session: &mut Session, from: &Session) {
    session.user.clone_from(&from.user);
    session.lenient_edits = from.lenient_edits;
    session.command_timeout = from.command_timeout;
    session.schedule_rules = from.schedule_rules.clone();
}

/// A further session of the same engine and workspace, for another client of a server.
pub fn sibling(bench: &HelveRuntime, first: &OpenSession) -> Result<Arc<Session>, CliError> {
    let from = &first.session;
    let mut session = Session::new(ids::new_id(), from.workspace.clone(), from.ports.clone());
    inherit(&mut session, from);
    session.role.clone_from(&from.role);
    session.agent.clone_from(&from.agent);
    session.draft_session = setup::draft_session(bench.settings(), first.engine.dialect(), &session);
    guard::init_taint(bench.settings(), &mut session)?;
    let session = Arc::new(session);
    let (_, spill) = bench
        .engine_and_spill(&from.id)
        .ok_or_else(|| CliError::failed(format!("the session {} is not open here", from.id)))?;
    bench.track(&SessionSpec::default(), (&first.engine, &session), &spill);
    Ok(session)
}

/// Output limits of the settings, in place of the dialect's.
fn limits(settings: &Settings) -> LimitSettings {
    let max_output_bytes = settings.config.tools.max_output_bytes.and_then(|it| usize::try_from(it).ok());
    LimitSettings { max_output_bytes, ..LimitSettings::default() }
}

fn dialect(name: &str) -> Result<Dialect, CliError> {
    helve_dialects::by_name(name).ok_or_else(|| CliError::usage(format!("there is no dialect `{name}`")))
}

/// A label that can name a directory.
fn validate_dir_name(id: &str) -> Result<&str, CliError> {
    let plain = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_' || it == '.' || it == ':';
    if id.is_empty() || id.len() > 128 || id.starts_with('.') || !id.chars().all(plain) {
        return Err(CliError::usage(format!("`{}` cannot be the name of a session", id.escape_debug())));
    }
    Ok(id)
}
