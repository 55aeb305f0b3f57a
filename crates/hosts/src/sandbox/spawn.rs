//! Starts a command in the sandbox.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use helve_contract::{
    Access, Error, FileErrorKind, PathRules, PathStyle, Result, Root, RootPermission, SafePath, Workspace,
    ports::{NetworkAccess, Process, ProcessEvent, ProcessSpec, SandboxLevel, StdinSource, Streams},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::geteuid,
};

use super::{
    bwrap::{self, BwrapVariant},
    environment, hidden,
    integrity::{Check, Git, Integrity},
    made::RulesetCache,
    path_rule_check::PathRuleCheck,
    path_rules::PathRuleIndex,
    protect,
    protected_names::ProtectedNames,
    report::{LevelProbe, SandboxReport},
    settings::{LevelPolicy, NetworkPolicy, ResourceLimits, SandboxConfig, UnixSockets},
    view::{self, FilesystemView},
};
use crate::{
    local::Spawn,
    supervise::{
        self, Cgroup, CleanupGuards, FileFingerprint, LandlockRules, LateMounts, Launch, Mounts, PathGrant, PlanStdin,
        ProxyForward, Restrictions, RulesetBuilder, SandboxPlan, SocketPolicy, TreeTracking,
    },
};

/// The maximum length of a script that is passed as an argument.
const MAX_SCRIPT_BYTES: usize = 120 << 10;

/// The maximum output of git for the integrity check.
const LONGEST_GIT_OUTPUT: usize = 64 << 20;

/// The proxy port in the command's network namespace.
const PROXY_PORT: u16 = 18_080;

/// Runs commands in the best sandbox level that works on this machine.
///
/// It probes nothing before the first command or query, so creating one is cheap. Cheap to clone.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<SandboxInner>,
}

struct SandboxInner {
    settings: SandboxConfig,
    found: OnceLock<SandboxProbe>,
    integrity: OnceLock<Arc<Integrity>>,
    path_rules: Arc<PathRuleIndex>,
}

/// The result of the probes.
struct SandboxProbe {
    report: SandboxReport,
    view: FilesystemView,
    helper: PathBuf,
    bwrap: Option<PathBuf>,
    bwrap_variant: BwrapVariant,
    /// Whether a cgroup limits the memory of all commands.
    memory_group: bool,
    private: Option<PrivateTempDir>,
    /// File rules that commands share.
    rulesets: RulesetCache,
}

impl Sandbox {
    /// Creates a sandbox with these settings. Fails if a setting cannot be enforced.
    pub fn new(settings: SandboxConfig) -> Result<Self> {
        protect::check(&settings.protected)?;
        protect::check(&settings.protected_anywhere)?;
        protect::check(&settings.protected_at_home)?;
        environment::check_inherited(&settings.inherited)?;
        Ok(Self {
            inner: Arc::new(SandboxInner {
                settings,
                found: OnceLock::new(),
                integrity: OnceLock::new(),
                path_rules: Arc::default(),
            }),
        })
    }

    /// Like `new`, and probes the levels now.
    pub fn probe(settings: SandboxConfig) -> Result<Self> {
        let sandbox = Self::new(settings)?;
        sandbox.report();
        Ok(sandbox)
    }

    /// The results of the probes. Probes the levels if needed, by running a program in each.
    pub fn report(&self) -> &SandboxReport {
        &self.inner.probe().report
    }

    /// Does the integrity check that a killed process missed, and removes placeholders of earlier versions. Returns
    /// messages for the user.
    ///
    /// Call it when a session starts, before anything in the roots is used. Otherwise the first command does it and
    /// its reply contains the messages.
    pub async fn recover(&self, roots: &[PathBuf]) -> Vec<String> {
        let roots: Vec<PathBuf> = roots.iter().filter_map(|root| fs::canonicalize(root).ok()).collect();
        let wanted = self.inner.settings.level;
        let is_enforced = !matches!(
            wanted,
            LevelPolicy::External | LevelPolicy::Exactly(SandboxLevel::External | SandboxLevel::None)
        );
        self.inner.integrity().recover(&roots, is_enforced, self.inner.git()).await
    }
}

impl SandboxInner {
    fn probe(&self) -> &SandboxProbe {
        self.found.get_or_init(|| SandboxProbe::run(&self.settings))
    }

    fn integrity(&self) -> &Arc<Integrity> {
        self.integrity.get_or_init(|| {
            let SandboxConfig { protected, protected_anywhere, protected_at_home, quarantine, .. } = &self.settings;
            let names =
                ProtectedNames::new(protected, protected_anywhere, protected_at_home, view::home(&self.settings));
            Arc::new(Integrity::new(names, protected.clone(), quarantine.clone(), self.settings.listener.clone()))
        })
    }

