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

use crate::{config::Settings, fault::Fault, remark, state};

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
    if !settings.flag("tools.shell.enabled") {
        return Ok((Arc::new(noted(settings, Local::new())), Arc::new(NoTasks)));
    }
    let host = match settings.text("host.kind") {
        Some("docker") => container(settings, folders.protected, workspace),
        _ => host(settings, folders.scratch, folders.protected)?,
    };
    let host = routed(settings, host)?;
    let tasks = Runner::new(host.clone(), folders.output);
    Ok((host, Arc::new(tasks)))
}

/// This machine's files, and its programs behind the walls that the settings want.
pub fn host(settings: &Settings, scratch: Option<PathBuf>, protected: Vec<String>) -> Result<Arc<dyn Host>, Fault> {
    if !settings.flag("tools.shell.enabled") {
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
    if settings.text("sandbox.network") != Some("allowlist") {
        return Ok(None);
    }
    let wrong = |why: String| Fault::usage(format!("sandbox.allow_hosts: {why}"));
    let hosts = Hosts::new(settings.list("sandbox.allow_hosts")).map_err(wrong)?;
    let gateway = Gateway::new(hosts, Guard::new()).map_err(wrong)?;
    let listening = listen_privately(gateway)?;
    Ok(Some(ProxySocket { path: listening.socket().to_owned(), keep: Arc::new(listening) }))
}

/// This machine's files, and its programs in a container.
fn container(settings: &Settings, protected: Vec<String>, workspace: &Workspace) -> Arc<dyn Host> {
    let text = |key: &str| settings.text(key).map(str::to_owned);
    let usual = Docker::default();
    let plain = PROTECTED.iter().filter(|name| is_plain(name)).map(|name| (*name).to_owned());
    let docker = Docker {
        endpoint: text("host.docker.endpoint").unwrap_or(usual.endpoint),
        image: text("host.docker.image").unwrap_or(usual.image),
        network: text("host.docker.network").unwrap_or(usual.network),
        user: text("host.docker.user"),
        protected: plain.chain(protected).chain(denied(settings).0).collect(),
        ..Docker::default()
    };
    Arc::new(noted(settings, docker.later(workspace.clone())))
}

/// The same host, with the listed commands sent to another machine where the settings say so.
fn routed(settings: &Settings, host: Arc<dyn Host>) -> Result<Arc<dyn Host>, Fault> {
    if !settings.flag("host_commands.enabled") {
        return Ok(host);
    }
    let listed = settings.list("host_commands.allowed");
    let allowed = Allowed::new(listed.iter().map(String::as_str))
        .map_err(|error| Fault::usage(format!("host_commands.allowed: {error}")))?;
    let ssh = Ssh {
        host: settings.text("host_commands.host").unwrap_or_default().to_owned(),
        port: u16::try_from(settings.number("host_commands.port")).ok(),
        user: settings.text("host_commands.user").map(str::to_owned),
        key: settings.text("host_commands.key").map(PathBuf::from),
        known_hosts: settings.text("host_commands.known_hosts").map(PathBuf::from),
        program: None,
    };
    Ok(Arc::new(Routed::new(host, ssh, allowed)))
}

/// What the settings say about the walls.
fn wishes(settings: &Settings) -> SandboxSettings {
    let folders = |key: &str| settings.list(key).into_iter().map(PathBuf::from).collect();
    SandboxSettings {
        wanted: match settings.text("sandbox.level") {
            Some("L3") => Wanted::Exactly(Level::Full),
            Some("L2") => Wanted::Exactly(Level::Nested),
            Some("L1") => Wanted::Exactly(Level::Rules),
            Some("external") => Wanted::External,
            Some("none") => Wanted::Exactly(Level::None),
            _ => Wanted::Best,
        },
        readable: folders("sandbox.readable"),
        writable: folders("sandbox.writable"),
        network: match settings.text("sandbox.network") {
            Some("on") => Net::On,
            Some("allowlist") => Net::Listed,
            _ => Net::Off,
        },
        limits: limits(settings),
        ..SandboxSettings::default()
    }
}

/// What commands may use. A setting of 0 lifts the limit of memory.
fn limits(settings: &Settings) -> Limits {
    if !settings.is_set("sandbox.memory_mb") {
        return Limits::of_this_machine();
    }
    let most = settings.number("sandbox.memory_mb");
    Limits { memory_of_all: (most > 0).then_some(most << 20), ..Limits::default() }
}

/// The path rules that a wall can hold, and those that it cannot: patterns, and what may not even be read.
fn denied(settings: &Settings) -> (Vec<String>, Vec<String>) {
    let (held, mut open): (Vec<_>, Vec<_>) =
        settings.list("paths.deny_write").into_iter().partition(|text| text.contains('/') && is_plain(text));
    let held = held.iter().map(|it| it.trim_matches('/').to_owned()).filter(|it| !it.is_empty()).collect();
    open.extend(settings.list("paths.deny_read"));
    (held, open)
}

fn is_plain(name: &str) -> bool {
    !name.contains(['*', '?', '['])
}

/// The programs that commands may name, where the settings say anything about it.
pub fn names(settings: &Settings) -> Result<Option<NameList>, Fault> {
    let (allow, deny) = (settings.list("tools.shell.allow"), settings.list("tools.shell.deny"));
    let (replace, operators) =
        (settings.flag("tools.shell.replace_defaults"), settings.flag("tools.shell.allow_operators"));
    if allow == ["*"] && deny.is_empty() && operators {
        return Ok(None);
    }
    let mut names = NameList::new(allow, deny).map_err(|why| Fault::usage(format!("tools.shell: {why}")))?;
    if replace {
        names = names.replacing_defaults();
    }
    Ok(Some(if operators { names } else { names.without_operators() }))
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
    if !settings.flag("tools.shell.enabled") {
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
