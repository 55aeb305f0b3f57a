//! What the sandbox permits and denies. One test per row of the threat tables.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, UdpSocket},
    os::{
        fd::AsRawFd,
        linux::net::SocketAddrExt as _,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixListener},
            process::CommandExt,
        },
    },
    process::{Command as Program, Stdio},
    sync::Arc,
    time::Duration,
};

use helve_contract::{
    Access, PathRules, PathStyle, Root, Workspace,
    ports::{Expect, Host as _, NetworkAccess, ProcessEvent, ProcessSpec, SandboxLevel, StdinSource, TerminalSize},
};
use helve_hosts::{LevelPolicy, LocalHost, NetworkPolicy, ProxySocket, Sandbox, SandboxConfig, Spawn};

use crate::sandbox::{Place, at, levels, run, settings, stage, survivors, unique_sleep};

fn protecting(level: SandboxLevel) -> Sandbox {
    let names = [".git/hooks", ".git/config", ".helve", ".mcp.json", ".vscode", "a/b/c"];
    let protected = names.map(str::to_owned).to_vec();
    let protected_anywhere = protected.clone();
    Sandbox::new(SandboxConfig { protected, protected_anywhere, ..settings(LevelPolicy::Exactly(level)) }).unwrap()
}

/// Levels where a place can be protected by a mount.
fn mounting() -> Vec<SandboxLevel> {
    levels().into_iter().filter(|level| *level >= SandboxLevel::Nested).collect()
}

#[tokio::test]
async fn writes_outside_are_refused_and_named() {
    let place = Place::new();
    let outside = Place::new();
    for level in levels() {
        let target = outside.0.join("PWN");
        let target = target.display();
        let script = format!(
            "echo x > /etc/PWN; touch '{target}'; ln -s '{0}' out; echo x > out/PWN2; touch /usr/PWN",
            outside.0.display()
        );
        let ran = run(&at(level), &place.script(&script)).await.unwrap();
        assert_eq!(outside.names(), [""; 0], "{level:?}");
        assert!(!fs::exists("/etc/PWN").unwrap() && !fs::exists("/usr/PWN").unwrap(), "{level:?}");
        let first = &ran.exit.denials[0];
        assert_eq!(
            *first,
            format!(
                "the sandbox ({}) refuses access to /etc/PWN: commands may write only in the workspace and in $TMPDIR. Work \
                 there, or ask the user to add the folder under [sandbox] in helve.toml: writable = [\"/etc\"]",
                level.name()
            )
        );
        fs::remove_file(place.0.join("out")).unwrap();
    }
}

/// A session with a vault that holds one secret. The vault lies beside the shared directory, or inside it.
struct Vaulted {
    place: Place,
    workspace: Workspace,
}

const SECRET: &str = "the-secret-of-the-vault";

impl Vaulted {
    fn new(vault: &str) -> Self {
        let place = Place::new();
        let (shared, vault) = (place.0.join("shared"), place.0.join(vault));
        fs::create_dir_all(&shared).unwrap();
        fs::create_dir_all(&vault).unwrap();
        fs::write(vault.join("k.txt"), SECRET).unwrap();
        let roots = [Root::writable(shared).with_name("shared"), Root::readable(vault).with_name("vault")];
        let workspace = Workspace::new(roots, PathRules::default(), PathStyle::Virtual);
        Self { place, workspace }
    }

    fn script(&self, script: &str) -> ProcessSpec {
        let roots = self.workspace.roots().iter();
        let roots = roots.map(|root| self.workspace.resolve_in_root(&root.dir, "", Access::Read).unwrap()).collect();
        ProcessSpec { cwd: self.workspace.primary_root(Access::Read).unwrap(), roots, ..self.place.script(script) }
    }

    fn vault(&self) -> &std::path::Path {
        &self.workspace.roots()[1].dir
    }

    /// A script that tries every way to the secret.
    fn theft(&self) -> ProcessSpec {
        let (shared, vault) = (self.workspace.roots()[0].dir.display(), self.vault().display());
        self.script(&format!(
            "cat /vault/k.txt; cp /vault/k.txt /shared/leak; cp /vault/k.txt {shared}/leak2; cat {vault}/k.txt; ls -R {vault}
             ln -s {vault} {shared}/way; cat {shared}/way/k.txt; cat /proc/self/root{vault}/k.txt
             cp {vault}/k.txt {shared}/leak3; mv {vault} {shared}/moved; cat {shared}/moved/k.txt
             grep -rs {SECRET} {shared}; true"
        ))
    }
}