    /// Records the state before a command.
    async fn begin_check(self: &Arc<Self>, command: &ProcessSpec) -> Check {
        let level = self.probe().report.level.unwrap_or(SandboxLevel::None);
        let setting = LaunchContext::of(self, self.probe(), level, command);
        let writable: Vec<PathBuf> =
            setting.roots.into_iter().filter(|(_, writable)| *writable).map(|(dir, _)| dir).collect();
        self.integrity().begin(&writable, level >= SandboxLevel::Rules, self.git()).await
    }

    /// Runs git in the sandbox, without network and with a read-only repository.
    fn git(self: &Arc<Self>) -> Git {
        let inner = self.clone();
        Arc::new(move |top, args, input| {
            let inner = inner.clone();
            Box::pin(async move {
                let root = Workspace::new([Root::readable(&top)], PathRules::default(), PathStyle::Relative);
                let dir = root.primary_root(Access::Read).ok()?;
                let first = ["git", "--no-optional-locks", "-c", "safe.directory=*"].map(str::to_owned);
                let command = ProcessSpec {
                    script: None,
                    argv: first.into_iter().chain(args).collect(),
                    roots: vec![dir.clone()],
                    cwd: dir,
                    env: Vec::new(),
                    stdin: StdinSource::Bytes(input),
                    network: NetworkAccess::Off,
                    terminal: None,
                    report_cwd: false,
                    streams: Streams::Separate,
                };
                let launch =
                    tokio::task::spawn_blocking(move || inner.launch(&command, Mounts::default())).await.ok()?.ok()?;
                let mut process = supervise::launch(launch).await.ok()?;
                let mut output = Vec::new();
                loop {
                    match process.next().await {
                        ProcessEvent::Stdout(piece) if output.len() < LONGEST_GIT_OUTPUT => output.extend(piece),
                        ProcessEvent::Stdout(_) => return None,
                        ProcessEvent::Stderr(_) => {}
                        ProcessEvent::Exit(exit) => return (exit.code == 0).then_some(output),
                    }
                }
            })
        })
    }

    /// `git` contains the mounts that protect git directories.
    fn launch(&self, command: &ProcessSpec, git: Mounts) -> Result<Launch> {
        let found = self.probe();
        let Some(level) = found.report.level else { return Err(found.unavailable_error()) };
        environment::check(&command.env)?;
        let argv = argv(command)?;
        let dir = start_dir(command)?;
        let mut setting = LaunchContext::of(self, found, level, command);
        setting.refuse_open_vault(command)?;
        let denied = self.path_rules.find(command.roots.iter().chain([&command.cwd]))?;
        denied.refuse_unless_enforced(level)?;
        let seen = setting.seen();
        let open = denied.hidden.iter().filter(|place| !hidden::is_hidden(place, &seen, &setting.hidden)).cloned();
        let open: Vec<PathBuf> = open.collect();
        setting.hidden.extend(open);
        let mounts = if level >= SandboxLevel::Nested {
            let writable = setting.roots.iter().filter(|(_, writable)| *writable).map(|(dir, _)| dir);
            let SandboxConfig { protected, protected_at_home, .. } = &self.settings;
            // The integrity check knows the git directories.
            let names: Vec<String> = protected.iter().filter(|name| !name.starts_with(".git/")).cloned().collect();
            let mut mounts = protect::mounts(writable, &names, protected_at_home, &found.view.home);
            mounts.pinned.extend(git.pinned);
            mounts.read_only.extend(git.read_only);
            denied.add_to(&mut mounts);
            setting.leave_out_hidden(&mut mounts);
            mounts
        } else {
            Mounts::default()
        };
        let outer = found.outer_command(&setting, &mounts);
        let (walls, rules) = setting.restrictions_and_ruleset();
        let plan = SandboxPlan {
            argv,
            env: setting.environment(command),
            dir,
            stdin: PlanStdin::Nothing,
            terminal: false,
            merged: command.streams == Streams::Merged,
            tree: setting.tree(),
            walls,
            limits: self.settings.limits.clone(),
            home_file: setting.home_file(),
            forward: setting.forward(),
            data: found.data_limit(&self.settings.limits, level),
            tell_dir: command.report_cwd && command.script.is_some(),
            last: found.late_mounts(level, &mounts),
        };
        Ok(Launch {
            program: outer.program,
            args: outer.args,
            mounted_paths: outer.places,
            plan,
            rules,
            input: command.stdin.clone(),
            terminal: command.terminal,
            level,
            network_off: setting.has_no_network() && level >= SandboxLevel::Rules,
            protected: mounts.read_only,
            names: setting
                .names
                .iter()
                .cloned()
                .chain(virtual_names(command.roots.iter().filter(|it| it.is_in_vault())))
                .collect(),
            vault: setting.vault.clone(),
            hidden: setting.unseen(),
            partial: setting.partial_roots(),
            read_only: setting.roots.iter().filter(|(_, writable)| !writable).map(|(dir, _)| dir.clone()).collect(),
            check: None,
            cgroup: if level >= SandboxLevel::Rules { Cgroup::new(&self.settings.limits).map(Arc::new) } else { None },
            cleanup: CleanupGuards::new(),
        })
    }
}

