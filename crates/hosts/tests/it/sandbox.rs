//! Commands in the sandbox: what they see, how they end, and that none of their processes survives.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use helve_contract::{
    Access, PathRules, PathStyle, Result, Root, SafePath, Workspace,
    ports::{
        NetworkAccess, Process, ProcessEvent, ProcessExit, ProcessSpec, SandboxLevel, Signal, StdinSource, Streams,
        TerminalSize,
    },
};
use helve_hosts::{LevelPolicy, ResourceLimits, Sandbox, SandboxConfig, Spawn};

/// A directory of a test's own, removed at its end. Not in `/tmp`, which commands see differently.
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
        Workspace::new([Root::writable(&self.0)], rules, PathStyle::Relative).primary_root(Access::Read).unwrap()
    }

    /// A script in this place.
    pub(crate) fn script(&self, script: &str) -> ProcessSpec {
        ProcessSpec {
            script: Some(script.to_owned()),
            argv: Vec::new(),
            cwd: self.safe(),
            roots: vec![self.safe()],
            env: Vec::new(),
            stdin: StdinSource::Closed,
            network: NetworkAccess::Configured,
            terminal: None,
            report_cwd: false,
            streams: Streams::Separate,
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

pub(crate) fn settings(wanted: LevelPolicy) -> SandboxConfig {
    let quarantine = Some(quarantine());
    SandboxConfig { level: wanted, helper: Some(stage()), quarantine, ..SandboxConfig::default() }
}

/// Where commands' protected files go in tests.
pub(crate) fn quarantine() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("quarantine")
}

/// The init helper; a test that runs as another user brings a readable copy.
pub(crate) fn stage() -> PathBuf {
    let built = option_env!("CARGO_BIN_EXE_helve-supervisor").unwrap_or_default();
    std::env::var_os("HELVE_IT_STAGE").map_or_else(|| built.into(), PathBuf::from)
}

/// Every sandbox level that works here. Prints the reason for the others.
pub(crate) fn levels() -> Vec<SandboxLevel> {
    [SandboxLevel::Full, SandboxLevel::Nested, SandboxLevel::Rules]
        .into_iter()
        .filter(|level| {
            let sandbox = Sandbox::probe(settings(LevelPolicy::Exactly(*level))).unwrap();
            let works = sandbox.report().level.is_some();
            if !works {
                let is_ci = ["CI", "HELVE_CI"].iter().any(|name| std::env::var_os(name).is_some());
                assert!(!is_ci || !should_work(*level), "{} does not work:\n{}", level.name(), sandbox.report());
                eprintln!("SKIPPED: {} is not tried here:\n{}", level.name(), sandbox.report());
            }
            works
        })
        .collect()
}

/// Whether this machine has what a level needs, by a try that does not involve Helve.
fn should_work(level: SandboxLevel) -> bool {
    let bwrap = |more: &[&str]| {
        let mut program = std::process::Command::new("bwrap");
        program.args(["--unshare-all", "--ro-bind", "/", "/"]).args(more).arg("true");
        program.output().is_ok_and(|ran| ran.status.success())
    };
    match level {
        SandboxLevel::Full => bwrap(&["--proc", "/proc"]),
        SandboxLevel::Nested => bwrap(&[]),
        _ => fs::read_to_string("/sys/kernel/security/lsm").is_ok_and(|list| list.contains("landlock")),
    }
}

/// What a command wrote and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) exit: ProcessExit,
}

pub(crate) async fn finish(mut process: Box<dyn Process>) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = loop {
        match process.next().await {
            ProcessEvent::Stdout(piece) => out.extend(piece),
            ProcessEvent::Stderr(piece) => err.extend(piece),
            ProcessEvent::Exit(exit) => break exit,
        }
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { out: text(out), err: text(err), exit }
}

pub(crate) async fn run(sandbox: &Sandbox, command: &ProcessSpec) -> Result<Ran> {
    Ok(finish(sandbox.spawn(command).await?).await)
}

/// A sandbox at a level.
pub(crate) fn at(level: SandboxLevel) -> Sandbox {
    Sandbox::new(settings(LevelPolicy::Exactly(level))).unwrap()
}

/// All sandbox levels that work here, and the two without a sandbox.
pub(crate) fn all_levels() -> Vec<SandboxLevel> {
    let mut all = levels();
    all.extend([SandboxLevel::External, SandboxLevel::None]);
    all
}

