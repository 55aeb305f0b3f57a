//! Protected names that commands create: they get no placeholder, and created files are moved away.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command as Program, Stdio},
    sync::{Arc, Mutex},
};

use helve_contract::ports::{ProcessEvent, ProcessSpec, SandboxLevel, StdinSource};
use helve_hosts::{IntegrityEvent, IntegrityListener, IntegrityOutcome, LevelPolicy, Sandbox, SandboxConfig, Spawn};

use crate::sandbox::{Place, finish, levels, run, settings, stage};

const NAMES: [&str; 13] = [
    ".git/config",
    ".git/config.worktree",
    ".git/hooks",
    ".git/commondir",
    ".gitmodules",
    ".ripgreprc",
    ".vscode",
    ".mcp.json",
    ".claude",
    ".claude.json",
    ".helve",
    "helve.toml",
    "helve.yaml",
];

/// A sandbox with a quarantine directory of its own.
fn guarded(level: SandboxLevel, quarantine: &Path) -> Sandbox {
    let names = NAMES.map(str::to_owned).to_vec();
    let quarantine = Some(quarantine.to_owned());
    let given = SandboxConfig {
        protected: names.clone(),
        protected_anywhere: names,
        quarantine,
        ..settings(LevelPolicy::Exactly(level))
    };
    Sandbox::new(given).unwrap()
}

/// A workspace and a state directory.
struct Setup {
    place: Place,
    state: Place,
}

impl Setup {
    fn new() -> Self {
        Self { place: Place::new(), state: Place::new() }
    }

    fn quarantine(&self) -> PathBuf {
        self.state.0.join("quarantine")
    }

