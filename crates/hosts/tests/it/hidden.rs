//! What commands never see: Helve's own files, keys and tokens, at every level and for every kind of workspace.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command as Program,
};

use helve_contract::{
    Access, PathRules, PathStyle, Root, Workspace,
    ports::{ProcessSpec, SandboxLevel},
};
use helve_hosts::{LevelPolicy, Sandbox, SandboxConfig};

use crate::{
    payloads::run_as_nobody,
    sandbox::{Place, levels, run, settings, stage},
};

const SECRET: &str = "a-secret-that-stays-outside";

/// Files with a secret, beneath the home.
const SECRETS: [&str; 17] = [
    ".local/state/helve/serve.token",
    ".local/state/helve/helve.db-wal",
    ".local/state/helve/vault/key",
    ".local/state/helve/runs/1/events.ndjson",
    ".local/state/helve/spill/other/whole.txt",
    ".ssh/id_rsa",
    ".gnupg/private-keys-v1.d/k.key",
    ".aws/credentials",
    ".docker/config.json",
    ".kube/config",
    ".config/gh/hosts.yml",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".bash_history",
    ".mozilla/firefox/x/cookies.sqlite",
];

/// A home with a state directory in it, in which a session saves its output.
struct Home {
    place: Place,
}

impl Home {
    fn new() -> Self {
        let place = Place::new();
        let put = |name: &str, text: &str| {
            let file = place.0.join("home").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        for name in SECRETS {
            put(name, SECRET);
        }
        put(".local/state/helve/spill/run/whole.txt", "saved output\n");
        put("project/notes.txt", "notes\n");
        put(".gitconfig", "[user]\n");
        // A link in the home that leads to a hidden place, and a hidden name that is a link.
        std::os::unix::fs::symlink(".local/state/helve", place.0.join("home/way")).unwrap();
        put("dotfiles/pgpass", SECRET);
        std::os::unix::fs::symlink("dotfiles/pgpass", place.0.join("home/.pgpass")).unwrap();
        Self { place }
    }

    fn dir(&self) -> PathBuf {
        self.place.0.join("home")
    }

    fn state(&self) -> PathBuf {
        self.dir().join(".local/state/helve")
    }

    fn sandbox(&self, level: SandboxLevel, with: SandboxConfig) -> Sandbox {
        let names = [".aws/credentials", ".docker/config.json", ".kube/config", ".ssh", ".netrc", ".gitconfig"];
        Sandbox::new(SandboxConfig {
            private: vec![self.state()],
            vault: Some(self.state().join("vault")),
            home: Some(self.dir()),
            protected_at_home: names.map(str::to_owned).to_vec(),
            ..SandboxConfig { level: LevelPolicy::Exactly(level), helper: Some(stage()), ..with }
        })
        .unwrap()
    }

    /// A script in a session with this workspace, which can read its own saved output.
    fn script(&self, top: Root, script: &str) -> ProcessSpec {
        let roots = [top, Root::readable(self.state().join("spill/run"))];
        let workspace = Workspace::new(roots, PathRules::default(), PathStyle::Absolute);
        let roots = workspace.roots().iter();
        let roots = roots.map(|root| workspace.resolve_in_root(&root.dir, "", Access::Read).unwrap()).collect();
        ProcessSpec { cwd: workspace.primary_root(Access::Read).unwrap(), roots, ..self.place.script(script) }
    }

    /// A script that tries every way to the secrets.
    fn theft(&self) -> String {
        let (home, state) = (self.dir().display().to_string(), self.state().display().to_string());
        let mut script = String::new();
        for start in ["/proc/self/root", "/proc/thread-self/root", "/proc/1/root", "/proc/$PPID/root"] {
            let all = SECRETS.map(|name| format!("\"{start}{home}/{name}\"")).join(" ");
            script.push_str(&format!("cat {all}; "));
        }
        for name in SECRETS {
            script.push_str(&format!("cat '{home}/{name}'; "));
            script.push_str(&format!(
                "cp '{home}/{name}' '{home}/project/leak'; ln '{home}/{name}' '{home}/project/l'; "
            ));
            script.push_str(&format!("mv '{home}/{name}' '{home}/project/moved'; "));
        }
        script.push_str(&format!(
            "cat {home}/way/serve.token {home}/way/vault/key {home}/.pgpass {home}/dotfiles/pgpass
             for p in /proc/[0-9]*; do cat $p/cwd/.local/state/helve/serve.token $p/root{state}/serve.token; \
               for f in $p/fd/*; do test -f $f && cat $f; done; done 2>/dev/null
             cd {home}/project && ln -s {state} way2 && cat way2/serve.token way2/vault/key
             mv {home}/.local {home}/elsewhere; mv {home}/.local/state {home}/elsewhere2; rm -rf {state}; rm -rf {home}/.ssh
             grep -rs {SECRET} {home}
             python3 -c 'import os
for base in (\"{state}\", \"{home}/.ssh\"):
    for dir, _, names in os.walk(base):
        for name in names: print(open(os.path.join(dir, name)).read())'
             true"
        ));
        script
    }
}

/// The kinds of workspace and settings under which the home is seen.
fn cases(home: &Home) -> Vec<(&'static str, Root, SandboxConfig)> {
    let (dir, above) = (home.dir(), home.place.0.clone());
    let with = |readable: Vec<PathBuf>, writable: Vec<PathBuf>| SandboxConfig {
        readable,
        writable,
        ..settings(LevelPolicy::Best)
    };
    let project = Root::writable(dir.join("project"));
    vec![
        ("home as workspace", Root::writable(&dir), with(Vec::new(), Vec::new())),
        ("home as read-only workspace", Root::readable(&dir), with(Vec::new(), Vec::new())),
        ("a folder above the home", Root::writable(&above), with(Vec::new(), Vec::new())),
        ("a folder above the state folder", Root::writable(dir.join(".local")), with(Vec::new(), Vec::new())),
        ("readable home", project.clone(), with(vec![dir.clone()], Vec::new())),
        ("writable home", project.clone(), with(Vec::new(), vec![dir.clone()])),
        ("the state folder by name", project.clone(), with(vec![home.state()], vec![home.state().join("vault")])),
        ("a project", project, with(Vec::new(), Vec::new())),
    ]
}

async fn matrix_here() {
    for level in levels() {
        for name in 0..8 {
            let home = Home::new();
            let (case, root, with) = cases(&home).swap_remove(name);
            let sandbox = home.sandbox(level, with);
            let spill = home.state().join("spill/run/whole.txt");
            let seen = format!("cat {}; echo ran", spill.display());
            let ran = run(&sandbox, &home.script(root.clone(), &seen)).await.unwrap();
            assert_eq!(ran.out, "saved output\nran\n", "{case} at {level:?}: {} {:?}", ran.err, ran.exit.denials);
            let ran = run(&sandbox, &home.script(root.clone(), &home.theft())).await.unwrap();
            let all = format!("{}{}", ran.out, ran.err);
            assert!(!all.contains(SECRET), "{case} at {level:?}: {all}");
            for told in &ran.exit.denials {
                assert!(!told.contains("able = ["), "{case} at {level:?} advises: {told}");
            }
            // Nothing was moved to a place where the next command would see it, and nothing was removed.
            let again = format!("grep -rs {SECRET} {0} {0}/project; true", home.dir().display());
            let ran = run(&sandbox, &home.script(root, &again)).await.unwrap();
            assert_eq!(ran.out, "", "{case} at {level:?}");
            for name in SECRETS {
                assert_eq!(fs::read_to_string(home.dir().join(name)).ok().as_deref(), Some(SECRET), "{case} {name}");
            }
        }
    }
}

#[tokio::test]
async fn no_command_reads_the_state_folder_or_keys() {
    matrix_here().await;
}

#[tokio::test]
#[ignore = "a part of `no_command_reads_them_as_nobody`"]
async fn as_nobody() {
    matrix_here().await;
}

/// Runs a test of this program as an ordinary user, with a home that was prepared.
pub(crate) fn run_as_nobody_in(test: &str, prepare: impl FnOnce(&Path)) {
    if !rustix::process::geteuid().is_root() {
        println!("not root, so this has run as an ordinary user already");
        return;
    }
    let place = Place::new();
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).unwrap();
    let (program, inner, home) = (place.0.join("it"), place.0.join("stage"), place.0.join("home"));
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::copy(stage(), &inner).unwrap();
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
    prepare(&home);
    let mut command = Program::new(&program);
    command.args(["--ignored", "--exact", test, "--nocapture"]).current_dir("/").gid(65534).uid(65534);
    command.env("HELVE_IT_STAGE", &inner).env("HOME", &home);
    // A program that another test starts just now may hold the copy open for a moment.
    let done = loop {
        match command.status() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            done => break done.unwrap(),
        }
    };
    assert!(done.success(), "{test} failed for an ordinary user; see above");
}

#[test]
fn no_command_reads_them_as_nobody() {
    run_as_nobody("hidden::as_nobody");
}

#[tokio::test]
async fn a_home_is_a_workspace_like_others() {
    for level in levels() {
        let home = Home::new();
        let sandbox = home.sandbox(level, settings(LevelPolicy::Best));
        let script = "cat project/notes.txt; echo new > project/new; mkdir -p project/a/b; cat project/new; ls project";
        let ran = run(&sandbox, &home.script(Root::writable(home.dir()), script)).await.unwrap();
        assert_eq!(ran.out, "notes\nnew\na\nnew\nnotes.txt\n", "{level:?}: {} {:?}", ran.err, ran.exit.denials);
        let ran =
            run(&sandbox, &home.script(Root::writable(home.dir()), "touch top; echo x >> .gitconfig")).await.unwrap();
        assert_eq!(
            fs::read_to_string(home.dir().join(".gitconfig")).unwrap().contains('x'),
            level == SandboxLevel::Rules
        );
        if level == SandboxLevel::Rules {
            let told = ran.exit.denials.join("\n");
            assert!(told.contains("commands can create nothing directly in"), "{told}");
        } else {
            assert!(home.dir().join("top").exists(), "{level:?}: {}", ran.err);
        }
    }
}

#[tokio::test]
async fn without_a_sandbox_a_vault_with_files_stops_commands_of_every_session() {
    for level in [SandboxLevel::None, SandboxLevel::External] {
        let home = Home::new();
        let sandbox = home.sandbox(level, settings(LevelPolicy::Best));
        let script = home.script(Root::writable(home.dir().join("project")), "echo hi");
        let told = run(&sandbox, &script).await.unwrap_err().to_string();
        assert!(told.starts_with("refused: commands run without a sandbox"), "{told}");
        fs::remove_file(home.state().join("vault/key")).unwrap();
        assert_eq!(run(&sandbox, &script).await.unwrap().out, "hi\n");
    }
}

#[tokio::test]
async fn what_commands_make_under_look_alike_names_is_taken_away() {
    for level in levels() {
        let place = Place::new();
        let names = [".mcp.json", ".git/hooks"].map(str::to_owned).to_vec();
        let sandbox = Sandbox::new(SandboxConfig {
            protected: names.clone(),
            protected_anywhere: names,
            ..settings(LevelPolicy::Exactly(level))
        })
        .unwrap();
        let script = "mkdir -p sub; for n in $'.mcp\\u200b.json' $'.\\uff4dcp.json' 'MCP~1.JSO' $'sub/.mcp\\u00ad.json' \
                      '.mcp.json::$DATA'; do echo x > \"$n\"; done; echo y > mcp.json; ls -A";
        run(&sandbox, &place.script(script)).await.unwrap();
        assert_eq!(place.names(), ["mcp.json", "sub"], "{level:?}");
        assert_eq!(fs::read_dir(place.0.join("sub")).unwrap().count(), 0, "{level:?}");
    }
}

/// The secrets of a home are only looked for where a command can see them.
#[tokio::test]
async fn a_project_beside_secrets_costs_no_mounts() {
    let home = Home::new();
    let mut levels = levels();
    levels.retain(|level| *level >= SandboxLevel::Nested);
    for level in levels {
        let sandbox = home.sandbox(level, settings(LevelPolicy::Best));
        let script = home.script(Root::writable(home.dir().join("project")), "cat /proc/self/mountinfo");
        let ran = run(&sandbox, &script).await.unwrap();
        assert!(!ran.out.contains("/.ssh") && !ran.out.contains("/vault"), "{level:?}: {}", ran.out);
        assert!(Path::new(&home.dir()).join(".ssh").exists());
    }
}