#[tokio::test]
async fn says_hello_at_every_level() {
    let place = Place::new();
    for level in all_levels() {
        let ran = run(&at(level), &place.script("echo hi; echo oh >&2; pwd; exit 3")).await.unwrap();
        assert_eq!((ran.out.as_str(), ran.err.as_str()), (format!("hi\n{}\n", place.0.display()).as_str(), "oh\n"));
        assert_eq!(
            ran.exit,
            ProcessExit { code: 3, signal: None, left_behind: false, denials: Vec::new(), dir: None },
            "{level:?}"
        );
    }
}

#[tokio::test]
async fn a_shell_says_where_it_ended_and_nothing_shows_it() {
    let place = Place::new();
    fs::create_dir(place.0.join("sub")).unwrap();
    let sub = Some(place.0.join("sub"));
    for level in all_levels() {
        let sandbox = at(level);
        for (script, dir, out) in [
            ("cd sub; echo $BASH_ENV hi; bash -c 'echo $BASH_ENV on'", &sub, "hi\non\n"),
            ("set -x; cd sub; false", &sub, ""),
            ("set -eu; cd sub; ls /proc/self/fd | wc -l >/dev/null; exit 1", &sub, ""),
            ("(cd sub); true", &Some(place.0.clone()), ""),
            ("mkdir gone; cd gone; rmdir ../gone", &Some(place.0.join("gone")), ""),
            ("cd /; (setsid sleep 30 &)", &Some("/".into()), ""),
            ("trap 'echo mine' EXIT; cd sub", &None, "mine\n"),
            ("cd sub; exec true", &None, ""),
            ("cd sub; dd if=/dev/zero bs=1M count=1 >&121 2>/dev/null; echo", &None, "\n"),
        ] {
            let ran = run(&sandbox, &ProcessSpec { report_cwd: true, ..place.script(script) }).await.unwrap();
            assert_eq!((&ran.exit.dir, ran.out.as_str()), (dir, out), "{level:?} {script} {ran:?}");
            let traced = if script.contains("-x") { "+ cd sub\n+ false\n" } else { "" };
            assert_eq!(ran.err, traced, "{level:?} {script}");
        }
        let quiet = run(&sandbox, &place.script("cd sub")).await.unwrap();
        assert_eq!(quiet.exit.dir, None);
    }
}

#[tokio::test]
async fn a_level_that_is_there_is_reported() {
    let sandbox = Sandbox::probe(settings(LevelPolicy::Best)).unwrap();
    println!("{}", sandbox.report());
    assert_eq!(sandbox.level(), sandbox.report().level.unwrap_or(SandboxLevel::None));
}

/// How many processes of this machine have a word in their command line.
pub(crate) fn alive(word: &str) -> usize {
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let dir = entry.path();
            let line = fs::read(dir.join("cmdline")).ok()?;
            let state = fs::read_to_string(dir.join("stat")).ok()?;
            let dead = state.rsplit_once(") ")?.1.starts_with(['Z', 'X']);
            let words = line.split(|byte| *byte == 0).any(|it| it == word.as_bytes());
            (words && !dead).then_some(())
        })
        .count()
}

