//! The matrix: every payload at every level that this machine can produce, as this user and as one with no rights.
//!
//! Each payload runs twice. In a workspace that may only be read it must leave no trace anywhere; in one that may be
//! written it may do there what it likes, and nothing outside. Harmless relatives of the payloads must work as always.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command as Program, Stdio},
    sync::Arc,
    time::Duration,
};

use helve_contract::{
    Access, PathRules, PathStyle, Root, Workspace,
    ports::{Process, ProcessSpec, SandboxLevel, Signal},
};
use helve_hosts::{LevelPolicy, Sandbox, SandboxConfig, Spawn};
use serde::Deserialize;
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

use crate::sandbox::{Place, finish, levels, run, settings, stage};

#[derive(Clone, Deserialize)]
struct Payload {
    name: String,
    setup: String,
    command: String,
    fired_here: bool,
}

/// How the matrix went at one level.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    rows: usize,
    fired_inside: usize,
    escaped: Vec<String>,
}

fn payloads() -> Vec<Payload> {
    serde_json::from_str(include_str!("data/payloads.json")).unwrap()
}

fn sandbox(level: SandboxLevel) -> Sandbox {
    let protected = [".git/hooks", ".git/config", ".helve", ".mcp.json"].map(str::to_owned).to_vec();
    Sandbox::new(SandboxConfig { protected, ..settings(LevelPolicy::Exactly(level)) }).unwrap()
}

/// A workspace inside a directory of its own, so that what lands beside it is seen.
struct Row {
    place: Place,
    workspace: PathBuf,
}

impl Row {
    fn new() -> Self {
        let place = Place::new();
        let workspace = place.0.join("ws");
        fs::create_dir(&workspace).unwrap();
        Self { place, workspace }
    }

    /// Prepares the workspace, without a sandbox: that is the attacker's repository.
    fn set_up(&self, script: &str) {
        let home = self.place.0.join("home");
        fs::create_dir_all(&home).unwrap();
        let done = Program::new("bash")
            .args(["-c", script])
            .current_dir(&self.workspace)
            .env("HOME", &home)
            .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("RUSTUP_TOOLCHAIN", "stable")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        drop(done);
        fs::remove_dir_all(home).unwrap();
    }

    fn command(&self, script: &str, root: Root) -> ProcessSpec {
        let top = Workspace::new([root], PathRules::default(), PathStyle::Relative).primary_root(Access::Read).unwrap();
        ProcessSpec { cwd: top.clone(), roots: vec![top], ..self.place.script(script) }
    }
}

/// Every place where something that gets out would land.
fn around(row: &Row) -> BTreeSet<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let mut found = BTreeSet::new();
    for dir in [Path::new("/"), Path::new("/tmp"), Path::new("/var/tmp"), Path::new("/etc"), Path::new("/usr"), &home] {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        found.extend(entries.filter(|it| it.file_name().to_string_lossy().starts_with("PWN")).map(|it| it.path()));
    }
    found.extend(
        fs::read_dir(&row.place.0).unwrap().flatten().map(|it| it.path()).filter(|path| *path != row.workspace),
    );
    found
}

/// Whether there is a file of that kind anywhere beneath a directory.
fn has_fired(dir: &Path) -> bool {
    fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
        entry.file_name().to_string_lossy().starts_with("PWN")
            || entry.file_type().is_ok_and(|kind| kind.is_dir()) && has_fired(&entry.path())
    })
}

