//! Commands: the walls they run behind, and the programs they may name.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use helve_contract::{
    Workspace,
    ports::{Host, Level, NoTasks, Tasks},
};
use helve_engine::{NameList, PROTECTED, is_homely};
use helve_hosts::{
    Allowed, Docker, Limits, Local, Net, ProxySocket, Routed, Runner, Sandbox, SandboxSettings, Ssh, Wanted,
};
use helve_web::{
    guard::Guard,
    proxy::{Gateway, Hosts, listen_privately},
};

use crate::{
    config::{ConfigPath, HostKind, SandboxLevel, SandboxNetwork, Settings, ShellConfig},
    fault::Fault,
    remark, state,
};

/// Folders of a session that commands use.
pub struct Folders<'a> {
    /// Their `/tmp`, where it lasts from one to the next.
    pub scratch: Option<PathBuf>,
    /// Where their raw output goes.
    pub output: &'a Path,
    /// Places beneath the roots that are not theirs, such as the state folder.
    pub protected: Vec<String>,
}

/// Where programs run, and the keeper of those that do.
pub type Reach = (Arc<dyn Host>, Arc<dyn Tasks>);

/// The host and its tasks, by the settings. Nothing is tried before the first command.
pub fn open(settings: &Settings, folders: Folders<'_>, workspace: &Workspace) -> Result<Reach, Fault> {
    if !settings.config.tools.shell.enabled {
        return Ok((Arc::new(noted(settings, Local::new())), Arc::new(NoTasks)));
    }
    let host = match settings.config.host.kind {
        HostKind::Docker => container(settings, folders.protected, workspace),
        HostKind::Local => host(settings, folders.scratch, folders.protected)?,
        kind @ (HostKind::Ssh | HostKind::E2b) => {
            return Err(Fault::usage(format!("host.kind: `{kind}` is not available here; use `local` or `docker`")));
        }
    };
    let host = routed(settings, host)?;
    let tasks = Runner::new(host.clone(), folders.output);
    Ok((host, Arc::new(tasks)))
}

/// This machine's files, and its programs behind the walls that the settings want.
pub fn host(settings: &Settings, scratch: Option<PathBuf>, protected: Vec<String>) -> Result<Arc<dyn Host>, Fault> {
    if !settings.config.tools.shell.enabled {
        return Ok(Arc::new(noted(settings, Local::new())));
    }
    let (held, open) = denied(settings);
    if !open.is_empty() {
        remark!("helve: these path rules hold for the file tools, but not for commands: {}", open.join(", "));
    }
    // A mount stands for one place. What is a pattern lies inside `.git`, and is the file tools' alone to guard.
    let plain = PROTECTED.iter().filter(|name| is_plain(name)).map(|name| (*name).to_owned());
    let (protected_at_home, plain): (Vec<_>, Vec<_>) = plain.partition(|name| is_homely(name));
    let protected = plain.into_iter().chain(protected).chain(held).collect();
    let proxy = proxy(settings)?;
    let wishes = SandboxSettings { protected, protected_at_home, scratch, proxy, ..wishes(settings) };
    let sandbox = Sandbox::new(wishes).map_err(|error| Fault::usage(error.to_string()))?;
    Ok(Arc::new(noted(settings, Local::with(Arc::new(sandbox)))))
}

/// The same files, with notes of changes to several of them in the state folder, where there is one.
fn noted(settings: &Settings, local: Local) -> Local {
    match state::place(settings).filter(|folder| folder.is_dir()) {
        Some(folder) => local.journal(folder.join("changes")),
        None => local,
    }
}

/// The proxy that commands go out by, where they may reach some hosts.
fn proxy(settings: &Settings) -> Result<Option<ProxySocket>, Fault> {
    if settings.config.sandbox.network != SandboxNetwork::Allowlist {
        return Ok(None);
    }
    let wrong = |why: String| Fault::usage(format!("sandbox.allow_hosts: {why}"));
    let hosts = Hosts::new(settings.config.sandbox.allow_hosts.clone()).map_err(wrong)?;
    let gateway = Gateway::new(hosts, Guard::new()).map_err(wrong)?;
    let listening = listen_privately(gateway)?;
    Ok(Some(ProxySocket { path: listening.socket().to_owned(), keep: Arc::new(listening) }))
}