#[async_trait]
impl Spawn for Sandbox {
    async fn spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>> {
        if self.inner.found.get().is_none() {
            // Trying the levels takes some tens of milliseconds, once.
            let inner = self.inner.clone();
            let tried = tokio::task::spawn_blocking(move || _ = inner.probe()).await;
            tried.map_err(|error| Error::Internal(error.into()))?;
        }
        // Before the mounts are chosen, because it removes placeholders.
        let check = self.inner.begin_check(command).await;
        let mut launch = self.inner.launch(command, check.mounts())?;
        let level = launch.level;
        let roots = command.roots.iter().chain([&command.cwd]).cloned().collect();
        let (rules, integrity) = (&self.inner.path_rules, self.inner.integrity());
        let rules = PathRuleCheck::begin(rules, integrity, roots, level >= SandboxLevel::Rules)?;
        launch.check = Some(check.with_path_rules(rules));
        Ok(Box::new(supervise::launch(launch).await?))
    }

    fn level(&self) -> SandboxLevel {
        self.report().level.unwrap_or(SandboxLevel::None)
    }
}

/// Program and arguments of a command.
fn argv(command: &ProcessSpec) -> Result<Vec<String>> {
    let argv = match &command.script {
        Some(script) if script.len() > MAX_SCRIPT_BYTES => {
            return Err(Error::failed(format!(
                "the command is {} bytes long, more than the {MAX_SCRIPT_BYTES} that a shell takes; write it to a file and run that",
                script.len()
            )));
        }
        Some(script) => match ["/usr/bin/bash", "/bin/bash"].iter().find(|shell| Path::new(shell).exists()) {
            Some(bash) => [*bash, "--noprofile", "--norc", "-c", script].map(str::to_owned).to_vec(),
            None => ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        },
        None => command.argv.clone(),
    };
    if argv.is_empty() {
        return Err(Error::failed("there is no command to run"));
    }
    if argv.iter().any(|word| word.contains('\0')) {
        return Err(Error::failed("the command has a NUL byte in it; leave it out, or write it as \\0 for printf"));
    }
    Ok(argv)
}

/// The working directory: must be beneath a root after resolving links.
fn start_dir(command: &ProcessSpec) -> Result<PathBuf> {
    if command.cwd.is_in_vault() {
        return Err(Error::denied(format!(
            "{} is in the vault, which commands cannot see; start elsewhere",
            command.cwd
        )));
    }
    let dir = command.cwd.host_path();
    let real = fs::canonicalize(&dir).map_err(|error| {
        let fault = match error.kind() {
            io::ErrorKind::NotFound => FileErrorKind::Missing { near: Vec::new() },
            io::ErrorKind::NotADirectory => FileErrorKind::NotFolder,
            io::ErrorKind::PermissionDenied => FileErrorKind::NoPermission,
            _ => FileErrorKind::Other(error.to_string()),
        };
        Error::file(&command.cwd, fault)
    })?;
    if !real.is_dir() {
        return Err(Error::file(&command.cwd, FileErrorKind::NotFolder));
    }
    let inside = command
        .roots
        .iter()
        .chain([&command.cwd])
        .any(|root| fs::canonicalize(&root.root().dir).is_ok_and(|root| real.starts_with(root)));
    if inside { Ok(real) } else { Err(Error::file(&command.cwd, FileErrorKind::Outside)) }
}

/// The virtual names of roots, for use in commands. Existing names of the machine are not replaced.
fn virtual_names<'a>(roots: impl Iterator<Item = &'a SafePath>) -> Vec<(PathBuf, PathBuf)> {
    let named = roots.map(|root| (PathBuf::from(root.display_relative(Path::new(""))), root.root().dir.clone()));
    named.filter(|(name, dir)| name.parent() == Some(Path::new("/")) && name != dir && !name.exists()).collect()
}