/// Waits until nothing with a word in its command line is left; how many were left after a second.
pub(crate) async fn survivors(word: &str) -> usize {
    let start = Instant::now();
    loop {
        let count = alive(word);
        if count == 0 || start.elapsed() > Duration::from_secs(1) {
            return count;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A length of sleep that no other test uses, to find its processes by.
pub(crate) fn unique_sleep() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}.{}", 300 + COUNT.fetch_add(1, Ordering::Relaxed), std::process::id())
}

#[tokio::test]
async fn a_job_left_in_the_background_does_not_hold_the_answer() {
    let place = Place::new();
    for level in all_levels() {
        for script in ["sleep N & echo started", "setsid sleep N & echo started", "(setsid sleep N &) ; echo started"] {
            let nap = unique_sleep();
            let start = Instant::now();
            let ran = run(&at(level), &place.script(&script.replace('N', &nap))).await.unwrap();
            assert_eq!(ran.out, "started\n");
            assert!(ran.exit.left_behind, "{level:?} {script}");
            assert!(start.elapsed() < Duration::from_secs(20), "{level:?} {script}: {:?}", start.elapsed());
            assert_eq!(survivors(&nap).await, 0, "{level:?} {script}");
        }
    }
}

#[tokio::test]
async fn a_late_word_of_a_short_job_is_heard() {
    let place = Place::new();
    for level in all_levels() {
        let ran = run(&at(level), &place.script("(sleep 0.2; echo late) & echo now")).await.unwrap();
        assert_eq!((ran.out.as_str(), ran.exit.left_behind), ("now\nlate\n", false), "{level:?}");
    }
}

#[tokio::test]
async fn nothing_waits_for_input_that_never_comes() {
    let place = Place::new();
    for level in all_levels() {
        let ran = run(&at(level), &place.script("timeout 45 cat; read x; python3 -c 'input()' 2>&1 | tail -1")).await;
        assert_eq!(ran.unwrap().out, "EOFError: EOF when reading a line\n", "{level:?}");
    }
}

#[tokio::test]
async fn programs_that_ask_are_not_answered() {
    let place = Place::new();
    let asking = [
        "git init -q g && cd g && git -c user.name=n -c user.email=a@b commit -q --allow-empty",
        "read -r x < /dev/tty",
        "ssh -o StrictHostKeyChecking=ask nobody@127.0.0.1 true",
        "git clone -q https://127.0.0.1:1/private.git",
        "rm -i g/.git/HEAD; bash -c 'select x in a b; do break; done; exit 1'",
        "python3 -c 'import getpass; getpass.getpass()'",
    ];
    for level in all_levels() {
        for script in asking {
            let ran = run(&at(level), &place.script(&format!("timeout 50 bash -c \"{script}\""))).await.unwrap();
            assert!(ran.exit.code != 0 && ran.exit.code != 124, "{level:?} {script}: {ran:?}");
        }
        fs::remove_dir_all(place.0.join("g")).unwrap();
    }
}

/// Runs in a process of its own, because the limit is the process's.
#[tokio::test]
#[ignore = "a part of `an_engine_without_open_files_left_says_so_and_recovers`"]
async fn with_few_open_files() {
    let (place, sandbox) = (Place::new(), at(SandboxLevel::None));
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let few = rustix::process::Rlimit { current: Some(64), ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    for _ in 0..3 {
        let mut all = Vec::new();
        let error = loop {
            assert!(all.len() < 64, "64 programs do not fit into 64 open files");
            match sandbox.spawn(&place.script("sleep 300")).await {
                Ok(process) => all.push(process),
                Err(error) => break error.to_string(),
            }
        };
        let said = "too many open files to start another command; stop a running task and try again";
        assert_eq!(error, said);
        drop(all);
        // It goes on once there is room again.
        loop {
            match run(&sandbox, &place.script("echo fine")).await {
                Ok(ran) => break assert_eq!(ran.out, "fine\n"),
                Err(error) => assert_eq!(error.to_string(), said),
            }
            tokio::task::yield_now().await;
        }
    }
}

#[test]
fn an_engine_without_open_files_left_says_so_and_recovers() {
    let done = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "sandbox::with_few_open_files", "--nocapture"])
        .env("HELVE_IT_STAGE", stage())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
}

/// Processes of this engine that are an init helper.
fn stages() -> Vec<i32> {
    let own = std::process::id().to_string();
    let is_stage = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_ours = stat.rsplit_once(") ").and_then(|it| it.1.split(' ').nth(1)) == Some(&own);
        is_ours && line.split(|byte| *byte == 0).any(|word| word == b"--helve-inner-stage")
    };
    let names = fs::read_dir("/proc").unwrap().flatten().map(|it| it.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).filter(is_stage).collect()
}

async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "it does not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The only stage there is, once that is not this one.
async fn at_hand_after(used: i32) -> i32 {
    until(|| <[i32; 1]>::try_from(stages()).ok().map(|[one]| one).filter(|one| *one != used)).await
}

