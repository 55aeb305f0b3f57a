//! Puts a session together: where it may go, what it can reach, what is asked, where it is recorded.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use helve_contract::{
    Access, Call, CancellationToken, Effects, Entry, Glob, PathRule, PathRules, Port, Ports, Reading, Reply, Root,
    Session, Workspace, ids,
    ports::{Host, State, Store, Tasks},
};
use helve_engine::{Builder, Dialect, Engine, EventLog, Gate, Mode};
use helve_mcp::client::Servers;
use helve_store::{FileBlobs, Sqlite};
use tokio::{
    runtime::{self, Handle, Runtime},
    signal::unix::{SignalKind, signal},
};

use crate::{
    channels,
    config::{ApprovalMode, EventsTarget, Origin, RootDir, Settings},
    fault::Fault,
    guard, modules,
    outside::{self, Wanted},
    plugins, recall, remark,
    rules::{self, ApprovalRules},
    shell::{self, Folders},
    state,
};

/// The run of everything that is called by hand.
pub(crate) const HAND: &str = "cli";
/// The file in a run's folder that records its calls.
const RECORD: &str = "events.ndjson";
/// A record of calls that is larger than this is put aside when a run begins.
const LARGEST_RECORD: u64 = 64 << 20;

/// What is cleared away when the session ends.
struct Leftovers {
    /// The folder of the tenant.
    dir: PathBuf,
    run: String,
    scratch: PathBuf,
    /// Whether its folders stay for the next process.
    is_kept: bool,
    /// How long outputs are kept.
    keep: Duration,
}

/// How long the records of servers are kept.
const RECORDS: Duration = Duration::from_secs(30 * 24 * 3600);

impl Drop for Leftovers {
    fn drop(&mut self) {
        let [spill, runs] = ["spill", "runs"].map(|it| self.dir.join(it));
        // What is called by hand in a workspace shares its folders, which stay.
        if !self.is_kept {
            _ = fs::remove_dir_all(&self.scratch);
            _ = fs::remove_dir(spill.join(&self.run));
            let record = runs.join(&self.run).join(RECORD);
            if record.metadata().is_ok_and(|it| it.len() == 0) && fs::remove_file(record).is_ok() {
                _ = fs::remove_dir(runs.join(&self.run));
            }
        }
        // A day more than promised, for sessions that are still running.
        sweep(&spill, self.keep + Duration::from_secs(24 * 3600));
        sweep(&runs, RECORDS);
        let unused_for = self.keep + Duration::from_secs(24 * 3600);
        // Blobs that cannot be removed now are removed later.
        _ = blobs(&self.dir).remove_now(&HashSet::new(), unused_for);
        remove_former_undo(&self.dir.join("undo"), unused_for);
    }
}

/// Removes undo data of an older Helve that was killed: files of their own, whose process alone knew what they were.
fn remove_former_undo(folder: &Path, age: Duration) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path()) {
        let name = file.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        if name.len() == 16 && name.bytes().all(|it| it.is_ascii_hexdigit()) && is_older(&file, age) {
            _ = fs::remove_file(file);
        }
    }
    // Only an empty folder goes.
    _ = fs::remove_dir(folder);
}

/// Removes the folders of sessions in which nothing has changed for so long.
fn sweep(folder: &Path, age: Duration) {
    for session in fs::read_dir(folder).into_iter().flatten().flatten().take(1000).map(|it| it.path()) {
        let files = fs::read_dir(&session).into_iter().flatten().flatten().map(|it| it.path());
        if !session.ends_with(HAND) && files.chain([session.clone()]).all(|path| is_older(&path, age)) {
            _ = fs::remove_dir_all(session);
        }
    }
}

fn is_older(path: &Path, age: Duration) -> bool {
    let changed = path.symlink_metadata().and_then(|it| it.modified()).ok();
    changed.and_then(|it| it.elapsed().ok()).is_some_and(|it| it > age)
}