    fn sandbox(&self, level: SandboxLevel) -> Sandbox {
        guarded(level, &self.quarantine())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.0.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn git(&self, args: &[&str]) {
        let identity = ["-c", "user.name=n", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
        let done = Program::new("git").args(identity).args(args).current_dir(&self.place.0).output().unwrap();
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// What was moved away: the content of the place that the reply names.
    fn moved(&self, told: &str, name: &str) -> PathBuf {
        let start =
            format!("{} is protected and was created while commands ran. It was moved to ", self.path(name).display());
        let rest = told.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{name}: {told}"));
        let place = PathBuf::from(rest.split(", because").next().unwrap());
        assert!(place.starts_with(self.quarantine()), "{}", place.display());
        place
    }
}

/// All names and times of a directory.
fn listing(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn times(dir: &Path) -> [(i64, i64); 2] {
    let about = fs::metadata(dir).unwrap();
    [(about.mtime(), about.mtime_nsec()), (about.ctime(), about.ctime_nsec())]
}

#[tokio::test]
async fn a_command_sees_what_is_there_and_nothing_appears_meanwhile() {
    for level in levels() {
        let setup = Setup::new();
        setup.git(&["init", "-q"]);
        setup.write("src/a", "");
        setup.write(".mcp.json", "mine");
        let sandbox = setup.sandbox(level);
        // The third one gets a sandbox that was prepared earlier.
        for _ in 0..3 {
            let (names, git, before) = (
                listing(&setup.place.0),
                listing(&setup.path(".git")),
                (times(&setup.place.0), times(&setup.path(".git"))),
            );
            let script = "ls -A; echo; ls -A .git; tar cf - . | tar tf - | sort; echo end; read x";
            let mut process =
                sandbox.spawn(&ProcessSpec { stdin: StdinSource::Open, ..setup.place.script(script) }).await.unwrap();
            let mut out = String::new();
            while !out.ends_with("end\n") {
                let ProcessEvent::Stdout(piece) = process.next().await else { panic!("{level:?}: it ended: {out}") };
                out += &String::from_utf8_lossy(&piece);
            }
            assert_eq!(
                (listing(&setup.place.0), listing(&setup.path(".git"))),
                (names.clone(), git.clone()),
                "{level:?}"
            );
            assert!(out.starts_with(&format!("{}\n\n{}\n", names.join("\n"), git.join("\n"))), "{level:?}: {out}");
            assert!(!out.contains("helve.toml") && !out.contains(".claude"), "{level:?}: {out}");
            process.close_stdin().await.unwrap();
            assert!(finish(process).await.exit.denials.is_empty(), "{level:?}");
            assert_eq!((times(&setup.place.0), times(&setup.path(".git"))), before, "{level:?}: a time has changed");
        }
    }
}

#[tokio::test]
async fn what_a_command_creates_is_moved_away_at_every_depth() {
    for level in levels() {
        let setup = Setup::new();
        setup.write("sub/x", "");
        let script = "mkdir -p .claude node_modules/p/.vscode deep/er && echo evil > .claude/settings.json \
                      && echo evil > node_modules/p/.vscode/tasks.json && echo evil > deep/er/.mcp.json && ln sub/x sub/.MCP.json \
                      && ln -s sub helve.toml && mkdir .helve && echo evil > made && mv made .ripgreprc; ls -A";
        let ran = run(&setup.sandbox(level), &setup.place.script(script)).await.unwrap();
        assert_eq!(ran.exit.code, 0, "{level:?}: {}", ran.err);
        assert_eq!(setup.place.names(), ["deep", "node_modules", "sub"], "{level:?}");
        let told = ran.exit.denials.join("\n");
        assert_eq!(fs::read_to_string(setup.moved(&told, ".claude").join("settings.json")).unwrap(), "evil\n");
        assert_eq!(
            fs::read_to_string(setup.moved(&told, "node_modules/p/.vscode").join("tasks.json")).unwrap(),
            "evil\n"
        );
        assert_eq!(fs::read_to_string(setup.moved(&told, "deep/er/.mcp.json")).unwrap(), "evil\n");
        assert_eq!(fs::read_to_string(setup.moved(&told, ".ripgreprc")).unwrap(), "evil\n");
        assert_eq!(fs::read_link(setup.moved(&told, "helve.toml")).unwrap(), Path::new("sub"));
        assert!(setup.moved(&told, "sub/.MCP.json").is_file() && setup.moved(&told, ".helve").is_dir());
        assert_eq!(listing(&setup.path("sub")), ["x"], "{level:?}");
        let next = run(&setup.sandbox(level), &setup.place.script("echo x > made")).await.unwrap();
        assert_eq!(next.exit.denials, [""; 0], "{level:?}: it is told once");
    }
}

#[tokio::test]
async fn modes_that_hide_a_file_do_not_keep_it() {
    for level in levels() {
        let setup = Setup::new();
        let script =
            "mkdir -p a .claude && echo evil > a/.mcp.json && chmod 111 a && echo evil > .claude/x && chmod 0 .claude";
        let ran = run(&setup.sandbox(level), &setup.place.script(script)).await.unwrap();
        assert_eq!((ran.exit.code, setup.place.names()), (0, vec!["a".to_owned()]), "{level:?}: {}", ran.err);
        assert!(!setup.path("a/.mcp.json").exists(), "{level:?}");
        assert_eq!(fs::metadata(setup.path("a")).unwrap().permissions().mode() & 0o777, 0o111, "{level:?}");
        fs::set_permissions(setup.path("a"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[tokio::test]
async fn a_renamed_folder_keeps_its_files_and_a_new_one_in_its_place_does_not() {
    for level in levels() {
        let setup = Setup::new();
        setup.write("sub/.mcp.json", "mine");
        setup.write("sub/.vscode/tasks.json", "mine");
        let script =
            "mv sub away && mkdir -p sub/.vscode && echo evil > sub/.mcp.json && echo evil > sub/.vscode/tasks.json";
        let ran = run(&setup.sandbox(level), &setup.place.script(script)).await.unwrap();
        let told = ran.exit.denials.join("\n");
        assert_eq!(fs::read_to_string(setup.path("away/.mcp.json")).unwrap(), "mine", "{level:?}: {told}");
        assert_eq!(fs::read_to_string(setup.path("away/.vscode/tasks.json")).unwrap(), "mine", "{level:?}: {told}");
        assert_eq!(fs::read_to_string(setup.moved(&told, "sub/.mcp.json")).unwrap(), "evil\n", "{level:?}");
        assert!(!setup.path("sub/.mcp.json").exists() && !setup.path("sub/.vscode/tasks.json").exists(), "{level:?}");
        // A name that moves itself is a new one.
        let ran = run(&setup.sandbox(level), &setup.place.script("mv away/.mcp.json .mcp.json")).await.unwrap();
        setup.moved(&ran.exit.denials.join("\n"), ".mcp.json");
        assert!(!setup.path(".mcp.json").exists(), "{level:?}");
    }
}

#[tokio::test]
async fn a_file_outside_is_never_moved() {
    for level in levels() {
        let (setup, outside) = (Setup::new(), Place::new());
        fs::write(outside.0.join(".mcp.json"), "theirs").unwrap();
        setup.write("sub/x", "");
        let sandbox = setup.sandbox(level);
        run(&sandbox, &setup.place.script("true")).await.unwrap();
        let script = format!("rm -r sub; ln -s {} sub; ln -s {0} other", outside.0.display());
        run(&sandbox, &setup.place.script(&script)).await.unwrap();
        assert_eq!(fs::read_to_string(outside.0.join(".mcp.json")).unwrap(), "theirs", "{level:?}");
        assert_eq!(setup.place.names(), ["other", "sub"], "{level:?}");
    }
}

#[tokio::test]
async fn what_stands_in_a_branch_stays_when_it_is_checked_out() {
    for level in levels() {
        let setup = Setup::new();
        setup.git(&["init", "-q"]);
        setup.write("a", "");
        setup.git(&["add", "-A"]);
        setup.git(&["commit", "-qm", "one"]);
        setup.git(&["checkout", "-qb", "topic"]);
        setup.write("sub/.mcp.json", "mine\n");
        setup.write(".claude/settings.json", "mine\n");
        setup.git(&["add", "-A"]);
        setup.git(&["commit", "-qm", "two"]);
        setup.git(&["checkout", "-q", "main"]);
        assert!(!setup.path(".claude").exists());
        let sandbox = setup.sandbox(level);
        let script =
            "git checkout -q topic && mkdir -p .vscode && echo evil > .vscode/x && echo evil > .claude/more.json";
        let ran = run(&sandbox, &setup.place.script(script)).await.unwrap();
        let told = ran.exit.denials.join("\n");
        assert_eq!(ran.exit.code, 0, "{level:?}: {}", ran.err);
        assert_eq!(fs::read_to_string(setup.path("sub/.mcp.json")).unwrap(), "mine\n", "{level:?}: {told}");
        assert_eq!(listing(&setup.path(".claude")), ["settings.json"], "{level:?}: {told}");
        for name in ["sub/.mcp.json", ".claude/settings.json"] {
            let start =
                format!("{} is protected and was written while commands ran. It stays", setup.path(name).display());
            assert!(told.contains(&start), "{level:?} {name}: {told}");
        }
        setup.moved(&told, ".vscode");
        setup.moved(&told, ".claude/more.json");
    }
}

#[tokio::test]
async fn what_stands_in_an_older_commit_stays_when_it_is_checked_out() {
    for level in levels() {
        let setup = Setup::new();
        setup.git(&["init", "-q"]);
        setup.write("sub/.mcp.json", "old\n");
        setup.git(&["add", "-A"]);
        setup.git(&["commit", "-qm", "one"]);
        setup.write("sub/.mcp.json", "new\n");
        setup.git(&["commit", "-qam", "two"]);
        setup.git(&["rm", "-q", "sub/.mcp.json"]);
        setup.git(&["commit", "-qm", "three"]);
        let sandbox = setup.sandbox(level);
        let ran = run(&sandbox, &setup.place.script("git checkout -q HEAD~2")).await.unwrap();
        assert_eq!(fs::read_to_string(setup.path("sub/.mcp.json")).unwrap(), "old\n", "{level:?}: {ran:?}");
        // A commit that a command made is in no history from before.
        let script = "git checkout -q main; mkdir sub; echo evil > sub/.mcp.json; git add -A; \
                      git -c user.name=n -c user.email=a@b commit -qm evil; git rm -q sub/.mcp.json; \
                      git -c user.name=n -c user.email=a@b commit -qm gone";
        run(&sandbox, &setup.place.script(script)).await.unwrap();
        let ran = run(&sandbox, &setup.place.script("git checkout -q HEAD~1")).await.unwrap();
        setup.moved(&ran.exit.denials.join("\n"), "sub/.mcp.json");
        assert!(!setup.path("sub/.mcp.json").exists(), "{level:?}");
    }
}

#[tokio::test]
async fn a_listener_hears_what_was_found() {
    let setup = Setup::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let heard = heard.clone();
        IntegrityListener(Arc::new(move |event| heard.lock().unwrap().push(event.clone())))
    };
    let given = SandboxConfig {
        protected: vec![".mcp.json".to_owned()],
        quarantine: Some(setup.quarantine()),
        listener: Some(listener),
        ..settings(LevelPolicy::Exactly(levels()[0]))
    };
    let ran = run(&Sandbox::new(given).unwrap(), &setup.place.script("echo evil > .mcp.json")).await.unwrap();
    let place = setup.moved(&ran.exit.denials.join("\n"), ".mcp.json");
    let event = IntegrityEvent { path: setup.path(".mcp.json"), outcome: IntegrityOutcome::Moved(place) };
    assert_eq!(*heard.lock().unwrap(), [event]);
}

#[tokio::test]
async fn a_clone_of_a_repository_of_the_workspace_is_whole() {
    for level in levels() {
        let setup = Setup::new();
        setup.git(&["init", "-q", "source"]);
        setup.write("source/.claude/settings.json", "mine\n");
        setup.write("source/.mcp.json", "mine\n");
        setup.git(&["-C", "source", "add", "-A"]);
        setup.git(&["-C", "source", "commit", "-qm", "one"]);
        let script =
            "git clone -q --shared source clone && echo evil > clone/.ripgreprc && git -C clone status --short";
        let ran = run(&setup.sandbox(level), &setup.place.script(script)).await.unwrap();
        let told = ran.exit.denials.join("\n");
        assert_eq!(ran.exit.code, 0, "{level:?}: {}", ran.err);
        for name in ["clone/.mcp.json", "clone/.claude/settings.json"] {
            assert_eq!(fs::read_to_string(setup.path(name)).unwrap(), "mine\n", "{level:?}: {told}");
        }
        setup.moved(&told, "clone/.ripgreprc");
    }
}

#[tokio::test]
async fn a_branch_that_commands_made_proves_nothing() {
    for level in levels() {
        let setup = Setup::new();
        setup.git(&["init", "-q"]);
        setup.write("a", "");
        setup.git(&["add", "-A"]);
        setup.git(&["commit", "-qm", "one"]);
        let sandbox = setup.sandbox(level);
        let git = "git -c user.name=n -c user.email=a@b";
        let script = format!(
            "git checkout -qb evil && echo evil > .mcp.json && git add -A && {git} commit -qm evil && git checkout -q main"
        );
        let ran = run(&sandbox, &setup.place.script(&script)).await.unwrap();
        assert_eq!((ran.exit.code, ran.exit.denials), (0, Vec::new()), "{level:?}: {}", ran.err);
        let ran = run(&sandbox, &setup.place.script("git checkout -q evil")).await.unwrap();
        setup.moved(&ran.exit.denials.join("\n"), ".mcp.json");
        assert!(!setup.path(".mcp.json").exists(), "{level:?}");
    }
}

#[tokio::test]
async fn while_one_command_runs_the_end_of_another_is_a_check_too() {
    for level in levels() {
        let setup = Setup::new();
        let sandbox = setup.sandbox(level);
        let slow = ProcessSpec {
            stdin: StdinSource::Open,
            ..setup.place.script("echo evil > .mcp.json; echo up; read x; echo evil > .mcp.json")
        };
        let mut first = sandbox.spawn(&slow).await.unwrap();
        assert_eq!(first.next().await, ProcessEvent::Stdout(b"up\n".to_vec()));
        let ran = run(&sandbox, &setup.place.script("true")).await.unwrap();
        setup.moved(&ran.exit.denials.join("\n"), ".mcp.json");
        assert_eq!(setup.place.names(), [""; 0], "{level:?}");
        first.close_stdin().await.unwrap();
        let told = finish(first).await.exit.denials.join("\n");
        setup.moved(&told, ".mcp.json");
        assert_eq!(setup.place.names(), [""; 0], "{level:?}");
        assert_eq!(listing(&setup.quarantine().join("running")), [""; 0], "{level:?}: no journal is left");
    }
}

#[tokio::test]
async fn what_the_user_makes_between_commands_stays() {
    for level in levels() {
        let setup = Setup::new();
        let sandbox = setup.sandbox(level);
        run(&sandbox, &setup.place.script("true")).await.unwrap();
        setup.write(".mcp.json", "mine");
        setup.write("sub/.claude/settings.json", "mine");
        let ran = run(&sandbox, &setup.place.script("touch sub/x y")).await.unwrap();
        assert_eq!(ran.exit.denials, [""; 0], "{level:?}");
        assert_eq!(fs::read_to_string(setup.path("sub/.claude/settings.json")).unwrap(), "mine", "{level:?}");
        assert_eq!(setup.place.names(), [".mcp.json", "sub", "y"], "{level:?}");
    }
}

#[tokio::test]
async fn a_state_folder_in_the_workspace_is_not_a_find() {
    for level in levels() {
        let place = Place::new();
        let sandbox = guarded(level, &place.0.join(".helve/quarantine"));
        let ran = run(&sandbox, &place.script("echo evil > .mcp.json")).await.unwrap();
        assert_eq!(ran.exit.denials.len(), 1, "{level:?}: {:?}", ran.exit.denials);
        let ran = run(&sandbox, &place.script("true")).await.unwrap();
        assert_eq!((ran.exit.denials, place.names()), (Vec::new(), vec![".helve".to_owned()]), "{level:?}");
    }
}

/// Runs as the engine in a process of its own, to be killed by the story below.
#[tokio::test]
#[ignore = "a part of `after_a_kill_the_next_start_does_the_check`"]
async fn engine_to_be_killed() {
    let dir = PathBuf::from(std::env::var("HELVE_IT_PLACE").unwrap());
    let quarantine = PathBuf::from(std::env::var("HELVE_IT_QUARANTINE").unwrap());
    let level = levels().into_iter().find(|it| it.name() == std::env::var("HELVE_IT_LEVEL").unwrap()).unwrap();
    let place = Place(dir);
    let script = "mkdir sub; echo evil > sub/.mcp.json; echo up; read x";
    let command = ProcessSpec { stdin: StdinSource::Open, ..place.script(script) };
    let mut process = guarded(level, &quarantine).spawn(&command).await.unwrap();
    assert_eq!(process.next().await, ProcessEvent::Stdout(b"up\n".to_vec()));
    // The parent kills this process when the command has done its work.
    println!("ready");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn after_a_kill_the_next_start_does_the_check() {
    use std::io::{BufRead as _, BufReader};
    for level in levels() {
        let setup = Setup::new();
        let mut engine = Program::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "quarantine::engine_to_be_killed", "--nocapture"])
            .env("HELVE_IT_PLACE", &setup.place.0)
            .env("HELVE_IT_QUARANTINE", setup.quarantine())
            .env("HELVE_IT_LEVEL", level.name())
            .env("HELVE_IT_STAGE", stage())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let lines = BufReader::new(engine.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("ready")), "{level:?}: the engine failed");
        engine.kill().unwrap();
        engine.wait().unwrap();
        assert_eq!(fs::read_to_string(setup.path("sub/.mcp.json")).unwrap(), "evil\n", "{level:?}");
        assert_eq!(setup.place.names(), ["sub"], "{level:?}: nothing else is left");
        let told = setup.sandbox(level).recover(std::slice::from_ref(&setup.place.0)).await.join("\n");
        assert_eq!(fs::read_to_string(setup.moved(&told, "sub/.mcp.json")).unwrap(), "evil\n", "{level:?}");
        assert!(!setup.path("sub/.mcp.json").exists(), "{level:?}");
        assert_eq!(
            setup.sandbox(level).recover(std::slice::from_ref(&setup.place.0)).await,
            [""; 0],
            "{level:?}: it is done once"
        );
    }
}

#[tokio::test]
async fn a_command_that_nobody_waits_for_is_checked_when_it_is_gone() {
    for level in levels() {
        let setup = Setup::new();
        let sandbox = setup.sandbox(level);
        let slow =
            ProcessSpec { stdin: StdinSource::Open, ..setup.place.script("echo evil > .mcp.json; echo up; read x") };
        let mut process = sandbox.spawn(&slow).await.unwrap();
        assert_eq!(process.next().await, ProcessEvent::Stdout(b"up\n".to_vec()));
        drop(process);
        // The next command waits for the check of the first, or does it.
        let mut told = String::new();
        while !told.contains(".mcp.json") {
            told += &run(&sandbox, &setup.place.script("true")).await.unwrap().exit.denials.join("\n");
        }
        setup.moved(&told, ".mcp.json");
    }
}

#[tokio::test]
async fn a_large_tree_is_not_listed_again_by_the_next_engine() {
    let setup = Setup::new();
    for at in 0..100 {
        setup.write(&format!("d{at}/e/x"), "");
    }
    symlink("d0", setup.path("link")).unwrap();
    let level = levels()[0];
    run(&setup.sandbox(level), &setup.place.script("true")).await.unwrap();
    assert_eq!(listing(&setup.quarantine().join("index")).len(), 1, "the index is kept");
    let ran = run(&setup.sandbox(level), &setup.place.script("echo evil > d7/e/.mcp.json")).await.unwrap();
    setup.moved(&ran.exit.denials.join("\n"), "d7/e/.mcp.json");
}
