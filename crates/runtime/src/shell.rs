//! Builds the host for commands: the sandbox, remote hosts, and the allowed programs.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use helve_contract::{
    PathRules, PathStyle, Workspace,
    events::{IntegrityResult, SandboxIntegrity},
    ports::{Host, NoTasks, SandboxLevel, Tasks},
};
use helve_engine::{PROTECTED_PATHS, ProgramAllowlist, is_home_only};
use helve_hosts::{
    CommandAllowlist, DockerConfig, E2bHost, HostSettings, IntegrityListener, IntegrityOutcome, LevelPolicy, LocalHost,
    NetworkPolicy, ProxySocket, ResourceLimits, Sandbox, SandboxConfig, SshConfig, SshHost, SshRoutedHost, TaskRunner,
    UnixSockets,
};
use helve_web::{
    guard::AddressGuard,
    proxy::{HostAllowlist, ProxyGateway, listen_in_private_dir},
};

use crate::{
    config::{
        ConfigPath, HostKind, SandboxLevelSetting, SandboxNetwork, SandboxUnixSockets, Settings, ShellConfig, xdg_dir,
    },
    fault::CliError,
    modules::WasmCallLog,
    state,
};

/// Directories of a session that commands use.
pub struct SessionDirs<'a> {
    /// Their `/tmp`, if it persists between commands.
    pub scratch: Option<PathBuf>,
    /// Where their raw output goes.
    pub output: &'a Path,
    /// Paths beneath the roots that commands must not access, such as the state directory.
    pub protected: Vec<String>,
    /// Whether the process ends after one call, and its commands with it.
    pub one_call: bool,
    /// The event log for findings of the integrity check.
    pub record: WasmCallLog,
}

/// The host and its task manager.
pub type Reach = (Arc<dyn Host>, Arc<dyn Tasks>);

/// The host and its tasks, from the settings. Nothing is probed before the first command.
pub fn open(settings: &Settings, folders: SessionDirs<'_>, workspace: &Workspace) -> Result<Reach, CliError> {
    let journal = journal(settings);
    if !settings.config.tools.shell.enabled && far_workspace(settings)?.is_none() {
        let local = LocalHost::new();
        let local = match journal {
            Some(folder) => local.with_journal(folder),
            None => local,
        };
        return Ok((Arc::new(local), Arc::new(NoTasks)));
    }
    let mut host = host_settings(settings, folders.scratch, folders.protected)?;
    if let HostSettings::Local(sandbox) = &mut host {
        sandbox.listener = Some(listener(folders.record));
    }
    let host = host.open(workspace, journal).map_err(|error| CliError::usage(error.to_string()))?;
    if !settings.config.tools.shell.enabled {
        return Ok((host, Arc::new(NoTasks)));
    }
    let host = with_remote_commands(settings, host)?;
    let tasks = TaskRunner::new(host.clone(), folders.output);
    Ok((host, Arc::new(if folders.one_call { tasks.for_one_call() } else { tasks })))
}

/// The local files and the configured sandbox, for the remote end of a connection.
pub fn local_host(settings: &Settings) -> Result<Arc<dyn Host>, CliError> {
    let workspace = Workspace::new([], PathRules::default(), PathStyle::Absolute);
    let local = HostSettings::Local(sandbox(settings, None)?);
    local.open(&workspace, journal(settings)).map_err(|error| CliError::usage(error.to_string()))
}

/// Records what the integrity check after a command found.
fn listener(record: WasmCallLog) -> IntegrityListener {
    IntegrityListener(Arc::new(move |event| {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (outcome, to, object) = match &event.outcome {
            IntegrityOutcome::Moved(to) => (IntegrityResult::Moved, Some(text(to)), None),
            IntegrityOutcome::Stands(object) => (IntegrityResult::Committed, None, Some(object.clone())),
            IntegrityOutcome::Changed => (IntegrityResult::Changed, None, None),
        };
        record.emit(SandboxIntegrity { path: text(&event.path), outcome, to, object });
    }))
}

