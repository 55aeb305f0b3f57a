//! Builds the parts of a session: workspace, host, tools, gate and event log.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use helve_contract::{
    Access, Call, CancellationToken, Effects, Entry, PathGlob, PathRule, PathRules, PathStyle, Port, Ports, Reply,
    Root, Session, Workspace, ids,
    ports::{Host, ProcessStatus, Store, Tasks},
};
use helve_engine::{Dialect, Engine, EngineBuilder, EventLog, Gate, Mode};
use helve_mcp::client::McpServers;
use helve_store::{FileBlobs, SqliteStore};
use tokio::{
    runtime::{self, Handle, Runtime},
    signal::unix::{SignalKind, signal},
};

use crate::{
    channels,
    config::{ApprovalMode, EventsTarget, RootDir, SettingSource, Settings},
    fault::CliError,
    guard, modules,
    outside::{self, Wanted},
    plugins, recall, remark,
    rules::{self, ApprovalRules},
    shell::{self, SessionDirs},
    state,
};

/// The run name of direct calls.
pub(crate) const CLI_RUN_ID: &str = "cli";
/// The file with the calls of a run.
const EVENT_FILE: &str = "events.ndjson";
/// A larger record is rotated when a run starts.
const MAX_EVENT_FILE_BYTES: u64 = 64 << 20;

/// Removes the files of a session when it ends.
struct SessionCleanup {
    /// The directory of the tenant.
    dir: PathBuf,
    run: String,
    scratch: PathBuf,
    /// Whether its directories stay for the next process.
    is_kept: bool,
    /// How long outputs are kept.
    spill_retention: Duration,
}

/// How long the records of servers are kept.
const EVENT_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

impl Drop for SessionCleanup {
    fn drop(&mut self) {
        let [spill, runs] = ["spill", "runs"].map(|it| self.dir.join(it));
        // Direct calls in a workspace share their directories, which stay.
        if !self.is_kept {
            _ = fs::remove_dir_all(&self.scratch);
            _ = fs::remove_dir(spill.join(&self.run));
            let record = runs.join(&self.run).join(EVENT_FILE);
            if record.metadata().is_ok_and(|it| it.len() == 0) && fs::remove_file(record).is_ok() {
                _ = fs::remove_dir(runs.join(&self.run));
            }
        }
        // One day more than documented, for sessions that still run.
        remove_stale_dirs(&spill, self.spill_retention + Duration::from_secs(24 * 3600));
        remove_stale_dirs(&runs, EVENT_RETENTION);
        let unused_for = self.spill_retention + Duration::from_secs(24 * 3600);
        // Blobs that cannot be removed now are removed later.
        _ = blobs(&self.dir).remove_now(&HashSet::new(), unused_for);
        remove_former_undo(&self.dir.join("undo"), unused_for);
    }
}

/// Removes undo data of a killed older version: separate files that only its process could use.
fn remove_former_undo(folder: &Path, age: Duration) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path()) {
        let name = file.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        if name.len() == 16 && name.bytes().all(|it| it.is_ascii_hexdigit()) && is_older_than(&file, age) {
            _ = fs::remove_file(file);
        }
    }
    // Removes only an empty directory.
    _ = fs::remove_dir(folder);
}

/// Removes the directories of sessions that did not change for this time.
fn remove_stale_dirs(folder: &Path, age: Duration) {
    for session in fs::read_dir(folder).into_iter().flatten().flatten().take(1000).map(|it| it.path()) {
        let files = fs::read_dir(&session).into_iter().flatten().flatten().map(|it| it.path());
        if !session.ends_with(CLI_RUN_ID) && files.chain([session.clone()]).all(|path| is_older_than(&path, age)) {
            _ = fs::remove_dir_all(session);
        }
    }
}

fn is_older_than(path: &Path, age: Duration) -> bool {
    let changed = path.symlink_metadata().and_then(|it| it.modified()).ok();
    changed.and_then(|it| it.elapsed().ok()).is_some_and(|it| it > age)
}

/// Runs this program as an internal helper, if it was started as one: the sandbox init helper or a parser.
pub fn dispatch_helper_process() {
    helve_hosts::run_helper_if_requested();
    helve_web::run_parser_if_requested();
    // A failure is harmless: neither `doctor` nor the sandbox depends on it.
    _ = helve_hosts::harden();
}