/// Runs in a process of its own, because it kills what others of this process might need.
#[tokio::test]
#[ignore = "a part of `a_stage_is_at_hand_for_who_runs_many`"]
async fn with_a_stage_at_hand() {
    let (place, other) = (Place::new(), Place::new());
    for level in all_levels().into_iter().filter(|level| *level < SandboxLevel::Nested) {
        let sandbox = at(level);
        let parent = async |place: &Place| {
            let ran = run(&sandbox, &place.script("echo $PPID; pwd; ls /proc/self/fd | wc -l; cat")).await.unwrap();
            let (parent, rest) = ran.out.split_once('\n').unwrap();
            assert_eq!(rest, format!("{}\n4\n", place.0.display()), "{level:?}");
            parent.parse::<i32>().unwrap()
        };
        let mut last = 0;
        for _ in 0..3 {
            last = parent(&place).await;
        }
        let at_hand = at_hand_after(last).await;
        assert_eq!(parent(&other).await, at_hand, "{level:?}: it serves the next, wherever that is");
        let next = at_hand_after(at_hand).await;
        rustix::process::kill_process(rustix::process::Pid::from_raw(next).unwrap(), rustix::process::Signal::KILL)
            .unwrap();
        until(|| stages().is_empty().then_some(())).await;
        assert_ne!(parent(&place).await, next, "{level:?}: nobody waits for one that was killed");
    }
}

#[test]
fn a_stage_is_at_hand_for_who_runs_many() {
    let done = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "sandbox::with_a_stage_at_hand", "--nocapture"])
        .env("HELVE_IT_STAGE", stage())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

#[tokio::test]
async fn input_reaches_the_program() {
    let place = Place::new();
    for level in all_levels() {
        let sandbox = at(level);
        let command =
            ProcessSpec { stdin: StdinSource::Bytes(b"one\ntwo\n".to_vec()), ..place.script("cat | wc -l; cat") };
        assert_eq!(run(&sandbox, &command).await.unwrap().out, "2\n", "{level:?}");
        let command = ProcessSpec { stdin: StdinSource::Open, ..place.script("read a; echo got $a; cat; echo end") };
        let mut process = sandbox.spawn(&command).await.unwrap();
        process.write(b"x\n").await.unwrap();
        assert_eq!(process.next().await, ProcessEvent::Stdout(b"got x\n".to_vec()));
        process.write(b"y").await.unwrap();
        process.close_stdin().await.unwrap();
        assert_eq!(finish(process).await.out, "yend\n", "{level:?}");
    }
}

#[tokio::test]
async fn a_megabyte_of_input_meets_a_megabyte_of_output() {
    let place = Place::new();
    let command = ProcessSpec { stdin: StdinSource::Open, ..place.script("cat") };
    let mut process = at(levels().first().copied().unwrap_or(SandboxLevel::None)).spawn(&command).await.unwrap();
    process.write(&vec![b'x'; 1 << 20]).await.unwrap();
    process.close_stdin().await.unwrap();
    assert_eq!(finish(process).await.out.len(), 1 << 20);
}

#[tokio::test]
async fn what_resists_is_killed() {
    let place = Place::new();
    for level in all_levels() {
        let nap = unique_sleep();
        let script = format!(
            "trap '' TERM INT HUP; (trap '' TERM; setsid sleep {nap} &) ; setsid bash -c 'trap \"\" TERM; sleep {nap}' & \
             sleep {nap} & kill -STOP $!; echo up; while :; do sleep {nap}; done"
        );
        let mut process = at(level).spawn(&place.script(&script)).await.unwrap();
        assert_eq!(process.next().await, ProcessEvent::Stdout(b"up\n".to_vec()));
        process.signal(Signal::Terminate).await.unwrap();
        process.signal(Signal::Kill).await.unwrap();
        let ran = finish(process).await;
        assert_eq!((ran.exit.code, ran.exit.signal), (137, Some(9)), "{level:?}");
        assert_eq!(survivors(&nap).await, 0, "{level:?}");
    }
}

#[tokio::test]
async fn a_program_on_a_leash_ends_with_its_engine() {
    let nap = unique_sleep();
    let program = format!("trap '' TERM HUP INT; setsid sleep {nap} & echo up; sleep {nap}; sleep {nap}");
    let leash = format!("{} --helve-leash $$ bash -c \"$PROGRAM\" & wait", stage().display());
    let mut engine = std::process::Command::new("bash");
    engine.args(["-c", &leash]).env("PROGRAM", program).stdout(std::process::Stdio::piped());
    let mut engine = engine.spawn().unwrap();
    let mut up = [0; 3];
    std::io::Read::read_exact(engine.stdout.as_mut().unwrap(), &mut up).unwrap();
    until(|| (alive(&nap) > 0).then_some(())).await;
    engine.kill().unwrap();
    engine.wait().unwrap();
    assert_eq!(survivors(&nap).await, 0);
}