/// Does the integrity check that a killed process could not do in this workspace. Returns the findings for the user.
pub(crate) async fn recover(settings: &Settings) -> Result<Vec<String>, CliError> {
    if !settings.config.tools.shell.enabled || settings.config.host.kind != HostKind::Local {
        return Ok(Vec::new());
    }
    let wanted = sandbox(settings, None)?;
    // Usually nothing is left, and a look at the file names is enough.
    let journal = wanted.quarantine.as_ref().map(|folder| folder.join("running"));
    let was_killed = journal.and_then(|it| fs::read_dir(it).ok()).is_some_and(|mut it| it.next().is_some());
    let is_empty = |path: PathBuf| fs::read_dir(path).is_ok_and(|mut it| it.next().is_none());
    if !was_killed && !wanted.protected.iter().any(|name| is_empty(settings.workspace.join(name))) {
        return Ok(Vec::new());
    }
    let sandbox = Sandbox::new(wanted).map_err(|error| CliError::usage(error.to_string()))?;
    Ok(sandbox.recover(std::slice::from_ref(&settings.workspace)).await)
}

/// Where notes of changes to several files are kept: in the state directory, where there is one.
fn journal(settings: &Settings) -> Option<PathBuf> {
    state::place(settings).filter(|folder| folder.is_dir()).map(|folder| folder.join("changes"))
}

/// The workspace on another machine, where the settings name such a host.
pub fn far_workspace(settings: &Settings) -> Result<Option<PathBuf>, CliError> {
    let host = &settings.config.host;
    Ok(match host.kind {
        HostKind::Local | HostKind::Docker => None,
        HostKind::Ssh => Some(ssh_host(settings)?.workspace),
        HostKind::E2b => Some(e2b_host(settings).workspace),
    })
}

/// The host that the settings name.
pub fn host_settings(
    settings: &Settings,
    scratch: Option<PathBuf>,
    protected: Vec<String>,
) -> Result<HostSettings, CliError> {
    Ok(match settings.config.host.kind {
        // Helve's own directories are hidden from commands, so they need no write protection.
        HostKind::Local => HostSettings::Local(sandbox(settings, scratch)?),
        HostKind::Docker => HostSettings::Docker(docker_host(settings, protected)),
        HostKind::Ssh => HostSettings::Ssh(ssh_host(settings)?),
        HostKind::E2b => HostSettings::E2b(e2b_host(settings)),
    })
}

/// The sandbox of this machine, by the settings.
fn sandbox(settings: &Settings, scratch: Option<PathBuf>) -> Result<SandboxConfig, CliError> {
    let held = sandbox_path_rules(settings);
    // A mount masks one path. Patterns lie inside `.git` and are enforced by the file tools only.
    let plain = PROTECTED_PATHS.iter().filter(|name| is_literal_path(name)).map(|name| (*name).to_owned());
    let (protected_at_home, plain): (Vec<_>, Vec<_>) = plain.partition(|name| is_home_only(name));
    let protected_anywhere = plain.clone();
    let protected = plain.into_iter().chain(held).collect();
    let quarantine = state::place(settings).map(|folder| folder.join("quarantine"));
    let proxy = proxy(settings)?;
    Ok(SandboxConfig {
        protected,
        protected_anywhere,
        protected_at_home,
        quarantine,
        private: private(settings),
        vault: state::place(settings).map(|folder| folder.join("vault")),
        scratch,
        proxy,
        ..sandbox_settings(settings)
    })
}

