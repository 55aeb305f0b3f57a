//! Hosts that settings name, through the real binary: another machine over a real `ssh`, and commands that end with
//! their call.

use std::{fs, path::Path};

use serde_json::json;

use crate::{desk::Desk, sshd::Sshd};

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
    let Some(sshd) = Sshd::start(desk.path("sshd")) else { return };
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