#[test]
fn a_leash_is_not_seen_from_outside() {
    let leashed = |engine: u32, script: &str| {
        let id = engine.to_string();
        let mut command = std::process::Command::new(stage());
        command.args(["--helve-leash", &id, "bash", "-c", script]).output().unwrap()
    };
    let own = std::process::id();
    let ran = leashed(own, "echo out; echo err >&2; exit 3");
    assert_eq!((ran.status.code(), &*ran.stdout, &*ran.stderr), (Some(3), &b"out\n"[..], &b"err\n"[..]));
    assert_eq!(leashed(own, "kill -9 $$").status.code(), Some(137));
    // A process with another parent is not run.
    assert_eq!(leashed(1, "echo out").stdout, b"");
}

#[tokio::test]
async fn dropping_a_process_ends_it() {
    let place = Place::new();
    for level in all_levels() {
        let nap = unique_sleep();
        let script = format!("setsid sleep {nap} & (setsid sleep {nap} &); echo up; sleep {nap}");
        let mut process = at(level).spawn(&place.script(&script)).await.unwrap();
        assert_eq!(process.next().await, ProcessEvent::Stdout(b"up\n".to_vec()));
        drop(process);
        assert_eq!(survivors(&nap).await, 0, "{level:?}");
    }
}

#[tokio::test]
async fn every_signal_reaches_the_tree() {
    let place = Place::new();
    for level in all_levels() {
        // It waits for nothing in the foreground: bash may send itself the same SIGINT for ever if one comes just then.
        let script = "exec 2>/dev/null; trap 'echo usr1' USR1; trap 'echo int' INT; trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 60 & wait; done";
        let mut process = at(level).spawn(&place.script(script)).await.unwrap();
        let mut heard = String::new();
        for signal in [Signal::User1, Signal::Interrupt, Signal::Terminate] {
            let ProcessEvent::Stdout(piece) = process.next().await else { panic!("{level:?}: ended early") };
            heard.push_str(&String::from_utf8_lossy(&piece));
            process.signal(signal).await.unwrap();
        }
        let ran = finish(process).await;
        assert_eq!((heard + &ran.out, ran.exit.code), ("up\nusr1\nint\nbye\n".to_owned(), 7), "{level:?}");
    }
}