/// The launch parameters that follow from level and settings.
struct LaunchContext<'a> {
    level: SandboxLevel,
    settings: &'a SandboxConfig,
    found: &'a SandboxProbe,
    network: NetworkPolicy,
    /// Directories and whether they may be written, the outermost first.
    roots: Vec<(PathBuf, bool)>,
    /// Virtual names of roots, such as `/shared`.
    names: Vec<(PathBuf, PathBuf)>,
    /// The directories of the vault, which the command must not see.
    vault: Vec<PathBuf>,
    /// Helve's own directories and files, which the command must not see.
    private: Vec<PathBuf>,
    /// Hidden places in visible directories, including those of path rules.
    hidden: Vec<PathBuf>,
}

impl<'a> LaunchContext<'a> {
    fn of(inner: &'a SandboxInner, found: &'a SandboxProbe, level: SandboxLevel, command: &ProcessSpec) -> Self {
        let settings = &inner.settings;
        let network = if command.network == NetworkAccess::Off { NetworkPolicy::Off } else { settings.network };
        let of_session = command.roots.iter().chain([&command.cwd]).filter(|path| !path.is_in_vault());
        let vault = command.roots.iter().filter(|path| path.is_in_vault());
        let vault = vault.map(|path| &path.root().dir).chain(&settings.vault);
        let mut vault: Vec<PathBuf> = vault.filter_map(|dir| fs::canonicalize(dir).ok()).collect();
        vault.dedup();
        let private: Vec<PathBuf> = settings.private.iter().filter_map(|place| fs::canonicalize(place).ok()).collect();
        let is_private = |dir: &Path| private.iter().any(|place| dir.starts_with(place));
        let mut roots: Vec<(PathBuf, bool)> = of_session
            .map(|path| (path.root().dir.clone(), path.root().rights == RootPermission::Write))
            .filter_map(|(dir, writable)| Some((fs::canonicalize(dir).ok()?, writable)))
            .chain(settings.further_folders().filter(|(dir, _)| !is_private(dir)))
            .collect();
        roots.sort();
        // If a directory occurs twice, the later, writable entry wins.
        roots.dedup_by(|later, kept| {
            later.0 == kept.0 && {
                kept.1 |= later.1;
                true
            }
        });
        let mut setting = Self {
            level,
            settings,
            found,
            network,
            roots,
            names: virtual_names(command.roots.iter().filter(|it| !it.is_in_vault())),
            vault,
            private,
            hidden: Vec::new(),
        };
        setting.hidden = setting.covered();
        setting
    }

    /// The directories that the command sees.
    fn seen(&self) -> Vec<PathBuf> {
        let system = view::SYSTEM_DIRS.iter().map(PathBuf::from);
        system
            .chain(self.found.view.tools.iter().cloned())
            .chain(self.roots.iter().map(|(dir, _)| dir.clone()))
            .collect()
    }

    /// The places to hide in directories that the command sees.
    fn covered(&self) -> Vec<PathBuf> {
        let seen = self.seen();
        let mut places = hidden::secrets_of(&self.found.view.homes, &seen);
        places.extend(self.vault.iter().chain(&self.private).cloned());
        hidden::covered(places, &seen)
    }

    /// All hidden places, existing or not, for messages about denials.
    fn unseen(&self) -> Vec<PathBuf> {
        let secrets = hidden::HOME_SECRETS.iter().map(|name| self.found.view.home.join(name));
        secrets.chain(self.private.iter().chain(&self.settings.private).chain(&self.hidden).cloned()).collect()
    }

    /// The directories that L1 grants entry by entry, because a hidden place lies in them.
    fn partial_roots(&self) -> Vec<PathBuf> {
        if self.level != SandboxLevel::Rules {
            return Vec::new();
        }
        let is_root = |dir: &Path| self.roots.iter().any(|(root, _)| dir == root);
        let above = self.hidden.iter().flat_map(|place| place.ancestors().skip(1)).filter(|dir| is_root(dir));
        above.map(Path::to_owned).chain(hidden::folders_above(&self.hidden, &self.roots)).collect()
    }

    /// Removes protected paths that are hidden anyway, and pins the directories above hidden places.
    fn leave_out_hidden(&self, mounts: &mut Mounts) {
        let seen = self.seen();
        for list in [&mut mounts.pinned, &mut mounts.read_only] {
            list.retain(|place| !hidden::is_hidden(place, &seen, &self.hidden));
        }
        for dir in hidden::folders_above(&self.hidden, &self.roots) {
            if !mounts.pinned.contains(&dir) && !hidden::is_hidden(&dir, &seen, &self.hidden) {
                mounts.pinned.push(dir);
            }
        }
        mounts.pinned.sort();
    }