/// A runtime on this thread. Most commands need none.
pub fn runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// Runs the work; the first interrupt cancels it, the second one ends the program.
pub async fn run_until_interrupted(cancel: CancellationToken, work: impl Future<Output = Reply>) -> Reply {
    tokio::pin!(work);
    tokio::select! {
        reply = &mut work => return reply,
        () = wait_for_shutdown_signal() => cancel.cancel(),
    }
    tokio::select! {
        reply = &mut work => reply,
        () = wait_for_shutdown_signal() => std::process::exit(130),
    }
}

/// Waits for a termination signal.
pub async fn wait_for_shutdown_signal() {
    let heard = |kind| async move {
        match signal(kind) {
            Ok(mut signals) => _ = signals.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = heard(SignalKind::interrupt()) => {}
        () = heard(SignalKind::terminate()) => {}
        () = heard(SignalKind::hangup()) => {}
    }
}

/// Shuts down the MCP servers of a session.
pub async fn shutdown_servers(servers: Option<&McpServers>) {
    if let Some(servers) = servers {
        servers.stop().await;
    }
}

/// Stops all processes of the session and waits until they and the sandbox's placeholders are gone.
pub async fn stop_tasks(session: Arc<Session>) {
    let call = Call::new("end", session);
    let ending = async {
        for task in call.tasks().list(&call).await {
            if task.status == ProcessStatus::Running {
                _ = call.tasks().stop(&call, &task.id).await;
            }
        }
    };
    _ = tokio::time::timeout(Duration::from_secs(5), ending).await;
}

/// An engine that only lists its tools.
pub fn listing_engine(settings: &Settings, dialect: Dialect) -> Result<Engine, CliError> {
    finish(chosen(settings, dialect))
}

/// The state directory. No workspace may contain or be inside it.
pub fn state_folder(settings: &Settings) -> Result<PathBuf, CliError> {
    let (state, note) = state::open(settings)?;
    if let Some(note) = note {
        remark!("helve: {note}");
    }
    let sandbox = &settings.config.sandbox;
    for (key, dirs) in [("readable", &sandbox.readable), ("writable", &sandbox.writable)] {
        let mut places = dirs.iter().filter_map(|dir| fs::canonicalize(&**dir).ok());
        if let Some(dir) = places.find(|dir| dir.starts_with(&state)) {
            return Err(CliError::usage(format!(
                "invalid sandbox.{key} {}: it is inside Helve's state folder, which commands may not use. Remove it",
                dir.display()
            )));
        }
    }
    if settings.workspace.starts_with(&state) {
        return Err(CliError::usage(format!(
            "the workspace {} is inside Helve's own state folder; choose another with --workspace",
            settings.workspace.display()
        )));
    }
    Ok(state)
}

/// How long spill files are kept.
pub fn keep(settings: &Settings) -> Duration {
    settings.config.spill.keep_hours.duration()
}

/// The environment of a session: its directories, host and sandbox.
pub struct SessionEnv {
    /// The spill files.
    pub spill: PathBuf,
    /// The workspace.
    pub workspace: Workspace,
    /// The host.
    pub host: Arc<dyn Host>,
    /// The commands.
    pub tasks: Arc<dyn Tasks>,
    /// The event log for findings of the sandbox.
    pub record: modules::WasmCallLog,
    _leftovers: SessionCleanup,
}

/// A request for a session environment.
pub struct Wish {
    /// The session's id.
    pub session_id: String,
    /// The working directory, if it differs from the configured one.
    pub workspace: Option<PathBuf>,
    /// How its model writes paths.
    pub path_style: PathStyle,
    /// Whether `/tmp` persists between commands.
    pub persistent_tmp: bool,
    /// Further directories with read access.
    pub extra_read_dirs: Vec<PathBuf>,
    /// Whether the process ends after one call.
    pub one_call: bool,
    /// Whether its directories stay for the next process: direct calls share one session.
    pub is_kept: bool,
}

/// The directory for temporary files of a session. Each process has its own, so that its cleanup does not affect
/// another process in the same session.
fn scratch(dir: &Path, run: &str, is_kept: bool) -> PathBuf {
    static PROCESS: LazyLock<String> = LazyLock::new(ids::new_id);
    let name = if is_kept { run.to_owned() } else { format!("{run}.{}", *PROCESS) };
    dir.join("tmp").join(name)
}

/// Creates a directory and its parents inside the state directory. Each is private to the owner, and none is a link.
pub(crate) fn make_dirs(state: &Path, folder: &Path) -> io::Result<()> {
    let inside = folder.strip_prefix(state).map_err(io::Error::other)?;
    let mut at = state.to_owned();
    for name in inside {
        at.push(name);
        state::private(&at)?;
    }
    Ok(())
}

/// Builds the environment from the settings.
pub fn create_session_env(settings: &Settings, state: &Path, wish: Wish) -> Result<SessionEnv, CliError> {
    let Wish {
        session_id: run,
        workspace: top,
        path_style: reading,
        persistent_tmp: lasting,
        extra_read_dirs: reads,
        one_call,
        is_kept,
    } = wish;
    let dir = state::tenant_dir(settings, state);
    let scratch = scratch(&dir, &run, is_kept);
    let top = shell::far_workspace(settings)?.or(top);
    let spill = dir.join("spill").join(&run);
    make_dirs(state, &spill)?;
    let mut roots = session_roots(settings, top.as_deref(), reading, (state, &scratch))?;
    roots.insert(1, Root::readable(&spill).with_name("spill"));
    roots.extend(reads.into_iter().map(Root::readable));
    let leftovers = SessionCleanup { dir, run, scratch: scratch.clone(), is_kept, spill_retention: keep(settings) };
    let own: Vec<_> = roots.iter().filter_map(|root| Some(state.strip_prefix(&root.dir).ok()?.to_owned())).collect();
    if lasting {
        make_dirs(state, &scratch)?;
    }
    let workspace = Workspace::new(roots, rules(settings, &own)?, reading);
    let record = modules::WasmCallLog::default();
    let (host, tasks) = shell::open(
        settings,
        SessionDirs {
            scratch: lasting.then_some(scratch),
            output: &spill,
            protected: own.iter().map(|it| it.display().to_string()).filter(|it| !it.is_empty()).collect(),
            one_call,
            record: record.clone(),
        },
        &workspace,
    )?;
    Ok(SessionEnv { spill, workspace, host, tasks, record, _leftovers: leftovers })
}

/// External tools: plugins, modules and MCP servers.
pub struct ExternalTools {
    tools: Vec<Entry>,
    /// The MCP servers that are used.
    pub servers: Option<McpServers>,
    /// Where the calls of modules are recorded.
    pub wasm_log: modules::WasmCallLog,
}

impl ExternalTools {
    /// The tools, for this dialect.
    pub fn entries(&self, dialect: &Dialect) -> Vec<Entry> {
        let mut tools = self.fixed(dialect);
        if let Some(servers) = &self.servers {
            tools.extend(servers.entries());
        }
        tools
    }

    /// The tools that do not depend on servers. They come first, so that a slow server does not reorder them.
    fn fixed(&self, dialect: &Dialect) -> Vec<Entry> {
        let mut tools = self.tools.clone();
        if let Some(servers) = &self.servers {
            // The dialect's table says which of its rows the servers supply.
            let is_row = |entry: &Entry| dialect.external.iter().any(|row| row.name == entry.spec.name);
            tools.extend(servers.resource_entries().into_iter().filter(is_row));
        }
        tools
    }

    /// Keeps the tools of an engine in sync with their servers.
    pub fn watch(&self, engine: &Arc<Engine>, dialect: Dialect, runtime: &Handle) {
        let Some(servers) = self.servers.clone() else { return };
        let fixed = self.fixed(&dialect);
        outside::watch_tool_changes(engine, dialect, fixed, servers, runtime);
    }
}

/// Starts the providers of external tools. Without an environment, only modules can start.
pub fn start_external_tools(
    settings: &Settings,
    dialect: &Dialect,
    wanted: &Wanted<'_>,
    (state, room): (&Path, Option<&SessionEnv>),
    runtime: &Runtime,
) -> Result<ExternalTools, CliError> {
    let record = modules::WasmCallLog::default();
    let modules = modules::load(settings, &record);
    let mut are_all_known = modules.len() == settings.config.wasm.len();
    let Some(room) = room else { return Ok(ExternalTools { tools: modules, servers: None, wasm_log: record }) };
    let (mut tools, all_started) = plugins::start(settings, &room.workspace, &room.host, runtime);
    are_all_known &= all_started;
    tools.extend(modules);
    // The tools of a plugin that did not start are unknown, so a rule may refer to one.
    if are_all_known {
        rules::check_external_names(settings, &tools)?;
    }
    let servers = outside::start(settings, dialect, wanted, (state, &room.spill), runtime);
    Ok(ExternalTools { tools, servers, wasm_log: record })
}

/// The ports of every session, from the settings. Each is opened on first use.
pub fn build_ports(
    settings: &Settings,
    state: &Path,
    (host, tasks): (Arc<dyn Host>, Arc<dyn Tasks>),
    files: channels::Files,
) -> Ports {
    let reader = Arc::new(helve_web::DocumentReader::new());
    Ports {
        tasks,
        web: crate::web::open(settings, reader.clone()),
        documents: reader,
        store: open_store(settings, state),
        blobs: Arc::new(blobs(&state::tenant_dir(settings, state))),
        channels: channels::open(settings, files),
        ..Ports::new(host)
    }
}

/// Where plans are drafted: files and a shell in memory, for dialects with such tools.
pub fn draft_session(settings: &Settings, dialect: &Dialect, session: &Session) -> Option<Arc<Session>> {
    dialect.needs(Port::Draft).then(|| Arc::new(draft_host(settings, session).session(&session.id)))
}

/// Files in memory, over those of the session's workspace where the settings say so.
pub fn draft_host(settings: &Settings, session: &Session) -> helve_hosts::memory::MemoryHost {
    if settings.config.tools.plan.workspace {
        helve_hosts::memory::MemoryHost::over_workspace(session.ports.host.clone(), session.workspace.clone())
    } else {
        helve_hosts::memory::MemoryHost::new()
    }
}

/// Where sessions, notes and schedules are kept.
pub fn open_store(settings: &Settings, state: &Path) -> Arc<dyn Store> {
    Arc::new(open_sqlite(settings, state))
}

/// The concrete store, for callers that need more than the port.
pub fn open_sqlite(settings: &Settings, state: &Path) -> SqliteStore {
    let file = settings.config.store.file.as_deref().map_or_else(|| state.join("helve.db"), PathBuf::from);
    let store = SqliteStore::lazy(file)
        .with_note_handler(|text| remark!("helve: {text}"))
        .with_memory(recall::memory_config(settings));
    store.for_tenant(&settings.config.store.tenant)
}

/// Where attachments and undo data are stored, in the directory of the tenant.
pub fn blobs(tenant_dir: &Path) -> FileBlobs {
    FileBlobs::at(&tenant_dir.join("blobs"))
}

/// An engine in the making with the tools that the settings leave.
pub fn chosen(settings: &Settings, dialect: Dialect) -> EngineBuilder {
    let role = settings.role(dialect.name).map(str::to_owned);
    let tools = &settings.config.tools;
    let mut without = tools.disable.clone();
    if !tools.shell.enabled {
        let running = dialect.tools.iter().filter(|entry| entry.spec.effects.contains(Effects::EXECUTES));
        without.extend(running.map(|entry| entry.spec.name.clone()));
    }
    let mut builder = Engine::builder(dialect).exclude(without);
    if let Some(role) = role {
        builder = builder.role(&role);
    }
    if tools.only.is_empty() { builder } else { builder.only(tools.only.clone()) }
}

/// Builds the engine; what cannot be built is an error of the settings.
pub fn finish(builder: EngineBuilder) -> Result<Engine, CliError> {
    builder.build().map_err(|error| CliError::usage(error.to_string()))
}

/// The roots of the session. The workspace comes first; spill files are readable.
fn session_roots(
    settings: &Settings,
    top: Option<&Path>,
    reading: PathStyle,
    (state, scratch): (&Path, &Path),
) -> Result<Vec<Root>, CliError> {
    let mut first = Root::writable(top.unwrap_or(&settings.workspace)).with_name("shared");
    if top.is_none() && settings.workspace_as_given != settings.workspace {
        first.also.push(settings.workspace_as_given.clone());
    }
    let mut roots = vec![first];
    if reading == PathStyle::Virtual {
        let (tmp, vault) = (scratch, state::tenant_dir(settings, state).join("vault"));
        make_dirs(state, tmp)?;
        make_dirs(state, &vault)?;
        roots.push(Root::writable(tmp).with_name("tmp"));
        roots.push(Root::readable(vault).with_name("vault"));
    }
    for RootDir { path, writable } in &settings.config.roots {
        let told =
            |why: &str| CliError::usage(format!("invalid root {}: {why}. Fix or remove it in `roots`", path.display()));
        let dir = fs::canonicalize(path).map_err(|error| told(&error.to_string()))?;
        if !dir.is_dir() {
            return Err(told("not a folder"));
        }
        if dir.starts_with(state) {
            return Err(told("it is inside Helve's state folder, which neither tools nor commands may use"));
        }
        let name = unique_root_name(&roots, &dir);
        let mut root = if *writable { Root::writable(&dir) } else { Root::readable(&dir) }.with_name(name);
        if dir != *path {
            root.also.push(path.clone());
        }
        roots.push(root);
    }
    Ok(roots)
}

/// A name for a further root that no other has.
fn unique_root_name(roots: &[Root], dir: &Path) -> String {
    let plain = dir.file_name().map_or_else(|| "root".to_owned(), |it| it.to_string_lossy().into_owned());
    let taken = |name: &str| roots.iter().any(|root| root.name.as_deref() == Some(name));
    let mut name = plain.clone();
    let mut number = 2;
    while taken(&name) {
        name = format!("{plain}{number}");
        number += 1;
    }
    name
}

/// The path rules: protected names, denied paths of the settings, and the state directory.
fn rules(settings: &Settings, own: &[PathBuf]) -> Result<PathRules, CliError> {
    let own = own.iter().map(|inside| {
        let glob = if inside.as_os_str().is_empty() {
            PathGlob::new("*")
        } else {
            PathGlob::new(&format!("/{}", inside.display()))
        };
        PathRule::new(glob, Access::Read, "belongs to Helve itself; leave it alone")
    });
    let approval = ApprovalRules::read(settings)?;
    let denied = rules::denied_paths(settings).chain(approval.path_rules());
    Ok(PathRules::new(helve_engine::protected_path_rules().chain(denied).chain(own)))
}

/// The mode of a direct call: nothing needs approval, unless an option says so.
pub fn command_line_mode(settings: &Settings) -> Mode {
    let by_flag = matches!(settings.origins("approval.mode").last(), Some(SettingSource::Flag(_)));
    mode(settings).filter(|_| by_flag).unwrap_or(Mode::Open)
}

/// A gate with the rules of the settings.
pub fn apply_rules(settings: &Settings, mut gate: Gate) -> Result<Gate, CliError> {
    if let Some(names) = shell::program_allowlist(settings)? {
        gate = gate.program_allowlist(names);
    }
    let ApprovalRules { allow, ask, deny } = ApprovalRules::read(settings)?;
    gate = allow.into_iter().fold(gate, Gate::allow);
    gate = ask.into_iter().fold(gate, Gate::ask);
    gate = deny.into_iter().fold(gate, Gate::deny);
    Ok(guard::with_taint_policy(settings, gate))
}

/// The user whose memory, schedules and sessions are used: `--user`, or the setting, or the one local user.
pub fn user(settings: &Settings) -> String {
    settings.config.user.clone().unwrap_or_else(|| "user".to_owned())
}

/// The mode that the settings name, if they do.
pub fn mode(settings: &Settings) -> Option<Mode> {
    settings.config.approval.mode.map(mode_of)
}

/// The engine's mode for a setting.
pub(crate) fn mode_of(setting: ApprovalMode) -> Mode {
    match setting {
        ApprovalMode::Default => Mode::Default,
        ApprovalMode::AcceptEdits => Mode::AcceptEdits,
        ApprovalMode::Plan => Mode::Plan,
        ApprovalMode::DontAsk => Mode::DontAsk,
        ApprovalMode::BypassPermissions => Mode::BypassPermissions,
        ApprovalMode::Open => Mode::Open,
    }
}

/// Where calls are recorded.
pub fn events(settings: &Settings, state: &Path, run: &str, serves: bool) -> Result<EventLog, CliError> {
    match settings.config.events {
        EventsTarget::Off => Ok(EventLog::none()),
        EventsTarget::Stdout if serves => {
            Err(CliError::usage("events = stdout cannot go with a server on standard output; use --set events=file"))
        }
        EventsTarget::Stdout => Ok(EventLog::stdout(run)),
        EventsTarget::File => {
            let folder = state::tenant_dir(settings, state).join("runs").join(run);
            make_dirs(state, &folder)?;
            let file = folder.join(EVENT_FILE);
            if file.metadata().is_ok_and(|it| it.len() > MAX_EVENT_FILE_BYTES) {
                fs::rename(&file, folder.join("events.old.ndjson"))?;
            }
            Ok(EventLog::file(&file, run)?)
        }
    }
}

/// A call without ports, for operations that need no workspace.
pub fn detached_call() -> Call {
    let ports = Ports::new(Arc::new(helve_hosts::LocalHost::new()));
    let workspace = Workspace::new([], PathRules::default(), PathStyle::Relative);
    Call::new("doctor", Arc::new(Session::new("doctor", workspace, ports)))
}
