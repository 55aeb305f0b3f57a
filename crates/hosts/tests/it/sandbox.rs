//! Running commands behind walls: what they see, how they end, and that nothing of them stays.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use helve_contract::{
    Access, PathRules, Reading, Result, Root, SafePath, Workspace,
    ports::{Command, Exit, Input, Level, Network, Noticed, Process, Signal, Terminal},
};
use helve_hosts::{Limits, Net, Sandbox, SandboxSettings, Spawn, Wanted};

/// A folder of a test's own, removed at its end. Not in `/tmp`, which commands see differently.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = ["/var/tmp", "/tmp"].map(PathBuf::from).into_iter().find(|dir| dir.is_dir()).unwrap();
        let dir = base.join(format!("helve-it-{}-{count}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Self(fs::canonicalize(dir).unwrap())
    }

    pub(crate) fn safe(&self) -> SafePath {
        let rules = PathRules::default();
        Workspace::new([Root::writable(&self.0)], rules, Reading::Relative).top(Access::Read).unwrap()
    }

    /// A script in this place.
    pub(crate) fn script(&self, script: &str) -> Command {
        Command {
            script: Some(script.to_owned()),
            argv: Vec::new(),
            dir: self.safe(),
            roots: vec![self.safe()],
            env: Vec::new(),
            input: Input::Closed,
            network: Network::Configured,
            terminal: None,
        }
    }

    /// All names beneath it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn settings(wanted: Wanted) -> SandboxSettings {
    SandboxSettings { wanted, stage: Some(stage()), ..SandboxSettings::default() }
}

/// The inner stage; a test that runs as another user brings a copy that this user can read.
pub(crate) fn stage() -> PathBuf {
    std::env::var_os("HELVE_IT_STAGE").map_or_else(|| env!("CARGO_BIN_EXE_helve-supervisor").into(), PathBuf::from)
}

/// Every level with walls that works here. A level that does not is named with the reason.
pub(crate) fn levels() -> Vec<Level> {
    [Level::Full, Level::Nested, Level::Rules]
        .into_iter()
        .filter(|level| {
            let sandbox = Sandbox::probe(settings(Wanted::Exactly(*level))).unwrap();
            let works = sandbox.report().level.is_some();
            if !works {
                eprintln!("{} is not tried here:\n{}", level.name(), sandbox.report());
            }
            works
        })
        .collect()
}

/// What a command wrote and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) exit: Exit,
}

pub(crate) async fn finish(mut process: Box<dyn Process>) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = loop {
        match process.next().await {
            Noticed::Stdout(piece) => out.extend(piece),
            Noticed::Stderr(piece) => err.extend(piece),
            Noticed::Exit(exit) => break exit,
        }
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { out: text(out), err: text(err), exit }
}

pub(crate) async fn run(sandbox: &Sandbox, command: &Command) -> Result<Ran> {
    Ok(finish(sandbox.spawn(command).await?).await)
}

/// A sandbox at a level.
pub(crate) fn at(level: Level) -> Sandbox {
    Sandbox::new(settings(Wanted::Exactly(level))).unwrap()
}

/// All levels with walls that work here, and the two without.
pub(crate) fn all_levels() -> Vec<Level> {
    let mut all = levels();
    all.extend([Level::External, Level::None]);
    all
}

#[tokio::test]
async fn says_hello_at_every_level() {
    let place = Place::new();
    for level in all_levels() {
        let ran = run(&at(level), &place.script("echo hi; echo oh >&2; pwd; exit 3")).await.unwrap();
        assert_eq!((ran.out.as_str(), ran.err.as_str()), (format!("hi\n{}\n", place.0.display()).as_str(), "oh\n"));
        assert_eq!(ran.exit, Exit { code: 3, signal: None, left_behind: false, denials: Vec::new() }, "{level:?}");
    }
}

#[tokio::test]
async fn a_level_that_is_there_is_reported() {
    let sandbox = Sandbox::probe(settings(Wanted::Best)).unwrap();
    println!("{}", sandbox.report());
    assert_eq!(sandbox.level(), sandbox.report().level.unwrap_or(Level::None));
}
