//! Commands from the command line: the level, the exit code, and what the walls refuse.

use crate::desk::Desk;

/// Whether this machine has any walls at all; without them commands are refused, which other tests cover.
fn walled(desk: &Desk) -> bool {
    let report = desk.run(&["doctor", "--json"]).json();
    report["checks"].as_array().unwrap().iter().any(|it| it["name"] == "sandbox" && it["state"] == "good")
}

#[test]
fn a_command_shows_its_walls_and_its_exit_code() {
    let desk = Desk::new();
    if !walled(&desk) {
        let ran = desk.run(&["call", "Bash", r#"{"command":"echo hello"}"#]);
        assert_eq!(ran.code, 1, "{}", ran.out);
        return;
    }
    let ran = desk.run(&["call", "Bash", r#"{"command":"echo hello"}"#]);
    assert_eq!((ran.code, ran.out.trim()), (0, "hello"), "{}", ran.err);
    let line = ran.err.trim();
    assert!(["[L3, exit 0]", "[L2, exit 0]", "[L1, exit 0]"].contains(&line), "{line}");

    let ran = desk.run(&["call", "Bash", r#"{"command":"exit 7"}"#]);
    assert!(ran.err.contains("exit 7]"), "{}", ran.err);
}

#[test]
fn a_write_outside_is_refused_and_named() {
    let desk = Desk::new();
    if !walled(&desk) {
        return;
    }
    // A folder that commands can see and not change.
    let outside = desk.path("home/outside.txt");
    let seen = format!("roots={}", desk.path("home").display());
    let command = serde_json::json!({ "command": format!("echo x > {}", outside.display()) });
    let ran = desk.run(&["call", "Bash", &command.to_string(), "--set", &seen]);
    assert!(!outside.exists() && ran.code == 1, "{}", ran.out);
    assert!(ran.out.contains("outside.txt"), "{} {}", ran.out, ran.err);

    let command = serde_json::json!({ "command": "echo x > inside.txt" });
    let ran = desk.run(&["call", "Bash", &command.to_string()]);
    assert_eq!((ran.code, desk.get("work/inside.txt").as_str()), (0, "x\n"), "{} {}", ran.out, ran.err);
}

#[test]
fn commands_can_be_turned_off_and_programs_denied() {
    let desk = Desk::new();
    let off = desk.run(&["call", "Bash", r#"{"command":"true"}"#, "--set", "tools.shell.enabled=false"]);
    assert_eq!(off.code, 2);
    assert!(off.err.contains("the settings leave it out"), "{}", off.err);
    let denied = desk.run(&["call", "Bash", r#"{"command":"ls; rm -f x"}"#, "--set", "tools.shell.deny=rm"]);
    assert_eq!(denied.code, 1, "{}", denied.out);
    assert!(denied.out.contains("rm"), "{}", denied.out);
}

#[test]
fn an_interrupted_command_leaves_nothing_behind() {
    let desk = Desk::new();
    if !walled(&desk) {
        return;
    }
    let mut child = desk
        .command(&["call", "Bash", r#"{"command":"touch begun; exec sleep 1000"}"#])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while !desk.path("work/begun").exists() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let left: Vec<_> = std::fs::read_dir(desk.path("work")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["begun"]);
}