#[tokio::test]
async fn the_vault_is_not_seen_by_commands() {
    for level in levels() {
        let session = Vaulted::new("vault");
        let ran = run(&at(level), &session.theft()).await.unwrap();
        let all = format!("{}{}", ran.out, ran.err);
        assert!(!all.contains(SECRET) && !ran.out.contains("k.txt"), "{level:?}: {all}");
        assert_eq!(fs::read_to_string(session.vault().join("k.txt")).unwrap(), SECRET, "{level:?}");
        let told = ran.exit.denials.join("\n");
        assert!(told.contains("commands cannot see the vault (/vault)"), "{level:?}: {told}");
        assert!(!told.contains("writable = [\"/vault\"]"), "{level:?}: {told}");
        // Nor can one start there.
        let vault = session.workspace.resolve_in_root(session.vault(), "", Access::Read).unwrap();
        let inside = ProcessSpec { cwd: vault, ..session.script("cat k.txt") };
        let error = run(&at(level), &inside).await.unwrap_err().to_string();
        assert_eq!(error, "/vault is in the vault, which commands cannot see; start elsewhere", "{level:?}");
    }
}

#[tokio::test]
async fn a_vault_inside_the_workspace_is_hidden() {
    for level in levels() {
        let session = Vaulted::new("shared/state/vault");
        let ran = run(&at(level), &session.theft()).await.unwrap();
        let all = format!("{}{}", ran.out, ran.err);
        assert!(!all.contains(SECRET), "{level:?}: {all}");
        // A directory above it cannot be moved, or the next command would see it at its new place.
        let again = session.script("mv state elsewhere; grep -rs the-secret .; rm -rf state; true");
        let ran = run(&at(level), &again).await.unwrap();
        assert!(!format!("{}{}", ran.out, ran.err).contains(SECRET), "{level:?}");
        assert_eq!(fs::read_to_string(session.vault().join("k.txt")).unwrap(), SECRET, "{level:?}");
    }
}

#[tokio::test]
async fn without_a_sandbox_a_vault_with_files_stops_commands() {
    for level in [SandboxLevel::None, SandboxLevel::External] {
        let session = Vaulted::new("vault");
        let told = run(&at(level), &session.script("echo hi")).await.unwrap_err().to_string();
        assert_eq!(
            told,
            format!(
                "refused: commands run without a sandbox ({}), so this one could read the vault (/vault). Ask the user to \
                 empty the vault or to use sandbox level L1, L2 or L3",
                level.name()
            )
        );
        fs::remove_file(session.vault().join("k.txt")).unwrap();
        assert_eq!(run(&at(level), &session.script("echo hi")).await.unwrap().out, "hi\n");
    }
}

#[tokio::test]
async fn a_folder_that_the_operator_allows_is_writable() {
    let place = Place::new();
    let other = Place::new();
    let seen = Place::new();
    fs::write(seen.0.join("note"), "seen\n").unwrap();
    for level in levels() {
        let given = SandboxConfig {
            writable: vec![other.0.clone()],
            readable: vec![seen.0.clone()],
            ..settings(LevelPolicy::Exactly(level))
        };
        let script = format!("touch {}/ok && cat {1}/note; touch {1}/PWN", other.0.display(), seen.0.display());
        let ran = run(&Sandbox::new(given).unwrap(), &place.script(&script)).await.unwrap();
        assert_eq!((ran.out.as_str(), other.names()), ("seen\n", vec!["ok".to_owned()]), "{level:?}: {}", ran.err);
        assert_eq!(seen.names(), ["note"], "{level:?}");
        fs::remove_file(other.0.join("ok")).unwrap();
    }
}

#[tokio::test]
async fn a_read_only_root_is_read_only() {
    let place = Place::new();
    fs::write(place.0.join("note"), "old\n").unwrap();
    let root = Workspace::new([Root::readable(&place.0)], PathRules::default(), PathStyle::Relative);
    let top = root.primary_root(Access::Read).unwrap();
    for level in levels() {
        let command = ProcessSpec {
            cwd: top.clone(),
            roots: vec![top.clone()],
            ..place.script("cat note; echo new > note; touch x")
        };
        let ran = run(&at(level), &command).await.unwrap();
        assert_eq!((ran.out.as_str(), ran.exit.code), ("old\n", 1), "{level:?}");
        assert_eq!(fs::read_to_string(place.0.join("note")).unwrap(), "old\n");
        assert_eq!(place.names(), ["note"]);
    }
}