/// Helve's own directories and files, which commands never see.
fn private(settings: &Settings) -> Vec<PathBuf> {
    let config = xdg_dir("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("helve"));
    let store = settings.config.store.file.as_deref().map(Path::to_path_buf).into_iter().flat_map(|file| {
        ["", "-wal", "-shm", "-journal"].map(|end| {
            let mut name = file.clone().into_os_string();
            name.push(end);
            PathBuf::from(name)
        })
    });
    state::place(settings).into_iter().chain(config).chain(store).collect()
}

/// The machine that is reached over `ssh`, by the settings.
pub(crate) fn ssh_host(settings: &Settings) -> Result<SshHost, CliError> {
    let ssh = &settings.config.host.ssh;
    let missing = |name: &str| {
        CliError::usage(format!("not configured: host.ssh.{name} is not set; set it for host.kind = \"ssh\""))
    };
    let connection = SshConfig {
        host: ssh.host.clone().ok_or_else(|| missing("host"))?,
        port: Some(ssh.port),
        user: ssh.user.clone(),
        key: ssh.key.as_deref().map(PathBuf::from),
        known_hosts: ssh.known_hosts.as_deref().map(PathBuf::from),
        program: ssh.program.clone(),
    };
    Ok(SshHost { connection, workspace: ssh.dir.clone().ok_or_else(|| missing("dir"))?.into() })
}

/// The sandbox of the E2B service, by the settings.
pub(crate) fn e2b_host(settings: &Settings) -> E2bHost {
    let (e2b, usual) = (&settings.config.host.e2b, E2bHost::default());
    E2bHost {
        key_variable: e2b.key_env.clone(),
        url: e2b.url.clone(),
        sandbox_url: e2b.sandbox_url.clone(),
        template: e2b.template.clone(),
        program: e2b.program.clone(),
        network: settings.config.sandbox.network == SandboxNetwork::On,
        workspace: e2b.dir.clone().map_or(usual.workspace, PathBuf::from),
        ..usual
    }
}

/// The proxy for commands that may reach some hosts.
fn proxy(settings: &Settings) -> Result<Option<ProxySocket>, CliError> {
    if settings.config.sandbox.network != SandboxNetwork::Allowlist {
        return Ok(None);
    }
    let wrong = |why: String| CliError::usage(format!("sandbox.allow_hosts: {why}"));
    let hosts = HostAllowlist::new(settings.config.sandbox.allow_hosts.clone()).map_err(wrong)?;
    let gateway = ProxyGateway::new(hosts, AddressGuard::new()).map_err(wrong)?;
    let listening = listen_in_private_dir(gateway)?;
    Ok(Some(ProxySocket { path: listening.socket().to_owned(), guard: Arc::new(listening) }))
}

/// The container that commands run in.
pub(crate) fn docker_host(settings: &Settings, protected: Vec<String>) -> DockerConfig {
    let docker = settings.config.host.docker.clone();
    let plain = PROTECTED_PATHS.iter().filter(|name| is_literal_path(name)).map(|name| (*name).to_owned());
    DockerConfig {
        endpoint: docker.endpoint,
        image: docker.image,
        network: docker.network,
        user: docker.user,
        protected: plain.chain(protected).chain(sandbox_path_rules(settings)).collect(),
        private: private(settings),
        ..DockerConfig::default()
    }
}

/// Wraps the host so that the listed commands run on another machine, if configured.
fn with_remote_commands(settings: &Settings, host: Arc<dyn Host>) -> Result<Arc<dyn Host>, CliError> {
    let commands = &settings.config.host_commands;
    if !commands.enabled {
        return Ok(host);
    }
    let allowed = CommandAllowlist::new(commands.allowed.iter().map(String::as_str))
        .map_err(|error| CliError::usage(format!("host_commands.allowed: {error}")))?;
    let ssh = SshConfig {
        host: commands.host.clone(),
        port: Some(commands.port),
        user: commands.user.clone(),
        key: commands.key.as_deref().map(Path::to_owned),
        known_hosts: commands.known_hosts.as_deref().map(Path::to_owned),
        program: None,
    };
    Ok(Arc::new(SshRoutedHost::new(host, ssh, allowed)))
}

/// What the settings say about the sandbox.
fn sandbox_settings(settings: &Settings) -> SandboxConfig {
    let config = &settings.config.sandbox;
    let dirs = |list: &[ConfigPath]| list.iter().map(|it| it.to_path_buf()).collect();
    SandboxConfig {
        level: match config.level {
            SandboxLevelSetting::Auto => LevelPolicy::Best,
            SandboxLevelSetting::L3 => LevelPolicy::Exactly(SandboxLevel::Full),
            SandboxLevelSetting::L2 => LevelPolicy::Exactly(SandboxLevel::Nested),
            SandboxLevelSetting::L1 => LevelPolicy::Exactly(SandboxLevel::Rules),
            SandboxLevelSetting::External => LevelPolicy::External,
            SandboxLevelSetting::None => LevelPolicy::Exactly(SandboxLevel::None),
        },
        readable: dirs(&config.readable),
        writable: dirs(&config.writable),
        network: match config.network {
            SandboxNetwork::On => NetworkPolicy::On,
            SandboxNetwork::Allowlist => NetworkPolicy::Allowlist,
            SandboxNetwork::Off => NetworkPolicy::Off,
        },
        unix_sockets: match config.unix_sockets {
            SandboxUnixSockets::Own => UnixSockets::Own,
            SandboxUnixSockets::Any => UnixSockets::Any,
        },
        limits: limits(settings),
        inherited: settings.config.sandbox.env.clone(),
        ..SandboxConfig::default()
    }
}

/// What commands may use. A setting of 0 lifts the limit of memory.
fn limits(settings: &Settings) -> ResourceLimits {
    match settings.config.sandbox.memory_mb {
        None => ResourceLimits::for_this_machine(),
        Some(most) => ResourceLimits { memory_of_all: (most > 0).then_some(most << 20), ..ResourceLimits::default() },
    }
}

/// Plain names of `paths.deny_write`: a file that a command creates there goes to quarantine. For existing files, the
/// sandbox uses the rules of the workspace.
fn sandbox_path_rules(settings: &Settings) -> Vec<String> {
    let names = settings.config.paths.deny_write.iter().filter(|text| text.contains('/') && is_literal_path(text));
    names.map(|it| it.trim_matches('/').to_owned()).filter(|it| !it.is_empty()).collect()
}

fn is_literal_path(name: &str) -> bool {
    !name.contains(['*', '?', '['])
}

/// The programs that commands may name, where the settings say anything about it.
pub fn program_allowlist(settings: &Settings) -> Result<Option<ProgramAllowlist>, CliError> {
    let ShellConfig { allow, deny, replace_defaults, allow_operators, .. } = settings.config.tools.shell.clone();
    if allow == ["*"] && deny.is_empty() && allow_operators {
        return Ok(None);
    }
    let mut names = ProgramAllowlist::new(allow, deny).map_err(|why| CliError::usage(format!("tools.shell: {why}")))?;
    if replace_defaults {
        names = names.replacing_defaults();
    }
    Ok(Some(if allow_operators { names } else { names.without_operators() }))
}

/// A finding about the sandbox.
pub enum Found {
    /// It works.
    Ok(&'static str, String),
    /// It does not, and what to do.
    Degraded(&'static str, String, String),
}

/// Tests every sandbox level by running a program in it.
pub fn check_sandbox(settings: &Settings) -> Vec<Found> {
    if !settings.config.tools.shell.enabled {
        return vec![Found::Ok("sandbox", "not needed: tools.shell.enabled is false".to_owned())];
    }
    let wishes = sandbox_settings(settings);
    let sandbox = match Sandbox::probe(wishes.clone()) {
        Ok(sandbox) => sandbox,
        Err(error) => {
            return vec![Found::Degraded("sandbox", error.to_string(), "mend the sandbox settings".to_owned())];
        }
    };
    let report = sandbox.report();
    let mut found = vec![match report.level {
        Some(level) if level >= SandboxLevel::Rules => {
            let notes = report.notes.join("; ");
            Found::Ok("sandbox", format!("commands run at {} ({notes})", level.name()))
        }
        Some(level) => Found::Degraded(
            "sandbox",
            format!(
                "commands run at {}, without a sandbox of Helve's own: they can read keys, tokens and Helve's own files",
                level.name()
            ),
            "sandbox.level = \"auto\" takes the best walls that work".to_owned(),
        ),
        None => Found::Degraded(
            "sandbox",
            "no level works here, so commands are refused; file tools work".to_owned(),
            "install bubblewrap, or say with sandbox.level = \"external\" that this machine is the sandbox".to_owned(),
        ),
    }];
    found.extend([("L3", SandboxLevel::Full), ("L2", SandboxLevel::Nested), ("L1", SandboxLevel::Rules)].map(
        |(name, level)| {
            let tried = report.probes.iter().find(|trial| trial.level == level).map(|trial| trial.failure.clone());
            match tried.unwrap_or_else(|| level_problem(&wishes, level)) {
                None => Found::Ok(name, "works".to_owned()),
                Some(why) => Found::Degraded(name, why.replace('\n', "; "), level_advice(level).to_owned()),
            }
        },
    ));
    found.push(match &report.bwrap {
        Some(path) => Found::Ok("bwrap", path.clone()),
        None => Found::Degraded(
            "bwrap",
            "not found in a folder that only root can write".to_owned(),
            "install the package bubblewrap for L3 and L2".to_owned(),
        ),
    });
    found.extend([landlock_check(), seccomp_check(), cgroup_check(report.has_cgroups)]);
    found
}

/// Why a level does not work here, if it does not.
fn level_problem(wishes: &SandboxConfig, level: SandboxLevel) -> Option<String> {
    let sandbox = Sandbox::probe(SandboxConfig { level: LevelPolicy::Exactly(level), ..wishes.clone() });
    match sandbox {
        Ok(sandbox) => sandbox.report().probes.iter().find_map(|trial| trial.failure.clone()),
        Err(error) => Some(error.to_string()),
    }
}

const fn level_advice(level: SandboxLevel) -> &'static str {
    match level {
        SandboxLevel::Full => "L3 needs bubblewrap and user namespaces with a /proc of their own",
        SandboxLevel::Nested => "L2 needs bubblewrap and user namespaces",
        _ => "L1 needs Landlock and seccomp in the kernel; root gets it only with sandbox.level = \"L1\"",
    }
}

fn landlock_check() -> Found {
    let list = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    match (list.is_empty(), list.split(',').any(|name| name.trim() == "landlock")) {
        (false, true) => Found::Ok("landlock", "on in this kernel".to_owned()),
        (true, _) => {
            Found::Ok("landlock", "not listed (securityfs is not mounted); see L1 for whether it works".to_owned())
        }
        (false, false) => Found::Degraded(
            "landlock",
            format!("not among this kernel's security modules ({})", list.trim()),
            "boot with lsm=landlock,… on Linux 5.13 or later".to_owned(),
        ),
    }
}

fn seccomp_check() -> Found {
    match fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) if actions.contains("errno") => Found::Ok("seccomp", actions.trim().to_owned()),
        Ok(_) | Err(_) => Found::Degraded(
            "seccomp",
            "filters are not offered by this kernel".to_owned(),
            "a kernel with CONFIG_SECCOMP_FILTER and a mounted /proc have them".to_owned(),
        ),
    }
}

fn cgroup_check(made: bool) -> Found {
    if made {
        return Found::Ok("cgroups", "limits hold for all processes of a command together".to_owned());
    }
    Found::Degraded(
        "cgroups",
        "this user cannot make control groups; limits hold for each process alone".to_owned(),
        "run in a delegated scope, such as `systemd-run --user --scope -p Delegate=yes`".to_owned(),
    )
}