/// What this program is when another part of it started it: a stage of the sandbox, or a parser.
pub fn stages() {
    helve_hosts::inner_stage();
    helve_web::child_stage();
    // What this fails to close was open before; `doctor` and the walls do not depend on it.
    _ = helve_hosts::harden();
}

/// A runtime on this thread. Most commands need none.
pub fn runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// Does the work until it is done; the first interrupt cancels it, the second one ends the program.
pub async fn until_interrupted(cancel: CancellationToken, work: impl Future<Output = Reply>) -> Reply {
    tokio::pin!(work);
    tokio::select! {
        reply = &mut work => return reply,
        () = asked_to_stop() => cancel.cancel(),
    }
    tokio::select! {
        reply = &mut work => reply,
        () = asked_to_stop() => std::process::exit(130),
    }
}

/// Waits until somebody wants this program to end.
pub async fn asked_to_stop() {
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

/// Ends the MCP servers of a session in good order.
pub async fn end_servers(servers: Option<&Servers>) {
    if let Some(servers) = servers {
        servers.stop().await;
    }
}

/// Ends what the session still runs, and waits until nothing of it is left: no process, and no stand-in of the sandbox.
pub async fn end_tasks(session: Arc<Session>) {
    let call = Call::new("end", session);
    let ending = async {
        for task in call.tasks().list(&call).await {
            if task.state == State::Running {
                _ = call.tasks().stop(&call, &task.id).await;
            }
        }
    };
    _ = tokio::time::timeout(Duration::from_secs(5), ending).await;
}

/// An engine that only lists its tools.
pub fn listing(settings: &Settings, dialect: Dialect) -> Result<Engine, Fault> {
    finish(chosen(settings, dialect))
}

/// The state folder, which no workspace may be in.
pub fn state_folder(settings: &Settings) -> Result<PathBuf, Fault> {
    let (state, note) = state::open(settings)?;
    if let Some(note) = note {
        remark!("helve: {note}");
    }
    let sandbox = &settings.config.sandbox;
    for (key, dirs) in [("readable", &sandbox.readable), ("writable", &sandbox.writable)] {
        let mut places = dirs.iter().filter_map(|dir| fs::canonicalize(&**dir).ok());
        if let Some(dir) = places.find(|dir| dir.starts_with(&state)) {
            return Err(Fault::usage(format!(
                "invalid sandbox.{key} {}: it is inside Helve's state folder, which commands may not use. Remove it",
                dir.display()
            )));
        }
    }
    if settings.workspace.starts_with(&state) {
        return Err(Fault::usage(format!(
            "the workspace {} is inside Helve's own state folder; choose another with --workspace",
            settings.workspace.display()
        )));
    }
    Ok(state)
}

/// How long the whole text of a shortened reply is kept.
pub fn keep(settings: &Settings) -> Duration {
    settings.config.spill.keep_hours.duration()
}

/// Where a session works: its folders, its files and its walls.
pub struct Room {
    /// Where shortened replies are kept in full.
    pub spill: PathBuf,
    /// Where it may go.
    pub workspace: Workspace,
    /// Its files, and where programs run.
    pub host: Arc<dyn Host>,
    /// Its commands.
    pub tasks: Arc<dyn Tasks>,
    /// Where it is recorded what the sandbox finds.
    pub record: modules::Record,
    _leftovers: Leftovers,
}

/// Which room is wanted.
pub struct Wish {
    /// The session's id.
    pub run: String,
    /// The folder it works in, where it is not the configured one.
    pub top: Option<PathBuf>,
    /// How its model writes paths.
    pub reading: Reading,
    /// Whether `/tmp` lasts from one command to the next.
    pub lasting: bool,
    /// Further folders that it may read.
    pub reads: Vec<PathBuf>,
    /// Whether the process ends after one call.
    pub one_call: bool,
    /// Whether its folders stay for the next process: calls by hand are one session.
    pub is_kept: bool,
}

/// The folder for temporary files of a session. Each process has its own, so that the end of one removes nothing of
/// another that is in the same session.
fn scratch(dir: &Path, run: &str, is_kept: bool) -> PathBuf {
    static PROCESS: LazyLock<String> = LazyLock::new(ids::new_id);
    let name = if is_kept { run.to_owned() } else { format!("{run}.{}", *PROCESS) };
    dir.join("tmp").join(name)
}

/// Makes a folder inside the state folder, with every folder in between. Each is the owner's alone, and none is a link.
pub(crate) fn make_dirs(state: &Path, folder: &Path) -> io::Result<()> {
    let inside = folder.strip_prefix(state).map_err(io::Error::other)?;
    let mut at = state.to_owned();
    for name in inside {
        at.push(name);
        state::private(&at)?;
    }
    Ok(())
}

/// Makes a room by the settings.
pub fn room(settings: &Settings, state: &Path, wish: Wish) -> Result<Room, Fault> {
    let Wish { run, top, reading, lasting, reads, one_call, is_kept } = wish;
    let dir = state::tenant_dir(settings, state);
    let scratch = scratch(&dir, &run, is_kept);
    let top = shell::far_workspace(settings)?.or(top);
    let spill = dir.join("spill").join(&run);
    make_dirs(state, &spill)?;
    let mut roots = roots(settings, top.as_deref(), reading, (state, &scratch))?;
    roots.insert(1, Root::readable(&spill).named("spill"));
    roots.extend(reads.into_iter().map(Root::readable));
    let leftovers = Leftovers { dir, run, scratch: scratch.clone(), is_kept, keep: keep(settings) };
    let own: Vec<_> = roots.iter().filter_map(|root| Some(state.strip_prefix(&root.dir).ok()?.to_owned())).collect();
    if lasting {
        make_dirs(state, &scratch)?;
    }
    let workspace = Workspace::new(roots, rules(settings, &own)?, reading);
    let record = modules::Record::default();
    let (host, tasks) = shell::open(
        settings,
        Folders {
            scratch: lasting.then_some(scratch),
            output: &spill,
            protected: own.iter().map(|it| it.display().to_string()).filter(|it| !it.is_empty()).collect(),
            one_call,
            record: record.clone(),
        },
        &workspace,
    )?;
    Ok(Room { spill, workspace, host, tasks, record, _leftovers: leftovers })
}

/// Tools from outside: plugins, modules and MCP servers.
pub struct Imports {
    tools: Vec<Entry>,
    /// The MCP servers that are used.
    pub servers: Option<Servers>,
    /// Where the calls of modules are recorded.
    pub record: modules::Record,
}

impl Imports {
    /// The tools, for this dialect.
    pub fn entries(&self, dialect: &Dialect) -> Vec<Entry> {
        let mut tools = self.fixed(dialect);
        if let Some(servers) = &self.servers {
            tools.extend(servers.entries());
        }
        tools
    }

    /// The tools that do not depend on what servers offer. They come first, so that a late server moves none of them.
    fn fixed(&self, dialect: &Dialect) -> Vec<Entry> {
        let mut tools = self.tools.clone();
        if let Some(servers) = &self.servers {
            // A dialect's own table says which of its rows the servers supply.
            let is_row = |entry: &Entry| dialect.external.iter().any(|row| row.name == entry.spec.name);
            tools.extend(servers.resource_entries().into_iter().filter(is_row));
        }
        tools
    }

    /// Keeps the tools of an engine in step with the servers they come from.
    pub fn follow(&self, engine: &Arc<Engine>, dialect: Dialect, runtime: &Handle) {
        let Some(servers) = self.servers.clone() else { return };
        let fixed = self.fixed(&dialect);
        outside::follow(engine, dialect, fixed, servers, runtime);
    }
}

/// Starts what brings tools from outside. Without a room there is nothing to start but modules.
pub fn imports(
    settings: &Settings,
    dialect: &Dialect,
    wanted: &Wanted<'_>,
    (state, room): (&Path, Option<&Room>),
    runtime: &Runtime,
) -> Result<Imports, Fault> {
    let record = modules::Record::default();
    let modules = modules::load(settings, &record);
    let mut are_all_known = modules.len() == settings.config.wasm.len();
    let Some(room) = room else { return Ok(Imports { tools: modules, servers: None, record }) };
    let (mut tools, all_started) = plugins::start(settings, &room.workspace, &room.host, runtime);
    are_all_known &= all_started;
    tools.extend(modules);
    // What a plugin that did not start would have brought is unknown, so a rule may be about that.
    if are_all_known {
        rules::check_external_names(settings, &tools)?;
    }
    let servers = outside::start(settings, dialect, wanted, (state, &room.spill), runtime);
    Ok(Imports { tools, servers, record })
}

/// What every session can reach, by the settings. Nothing is opened before it is used.
pub fn ports(
    settings: &Settings,
    state: &Path,
    (host, tasks): (Arc<dyn Host>, Arc<dyn Tasks>),
    files: channels::Files,
) -> Ports {
    let reader = Arc::new(helve_web::Reader::new());
    Ports {
        tasks,
        web: crate::web::open(settings, reader.clone()),
        documents: reader,
        store: store(settings, state),
        blobs: Arc::new(blobs(&state::tenant_dir(settings, state))),
        channels: channels::open(settings, files),
        ..Ports::new(host)
    }
}

/// Where plans are drafted: files and a shell in memory, for a dialect with tools that need them.
pub fn draft(settings: &Settings, dialect: &Dialect, session: &Session) -> Option<Arc<Session>> {
    dialect.needs(Port::Draft).then(|| Arc::new(drafting(settings, session).session(&session.id)))
}

/// Files in memory, over those of the session's workspace where the settings say so.
pub fn drafting(settings: &Settings, session: &Session) -> helve_hosts::memory::Memory {
    if settings.config.tools.plan.workspace {
        helve_hosts::memory::Memory::over(session.ports.host.clone(), session.workspace.clone())
    } else {
        helve_hosts::memory::Memory::new()
    }
}

/// Where conversations, notes and schedules are kept.
pub fn store(settings: &Settings, state: &Path) -> Arc<dyn Store> {
    Arc::new(sqlite(settings, state))
}

/// The same, for those who want more of it than a store.
pub fn sqlite(settings: &Settings, state: &Path) -> Sqlite {
    let file = settings.config.store.file.as_deref().map_or_else(|| state.join("helve.db"), PathBuf::from);
    let store = Sqlite::at(file).told_by(|text| remark!("helve: {text}")).with_memory(recall::memory(settings));
    store.for_tenant(&settings.config.store.tenant)
}

/// Where attachments and undo data are stored, in the folder of the tenant.
pub fn blobs(tenant_dir: &Path) -> FileBlobs {
    FileBlobs::at(&tenant_dir.join("blobs"))
}

/// An engine in the making with the tools that the settings leave.
pub fn chosen(settings: &Settings, dialect: Dialect) -> Builder {
    let role = settings.role(dialect.name).map(str::to_owned);
    let tools = &settings.config.tools;
    let mut without = tools.disable.clone();
    if !tools.shell.enabled {
        let running = dialect.tools.iter().filter(|entry| entry.spec.effects.has(Effects::EXECUTES));
        without.extend(running.map(|entry| entry.spec.name.clone()));
    }
    let mut builder = Engine::builder(dialect).without(without);
    if let Some(role) = role {
        builder = builder.role(&role);
    }
    if tools.only.is_empty() { builder } else { builder.only(tools.only.clone()) }
}

/// Builds the engine; what cannot be built is an error of the settings.
pub fn finish(builder: Builder) -> Result<Engine, Fault> {
    builder.build().map_err(|error| Fault::usage(error.to_string()))
}

/// The folders of the session. The workspace comes first; shortened replies can be read in full.
fn roots(
    settings: &Settings,
    top: Option<&Path>,
    reading: Reading,
    (state, scratch): (&Path, &Path),
) -> Result<Vec<Root>, Fault> {
    let mut first = Root::writable(top.unwrap_or(&settings.workspace)).named("shared");
    if top.is_none() && settings.workspace_as_given != settings.workspace {
        first.also.push(settings.workspace_as_given.clone());
    }
    let mut roots = vec![first];
    if reading == Reading::Virtual {
        let (tmp, vault) = (scratch, state::tenant_dir(settings, state).join("vault"));
        make_dirs(state, tmp)?;
        make_dirs(state, &vault)?;
        roots.push(Root::writable(tmp).named("tmp"));
        roots.push(Root::readable(vault).named("vault"));
    }
    for RootDir { path, writable } in &settings.config.roots {
        let told =
            |why: &str| Fault::usage(format!("invalid root {}: {why}. Fix or remove it in `roots`", path.display()));
        let dir = fs::canonicalize(path).map_err(|error| told(&error.to_string()))?;
        if !dir.is_dir() {
            return Err(told("not a folder"));
        }
        if dir.starts_with(state) {
            return Err(told("it is inside Helve's state folder, which neither tools nor commands may use"));
        }
        let name = free_name(&roots, &dir);
        let mut root = if *writable { Root::writable(&dir) } else { Root::readable(&dir) }.named(name);
        if dir != *path {
            root.also.push(path.clone());
        }
        roots.push(root);
    }
    Ok(roots)
}

/// A name for a further root that no other has.
fn free_name(roots: &[Root], dir: &Path) -> String {
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

/// What is refused inside the roots: protected names, what the settings deny, and the state folder.
fn rules(settings: &Settings, own: &[PathBuf]) -> Result<PathRules, Fault> {
    let own = own.iter().map(|inside| {
        let glob =
            if inside.as_os_str().is_empty() { Glob::new("*") } else { Glob::new(&format!("/{}", inside.display())) };
        PathRule::new(glob, Access::Read, "belongs to Helve itself; leave it alone")
    });
    let approval = ApprovalRules::read(settings)?;
    let denied = rules::denied_paths(settings).chain(approval.path_rules());
    Ok(PathRules::new(helve_engine::protected().chain(denied).chain(own)))
}

/// The mode of a call that is its maker's consent: nothing is asked, unless the command line says so.
pub fn mode_by_hand(settings: &Settings) -> Mode {
    let by_flag = matches!(settings.origins("approval.mode").last(), Some(Origin::Flag(_)));
    mode(settings).filter(|_| by_flag).unwrap_or(Mode::Open)
}

/// A gate with the rules of the settings.
pub fn ruled(settings: &Settings, mut gate: Gate) -> Result<Gate, Fault> {
    if let Some(names) = shell::names(settings)? {
        gate = gate.commands(names);
    }
    let ApprovalRules { allow, ask, deny } = ApprovalRules::read(settings)?;
    gate = allow.into_iter().fold(gate, Gate::allow);
    gate = ask.into_iter().fold(gate, Gate::ask);
    gate = deny.into_iter().fold(gate, Gate::deny);
    Ok(guard::careful(settings, gate))
}

/// The user whose memory, schedules and conversations are used: `--user`, or the setting, or the one local user.
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
pub fn events(settings: &Settings, state: &Path, run: &str, serves: bool) -> Result<EventLog, Fault> {
    match settings.config.events {
        EventsTarget::Off => Ok(EventLog::none()),
        EventsTarget::Stdout if serves => {
            Err(Fault::usage("events = stdout cannot go with a server on standard output; use --set events=file"))
        }
        EventsTarget::Stdout => Ok(EventLog::stdout(run)),
        EventsTarget::File => {
            let folder = state::tenant_dir(settings, state).join("runs").join(run);
            make_dirs(state, &folder)?;
            let file = folder.join(RECORD);
            if file.metadata().is_ok_and(|it| it.len() > LARGEST_RECORD) {
                fs::rename(&file, folder.join("events.old.ndjson"))?;
            }
            Ok(EventLog::file(&file, run)?)
        }
    }
}

/// A call that can reach nothing: for trying out what needs no workspace.
pub fn nowhere() -> Call {
    let ports = Ports::new(Arc::new(helve_hosts::Local::new()));
    let workspace = Workspace::new([], PathRules::default(), Reading::Relative);
    Call::new("doctor", Arc::new(Session::new("doctor", workspace, ports)))
}