#[tokio::test]
async fn protected_places_cannot_be_made_changed_or_moved_away() {
    for level in mounting() {
        let place = Place::new();
        let git = Program::new("git").args(["init", "-q"]).current_dir(&place.0).status();
        assert!(git.is_ok_and(|status| status.success()), "git is needed for this test");
        fs::remove_dir_all(place.0.join(".git/hooks")).unwrap();
        let config = fs::read(place.0.join(".git/config")).unwrap();
        fs::create_dir(place.0.join(".vscode")).unwrap();
        fs::write(place.0.join(".vscode/tasks.json"), "mine").unwrap();
        let script = "
            echo x > .mcp.json; mkdir -p .helve/x; rm -rf .vscode; mv .vscode y; echo x > .vscode/tasks.json; touch .vscode/more
            mkdir .git/hooks; echo x > .git/hooks/pre-commit; mv .git q; rm -rf .git/config
            git config core.fsmonitor ./evil; echo evil >> .git/config; mkdir -p a/b/c
            echo done";
        let ran = run(&protecting(level), &place.script(script)).await.unwrap();
        assert!(ran.out.ends_with("done\n"), "{ran:?}");
        assert_eq!(place.names(), [".git", ".vscode", "a"], "{level:?}");
        assert_eq!(fs::read(place.0.join(".git/config")).unwrap(), config, "{level:?}");
        assert_eq!(fs::read_to_string(place.0.join(".vscode/tasks.json")).unwrap(), "mine", "{level:?}");
        assert!(!place.0.join(".git/hooks/pre-commit").exists() && !place.0.join("a/b/c").exists(), "{level:?}");
        let told = ran.exit.denials.join("\n");
        for name in [".mcp.json", ".helve", ".git/hooks/pre-commit", "a/b/c", ".vscode/tasks.json"] {
            assert!(told.contains(&format!("/{name} is protected")), "{level:?} {name}: {told}");
        }
    }
}

#[tokio::test]
async fn git_stays_usable_for_commits() {
    for level in levels() {
        let place = Place::new();
        assert!(Program::new("git").args(["init", "-q"]).current_dir(&place.0).status().unwrap().success());
        let script = "git status --short && echo x > f && git add -A && git -c user.name=n -c user.email=a@b commit -qm one \
                      && git checkout -q -b topic && git log --format=%s && git show --stat --format= HEAD";
        let ran = run(&protecting(level), &place.script(script)).await.unwrap();
        assert_eq!(ran.out, "one\n f | 1 +\n 1 file changed, 1 insertion(+)\n", "{level:?}: {}", ran.err);
        assert_eq!(place.names(), [".git", "f"], "{level:?}");
    }
}

#[tokio::test]
async fn what_no_mount_holds_is_reported_when_it_changes() {
    for level in levels().into_iter().filter(|level| *level < SandboxLevel::Nested) {
        let place = Place::new();
        fs::create_dir(place.0.join("conf")).unwrap();
        fs::write(place.0.join("conf/tasks.json"), "old").unwrap();
        std::os::unix::fs::symlink("conf", place.0.join(".vscode")).unwrap();
        fs::write(place.0.join(".mcp.json"), "old").unwrap();
        let ran =
            run(&protecting(level), &place.script("echo new > .mcp.json; echo new > conf/tasks.json")).await.unwrap();
        let told = ran.exit.denials.join("\n");
        for name in [".mcp.json", ".vscode"] {
            let start = format!("{}/{name} is protected, but was changed while this command ran", place.0.display());
            assert!(told.contains(&start), "{level:?}: {told}");
        }
    }
}

/// From the third command on, the next sandbox is prepared in advance.
#[tokio::test]
async fn walls_that_were_built_before_are_about_what_is_there_when_a_command_runs() {
    for level in mounting() {
        let place = Place::new();
        let sandbox = protecting(level);
        let build_ahead = async || {
            for _ in 0..3 {
                run(&sandbox, &place.script("true")).await.unwrap();
            }
        };
        build_ahead().await;
        assert_eq!(place.names(), [""; 0], "{level:?}: walls that wait put nothing into the workspace");

        fs::write(place.0.join("new"), "mine\n").unwrap();
        fs::rename(place.0.join("new"), place.0.join(".mcp.json")).unwrap();
        let script = "echo evil > .mcp.json; rm -f .mcp.json; mv .mcp.json x; echo x > .helve; cat .mcp.json; ls -A";
        let ran = run(&sandbox, &place.script(script)).await.unwrap();
        assert!(ran.out.starts_with("mine\n"), "{level:?}: {ran:?}");
        assert_eq!(fs::read_to_string(place.0.join(".mcp.json")).unwrap(), "mine\n", "{level:?}");
        assert_eq!(place.names(), [".mcp.json"], "{level:?}");

        build_ahead().await;
        let before = place.0.with_extension("before");
        fs::rename(&place.0, &before).unwrap();
        fs::create_dir(&place.0).unwrap();
        fs::write(place.0.join("second"), "").unwrap();
        let ran = run(&sandbox, &place.script("ls second; touch third")).await.unwrap();
        assert_eq!((ran.out.as_str(), ran.exit.code), ("second\n", 0), "{level:?}: the folder that was there before");
        assert_eq!(place.names(), ["second", "third"], "{level:?}");
        fs::remove_dir_all(before).unwrap();
    }
}

