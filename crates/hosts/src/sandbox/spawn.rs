//! Putting a command behind the walls.

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
    Access, Error, FileFault, PathRules, Reading, Result, Rights, Root, SafePath, Workspace,
    ports::{Command, Input, Level, Network, Noticed, Process, Streams},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::geteuid,
};

use super::{
    bwrap::{self, Finish},
    environment, hidden,
    integrity::{Check, Git, Integrity},
    made::Made,
    path_rule_check::PathRuleCheck,
    path_rules::PathRuleIndex,
    protect,
    protected_names::ProtectedNames,
    report::{Report, Trial},
    settings::{Limits, Net, SandboxSettings, UnixSockets, Wanted},
    view::{self, View},
};
use crate::{
    local::Spawn,
    supervise::{
        self, Cgroup, Forward, Grant, Keep, Last, Launch, Maker, Mark, Mounts, Plan, Rules, Sockets, Stdin, Tree, Walls,
    },
};

/// The longest script that can be handed to a shell at once.
const LONGEST_SCRIPT: usize = 120 << 10;

/// The most that git may answer to the integrity check.
const LONGEST_GIT_OUTPUT: usize = 64 << 20;

/// Where commands find the proxy, in a network of their own.
const PROXY_PORT: u16 = 18_080;

/// Runs commands behind the best walls that this machine has.
///
/// Nothing is tried before the first command or question, so that making one costs nothing. Cheap to clone.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

struct Inner {
    settings: SandboxSettings,
    found: OnceLock<Found>,
    integrity: OnceLock<Arc<Integrity>>,
    path_rules: Arc<PathRuleIndex>,
}

/// What trying found out.
struct Found {
    report: Report,
    view: View,
    stage: PathBuf,
    bwrap: Option<PathBuf>,
    finish: Finish,
    /// Whether a control group holds the memory of all commands.
    memory_group: bool,
    private: Option<Private>,
    /// File rules that commands share.
    made: Made,
}

impl Sandbox {
    /// A sandbox with these settings. Says at once when a setting cannot be enforced.
    pub fn new(settings: SandboxSettings) -> Result<Self> {
        protect::check(&settings.protected)?;
        protect::check(&settings.protected_anywhere)?;
        protect::check(&settings.protected_at_home)?;
        environment::check_inherited(&settings.inherited)?;
        Ok(Self {
            inner: Arc::new(Inner {
                settings,
                found: OnceLock::new(),
                integrity: OnceLock::new(),
                path_rules: Arc::default(),
            }),
        })
    }

    /// The same, and the levels are tried now.
    pub fn probe(settings: SandboxSettings) -> Result<Self> {
        let sandbox = Self::new(settings)?;
        sandbox.report();
        Ok(sandbox)
    }

    /// What was tried, and what works. Tries the levels if that has not been done yet, by running a program in each.
    pub fn report(&self) -> &Report {
        &self.inner.found().report
    }

    /// Does the integrity check that a killed engine could not do after its last command on these roots, and removes
    /// placeholders that earlier versions left there. Says what was found, for the user.
    ///
    /// To be called when a session starts, before anything in the roots is obeyed. Without it, the first command does the
    /// same, and its reply says what was found.
    pub async fn recover(&self, roots: &[PathBuf]) -> Vec<String> {
        let roots: Vec<PathBuf> = roots.iter().filter_map(|root| fs::canonicalize(root).ok()).collect();
        let wanted = self.inner.settings.wanted;
        let is_enforced = !matches!(wanted, Wanted::External | Wanted::Exactly(Level::External | Level::None));
        self.inner.integrity().recover(&roots, is_enforced, self.inner.git()).await
    }
}

impl Inner {
    fn found(&self) -> &Found {
        self.found.get_or_init(|| Found::look(&self.settings))
    }

    fn integrity(&self) -> &Arc<Integrity> {
        self.integrity.get_or_init(|| {
            let SandboxSettings { protected, protected_anywhere, protected_at_home, quarantine, .. } = &self.settings;
            let names =
                ProtectedNames::new(protected, protected_anywhere, protected_at_home, view::home(&self.settings));
            Arc::new(Integrity::new(names, protected.clone(), quarantine.clone(), self.settings.listener.clone()))
        })
    }