    /// Refuses a command if nothing hides the vault (no sandbox). An empty vault is fine.
    fn refuse_open_vault(&self, command: &ProcessSpec) -> Result<()> {
        let has_files = |dir: &PathBuf| fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
        if self.level >= SandboxLevel::Rules || !self.vault.iter().any(has_files) {
            return Ok(());
        }
        let named =
            command.roots.iter().find(|path| path.is_in_vault()).map(|path| path.display_relative(Path::new("")));
        let folder = self.vault.first().map(|dir| dir.display().to_string());
        let (name, level) = (named.or(folder).unwrap_or_default(), self.level.name());
        Err(Error::denied(format!(
            "refused: commands run without a sandbox ({level}), so this one could read the vault ({name}). Ask the user to \
             empty the vault or to use sandbox level L1, L2 or L3"
        )))
    }

    /// Whether commands have no network at all.
    fn has_no_network(&self) -> bool {
        match self.network {
            NetworkPolicy::Off => true,
            NetworkPolicy::Allowlist => self.proxy().is_none(),
            NetworkPolicy::On => false,
        }
    }

    /// The socket of the proxy, where there is a network to reach it from.
    fn proxy(&self) -> Option<&Path> {
        let socket = self.settings.proxy.as_ref().filter(|_| self.level >= SandboxLevel::Nested)?;
        (self.network == NetworkPolicy::Allowlist).then_some(socket.path.as_path())
    }

    fn forward(&self) -> Option<ProxyForward> {
        self.proxy().map(|_| ProxyForward { port: PROXY_PORT, socket: bwrap::PROXY_SOCKET_PATH.into() })
    }

    fn tree(&self) -> TreeTracking {
        if self.level >= SandboxLevel::Nested { TreeTracking::Namespace } else { TreeTracking::Walk }
    }

    fn restrictions(&self) -> Option<Restrictions> {
        let own = |grant: bool| if grant { PathGrant::Write } else { PathGrant::Read };
        let roots = self.roots.iter().map(|(dir, writable)| (dir.clone(), own(*writable)));
        match self.level {
            SandboxLevel::None | SandboxLevel::External => None,
            SandboxLevel::Rules => {
                let mut grants = self.found.view.system.clone();
                grants.extend(self.found.view.tools.iter().map(|dir| (dir.clone(), PathGrant::Read)));
                grants.extend(roots);
                let temporary = self.temporary();
                grants.push((fs::canonicalize(&temporary).unwrap_or(temporary), PathGrant::Write));
                let grants = hidden::grants_around(grants, &self.hidden);
                let sockets =
                    if self.network == NetworkPolicy::On { SocketPolicy::IpWithoutLocal } else { SocketPolicy::Pairs };
                let attribute_roots = Some(attribute_roots(&grants));
                let rules = LandlockRules { grants, required: true, by: RulesetBuilder::Stage };
                Some(Restrictions { rules, sockets, attribute_roots })
            }
            SandboxLevel::Nested | SandboxLevel::Full => {
                let mut grants = vec![(PathBuf::from("/"), PathGrant::Read)];
                grants.extend(roots);
                grants.extend(["/tmp", "/dev"].map(|dir| (PathBuf::from(dir), PathGrant::Write)));
                grants.push((self.found.view.home.clone(), PathGrant::Write));
                // Without a separate `/proc`, only Landlock protects Helve's memory.
                let required = self.level == SandboxLevel::Nested;
                let rules = LandlockRules { grants, required, by: RulesetBuilder::Stage };
                let is_open = self.network == NetworkPolicy::On || self.settings.unix_sockets == UnixSockets::Any;
                let sockets = if is_open { SocketPolicy::Ip } else { SocketPolicy::Own };
                Some(Restrictions { rules, sockets, attribute_roots: None })
            }
        }
    }

    /// The inner sandbox, and the Landlock ruleset if Helve can create it: without mounts, paths mean the same
    /// inside.
    fn restrictions_and_ruleset(&self) -> (Option<Restrictions>, Option<Arc<OwnedFd>>) {
        let mut walls = self.restrictions();
        let shared = walls.as_mut().filter(|_| self.level == SandboxLevel::Rules);
        let rules = shared.and_then(|walls| {
            let made = self.found.rulesets.rules_for(&walls.rules.grants)?;
            walls.rules.by = RulesetBuilder::Engine;
            Some(made)
        });
        (walls, rules)
    }

    fn temporary(&self) -> PathBuf {
        match (self.level, &self.settings.scratch, &self.found.private) {
            (SandboxLevel::Rules, Some(dir), _) => dir.clone(),
            (SandboxLevel::Rules, None, Some(private)) => private.dir.clone(),
            _ => PathBuf::from("/tmp"),
        }
    }