#[tokio::test]
async fn no_power_over_the_walls_is_left_inside() {
    for level in mounting() {
        let place = Place::new();
        let script = "grep -h '^Cap\\|^NoNewPrivs' /proc/self/status; mount --bind /usr /tmp; umount /tmp; unshare -U true; echo $?";
        for round in 0..4 {
            let ran = run(&protecting(level), &place.script(script)).await.unwrap();
            let none = ["Inh", "Prm", "Eff", "Bnd", "Amb"].map(|set| format!("Cap{set}:\t{:016}\n", 0)).concat();
            assert_eq!(ran.out, format!("{none}NoNewPrivs:\t1\n1\n"), "{level:?}, round {round}: {}", ran.err);
        }
    }
}

#[test]
fn a_protected_place_that_cannot_be_enforced_is_an_error() {
    for name in ["*.pem", "/etc/x", "../x", ""] {
        let error =
            Sandbox::new(SandboxConfig { protected: vec![name.into()], ..settings(LevelPolicy::Best) }).err().unwrap();
        assert_eq!(
            error.to_string(),
            format!(
                "the protected place `{name}` is not a plain name beneath the workspace, and cannot be enforced; write it \
                 as in `.git/hooks`"
            )
        );
    }
}

#[tokio::test]
async fn the_engines_environment_does_not_get_in() {
    let place = Place::new();
    for level in levels() {
        // Cargo sets this one for every test, so it stands for a secret of the engine.
        let script = "cat /proc/1/environ /proc/self/environ /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'; env";
        let ran = run(&at(level), &place.script(script)).await.unwrap();
        assert!(ran.out.contains("HOME="), "{level:?}");
        assert!(!ran.out.contains("CARGO_MANIFEST"), "{level:?}: {}", ran.out);
        let engine = format!("cat /proc/{}/environ 2>/dev/null | wc -c", std::process::id());
        let ran = run(&at(level), &place.script(&engine)).await.unwrap();
        assert_eq!(ran.out.trim(), "0", "{level:?}");
    }
}

#[tokio::test]
async fn names_that_run_code_are_refused() {
    let place = Place::new();
    for name in ["LD_PRELOAD", "BASH_ENV", "GIT_SSH_COMMAND", "NODE_OPTIONS"] {
        let command = ProcessSpec { env: vec![(name.into(), "./e.so".into())], ..place.script("true") };
        let error = at(SandboxLevel::None).spawn(&command).await.err().unwrap().to_string();
        assert!(error.starts_with(&format!("the environment variable `{name}` is not accepted")), "{error}");
    }
    let command = ProcessSpec { env: vec![("CI".into(), "yes".into())], ..place.script("echo $CI") };
    assert_eq!(run(&at(SandboxLevel::None), &command).await.unwrap().out, "yes\n");
}

#[tokio::test]
async fn open_files_of_the_engine_do_not_get_in() {
    let place = Place::new();
    let secret = Place::new();
    fs::write(secret.0.join("secret"), "secret").unwrap();
    let file = fs::File::open(secret.0.join("secret")).unwrap();
    // Open in the engine without close-on-exec, as if its own parent had left it open.
    let leaked = rustix::io::dup(&file).unwrap();
    let number = leaked.as_raw_fd();
    for level in levels() {
        let script = format!("cat <&{number}; ls /proc/self/fd | sort -n | tr '\\n' ' '");
        let ran = run(&at(level), &place.script(&script)).await.unwrap();
        assert!(!ran.out.contains("secret") && ran.err.contains("Bad file descriptor"), "{level:?}: {ran:?}");
        assert_eq!(ran.out, "0 1 2 3 ", "{level:?}: only its own");
    }
}

