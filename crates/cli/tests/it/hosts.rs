//! Hosts that settings name, through the real binary: another machine over a real `ssh`, and commands that end with
//! their call.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::json;

use crate::desk::Desk;

/// An SSH server on loopback that lets one key in.
struct Sshd {
    child: Child,
    port: u16,
}

impl Sshd {
    fn start(desk: &Desk) -> Self {
        let folder = desk.path("sshd");
        fs::create_dir(&folder).unwrap();
        let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        for name in ["host", "user"] {
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &file(name)]).status();
            assert!(made.expect("ssh-keygen is installed").success());
        }
        fs::copy(folder.join("user.pub"), folder.join("authorized")).unwrap();
        fs::set_permissions(folder.join("authorized"), fs::Permissions::from_mode(0o600)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PidFile none\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n",
            file("host"),
            file("authorized")
        );
        fs::write(folder.join("config"), config).unwrap();
        let known = fs::read_to_string(folder.join("host.pub")).unwrap();
        fs::write(folder.join("known"), format!("[127.0.0.1]:{port} {known}")).unwrap();
        // The server wants this folder when it starts as root.
        _ = fs::create_dir_all("/run/sshd");
        let child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f", &file("config")])
            .stderr(fs::File::create(folder.join("log")).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .expect("sshd is installed");
        let server = Self { child, port };
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < end, "sshd did not come up: {}", log());
            std::thread::yield_now();
        }
        server
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Settings for a host over `ssh` whose workspace is `far`.
fn ssh_settings(desk: &Desk, port: u16, far: &Path) -> String {
    let (key, known) = (desk.path("sshd/user"), desk.path("sshd/known"));
    let (key, known, far, program) = (key.display(), known.display(), far.display(), env!("CARGO_BIN_EXE_helve"));
    format!(
        "[host]\nkind = \"ssh\"\n[host.ssh]\nhost = \"127.0.0.1\"\nport = {port}\nkey = \"{key}\"\n\
         known_hosts = \"{known}\"\ndir = \"{far}\"\nprogram = \"{program}\"\n"
    )
}

#[test]
fn files_and_commands_are_on_the_other_machine() {
    let desk = Desk::new();
    let sshd = Sshd::start(&desk);
    let far = desk.path("far");
    fs::create_dir(&far).unwrap();
    desk.put("home/.config/helve/helve.toml", &ssh_settings(&desk, sshd.port, &far));

    let write = json!({ "path": "a.txt", "content": "written there\n" }).to_string();
    let ran = desk.run(&["call", "write", &write, "--dialect", "preset"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    assert_eq!(desk.get("far/a.txt"), "written there\n");
    assert!(!desk.path("work/a.txt").exists());
    let ran = desk.run(&[
        "call",
        "bash",
        r#"{"command":"pwd; cat a.txt; echo $SSH_CONNECTION | cut -c 1-9"}"#,
        "--dialect",
        "preset",
    ]);
    assert!(ran.out.contains("DESK/far\nwritten there\n"), "{} {}", ran.out, ran.err);

    let doctor = desk.run(&["doctor"]);
    assert!(doctor.out.contains("ssh 127.0.0.1 answers"), "{}", doctor.out);
}

#[test]
fn a_host_that_cannot_be_reached_is_an_error_with_the_next_step() {
    let desk = Desk::new();
    let missing = desk.run(&["call", "read", r#"{"path":"a"}"#, "--dialect", "preset", "--set", "host.kind=ssh"]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("host.ssh.host is not set"), "{}", missing.err);
    let e2b = desk.run(&["call", "read", r#"{"path":"a"}"#, "--dialect", "preset", "--set", "host.kind=e2b"]);
    assert_eq!(e2b.code, 2);
    assert!(e2b.err.contains("E2B_API_KEY"), "{}", e2b.err);
}

#[test]
fn a_background_command_of_one_call_says_that_it_ends_with_it() {
    let desk = Desk::new();
    let ran = desk.run(&["call", "exec", r#"{"command":"sleep 60","background":true}"#, "--dialect", "solo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("ends"), "{}", ran.out);
}