    /// The git config in a new home directory. The user's real home is left unchanged.
    fn home_file(&self) -> Option<(PathBuf, String)> {
        let home = match self.level {
            SandboxLevel::None | SandboxLevel::External => return None,
            SandboxLevel::Rules => self.temporary(),
            SandboxLevel::Nested | SandboxLevel::Full => self.found.view.home.clone(),
        };
        let real = self.roots.iter().any(|(dir, _)| home.starts_with(dir));
        let text = self.found.view.git_config.clone()?;
        (!real).then(|| (home.join(".gitconfig"), text))
    }

    fn environment(&self, command: &ProcessSpec) -> Vec<(String, String)> {
        let view = &self.found.view;
        let temporary = self.temporary();
        // Without mounts, a private home is the only writable one.
        let home = if self.level == SandboxLevel::Rules { &temporary } else { &view.home };
        let mut env =
            environment::build(self.settings, home, &temporary, &view.path, command.terminal.is_some(), &command.env);
        if self.proxy().is_some() {
            let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
            let here = "localhost,127.0.0.1,::1";
            for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"] {
                let value = if name.eq_ignore_ascii_case("no_proxy") { here } else { &proxy };
                if !env.iter().any(|(it, _)| it == name) {
                    env.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        if self.level == SandboxLevel::Rules {
            for (name, dir) in [("RUSTUP_HOME", ".rustup"), ("CARGO_HOME", ".cargo")] {
                let dir = view.home.join(dir);
                if dir.is_dir() {
                    env.push((name.to_owned(), dir.to_string_lossy().into_owned()));
                }
            }
        }
        env
    }
}

/// Where a command at L1 may change modes, owners, times and attributes: writable directories, except devices.
fn attribute_roots(grants: &[(PathBuf, PathGrant)]) -> Vec<PathBuf> {
    let is_device = |place: &Path| view::DEVICES.iter().any(|device| place == Path::new(device));
    let written = grants.iter().filter(|(place, grant)| *grant == PathGrant::Write && !is_device(place));
    written.map(|(place, _)| place.clone()).collect()
}

/// The levels to probe, best first. Root owns the system's files, which L1 cannot hide, so L1 is used for root only
/// on request or if there is no alternative.
fn candidates(wanted: LevelPolicy, is_root: bool) -> &'static [SandboxLevel] {
    match wanted {
        LevelPolicy::Best if is_root => &[SandboxLevel::Full, SandboxLevel::Nested],
        LevelPolicy::Best | LevelPolicy::BestOrNone => &[SandboxLevel::Full, SandboxLevel::Nested, SandboxLevel::Rules],
        LevelPolicy::External => &[SandboxLevel::External],
        LevelPolicy::Exactly(SandboxLevel::Full) => &[SandboxLevel::Full],
        LevelPolicy::Exactly(SandboxLevel::Nested) => &[SandboxLevel::Nested],
        LevelPolicy::Exactly(SandboxLevel::Rules) => &[SandboxLevel::Rules],
        LevelPolicy::Exactly(SandboxLevel::External) => &[SandboxLevel::External],
        LevelPolicy::Exactly(SandboxLevel::None) => &[SandboxLevel::None],
    }
}

/// Why L1 was not tried, and what to do.
const L1_AS_ROOT: &str = "not chosen automatically for root; run Helve as another user, make L2 or L3 work, or set \
                          sandbox.level = \"L1\"";

/// The first version of Landlock that confines signals, in Linux 6.12.
const LANDLOCK_WITH_SIGNALS: i64 = 6;

/// The program that builds the outer sandbox, or the init helper if there is none.
struct OuterCommand {
    program: PathBuf,
    args: Vec<OsString>,
    /// The fingerprints of the mounted paths.
    places: Vec<FileFingerprint>,
}

impl SandboxProbe {
    fn run(settings: &SandboxConfig) -> Self {
        let stage = settings.helper.clone().unwrap_or_else(supervise::helper_program);
        let bwrap = bwrap::find();
        let mut found = Self {
            report: SandboxReport {
                level: None,
                probes: Vec::new(),
                bwrap: bwrap.as_ref().ok().map(|path| path.display().to_string()),
                has_cgroups: supervise::can_limit(),
                notes: notes(settings),
            },
            view: FilesystemView::detect(settings),
            helper: stage,
            bwrap: bwrap.clone().ok(),
            bwrap_variant: BwrapVariant::ALL[0],
            memory_group: supervise::can_limit_memory(),
            private: None,
            rulesets: RulesetCache::default(),
        };
        let candidates = candidates(settings.level, geteuid().is_root());
        for level in candidates {
            let trouble = match (&bwrap, level) {
                (Err(why), SandboxLevel::Full | SandboxLevel::Nested) => Some(why.clone()),
                _ => found.try_level(settings, *level).err(),
            };
            found.report.probes.push(LevelProbe { level: *level, failure: trouble.clone() });
            if trouble.is_none() {
                found.report.level = Some(*level);
                break;
            }
        }
        if found.report.level.is_none()
            && settings.level == LevelPolicy::Best
            && !candidates.contains(&SandboxLevel::Rules)
        {
            found.report.probes.push(LevelProbe { level: SandboxLevel::Rules, failure: Some(L1_AS_ROOT.to_owned()) });
        }
        if found.report.level == Some(SandboxLevel::Rules) && supervise::landlock_version() < LANDLOCK_WITH_SIGNALS {
            found.report.notes.push(
                "signals: commands can send them to other processes of this user, because Landlock confines them only from \
                 Linux 6.12 on"
                    .to_owned(),
            );
        }
        if found.report.level == Some(SandboxLevel::Rules) && !settings.protected.is_empty() {
            found.report.notes.push(
                "protected places: L1 cannot make them read-only; changes to them are reported after each command, and new ones \
                 are moved to quarantine"
                    .to_owned(),
            );
        }
        if found.report.level.is_some_and(|level| level >= SandboxLevel::Nested) && !found.bwrap_variant.late_mounts {
            found.report.notes.push(
                "walls: built when a command is run, not before, because this system lets no process inside mount; commands \
                 begin a few milliseconds later"
                    .to_owned(),
            );
        }
        if found.report.level.is_none() && settings.level == LevelPolicy::BestOrNone {
            found.report.level = Some(SandboxLevel::None);
        }
        found
    }