#[tokio::test]
async fn the_engines_memory_and_the_machine_are_out_of_reach() {
    let place = Place::new();
    let script = r#"
import ctypes, os, sys
c = ctypes.CDLL(None, use_errno=True)
def refused(name, *args):
    ctypes.set_errno(0)
    if c.syscall(*args) != -1 or ctypes.get_errno() not in (1, 38): print("allowed", name, ctypes.get_errno())
refused("ptrace", 101, 0, 0, 0, 0)
refused("process_vm_readv", 310, 1, 0, 0, 0, 0, 0)
refused("io_uring_setup", 425, 1, 0)
refused("userfaultfd", 323, 0)
refused("keyctl", 250, 0, 0)
refused("add_key", 248, 0, 0, 0, 0, 0)
refused("bpf", 321, 0, 0, 0)
refused("perf_event_open", 298, 0, 0, 0, 0, 0)
refused("mount", 165, 0, 0, 0, 0, 0)
refused("unshare", 272, 0x10000000)
refused("setns", 308, 0, 0)
refused("clone3", 435, 0, 0)
refused("clone newuser", 56, 0x10000011, 0, 0, 0, 0)
refused("settimeofday", 164, 0, 0)
refused("socket vsock", 41, 40, 1, 0)
refused("socket packet", 41, 17, 3, 0)
for line in open("/proc/self/status"):
    if line.startswith(("CapEff", "CapPrm", "CapBnd", "CapAmb")) and int(line.split()[1], 16) and not line.startswith("CapBnd"): print(line)
    if line.startswith("NoNewPrivs") and line.split()[1] != "1": print(line)
    if line.startswith("Seccomp:") and line.split()[1] != "2": print(line)
for pid in (1, int(sys.argv[1])):
    try: open(f"/proc/{pid}/mem", "r+b").read(1); print("read memory of", pid)
    except OSError: pass
try: os.kill(int(sys.argv[1]), 0); print("can signal", sys.argv[1])
except OSError: pass
print("end")
"#;
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    fs::write(place.0.join("try.py"), script).unwrap();
    for level in levels() {
        let engine = std::process::id();
        let ran = run(&at(level), &place.script(&format!("python3 try.py {engine}"))).await.unwrap();
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("end\n", ""), "{level:?}");
    }
}

#[tokio::test]
async fn clock_mounts_and_names_of_the_machine_stay() {
    let place = Place::new();
    for level in levels() {
        let script = "date -s 2001-01-01 >/dev/null; mount -t tmpfs none /mnt; hostname evil; chroot / true; mknod n b 8 0; \
                      unshare -Ur true; date +%Y; su -c true nobody </dev/null; true";
        let ran = run(&at(level), &place.script(script)).await.unwrap();
        let year: u32 = ran.out.lines().last().unwrap().parse().unwrap();
        assert!(year > 2020, "{level:?}: the clock was set");
        assert!(ran.err.lines().count() >= 6, "{level:?}: something was allowed: {}", ran.err);
        assert!(!place.0.join("n").exists(), "{level:?}: made a device");
    }
}

#[tokio::test]
async fn nothing_is_typed_into_the_terminal() {
    let place = Place::new();
    let script = "python3 -c 'import fcntl,termios,sys
try: fcntl.ioctl(0, termios.TIOCSTI, b\"x\"); print(\"typed\")
except OSError as e: print(e.errno)'";
    for level in levels() {
        let terminal = Some(TerminalSize { rows: 24, columns: 80 });
        let command = ProcessSpec { terminal, stdin: StdinSource::Open, ..place.script(script) };
        let ran = run(&at(level), &command).await.unwrap();
        assert_eq!(ran.out, "1\r\n", "{level:?}");
    }
}

#[tokio::test]
async fn the_network_is_off() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let other = datagrams.local_addr().unwrap().port();
    let local = place.0.join("socket");
    let neighbour = Place::new();
    let hidden = neighbour.0.join("socket");
    let abstracted = format!("helve-it-{}", std::process::id());
    let _listening = UnixListener::bind(&hidden).unwrap();
    let _unnamed = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstracted).unwrap()).unwrap();
    for level in levels() {
        let script = format!(
            "(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo connected; (echo x > /dev/udp/127.0.0.1/{other})
             python3 - <<'END' 2>/dev/null
import socket
for address in ('{}', '\\0{abstracted}'):
    try: socket.socket(socket.AF_UNIX).connect(address); print('reached', address)
    except OSError: pass
END
             echo end",
            hidden.display()
        );
        let ran = run(&at(level), &place.script(&script)).await.unwrap();
        assert_eq!(ran.out, "end\n", "{level:?}: {}", ran.err);
        assert!(listener.accept().is_err(), "{level:?}: a connection came out");
        assert!(datagrams.recv(&mut [0; 8]).is_err(), "{level:?}: a datagram came out");
        _ = fs::remove_file(&local);
    }
}

#[tokio::test]
async fn the_network_is_on_when_the_operator_says_so() {
    let place = Place::new();
    for level in levels() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let given = SandboxConfig { network: NetworkPolicy::On, ..settings(LevelPolicy::Exactly(level)) };
        let script = format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo connected");
        let ran = run(&Sandbox::new(given).unwrap(), &place.script(&script)).await.unwrap();
        assert_eq!(ran.out, "connected\n", "{level:?}: {}", ran.err);
    }
}