/// Runs one payload both ways. Whether it fired where it may, and what it did where it may not.
async fn attack(sandbox: &Sandbox, payload: &Payload) -> (bool, Vec<String>) {
    let row = Row::new();
    let setup = payload.setup.clone();
    let row = tokio::task::spawn_blocking(move || {
        row.set_up(&setup);
        row
    })
    .await
    .unwrap();
    let mut escaped = Vec::new();
    let planted = has_fired(&row.workspace);
    for (root, way) in [(Root::readable(&row.workspace), "read-only"), (Root::writable(&row.workspace), "writable")] {
        let mut process = sandbox.spawn(&row.command(&payload.command, root)).await.unwrap();
        let ended = timeout(Duration::from_secs(30), until_the_end(process.as_mut())).await;
        if ended.is_err() {
            process.signal(Signal::Kill).await.unwrap();
            finish(process).await;
        }
        let outside = around(&row);
        if !outside.is_empty() {
            escaped.push(format!("{} ({way}): {outside:?}", payload.name));
        }
        if way == "read-only" && has_fired(&row.workspace) && !planted {
            escaped.push(format!("{} wrote into a workspace that may only be read", payload.name));
        }
        for litter in [".helve", ".mcp.json"] {
            if row.workspace.join(litter).exists() {
                escaped.push(format!("{} ({way}): {litter} was left", payload.name));
            }
        }
    }
    (has_fired(&row.workspace), escaped)
}

async fn until_the_end(process: &mut dyn Process) {
    while !matches!(process.next().await, helve_contract::ports::ProcessEvent::Exit(_)) {}
}

/// Runs the whole table at a level.
async fn matrix(level: SandboxLevel) -> Count {
    let sandbox = Arc::new(sandbox(level));
    let places = Arc::new(Semaphore::new(4));
    let mut rows = JoinSet::new();
    for payload in payloads() {
        let (sandbox, places) = (sandbox.clone(), places.clone());
        rows.spawn(async move {
            let _place = places.acquire_owned().await.unwrap();
            let (fired, escaped) = attack(&sandbox, &payload).await;
            if fired != payload.fired_here {
                println!("  {}: fired {fired} (elsewhere {})", payload.name, payload.fired_here);
            }
            (fired, escaped)
        });
    }
    let mut count = Count::default();
    while let Some(row) = rows.join_next().await {
        let (fired, escaped) = row.unwrap();
        count.rows += 1;
        count.fired_inside += usize::from(fired);
        count.escaped.extend(escaped);
    }
    let user = rustix::process::geteuid().as_raw();
    println!(
        "{} as user {user}: {} rows, {} fired inside, {} escaped",
        level.name(),
        count.rows,
        count.fired_inside,
        count.escaped.len()
    );
    count
}

async fn matrix_here() {
    for level in levels() {
        let count = matrix(level).await;
        assert_eq!((count.rows, count.escaped), (128, Vec::new()), "{level:?}");
        // Were nothing able to run at all, nothing would escape either.
        assert!(count.fired_inside > 60, "{level:?}: only {} fired, so the table proves little", count.fired_inside);
    }
}

#[tokio::test]
async fn no_payload_gets_out() {
    matrix_here().await;
}

#[tokio::test]
#[ignore = "a part of `no_payload_gets_out_as_nobody`"]
async fn as_nobody() {
    matrix_here().await;
    benign_here().await;
}

#[test]
fn no_payload_gets_out_as_nobody() {
    run_as_nobody("payloads::as_nobody");
}

/// Runs an ignored test of this binary as a user without any rights.
pub(crate) fn run_as_nobody(test_name: &str) {
    if !rustix::process::geteuid().is_root() {
        println!("not root, so {test_name} has run as an ordinary user already");
        return;
    }
    let place = Place::new();
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).unwrap();
    let (test, inner, home) = (place.0.join("it"), place.0.join("stage"), place.0.join("home"));
    fs::copy(std::env::current_exe().unwrap(), &test).unwrap();
    fs::copy(stage(), &inner).unwrap();
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
    let mut program = Program::new(&test);
    program.args(["--ignored", "--exact", test_name, "--nocapture"]).current_dir("/").gid(65534).uid(65534);
    program.env("HELVE_IT_STAGE", &inner).env("HOME", &home);
    // A program that another test starts just now may hold the copy open for a moment.
    let done = loop {
        match program.status() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            done => break done.unwrap(),
        }
    };
    assert!(done.success(), "{test_name} failed for an ordinary user; see above");
}