    /// Records what is there before a command.
    async fn begin_check(self: &Arc<Self>, command: &Command) -> Check {
        let level = self.found().report.level.unwrap_or(Level::None);
        let setting = Setting::of(self, self.found(), level, command);
        let writable: Vec<PathBuf> =
            setting.roots.into_iter().filter(|(_, writable)| *writable).map(|(dir, _)| dir).collect();
        self.integrity().begin(&writable, level >= Level::Rules, self.git()).await
    }

    /// Runs git in the sandbox, without network, in a repository that it may only read.
    fn git(self: &Arc<Self>) -> Git {
        let inner = self.clone();
        Arc::new(move |top, args, input| {
            let inner = inner.clone();
            Box::pin(async move {
                let root = Workspace::new([Root::readable(&top)], PathRules::default(), Reading::Relative);
                let dir = root.top(Access::Read).ok()?;
                let first = ["git", "--no-optional-locks", "-c", "safe.directory=*"].map(str::to_owned);
                let command = Command {
                    script: None,
                    argv: first.into_iter().chain(args).collect(),
                    roots: vec![dir.clone()],
                    dir,
                    env: Vec::new(),
                    input: Input::Bytes(input),
                    network: Network::Off,
                    terminal: None,
                    tell_dir: false,
                    streams: Streams::Separate,
                };
                let launch =
                    tokio::task::spawn_blocking(move || inner.launch(&command, Mounts::default())).await.ok()?.ok()?;
                let mut process = supervise::launch(launch).await.ok()?;
                let mut output = Vec::new();
                loop {
                    match process.next().await {
                        Noticed::Stdout(piece) if output.len() < LONGEST_GIT_OUTPUT => output.extend(piece),
                        Noticed::Stdout(_) => return None,
                        Noticed::Stderr(_) => {}
                        Noticed::Exit(exit) => return (exit.code == 0).then_some(output),
                    }
                }
            })
        })
    }

    /// `git` are the mounts that keep git folders as they are.
    fn launch(&self, command: &Command, git: Mounts) -> Result<Launch> {
        let found = self.found();
        let Some(level) = found.report.level else { return Err(found.refusal()) };
        environment::check(&command.env)?;
        let argv = argv(command)?;
        let dir = start_folder(command)?;
        let mut setting = Setting::of(self, found, level, command);
        setting.refuse_open_vault(command)?;
        let denied = self.path_rules.find(command.roots.iter().chain([&command.dir]))?;
        denied.refuse_unless_enforced(level)?;
        let seen = setting.seen();
        let open = denied.hidden.iter().filter(|place| !hidden::is_hidden(place, &seen, &setting.hidden)).cloned();
        let open: Vec<PathBuf> = open.collect();
        setting.hidden.extend(open);
        let mounts = if level >= Level::Nested {
            let writable = setting.roots.iter().filter(|(_, writable)| *writable).map(|(dir, _)| dir);
            let SandboxSettings { protected, protected_at_home, .. } = &self.settings;
            // The integrity check knows the git folders.
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
        let outer = found.outer(&setting, &mounts);
        let (walls, rules) = setting.walls_and_rules();
        let plan = Plan {
            argv,
            env: setting.environment(command),
            dir,
            stdin: Stdin::Nothing,
            terminal: false,
            merged: command.streams == Streams::Merged,
            tree: setting.tree(),
            walls,
            limits: self.settings.limits.clone(),
            home_file: setting.home_file(),
            forward: setting.forward(),
            data: found.each_data(&self.settings.limits, level),
            tell_dir: command.tell_dir && command.script.is_some(),
            last: found.last(level, &mounts),
        };
        Ok(Launch {
            program: outer.program,
            args: outer.args,
            places: outer.places,
            plan,
            rules,
            input: command.input.clone(),
            terminal: command.terminal,
            level,
            network_off: setting.is_off() && level >= Level::Rules,
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
            cgroup: if level >= Level::Rules { Cgroup::new(&self.settings.limits).map(Arc::new) } else { None },
            keep: Keep::new(),
        })
    }
}

#[async_trait]
impl Spawn for Sandbox {
    async fn spawn(&self, command: &Command) -> Result<Box<dyn Process>> {
        if self.inner.found.get().is_none() {
            // Trying the levels takes some tens of milliseconds, once.
            let inner = self.inner.clone();
            let tried = tokio::task::spawn_blocking(move || _ = inner.found()).await;
            tried.map_err(|error| Error::Internal(error.into()))?;
        }
        // Before the mounts are chosen: it removes what earlier versions left.
        let check = self.inner.begin_check(command).await;
        let mut launch = self.inner.launch(command, check.mounts())?;
        let level = launch.level;
        let roots = command.roots.iter().chain([&command.dir]).cloned().collect();
        let (rules, integrity) = (&self.inner.path_rules, self.inner.integrity());
        let rules = PathRuleCheck::begin(rules, integrity, roots, level >= Level::Rules)?;
        launch.check = Some(check.with_path_rules(rules));
        Ok(Box::new(supervise::launch(launch).await?))
    }