/// A proxy that tells what it was asked, for as long as it is kept.
fn telling_proxy(place: &Place) -> ProxySocket {
    let path = place.0.join("proxy.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(8) {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            write!(stream, "asked: {}", line.trim_end()).unwrap();
        }
    });
    ProxySocket { path, guard: Arc::new(()) }
}

#[tokio::test]
async fn listed_hosts_are_reached_through_a_proxy_and_nothing_else_is() {
    let place = Place::new();
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    let proxy = telling_proxy(&place);
    let script = format!(
        "echo $http_proxy $HTTPS_PROXY; (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo escaped; \
         exec 3<>/dev/tcp/127.0.0.1/18080 && printf 'GET http://x/ HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"
    );
    for level in levels() {
        let proxy = Some(proxy.clone());
        let given = SandboxConfig { network: NetworkPolicy::Allowlist, proxy, ..settings(LevelPolicy::Exactly(level)) };
        let sandbox = Sandbox::new(given).unwrap();
        let ran = run(&sandbox, &place.script(&script)).await.unwrap();
        let wanted = match level {
            SandboxLevel::Rules => "\n",
            _ => "http://127.0.0.1:18080 http://127.0.0.1:18080\nasked: GET http://x/ HTTP/1.0",
        };
        assert_eq!(ran.out, wanted, "{level:?}: {}", ran.err);
        assert!(!ran.exit.left_behind, "{level:?}");
        let off = ProcessSpec { network: NetworkAccess::Off, ..place.script("echo ${http_proxy-none}") };
        assert_eq!(run(&sandbox, &off).await.unwrap().out, "none\n", "{level:?}");
    }
}

#[tokio::test]
async fn secrets_at_home_and_in_etc_are_not_read() {
    let place = Place::new();
    let home = std::env::var("HOME").unwrap();
    let secret = format!("{home}/.helve-it-secret-{}", std::process::id());
    fs::write(&secret, "secret").unwrap();
    for level in levels() {
        let script = format!(
            "cat {secret}; cat /etc/shadow; cat /etc/ssh/*key; cat {home}/.npmrc {home}/.ssh/*; cat /etc/hostname >/dev/null && echo system"
        );
        let ran = run(&at(level), &place.script(&script)).await.unwrap();
        assert_eq!(ran.out, "system\n", "{level:?}");
    }
    fs::remove_file(&secret).unwrap();
}

#[tokio::test]
async fn a_start_folder_that_leads_outside_is_refused() {
    let place = Place::new();
    std::os::unix::fs::symlink("/etc", place.0.join("out")).unwrap();
    let workspace = Workspace::new([Root::writable(&place.0)], PathRules::default(), PathStyle::Relative);
    for (name, said) in
        [("out", "out: leads outside the workspace, and was not opened"), ("none", "none: no such file or folder")]
    {
        let dir = workspace.check(name.as_ref(), Access::Read, None).unwrap();
        let command = ProcessSpec { cwd: dir, ..place.script("pwd") };
        assert_eq!(at(SandboxLevel::None).spawn(&command).await.err().unwrap().to_string(), said);
    }
}

#[tokio::test]
async fn without_a_sandbox_commands_are_refused() {
    let place = Place::new();
    let broken = SandboxConfig { helper: Some("/nonexistent/stage".into()), ..settings(LevelPolicy::Best) };
    let error = Sandbox::new(broken.clone()).unwrap().spawn(&place.script("true")).await.err().unwrap().to_string();
    assert!(error.starts_with("no sandbox works on this machine, so commands are refused (L3: "), "{error}");
    let accepted = Sandbox::new(SandboxConfig { level: LevelPolicy::BestOrNone, ..broken }).unwrap();
    assert_eq!(accepted.report().level, Some(SandboxLevel::None));
}

#[tokio::test]
async fn a_bwrap_in_the_workspace_is_not_used() {
    let place = Place::new();
    fs::write(place.0.join("bwrap"), "#!/bin/sh\ntouch PWN\n").unwrap();
    let given = SandboxConfig { path: vec![place.0.clone()], ..settings(LevelPolicy::Best) };
    let sandbox = Sandbox::probe(given).unwrap();
    let found = sandbox.report().bwrap.clone().unwrap_or_default();
    assert!(!found.contains("helve-it"), "{found}");
}