/// This machine's files, and its programs in a container.
fn container(settings: &Settings, protected: Vec<String>, workspace: &Workspace) -> Arc<dyn Host> {
    let docker = settings.config.host.docker.clone();
    let plain = PROTECTED.iter().filter(|name| is_plain(name)).map(|name| (*name).to_owned());
    let docker = Docker {
        endpoint: docker.endpoint,
        image: docker.image,
        network: docker.network,
        user: docker.user,
        protected: plain.chain(protected).chain(denied(settings).0).collect(),
        ..Docker::default()
    };
    Arc::new(noted(settings, docker.later(workspace.clone())))
}

/// The same host, with the listed commands sent to another machine where the settings say so.
fn routed(settings: &Settings, host: Arc<dyn Host>) -> Result<Arc<dyn Host>, Fault> {
    let commands = &settings.config.host_commands;
    if !commands.enabled {
        return Ok(host);
    }
    let allowed = Allowed::new(commands.allowed.iter().map(String::as_str))
        .map_err(|error| Fault::usage(format!("host_commands.allowed: {error}")))?;
    let ssh = Ssh {
        host: commands.host.clone(),
        port: Some(commands.port),
        user: commands.user.clone(),
        key: commands.key.as_deref().map(Path::to_owned),
        known_hosts: commands.known_hosts.as_deref().map(Path::to_owned),
        program: None,
    };
    Ok(Arc::new(Routed::new(host, ssh, allowed)))
}

/// What the settings say about the walls.
fn wishes(settings: &Settings) -> SandboxSettings {
    let config = &settings.config.sandbox;
    let dirs = |list: &[ConfigPath]| list.iter().map(|it| it.to_path_buf()).collect();
    SandboxSettings {
        wanted: match config.level {
            SandboxLevel::Auto => Wanted::Best,
            SandboxLevel::L3 => Wanted::Exactly(Level::Full),
            SandboxLevel::L2 => Wanted::Exactly(Level::Nested),
            SandboxLevel::L1 => Wanted::Exactly(Level::Rules),
            SandboxLevel::External => Wanted::External,
            SandboxLevel::None => Wanted::Exactly(Level::None),
        },
        readable: dirs(&config.readable),
        writable: dirs(&config.writable),
        network: match config.network {
            SandboxNetwork::On => Net::On,
            SandboxNetwork::Allowlist => Net::Listed,
            SandboxNetwork::Off => Net::Off,
        },
        limits: limits(settings),
        ..SandboxSettings::default()
    }
}

/// What commands may use. A setting of 0 lifts the limit of memory.
fn limits(settings: &Settings) -> Limits {
    match settings.config.sandbox.memory_mb {
        None => Limits::of_this_machine(),
        Some(most) => Limits { memory_of_all: (most > 0).then_some(most << 20), ..Limits::default() },
    }
}

/// The path rules that a wall can hold, and those that it cannot: patterns, and what may not even be read.
fn denied(settings: &Settings) -> (Vec<String>, Vec<String>) {
    let (held, mut open): (Vec<_>, Vec<_>) = settings
        .config
        .paths
        .deny_write
        .iter()
        .cloned()
        .partition(|text: &String| text.contains('/') && is_plain(text));
    let held = held.iter().map(|it| it.trim_matches('/').to_owned()).filter(|it| !it.is_empty()).collect();
    open.extend(settings.config.paths.deny_read.iter().cloned());
    (held, open)
}

fn is_plain(name: &str) -> bool {
    !name.contains(['*', '?', '['])
}

/// The programs that commands may name, where the settings say anything about it.
pub fn names(settings: &Settings) -> Result<Option<NameList>, Fault> {
    let ShellConfig { allow, deny, replace_defaults, allow_operators, .. } = settings.config.tools.shell.clone();
    if allow == ["*"] && deny.is_empty() && allow_operators {
        return Ok(None);
    }
    let mut names = NameList::new(allow, deny).map_err(|why| Fault::usage(format!("tools.shell: {why}")))?;
    if replace_defaults {
        names = names.replacing_defaults();
    }
    Ok(Some(if allow_operators { names } else { names.without_operators() }))
}