    fn level(&self) -> Level {
        self.report().level.unwrap_or(Level::None)
    }
}

/// Program and arguments of a command.
fn argv(command: &Command) -> Result<Vec<String>> {
    let argv = match &command.script {
        Some(script) if script.len() > LONGEST_SCRIPT => {
            return Err(Error::failed(format!(
                "the command is {} bytes long, more than the {LONGEST_SCRIPT} that a shell takes; write it to a file and run that",
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

/// Where the command starts: a folder that is, links and all, beneath a root.
fn start_folder(command: &Command) -> Result<PathBuf> {
    if command.dir.is_in_vault() {
        return Err(Error::denied(format!(
            "{} is in the vault, which commands cannot see; start elsewhere",
            command.dir
        )));
    }
    let dir = command.dir.on_host();
    let real = fs::canonicalize(&dir).map_err(|error| {
        let fault = match error.kind() {
            io::ErrorKind::NotFound => FileFault::Missing { near: Vec::new() },
            io::ErrorKind::NotADirectory => FileFault::NotFolder,
            io::ErrorKind::PermissionDenied => FileFault::NoPermission,
            _ => FileFault::Other(error.to_string()),
        };
        Error::file(&command.dir, fault)
    })?;
    if !real.is_dir() {
        return Err(Error::file(&command.dir, FileFault::NotFolder));
    }
    let inside = command
        .roots
        .iter()
        .chain([&command.dir])
        .any(|root| fs::canonicalize(&root.root().dir).is_ok_and(|root| real.starts_with(root)));
    if inside { Ok(real) } else { Err(Error::file(&command.dir, FileFault::Outside)) }
}

/// The virtual names of roots, for a command to use as the file tools do. A name that the machine has is not taken over.
fn virtual_names<'a>(roots: impl Iterator<Item = &'a SafePath>) -> Vec<(PathBuf, PathBuf)> {
    let named = roots.map(|root| (PathBuf::from(root.shown(Path::new(""))), root.root().dir.clone()));
    named.filter(|(name, dir)| name.parent() == Some(Path::new("/")) && name != dir && !name.exists()).collect()
}

/// Everything about one command that follows from level and settings.
struct Setting<'a> {
    level: Level,
    settings: &'a SandboxSettings,
    found: &'a Found,
    network: Net,
    /// Folders and whether they may be written, the outermost first.
    roots: Vec<(PathBuf, bool)>,
    /// Other names of roots, as the model knows them: `/shared`.
    names: Vec<(PathBuf, PathBuf)>,
    /// The folders of the vault, which the command must not see.
    vault: Vec<PathBuf>,
    /// Helve's own folders and files, which the command must not see.
    private: Vec<PathBuf>,
    /// Which places in folders that the command sees are hidden, with those of path rules.
    hidden: Vec<PathBuf>,
}

impl<'a> Setting<'a> {
    fn of(inner: &'a Inner, found: &'a Found, level: Level, command: &Command) -> Self {
        let settings = &inner.settings;
        let network = if command.network == Network::Off { Net::Off } else { settings.network };
        let of_session = command.roots.iter().chain([&command.dir]).filter(|path| !path.is_in_vault());
        let vault = command.roots.iter().filter(|path| path.is_in_vault());
        let vault = vault.map(|path| &path.root().dir).chain(&settings.vault);
        let mut vault: Vec<PathBuf> = vault.filter_map(|dir| fs::canonicalize(dir).ok()).collect();
        vault.dedup();
        let private: Vec<PathBuf> = settings.private.iter().filter_map(|place| fs::canonicalize(place).ok()).collect();
        let is_private = |dir: &Path| private.iter().any(|place| dir.starts_with(place));
        let mut roots: Vec<(PathBuf, bool)> = of_session
            .map(|path| (path.root().dir.clone(), path.root().rights == Rights::Write))
            .filter_map(|(dir, writable)| Some((fs::canonicalize(dir).ok()?, writable)))
            .chain(settings.further_folders().filter(|(dir, _)| !is_private(dir)))
            .collect();
        roots.sort();
        // Of one folder with two rights the later one, which is the writable one, holds.
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

    /// The folders that the command sees.
    fn seen(&self) -> Vec<PathBuf> {
        let system = view::SYSTEM.iter().map(PathBuf::from);
        system
            .chain(self.found.view.tools.iter().cloned())
            .chain(self.roots.iter().map(|(dir, _)| dir.clone()))
            .collect()
    }

    /// The places to hide in folders that the command sees.
    fn covered(&self) -> Vec<PathBuf> {
        let seen = self.seen();
        let mut places = hidden::secrets_of(&self.found.view.homes, &seen);
        places.extend(self.vault.iter().chain(&self.private).cloned());
        hidden::covered(places, &seen)
    }

    /// All places that no command sees, for words about a refusal: also those that are not there.
    fn unseen(&self) -> Vec<PathBuf> {
        let secrets = hidden::HOME_SECRETS.iter().map(|name| self.found.view.home.join(name));
        secrets.chain(self.private.iter().chain(&self.settings.private).chain(&self.hidden).cloned()).collect()
    }

    /// The folders that L1 grants entry by entry, because a hidden place lies in them.
    fn partial_roots(&self) -> Vec<PathBuf> {
        if self.level != Level::Rules {
            return Vec::new();
        }
        let is_root = |dir: &Path| self.roots.iter().any(|(root, _)| dir == root);
        let above = self.hidden.iter().flat_map(|place| place.ancestors().skip(1)).filter(|dir| is_root(dir));
        above.map(Path::to_owned).chain(hidden::folders_above(&self.hidden, &self.roots)).collect()
    }

    /// Removes the protected places that are hidden anyway, and pins the folders above hidden places.
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

    /// Refuses a command where nothing keeps it out of the vault: without a sandbox. An empty vault has nothing to keep.
    fn refuse_open_vault(&self, command: &Command) -> Result<()> {
        let has_files = |dir: &PathBuf| fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
        if self.level >= Level::Rules || !self.vault.iter().any(has_files) {
            return Ok(());
        }
        let named = command.roots.iter().find(|path| path.is_in_vault()).map(|path| path.shown(Path::new("")));
        let folder = self.vault.first().map(|dir| dir.display().to_string());
        let (name, level) = (named.or(folder).unwrap_or_default(), self.level.name());
        Err(Error::denied(format!(
            "refused: commands run without a sandbox ({level}), so this one could read the vault ({name}). Ask the user to \
             empty the vault or to use sandbox level L1, L2 or L3"
        )))
    }

    /// Whether commands have no network at all.
    fn is_off(&self) -> bool {
        match self.network {
            Net::Off => true,
            Net::Listed => self.proxy().is_none(),
            Net::On => false,
        }
    }

    /// The socket of the proxy, where there is a network to reach it from.
    fn proxy(&self) -> Option<&Path> {
        let socket = self.settings.proxy.as_ref().filter(|_| self.level >= Level::Nested)?;
        (self.network == Net::Listed).then_some(socket.path.as_path())
    }

    fn forward(&self) -> Option<Forward> {
        self.proxy().map(|_| Forward { port: PROXY_PORT, socket: bwrap::PROXY.into() })
    }

    fn tree(&self) -> Tree {
        if self.level >= Level::Nested { Tree::Namespace } else { Tree::Walk }
    }

    fn walls(&self) -> Option<Walls> {
        let own = |grant: bool| if grant { Grant::Write } else { Grant::Read };
        let roots = self.roots.iter().map(|(dir, writable)| (dir.clone(), own(*writable)));
        match self.level {
            Level::None | Level::External => None,
            Level::Rules => {
                let mut grants = self.found.view.system.clone();
                grants.extend(self.found.view.tools.iter().map(|dir| (dir.clone(), Grant::Read)));
                grants.extend(roots);
                let temporary = self.temporary();
                grants.push((fs::canonicalize(&temporary).unwrap_or(temporary), Grant::Write));
                let grants = hidden::grants_around(grants, &self.hidden);
                let sockets = if self.network == Net::On { Sockets::IpWithoutLocal } else { Sockets::Pairs };
                let attribute_roots = Some(attribute_roots(&grants));
                let rules = Rules { grants, required: true, by: Maker::Stage };
                Some(Walls { rules, sockets, attribute_roots })
            }
            Level::Nested | Level::Full => {
                let mut grants = vec![(PathBuf::from("/"), Grant::Read)];
                grants.extend(roots);
                grants.extend(["/tmp", "/dev"].map(|dir| (PathBuf::from(dir), Grant::Write)));
                grants.push((self.found.view.home.clone(), Grant::Write));
                // Without a `/proc` of its own, only Landlock keeps it out of the engine's memory.
                let required = self.level == Level::Nested;
                let rules = Rules { grants, required, by: Maker::Stage };
                let is_open = self.network == Net::On || self.settings.unix_sockets == UnixSockets::Any;
                let sockets = if is_open { Sockets::Ip } else { Sockets::Own };
                Some(Walls { rules, sockets, attribute_roots: None })
            }
        }
    }

    /// The inner walls, and the file rules where they need not be made by the stage: nothing is mounted, so that names
    /// mean the same inside.
    fn walls_and_rules(&self) -> (Option<Walls>, Option<Arc<OwnedFd>>) {
        let mut walls = self.walls();
        let shared = walls.as_mut().filter(|_| self.level == Level::Rules);
        let rules = shared.and_then(|walls| {
            let made = self.found.made.rules_for(&walls.rules.grants)?;
            walls.rules.by = Maker::Engine;
            Some(made)
        });
        (walls, rules)
    }

    fn temporary(&self) -> PathBuf {
        match (self.level, &self.settings.scratch, &self.found.private) {
            (Level::Rules, Some(dir), _) => dir.clone(),
            (Level::Rules, None, Some(private)) => private.dir.clone(),
            _ => PathBuf::from("/tmp"),
        }
    }

    /// Git's file in a home that is new inside. A home that is really the user's is left as it is.
    fn home_file(&self) -> Option<(PathBuf, String)> {
        let home = match self.level {
            Level::None | Level::External => return None,
            Level::Rules => self.temporary(),
            Level::Nested | Level::Full => self.found.view.home.clone(),
        };
        let real = self.roots.iter().any(|(dir, _)| home.starts_with(dir));
        let text = self.found.view.git_config.clone()?;
        (!real).then(|| (home.join(".gitconfig"), text))
    }

    fn environment(&self, command: &Command) -> Vec<(String, String)> {
        let view = &self.found.view;
        let temporary = self.temporary();
        // Where nothing is mounted, a home of its own is the only one it can write to.
        let home = if self.level == Level::Rules { &temporary } else { &view.home };
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
        if self.level == Level::Rules {
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

/// Where a command at L1 may change modes, owners, times and attributes: where it may write, but for devices.
fn attribute_roots(grants: &[(PathBuf, Grant)]) -> Vec<PathBuf> {
    let is_device = |place: &Path| view::DEVICES.iter().any(|device| place == Path::new(device));
    let written = grants.iter().filter(|(place, grant)| *grant == Grant::Write && !is_device(place));
    written.map(|(place, _)| place.clone()).collect()
}

/// The levels to try, best first. Root is the owner of the system's files, which L1 can confine but not hide; so L1 is
/// taken for root only where somebody asked for it, or where the alternative is no sandbox.
fn candidates(wanted: Wanted, is_root: bool) -> &'static [Level] {
    match wanted {
        Wanted::Best if is_root => &[Level::Full, Level::Nested],
        Wanted::Best | Wanted::NoneAccepted => &[Level::Full, Level::Nested, Level::Rules],
        Wanted::External => &[Level::External],
        Wanted::Exactly(Level::Full) => &[Level::Full],
        Wanted::Exactly(Level::Nested) => &[Level::Nested],
        Wanted::Exactly(Level::Rules) => &[Level::Rules],
        Wanted::Exactly(Level::External) => &[Level::External],
        Wanted::Exactly(Level::None) => &[Level::None],
    }
}

/// Why L1 was not tried, and what to do.
const L1_AS_ROOT: &str = "not chosen automatically for root; run Helve as another user, make L2 or L3 work, or set \
                          sandbox.level = \"L1\"";

/// The first version of Landlock that confines signals, in Linux 6.12.
const LANDLOCK_WITH_SIGNALS: i64 = 6;

/// A program that builds the outer walls of a level, or the stage where there are none.
struct Outer {
    program: PathBuf,
    args: Vec<OsString>,
    /// What the walls are made of.
    places: Vec<Mark>,
}

impl Found {
    fn look(settings: &SandboxSettings) -> Self {
        let stage = settings.stage.clone().unwrap_or_else(supervise::stage_program);
        let bwrap = bwrap::find();
        let mut found = Self {
            report: Report {
                level: None,
                trials: Vec::new(),
                bwrap: bwrap.as_ref().ok().map(|path| path.display().to_string()),
                groups: supervise::can_limit(),
                notes: notes(settings),
            },
            view: View::look(settings),
            stage,
            bwrap: bwrap.clone().ok(),
            finish: Finish::ALL[0],
            memory_group: supervise::can_limit_memory(),
            private: None,
            made: Made::default(),
        };
        let candidates = candidates(settings.wanted, geteuid().is_root());
        for level in candidates {
            let trouble = match (&bwrap, level) {
                (Err(why), Level::Full | Level::Nested) => Some(why.clone()),
                _ => found.try_level(settings, *level).err(),
            };
            found.report.trials.push(Trial { level: *level, trouble: trouble.clone() });
            if trouble.is_none() {
                found.report.level = Some(*level);
                break;
            }
        }
        if found.report.level.is_none() && settings.wanted == Wanted::Best && !candidates.contains(&Level::Rules) {
            found.report.trials.push(Trial { level: Level::Rules, trouble: Some(L1_AS_ROOT.to_owned()) });
        }
        if found.report.level == Some(Level::Rules) && supervise::landlock_version() < LANDLOCK_WITH_SIGNALS {
            found.report.notes.push(
                "signals: commands can send them to other processes of this user, because Landlock confines them only from \
                 Linux 6.12 on"
                    .to_owned(),
            );
        }
        if found.report.level == Some(Level::Rules) && !settings.protected.is_empty() {
            found.report.notes.push(
                "protected places: L1 cannot make them read-only; changes to them are reported after each command, and new ones \
                 are moved to quarantine"
                    .to_owned(),
            );
        }
        if found.report.level.is_some_and(|level| level >= Level::Nested) && !found.finish.by_stage {
            found.report.notes.push(
                "walls: built when a command is run, not before, because this system lets no process inside mount; commands \
                 begin a few milliseconds later"
                    .to_owned(),
            );
        }
        if found.report.level.is_none() && settings.wanted == Wanted::NoneAccepted {
            found.report.level = Some(Level::None);
        }
        found
    }

    /// Runs `true` at a level, in the best way that works.
    fn try_level(&mut self, settings: &SandboxSettings, level: Level) -> Result<(), String> {
        if matches!(level, Level::None | Level::External) {
            return Ok(());
        }
        if level == Level::Rules && settings.scratch.is_none() {
            self.private = Some(Private::make().map_err(|error| format!("no private folder: {error}"))?);
        }
        if level < Level::Nested {
            return self.run_true(settings, level);
        }
        let mut first = Ok(());
        for finish in Finish::ALL {
            self.finish = finish;
            match self.run_true(settings, level) {
                Ok(()) => return Ok(()),
                Err(why) => first = first.and(Err(why)),
            }
        }
        first
    }

    fn run_true(&self, settings: &SandboxSettings, level: Level) -> Result<(), String> {
        // The proxy is not needed to see whether the walls stand.
        let network = if settings.network == Net::Listed { Net::Off } else { settings.network };
        let setting = Setting {
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
        // One mount, to see whether it can be made.
        let mounts = Mounts { pinned: Vec::new(), read_only: vec!["/tmp".into()] };
        let outer = self.outer(&setting, &mounts);
        supervise::try_out(Launch {
            program: outer.program,
            args: outer.args,
            places: outer.places,
            plan: Plan {
                argv: vec!["true".into()],
                env: vec![("PATH".into(), "/usr/bin:/bin".into())],
                dir: "/".into(),
                stdin: Stdin::Nothing,
                terminal: false,
                merged: false,
                tree: setting.tree(),
                walls: setting.walls(),
                limits: settings.limits.clone(),
                home_file: None,
                forward: None,
                data: None,
                tell_dir: false,
                last: self.last(level, &mounts),
            },
            rules: None,
            input: Input::Closed,
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
            keep: Keep::new(),
        })
    }

    /// How much data each process may have, where no group limits the memory of all.
    fn each_data(&self, limits: &Limits, level: Level) -> Option<u64> {
        limits.memory_of_all.filter(|_| level >= Level::Rules && !self.memory_group)
    }

    /// What to start so that the stage runs behind the outer walls of a level.
    fn outer(&self, setting: &Setting<'_>, mounts: &Mounts) -> Outer {
        match &self.bwrap {
            Some(program) if setting.level >= Level::Nested => {
                let walls = bwrap::Walls {
                    level: setting.level,
                    view: &self.view,
                    stage: &self.stage,
                    finish: self.finish,
                    network: setting.network == Net::On,
                    proxy: setting.proxy(),
                    scratch: setting.settings.scratch.as_deref(),
                    roots: &setting.roots,
                    names: &setting.names,
                    hidden: &setting.hidden,
                    mounts,
                };
                let (args, places) = bwrap::arguments(&walls);
                Outer { program: program.clone(), args, places: places.iter().map(|place| Mark::of(place)).collect() }
            }
            _ => Outer { program: self.stage.clone(), args: Vec::new(), places: Vec::new() },
        }
    }

    /// What is left to the stage of the outer walls of a level.
    fn last(&self, level: Level, mounts: &Mounts) -> Option<Last> {
        let Finish { by_stage, sealed } = self.finish;
        (by_stage && level >= Level::Nested).then(|| Last { mounts: mounts.clone(), sealed })
    }

    /// Why no command is run, and what a person can do about it.
    fn refusal(&self) -> Error {
        let tried: Vec<_> = self
            .report
            .trials
            .iter()
            .map(|trial| format!("{}: {}", trial.level.name(), trial.trouble.as_deref().unwrap_or("works")))
            .collect();
        Error::denied(format!(
            "no sandbox works on this machine, so commands are refused ({}). `helve doctor` says what is missing; \
             a person may allow commands without a sandbox",
            tried.join("; ")
        ))
    }
}

fn notes(settings: &SandboxSettings) -> Vec<String> {
    let network = match settings.network {
        Net::Off => "network: off for commands",
        Net::Listed => "network: listed hosts only for commands, through a proxy (L2, L3; off at L1)",
        Net::On => "network: on for commands",
    };
    let memory = settings.limits.memory_of_all.map(|most| {
        let whose = if supervise::can_limit_memory() { "all commands together" } else { "each process of a command" };
        format!("memory: at most {} MiB for {whose}", most >> 20)
    });
    [network.to_owned()].into_iter().chain(memory).collect()
}

/// How the names of private folders begin.
const PRIVATE: &str = "helve-private-";

/// A folder of our own beneath the system's temporary one, removed at the end. The lock tells that somebody uses it.
struct Private {
    dir: PathBuf,
    _lock: File,
}

impl Private {
    fn make() -> io::Result<Self> {
        let base = std::env::temp_dir();
        Self::sweep(&base);
        let mut name = [0; 8];
        getrandom::fill(&mut name).map_err(io::Error::other)?;
        let dir = base.join(format!("{PRIVATE}{:016x}", u64::from_ne_bytes(name)));
        fs::DirBuilder::new().mode(0o700).create(&dir)?;
        let lock = File::open(&dir)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { dir, _lock: lock })
    }

    /// Removes folders of engines that were killed: this user's own only, and none that is in use.
    fn sweep(base: &Path) {
        for entry in fs::read_dir(base).into_iter().flatten().flatten() {
            let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PRIVATE));
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

/// A new folder may be between its making and its lock.
fn is_old(about: &fs::Metadata) -> bool {
    about.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(60)))
}

impl Drop for Private {
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
        let has_l1 = |wanted, is_root| candidates(wanted, is_root).contains(&Level::Rules);
        assert!(has_l1(Wanted::Best, false) && !has_l1(Wanted::Best, true));
        for is_root in [false, true] {
            assert!(has_l1(Wanted::Exactly(Level::Rules), is_root) && has_l1(Wanted::NoneAccepted, is_root));
        }
    }

    #[test]
    fn attributes_can_be_changed_where_files_can_be_written() {
        let grants = [
            ("/usr", Grant::Read),
            ("/dev/null", Grant::Write),
            ("/dev/fd", Grant::Write),
            ("/home/me", Grant::List),
            ("/home/me/work", Grant::Write),
            ("/dev/shm/work", Grant::Write),
        ];
        let roots = attribute_roots(&grants.map(|(place, grant)| (PathBuf::from(place), grant)));
        assert_eq!(roots, [Path::new("/home/me/work"), Path::new("/dev/shm/work")]);
    }
}