#[tokio::test]
async fn a_repository_that_a_command_makes_gets_no_hooks_and_no_settings_that_run_programs() {
    for level in levels() {
        let place = Place::new();
        let script = "git init -q . && printf '#!/bin/sh\\n' > .git/hooks/pre-commit";
        let ran = run(&protecting(level), &place.script(script)).await.unwrap();
        assert_eq!(ran.exit.code, 0, "{}", ran.err);
        let told = ran.exit.denials.join("\n");
        let hook = place.0.join(".git/hooks/pre-commit");
        let start = format!("{} is protected and was created while commands ran. It was moved to ", hook.display());
        assert!(told.starts_with(&start) && told.lines().count() == 1, "{level:?}: {told}");
        assert!(!hook.exists() && place.0.join(".git/config").exists(), "{level:?}");
        let script = "git init -q sub && git -C sub config core.fsmonitor ./evil";
        let told = run(&protecting(level), &place.script(script)).await.unwrap().exit.denials.join("\n");
        let start = format!(
            "{}/sub/.git/config was written while commands ran. These settings were removed, because they can make git run \
             programs outside of the sandbox: core.fsmonitor.",
            place.0.display()
        );
        let config = fs::read_to_string(place.0.join("sub/.git/config")).unwrap();
        assert!(!config.contains("fsmonitor") && config.contains("repositoryformatversion"), "{level:?}: {config}");
        assert!(told.starts_with(&start), "{level:?}: {told}");
    }
}

#[tokio::test]
async fn a_placeholder_of_an_earlier_version_is_removed() {
    for level in levels() {
        let place = Place::new();
        fs::create_dir(place.0.join(".helve")).unwrap();
        fs::set_permissions(place.0.join(".helve"), fs::Permissions::from_mode(0o555)).unwrap();
        run(&protecting(level), &place.script("true")).await.unwrap();
        assert_eq!(place.names(), [""; 0], "{level:?}");
    }
}

/// Runs inside another sandbox, where not every level works.
#[tokio::test]
#[ignore = "a part of `inside_another_sandbox_the_next_best_level_is_used`"]
async fn inside_another_sandbox() {
    let place = Place::new();
    let sandbox = Sandbox::probe(settings(LevelPolicy::Best)).unwrap();
    println!("{}", sandbox.report());
    let script = place.script("echo hi; touch /etc/PWN 2>/dev/null; sleep 30 & echo bye");
    if sandbox.report().level.is_none() {
        let refusal = run(&sandbox, &script).await.unwrap_err().to_string();
        return println!("level none: {refusal}");
    }
    let ran = run(&sandbox, &script).await.unwrap();
    assert_eq!((ran.out.as_str(), ran.exit.left_behind), ("hi\nbye\n", true));
    println!("level {}", sandbox.level().name());
}

#[test]
fn inside_another_sandbox_the_next_best_level_is_used() {
    if !levels().contains(&SandboxLevel::Full) {
        eprintln!("there is no outer sandbox to be had here");
        return;
    }
    let test = std::env::current_exe().unwrap();
    let inside = |more: &[&str]| {
        let outer = ["--dev-bind", "/", "/", "--unshare-user", "--unshare-pid"];
        let done = Program::new("/usr/bin/bwrap")
            .args(outer)
            .args(more)
            .arg(&test)
            .args(["--ignored", "--exact", "walls::inside_another_sandbox", "--nocapture"])
            .env("HELVE_IT_STAGE", stage())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
        let level = text.lines().find_map(|line| line.strip_prefix("level ")).unwrap_or("none").to_owned();
        println!("{text}");
        level
    };
    // Something mounted over a part of the outer `/proc` forbids a fresh one inside.
    let nested = inside(&["--uid", "1000", "--gid", "1000", "--proc", "/proc", "--tmpfs", "/proc/tty"]);
    assert_eq!(nested, "L2");
    let without_bwrap = ["--proc", "/proc", "--ro-bind", "/dev/null", "/usr/bin/bwrap"];
    let as_user = [&["--uid", "1000", "--gid", "1000"], &without_bwrap[..]].concat();
    assert_eq!(inside(&as_user), "L1");
    // Root gets no L1 unless somebody asks for it, and is told how.
    let as_root = inside(&[&["--uid", "0", "--gid", "0"], &without_bwrap[..]].concat());
    let advice =
        "L1: not chosen automatically for root; run Helve as another user, make L2 or L3 work, or set sandbox.level";
    assert!(as_root.starts_with("none: no sandbox works") && as_root.contains(advice), "{as_root}");
}