#[tokio::test]
async fn programs_that_want_a_terminal_get_one() {
    let place = Place::new();
    for level in all_levels() {
        let terminal = Some(TerminalSize { rows: 24, columns: 100 });
        let script = "test -t 0 && test -t 1 && stty size; read -r line; echo got $line";
        let command = ProcessSpec { terminal, stdin: StdinSource::Open, ..place.script(script) };
        let mut process = at(level).spawn(&command).await.unwrap();
        process.write(b"word\n").await.unwrap();
        let ran = finish(process).await;
        assert!(ran.out.contains("24 100\r\n") && ran.out.ends_with("got word\r\n"), "{level:?}: {:?}", ran.out);
        let command = ProcessSpec {
            terminal,
            stdin: StdinSource::Bytes(b"line\n".to_vec()),
            ..place.script("stty -echo; cat; echo end")
        };
        assert!(run(&at(level), &command).await.unwrap().out.ends_with("end\r\n"), "{level:?}");
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error() {
    let place = Place::new();
    for level in all_levels() {
        let command = ProcessSpec { script: None, argv: vec!["no-such-program".into()], ..place.script("") };
        let error = at(level).spawn(&command).await.err().unwrap().to_string();
        assert_eq!(error, "cannot start no-such-program: No such file or directory (os error 2)", "{level:?}");
    }
}

#[tokio::test]
async fn a_fork_bomb_stays_in_its_pot() {
    let place = Place::new();
    for level in levels() {
        let limits = ResourceLimits { processes: 64, ..ResourceLimits::default() };
        let sandbox = Sandbox::new(SandboxConfig { limits, ..settings(LevelPolicy::Exactly(level)) }).unwrap();
        if !sandbox.report().has_cgroups && (level == SandboxLevel::Rules || rustix::process::geteuid().is_root()) {
            eprintln!("{}: the number of processes cannot be limited for this user here", level.name());
            continue;
        }
        let nap = unique_sleep();
        let script =
            format!("for i in $(seq 200); do sleep {nap} & done 2>/dev/null; :(){{ :|:& }};: 2>/dev/null; echo on");
        let mut process = sandbox.spawn(&place.script(&script)).await.unwrap();
        tokio::select! {
            () = async { while !matches!(process.next().await, ProcessEvent::Exit(_)) {} } => {}
            () = tokio::time::sleep(Duration::from_secs(3)) => {}
        }
        drop(process);
        assert_eq!(survivors(&nap).await, 0, "{level:?}");
        // The engine can start programs as before.
        assert_eq!(run(&sandbox, &place.script("echo fine")).await.unwrap().out, "fine\n", "{level:?}");
    }
}

#[tokio::test]
async fn too_much_memory_is_said_to_be_that() {
    let place = Place::new();
    for level in levels() {
        let limits = ResourceLimits { memory: Some(64 << 20), ..ResourceLimits::default() };
        let sandbox = Sandbox::new(SandboxConfig { limits, ..settings(LevelPolicy::Exactly(level)) }).unwrap();
        if !sandbox.report().has_cgroups {
            eprintln!("{}: memory cannot be limited for this user here", level.name());
            continue;
        }
        let ran = run(&sandbox, &place.script("head -c 200000000 /dev/zero | tail -c 190000000 | wc -c; exit 1")).await;
        let told = ran.unwrap().exit.denials;
        assert_eq!(
            told,
            ["the command used more memory than the 64 MiB it may have, and something in it was killed for that"]
        );
    }
}

#[tokio::test]
async fn commands_cannot_take_all_memory() {
    let place = Place::new();
    for level in levels() {
        let limits = ResourceLimits { memory_of_all: Some(64 << 20), ..ResourceLimits::default() };
        let sandbox = Sandbox::new(SandboxConfig { limits, ..settings(LevelPolicy::Exactly(level)) }).unwrap();
        let ran = run(&sandbox, &place.script("head -c 200000000 /dev/zero | tail -c 190000000 | wc -c; exit 1")).await;
        let ran = ran.unwrap();
        let together = "the command used more memory than the 64 MiB all commands may have together, and something in it \
                        was killed for that";
        let each = "each process may have 64 MiB of memory here; where that is too little, ask the user to raise memory_mb \
                    under [sandbox] in helve.toml";
        assert!([[together], [each]].iter().any(|it| ran.exit.denials == *it), "{level:?} {ran:?}");
        // One after it is not blamed.
        let next = run(&sandbox, &place.script("echo fine; cat /proc/self/oom_score_adj")).await.unwrap();
        assert_eq!(next.exit.denials, [""; 0], "{level:?}");
        assert!(next.out.starts_with("fine\n"), "{level:?} {next:?}");
    }
}

#[tokio::test]
async fn running_out_of_files_or_disk_is_its_own_problem() {
    let place = Place::new();
    for level in levels() {
        let limits = ResourceLimits { open_files: 64, file_size: 1 << 20, ..ResourceLimits::default() };
        let sandbox = Sandbox::new(SandboxConfig { limits, ..settings(LevelPolicy::Exactly(level)) }).unwrap();
        let script = "python3 -c 'l=[open(\"/dev/null\") for _ in range(100)]' 2>&1 | tail -1; yes > big; ls -l big | cut -d' ' -f5";
        let ran = run(&sandbox, &place.script(script)).await.unwrap();
        assert_eq!(ran.out, "OSError: [Errno 24] Too many open files: '/dev/null'\n1048576\n", "{level:?}");
    }
}

#[test]
fn a_stage_of_another_version_runs_nothing() {
    let done = std::process::Command::new(stage()).args(["--helve-inner-stage", "0.0.0-0"]).output().unwrap();
    assert_eq!(done.status.code(), Some(125));
    assert_eq!(
        String::from_utf8_lossy(&done.stderr),
        "the inner stage of the sandbox failed: it is of another version than the engine; start the engine again\n"
    );
}

#[tokio::test]
async fn shared_file_rules_follow_the_roots() {
    for level in levels() {
        let (first, second) = (Place::new(), Place::new());
        let sandbox = Sandbox::new(settings(LevelPolicy::Exactly(level))).unwrap();
        for (mine, other) in [(&first, &second), (&second, &first), (&first, &second)] {
            let script = format!("echo own > own; echo theirs > {}/theirs; ls", other.0.display());
            let ran = run(&sandbox, &mine.script(&script)).await.unwrap();
            assert_eq!(ran.out, "own\n", "{level:?} {ran:?}");
        }
        assert_eq!([first.names(), second.names()], [["own"], ["own"]], "{level:?}");
    }
}