    /// Runs `true` at a level, with the best variant that works.
    fn try_level(&mut self, settings: &SandboxConfig, level: SandboxLevel) -> Result<(), String> {
        if matches!(level, SandboxLevel::None | SandboxLevel::External) {
            return Ok(());
        }
        if level == SandboxLevel::Rules && settings.scratch.is_none() {
            self.private = Some(PrivateTempDir::make().map_err(|error| format!("no private folder: {error}"))?);
        }
        if level < SandboxLevel::Nested {
            return self.run_true(settings, level);
        }
        let mut first = Ok(());
        for finish in BwrapVariant::ALL {
            self.bwrap_variant = finish;
            match self.run_true(settings, level) {
                Ok(()) => return Ok(()),
                Err(why) => first = first.and(Err(why)),
            }
        }
        first
    }

    fn run_true(&self, settings: &SandboxConfig, level: SandboxLevel) -> Result<(), String> {
        // The probe does not need the proxy.
        let network = if settings.network == NetworkPolicy::Allowlist { NetworkPolicy::Off } else { settings.network };
        let setting = LaunchContext {
            level,
            settings,
            found: self,
            network,
            roots: Vec::new(),
            names: Vec::new(),
            vault: Vec::new(),
            private: Vec::new(),
            hidden: Vec::new(),
        };
        // One mount, to test whether it works.
        let mounts = Mounts { pinned: Vec::new(), read_only: vec!["/tmp".into()] };
        let outer = self.outer_command(&setting, &mounts);
        supervise::run_probe(Launch {
            program: outer.program,
            args: outer.args,
            mounted_paths: outer.places,
            plan: SandboxPlan {
                argv: vec!["true".into()],
                env: vec![("PATH".into(), "/usr/bin:/bin".into())],
                dir: "/".into(),
                stdin: PlanStdin::Nothing,
                terminal: false,
                merged: false,
                tree: setting.tree(),
                walls: setting.restrictions(),
                limits: settings.limits.clone(),
                home_file: None,
                forward: None,
                data: None,
                tell_dir: false,
                last: self.late_mounts(level, &mounts),
            },
            rules: None,
            input: StdinSource::Closed,
            terminal: None,
            level,
            network_off: true,
            protected: Vec::new(),
            names: Vec::new(),
            vault: Vec::new(),
            hidden: Vec::new(),
            partial: Vec::new(),
            read_only: Vec::new(),
            check: None,
            cgroup: None,
            cleanup: CleanupGuards::new(),
        })
    }

    /// The data limit of each process, if no cgroup limits the memory.
    fn data_limit(&self, limits: &ResourceLimits, level: SandboxLevel) -> Option<u64> {
        limits.memory_of_all.filter(|_| level >= SandboxLevel::Rules && !self.memory_group)
    }

    /// The command line that runs the init helper inside the outer sandbox.
    fn outer_command(&self, setting: &LaunchContext<'_>, mounts: &Mounts) -> OuterCommand {
        match &self.bwrap {
            Some(program) if setting.level >= SandboxLevel::Nested => {
                let walls = bwrap::BwrapOptions {
                    level: setting.level,
                    view: &self.view,
                    stage: &self.helper,
                    finish: self.bwrap_variant,
                    network: setting.network == NetworkPolicy::On,
                    proxy: setting.proxy(),
                    scratch: setting.settings.scratch.as_deref(),
                    roots: &setting.roots,
                    names: &setting.names,
                    hidden: &setting.hidden,
                    mounts,
                };
                let (args, places) = bwrap::build_args(&walls);
                OuterCommand {
                    program: program.clone(),
                    args,
                    places: places.iter().map(|place| FileFingerprint::of(place)).collect(),
                }
            }
            _ => OuterCommand { program: self.helper.clone(), args: Vec::new(), places: Vec::new() },
        }
    }