/// Something that was found out about the walls.
pub enum Found {
    /// It works.
    Good(&'static str, String),
    /// It does not, and what to do.
    Weak(&'static str, String, String),
}

/// Tries the walls, every level of them, by running a program behind each.
pub fn examine(settings: &Settings) -> Vec<Found> {
    if !settings.config.tools.shell.enabled {
        return vec![Found::Good("sandbox", "not needed: tools.shell.enabled is false".to_owned())];
    }
    let wishes = wishes(settings);
    let sandbox = match Sandbox::probe(wishes.clone()) {
        Ok(sandbox) => sandbox,
        Err(error) => return vec![Found::Weak("sandbox", error.to_string(), "mend the sandbox settings".to_owned())],
    };
    let report = sandbox.report();
    let mut found = vec![match report.level {
        Some(level) if level >= Level::Rules => {
            let notes = report.notes.join("; ");
            Found::Good("sandbox", format!("commands run at {} ({notes})", level.name()))
        }
        Some(level) => Found::Weak(
            "sandbox",
            format!("commands run at {}, without walls of Helve's own", level.name()),
            "sandbox.level = \"auto\" takes the best walls that work".to_owned(),
        ),
        None => Found::Weak(
            "sandbox",
            "no level works here, so commands are refused; file tools work".to_owned(),
            "install bubblewrap, or say with sandbox.level = \"external\" that this machine is the sandbox".to_owned(),
        ),
    }];
    found.extend([("L3", Level::Full), ("L2", Level::Nested), ("L1", Level::Rules)].map(|(name, level)| {
        let tried = report.trials.iter().find(|trial| trial.level == level).map(|trial| trial.trouble.clone());
        match tried.unwrap_or_else(|| trouble(&wishes, level)) {
            None => Found::Good(name, "works".to_owned()),
            Some(why) => Found::Weak(name, why.replace('\n', "; "), advice(level).to_owned()),
        }
    }));
    found.push(match &report.bwrap {
        Some(path) => Found::Good("bwrap", path.clone()),
        None => Found::Weak(
            "bwrap",
            "not found in a folder that only root can write".to_owned(),
            "install the package bubblewrap for L3 and L2".to_owned(),
        ),
    });
    found.extend([landlock(), seccomp(), groups(report.groups)]);
    found
}

/// Why a level does not work here, if it does not.
fn trouble(wishes: &SandboxSettings, level: Level) -> Option<String> {
    let sandbox = Sandbox::probe(SandboxSettings { wanted: Wanted::Exactly(level), ..wishes.clone() });
    match sandbox {
        Ok(sandbox) => sandbox.report().trials.iter().find_map(|trial| trial.trouble.clone()),
        Err(error) => Some(error.to_string()),
    }
}

const fn advice(level: Level) -> &'static str {
    match level {
        Level::Full => "L3 needs bubblewrap and user namespaces with a /proc of their own",
        Level::Nested => "L2 needs bubblewrap and user namespaces",
        _ => "L1 needs Landlock and seccomp in the kernel",
    }
}

fn landlock() -> Found {
    let list = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    match (list.is_empty(), list.split(',').any(|name| name.trim() == "landlock")) {
        (false, true) => Found::Good("landlock", "on in this kernel".to_owned()),
        (true, _) => {
            Found::Good("landlock", "not listed (securityfs is not mounted); see L1 for whether it works".to_owned())
        }
        (false, false) => Found::Weak(
            "landlock",
            format!("not among this kernel's security modules ({})", list.trim()),
            "boot with lsm=landlock,… on Linux 5.13 or later".to_owned(),
        ),
    }
}

fn seccomp() -> Found {
    match fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) if actions.contains("errno") => Found::Good("seccomp", actions.trim().to_owned()),
        Ok(_) | Err(_) => Found::Weak(
            "seccomp",
            "filters are not offered by this kernel".to_owned(),
            "a kernel with CONFIG_SECCOMP_FILTER and a mounted /proc have them".to_owned(),
        ),
    }
}

fn groups(made: bool) -> Found {
    if made {
        return Found::Good("cgroups", "limits hold for all processes of a command together".to_owned());
    }
    Found::Weak(
        "cgroups",
        "this user cannot make control groups; limits hold for each process alone".to_owned(),
        "run in a delegated scope, such as `systemd-run --user --scope -p Delegate=yes`".to_owned(),
    )
}