/// Runs as a separate Helve process, which the test below kills.
#[tokio::test]
#[ignore = "a part of `an_engine_that_is_killed_leaves_nothing`"]
async fn engine_to_be_killed() {
    let (place, nap) = (Place::new(), std::env::var("HELVE_IT_NAP").unwrap());
    let sandboxes: Vec<_> = levels().into_iter().chain([SandboxLevel::None]).map(at).collect();
    let script =
        format!("setsid sleep {nap} & (setsid sleep {nap} &) ; trap '' TERM; sleep {nap} & echo up; sleep {nap}");
    let mut all = Vec::new();
    for sandbox in sandboxes.iter().cycle().take(20) {
        let mut process = sandbox.spawn(&place.script(&script)).await.unwrap();
        assert_eq!(process.next().await, ProcessEvent::Stdout(b"up\n".to_vec()));
        all.push(process);
    }
    fs::write(std::env::var("HELVE_IT_READY").unwrap(), place.0.to_str().unwrap()).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn an_engine_that_is_killed_leaves_nothing() {
    let place = Place::new();
    let (nap, ready) = (unique_sleep(), place.0.join("ready"));
    let mut engine = Program::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "walls::engine_to_be_killed"])
        .envs([("HELVE_IT_NAP", nap.as_str()), ("HELVE_IT_READY", ready.to_str().unwrap())])
        .env("HELVE_IT_STAGE", stage())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    while !ready.exists() {
        assert!(engine.try_wait().unwrap().is_none(), "the engine failed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    engine.kill().unwrap();
    engine.wait().unwrap();
    assert_eq!(survivors(&nap).await, 0);
    _ = fs::remove_dir_all(fs::read_to_string(ready).unwrap());
}

#[tokio::test]
async fn a_link_that_a_command_left_leads_no_tool_outside() {
    let outside = Place::new();
    for level in levels() {
        let place = Place::new();
        let script =
            format!("ln -s {0} dir; ln -s {0}/new file; mkdir real; ln -s ../../dir real/deep", outside.0.display());
        assert_eq!(run(&at(level), &place.script(&script)).await.unwrap().exit.code, 0, "{level:?}");
        let workspace = Workspace::new([Root::writable(&place.0)], PathRules::default(), PathStyle::Relative);
        for name in ["dir/x", "file", "real/deep/x"] {
            let path = workspace.check(name.as_ref(), Access::Write, None).unwrap();
            let error = LocalHost::new().write(&path, b"x", Expect::Anything).await.unwrap_err().to_string();
            assert_eq!(error, format!("{name}: leads outside the workspace, and was not opened"), "{level:?}");
        }
        assert_eq!(outside.names(), [""; 0], "{level:?}");
    }
}

#[tokio::test]
async fn a_protected_place_that_is_a_link_is_protected_where_it_leads() {
    for level in mounting() {
        let place = Place::new();
        fs::create_dir(place.0.join("conf")).unwrap();
        fs::write(place.0.join("conf/tasks.json"), "old").unwrap();
        std::os::unix::fs::symlink("conf", place.0.join(".vscode")).unwrap();
        let script = "echo x > .vscode/tasks.json; echo x > conf/tasks.json; touch conf/new; mv conf away; rm -rf conf; echo done";
        let ran = run(&protecting(level), &place.script(script)).await.unwrap();
        assert_eq!(ran.out, "done\n", "{level:?}");
        assert_eq!(fs::read_to_string(place.0.join(".vscode/tasks.json")).unwrap(), "old", "{level:?}");
        assert_eq!(place.names(), [".vscode", "conf"], "{level:?}");
        // The link itself cannot be held, so what takes its place is moved away.
        let ran =
            run(&protecting(level), &place.script("rm .vscode; mkdir .vscode; echo x > .vscode/tasks.json")).await;
        let told = ran.unwrap().exit.denials.join("\n");
        assert!(told.starts_with(&format!("{}/.vscode is protected and was created", place.0.display())), "{told}");
        assert_eq!(place.names(), ["conf"], "{level:?}");
    }
}

#[tokio::test]
async fn memory_that_programs_share_is_not_shared_with_commands() {
    let made = Program::new("ipcmk").args(["-M", "4096", "-p", "666"]).output();
    let Some(id) = made
        .ok()
        .filter(|it| it.status.success())
        .and_then(|it| String::from_utf8_lossy(&it.stdout).split_whitespace().next_back().map(str::to_owned))
    else {
        eprintln!("SKIPPED: ipcmk cannot make shared memory here");
        return;
    };
    let place = Place::new();
    for level in levels() {
        let ran = run(&at(level), &place.script(&format!("ipcrm -m {id}"))).await.unwrap();
        assert_ne!(ran.exit.code, 0, "{level:?}");
        // Where there is no namespace, the filter refuses every use of what can still be seen.
        if level >= SandboxLevel::Nested {
            let ran = run(&at(level), &place.script("ipcs -m | grep -c 666")).await.unwrap();
            assert_eq!(ran.out, "0\n", "{level:?}");
        }
    }
    assert!(Program::new("ipcrm").args(["-m", &id]).status().unwrap().success(), "a command removed it");
}