    /// The mounts that the init helper makes.
    fn late_mounts(&self, level: SandboxLevel, mounts: &Mounts) -> Option<LateMounts> {
        let BwrapVariant { late_mounts: by_stage, no_new_namespaces: sealed } = self.bwrap_variant;
        (by_stage && level >= SandboxLevel::Nested).then(|| LateMounts { mounts: mounts.clone(), sealed })
    }

    /// The error when no command can run, and what to do about it.
    fn unavailable_error(&self) -> Error {
        let tried: Vec<_> = self
            .report
            .probes
            .iter()
            .map(|trial| format!("{}: {}", trial.level.name(), trial.failure.as_deref().unwrap_or("works")))
            .collect();
        Error::denied(format!(
            "no sandbox works on this machine, so commands are refused ({}). `helve doctor` says what is missing; \
             a person may allow commands without a sandbox",
            tried.join("; ")
        ))
    }
}

fn notes(settings: &SandboxConfig) -> Vec<String> {
    let network = match settings.network {
        NetworkPolicy::Off => "network: off for commands",
        NetworkPolicy::Allowlist => "network: listed hosts only for commands, through a proxy (L2, L3; off at L1)",
        NetworkPolicy::On => "network: on for commands",
    };
    let memory = settings.limits.memory_of_all.map(|most| {
        let whose = if supervise::can_limit_memory() { "all commands together" } else { "each process of a command" };
        format!("memory: at most {} MiB for {whose}", most >> 20)
    });
    [network.to_owned()].into_iter().chain(memory).collect()
}

/// How the names of private directories begin.
const PRIVATE_DIR_PREFIX: &str = "helve-private-";

/// A private directory beneath the system's temporary one, removed when dropped. Its lock marks it as in use.
struct PrivateTempDir {
    dir: PathBuf,
    _lock: File,
}

impl PrivateTempDir {
    fn make() -> io::Result<Self> {
        let base = std::env::temp_dir();
        Self::sweep(&base);
        let mut name = [0; 8];
        getrandom::fill(&mut name).map_err(io::Error::other)?;
        let dir = base.join(format!("{PRIVATE_DIR_PREFIX}{:016x}", u64::from_ne_bytes(name)));
        fs::DirBuilder::new().mode(0o700).create(&dir)?;
        let lock = File::open(&dir)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { dir, _lock: lock })
    }

    /// Removes unused directories of killed processes of this user.
    fn sweep(base: &Path) {
        for entry in fs::read_dir(base).into_iter().flatten().flatten() {
            let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PRIVATE_DIR_PREFIX));
            let about = fs::symlink_metadata(entry.path());
            if !ours || !about.is_ok_and(|it| it.is_dir() && it.uid() == geteuid().as_raw() && is_old(&it)) {
                continue;
            }
            if let Ok(lock) = File::open(entry.path())
                && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            {
                _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// A new directory may not be locked yet.
fn is_old(about: &fs::Metadata) -> bool {
    about.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(60)))
}

impl Drop for PrivateTempDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            _ = writeln!(io::stderr(), "could not remove {}: {error}", self.dir.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_gets_l1_only_on_request() {
        let has_l1 = |wanted, is_root| candidates(wanted, is_root).contains(&SandboxLevel::Rules);
        assert!(has_l1(LevelPolicy::Best, false) && !has_l1(LevelPolicy::Best, true));
        for is_root in [false, true] {
            assert!(
                has_l1(LevelPolicy::Exactly(SandboxLevel::Rules), is_root) && has_l1(LevelPolicy::BestOrNone, is_root)
            );
        }
    }

    #[test]
    fn attributes_can_be_changed_where_files_can_be_written() {
        let grants = [
            ("/usr", PathGrant::Read),
            ("/dev/null", PathGrant::Write),
            ("/dev/fd", PathGrant::Write),
            ("/home/me", PathGrant::List),
            ("/home/me/work", PathGrant::Write),
            ("/dev/shm/work", PathGrant::Write),
        ];
        let roots = attribute_roots(&grants.map(|(place, grant)| (PathBuf::from(place), grant)));
        assert_eq!(roots, [Path::new("/home/me/work"), Path::new("/dev/shm/work")]);
    }
}