/// Harmless relatives of the payloads: what they print must be what they print without a sandbox.
const BENIGN: [(&str, &str); 30] = [
    ("bash", "ls; echo $((1+2)); for i in a b; do echo $i; done"),
    ("rg", "rg x f"),
    ("grep", "grep -n x f"),
    ("find", "find . -name f -not -path './.git/*'"),
    ("sed", "sed -n 1p f; sed -i s/x/y/ f; cat f"),
    ("sort", "sort -o s f; cat s"),
    ("tar", "tar cf a.tar f; tar tf a.tar"),
    ("awk", "awk '{print $1}' f"),
    ("xargs", "echo f | xargs cat"),
    ("env", "env A=1 sh -c 'echo $A'"),
    ("timeout", "timeout 5 echo in time"),
    ("nice", "nice nohup stdbuf -oL echo nice"),
    ("less", "less f | cat"),
    ("date", "date -u -d @0 +%F"),
    ("bash", "cat <<EOF\n$(echo sub)\nEOF\ncat <(echo proc)"),
    ("bash", "exec 3> t; echo x >&3; cat t; mktemp -d >/dev/null && echo tmp"),
    ("git", "git status --short; git log --format=%s; git diff --stat"),
    ("git", "echo z > n; git add n; git -c user.name=n -c user.email=a@b commit -qm two; git log --format=%s"),
    ("git", "git checkout -q -b b; git branch --show-current; git stash list; git grep x"),
    ("perl", "perl -e 'print 6*7, \"\\n\"'"),
    ("node", "node -e 'console.log(6*7)'"),
    (
        "python3",
        "python3 -c 'import json,subprocess,threading; print(subprocess.run([\"echo\",\"sub\"],capture_output=True).stdout)'",
    ),
    ("make", "printf 'all:\\n\\t@echo made\\n' > Makefile; make"),
    ("gcc", "printf 'int main(){return 0;}' > c.c; gcc c.c -o c && ./c && echo ran"),
    ("cargo", "cargo --version >/dev/null && echo cargo"),
    ("curl", "curl -s file://$PWD/f"),
    ("dd", "dd if=f of=d status=none; cat d"),
    ("jq", "echo '{\"a\":1}' | jq .a"),
    ("xxd", "xxd f"),
    ("bash", "sleep 0.05 & wait; seq 1 5 | tac | head -2; id -u >/dev/null && whoami >/dev/null; echo end"),
];

async fn benign_here() {
    let levels = levels();
    let mut passed = 0;
    for (program, script) in BENIGN {
        let there =
            Program::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
        if !there {
            println!("{program} is not on this machine, so its row has nothing to run");
            continue;
        }
        let setup = "git init -q . && echo x > f && git add f && git -c user.email=a@b -c user.name=n commit -qm one";
        let mut wanted = None;
        for level in std::iter::once(SandboxLevel::None).chain(levels.iter().copied()) {
            let row = Row::new();
            row.set_up(setup);
            let ran = run(&sandbox(level), &row.command(script, Root::writable(&row.workspace))).await.unwrap();
            assert_eq!((ran.exit.code, ran.exit.denials), (0, Vec::new()), "{} {script}: {}", level.name(), ran.err);
            match &wanted {
                None => wanted = Some(ran.out),
                Some(wanted) => assert_eq!(ran.out, *wanted, "{} {script}: {}", level.name(), ran.err),
            }
        }
        passed += 1;
    }
    let names: Vec<_> = levels.iter().map(|level| level.name()).collect();
    let user = rustix::process::geteuid().as_raw();
    println!(
        "{} as user {user}: {passed} of {} harmless commands say what they say without walls",
        names.join(", "),
        BENIGN.len()
    );
}

#[tokio::test]
async fn harmless_relatives_work_as_always() {
    benign_here().await;
}
