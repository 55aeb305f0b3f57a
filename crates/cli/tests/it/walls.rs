//! Commands from the command line: the level, the exit code, and what the sandbox refuse.

use crate::desk::Desk;

/// Whether this machine has a sandbox; without one commands are refused, which other tests cover. In CI a machine that
/// can have one must have it, or the tests here would pass without testing anything.
fn walled(desk: &Desk) -> bool {
    let report = desk.run(&["doctor", "--json"]).json();
    let works = report["checks"].as_array().unwrap().iter().any(|it| it["name"] == "sandbox" && it["state"] == "good");
    let is_ci = ["CI", "HELVE_CI"].iter().any(|name| std::env::var_os(name).is_some());
    assert!(works || !is_ci || !can_have_sandbox(), "no sandbox works here: {report}");
    works
}

/// Whether this machine has what a sandbox needs, by a try that does not involve Helve. Root gets no L1 by itself.
fn can_have_sandbox() -> bool {
    let bwrap = std::process::Command::new("bwrap").args(["--unshare-all", "--ro-bind", "/", "/", "true"]).output();
    let modules = std::fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    let has_l1 = modules.contains("landlock") && !rustix::process::geteuid().is_root();
    bwrap.is_ok_and(|ran| ran.status.success()) || has_l1
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
    // A directory that commands can see and not change.
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

/// The tool of each dialect that runs a command.
const COMMAND_TOOLS: [(&str, &str); 5] =
    [("solo", "exec"), ("forge", "bash"), ("preset", "bash"), ("oxydra", "shell_exec"), ("claude", "Bash")];

#[test]
fn no_dialect_shows_a_command_the_state_folder() {
    let desk = Desk::new();
    if !walled(&desk) {
        eprintln!("SKIPPED: there are no walls here");
        return;
    }
    let secret = "a-token-that-stays-outside";
    desk.put("home/.local/state/helve/serve.token", secret).put("home/.local/state/helve/vault/key", secret);
    desk.put("home/.aws/credentials", secret).put("home/project/notes", "notes");
    let home = desk.path("home").display().to_string();
    let state = format!("{home}/.local/state/helve");
    for (dialect, tool) in COMMAND_TOOLS {
        for (workspace, set) in [
            ("home", "sandbox.readable=[]".to_owned()),
            ("", "sandbox.readable=[]".to_owned()),
            ("work", format!("sandbox.readable=[\"{home}\"]")),
        ] {
            let command = format!("cat {state}/serve.token {state}/vault/key {home}/.aws/credentials; echo ran");
            let args = serde_json::json!({ "command": command }).to_string();
            let workspace = desk.path(workspace).display().to_string();
            let ran = desk.run(&["call", tool, &args, "--dialect", dialect, "--workspace", &workspace, "--set", &set]);
            let all = format!("{} {}", ran.out, ran.err);
            assert!(!all.contains(secret) && ran.out.contains("ran"), "{dialect} in {workspace}: {all}");
            assert!(!all.contains("able = ["), "{dialect} in {workspace} advises: {all}");
        }
        // Without a sandbox it cannot be hidden, so that nothing is run while the vault has files.
        let ran =
            desk.run(&["call", tool, r#"{"command":"echo ran"}"#, "--dialect", dialect, "--set", "sandbox.level=none"]);
        assert!(
            ran.code != 0 && format!("{}{}", ran.out, ran.err).contains("could read the vault"),
            "{dialect}: {}",
            ran.out
        );
    }
    for (tool, args) in [
        ("Read", serde_json::json!({ "file_path": format!("{state}/serve.token") })),
        ("Grep", serde_json::json!({ "pattern": secret, "path": home, "output_mode": "content" })),
        ("Grep", serde_json::json!({ "pattern": ".", "path": state, "output_mode": "content" })),
        ("Glob", serde_json::json!({ "pattern": "**/serve.token", "path": home })),
    ] {
        let ran = desk.run(&["call", tool, &args.to_string(), "--workspace", &home]);
        let found = ran.out.contains("serve.token\n") && ran.code == 0;
        assert!(!ran.out.contains(&format!("helve/serve.token:1:{secret}")) && !found, "{tool}: {}", ran.out);
    }
}

#[test]
fn folders_inside_the_state_folder_are_no_roots() {
    let desk = Desk::new();
    desk.put("home/.local/state/helve/vault/key", "x");
    let vault = desk.path("home/.local/state/helve/vault").display().to_string();
    for set in
        [format!("roots={vault}"), format!("sandbox.readable=[\"{vault}\"]"), format!("sandbox.writable=[\"{vault}\"]")]
    {
        let ran = desk.run(&["call", "Glob", r#"{"pattern":"*"}"#, "--set", &set]);
        assert!(ran.code == 2 && ran.err.contains("inside Helve's state folder"), "{set}: {} {}", ran.out, ran.err);
    }
}

#[test]
fn commands_can_be_turned_off_and_programs_denied() {
    let desk = Desk::new();
    let off = desk.run(&["call", "Bash", r#"{"command":"true"}"#, "--set", "tools.shell.enabled=false"]);
    assert_eq!(off.code, 2);
    assert!(off.err.contains("a setting turns it off"), "{}", off.err);
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

#[test]
fn the_model_chooses_neither_the_root_nor_the_loader() {
    let desk = Desk::new();
    if !walled(&desk) {
        eprintln!("SKIPPED: there are no walls here");
        return;
    }
    let exec = |args: &str| desk.run(&["call", "exec", args, "--dialect", "solo"]);
    for dir in ["/", "../..", "..", "/etc"] {
        let ran = exec(&serde_json::json!({ "command": "touch PWN", "workdir": dir }).to_string());
        assert!(ran.code == 1 && ran.out.contains("outside the workspace"), "{dir}: {}", ran.out);
    }
    std::os::unix::fs::symlink(desk.path("home"), desk.path("work/out")).unwrap();
    assert_eq!(exec(r#"{"command":"touch PWN","workdir":"out"}"#).code, 1);
    assert!(!desk.path("home/PWN").exists() && !desk.path("PWN").exists());
    for name in ["LD_PRELOAD", "BASH_ENV", "GIT_CONFIG_COUNT", "NODE_OPTIONS", "PATH", "HELVE_STATE_DIR"] {
        let ran = exec(&serde_json::json!({ "command": "true", "env": { name: "./evil" } }).to_string());
        assert!(ran.code == 1 && ran.out.contains("is not accepted"), "{name}: {}", ran.out);
    }
}

#[test]
fn nothing_of_the_users_environment_steers_a_command() {
    let evil = [
        ("BASH_ENV", "./evil"),
        ("ENV", "./evil"),
        ("PROMPT_COMMAND", "touch PWN"),
        ("SHELLOPTS", "xtrace"),
        ("PS4", "$(touch PWN)"),
        ("GCONV_PATH", "."),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
        ("GIT_CONFIG_VALUE_0", "./evil"),
        ("GIT_EXTERNAL_DIFF", "./evil"),
        ("GIT_SSH_COMMAND", "./evil"),
        ("GIT_PAGER", "./evil"),
        ("PAGER", "./evil"),
        ("LESSOPEN", "|./evil %s"),
        ("NODE_OPTIONS", "--require ./evil.js"),
        ("PERL5OPT", "-Mevil"),
        ("PYTHONPATH", "./evil"),
        ("PYTHONSTARTUP", "./evil"),
        ("MAKEFLAGS", "--eval=$(shell ./evil)"),
        ("AWS_SECRET_ACCESS_KEY", "evil"),
    ];
    let desk = evil.iter().fold(Desk::new(), |desk, (name, value)| desk.env(name, value));
    desk.put("work/evil", "touch PWN\n");
    if !walled(&desk) {
        eprintln!("SKIPPED: there are no walls here");
        return;
    }
    let ran = desk.run(&["call", "Bash", r#"{"command":"env; bash -c true; git init -q . && git status"}"#]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    assert!(!ran.out.contains("./evil") && !ran.out.contains("AWS_SECRET"), "{}", ran.out);
    for line in ["PAGER=cat", "GIT_PAGER=cat", "LESSOPEN="] {
        assert!(ran.out.lines().any(|it| it == line), "{line}: {}", ran.out);
    }
    assert!(!desk.path("work/PWN").exists());
}

#[test]
fn a_shell_remembers_nothing_of_the_last_command() {
    let desk = Desk::new();
    if !walled(&desk) {
        eprintln!("SKIPPED: there are no walls here");
        return;
    }
    let lines = [
        serde_json::json!({ "tool": "Bash", "args": { "command": "export PAGER=./evil; X=1; ls() { touch PWN; }; export -f ls; alias cat=ls; cd /" } }),
        serde_json::json!({ "tool": "Bash", "args": { "command": "echo $PAGER $X; type -t ls cat; pwd" } }),
    ];
    let ran = desk.fed(&["batch"], &lines.map(|it| it.to_string()).join("\n"));
    let last: serde_json::Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    assert_eq!(last["text"], "cat\nfile\nfile\nDESK/work\n", "{}", ran.out);
}

#[test]
fn an_address_that_looks_like_a_command_is_an_address() {
    let desk = Desk::new();
    if !walled(&desk) {
        eprintln!("SKIPPED: there are no walls here");
        return;
    }
    desk.put(
        "home/.gitconfig",
        "[user]\n\tname = `touch PWN`; touch PWN\n\temail = \"$(touch PWN)\"\n[core]\n\tfsmonitor = ./evil\n",
    );
    let command =
        "git init -q . && git commit -q --allow-empty -m x && git log --format='%an <%ae>'; git config core.fsmonitor";
    let ran = desk.run(&["call", "Bash", &serde_json::json!({ "command": command }).to_string()]);
    assert!(ran.out.contains("`touch PWN`") && ran.out.contains("<$(touch PWN)>"), "{} {}", ran.out, ran.err);
    assert!(!ran.out.contains("evil") && !desk.path("work/PWN").exists(), "{}", ran.out);
}

#[test]
fn a_command_lists_what_is_there_and_plants_nothing() {
    let desk = Desk::new();
    if !walled(&desk) {
        return;
    }
    desk.put("work/a.txt", "");
    let listed = desk.run(&["call", "Bash", r#"{"command":"ls -A"}"#]);
    assert_eq!((listed.code, listed.out.trim()), (0, "a.txt"), "{}", listed.err);

    // The gate reads what a command line names; a script says nothing before it runs.
    let script = "mkdir -p .claude sub; echo x > .claude/settings.json; echo x > helve.toml; echo x > sub/.mcp.json\n";
    desk.put("work/a.txt", script);
    let ran = desk.run(&["call", "Bash", r#"{"command":"sh a.txt"}"#]);
    let left: Vec<_> = std::fs::read_dir(desk.path("work")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "a.txt and sub: {left:?} {}", ran.out);
    assert!(!desk.path("work/sub/.mcp.json").exists(), "{}", ran.out);
    let said = format!("{}{}", ran.out, ran.err);
    for name in [".claude", "helve.toml", "sub/.mcp.json"] {
        let moved = format!("work/{name} is protected and was created while commands ran. It was moved to ");
        assert!(said.contains(&moved), "{name}: {said}");
    }
}

#[test]
fn a_killed_engine_leaves_nothing_and_the_next_one_checks() {
    let desk = Desk::new();
    if !walled(&desk) {
        return;
    }
    desk.put("work/a.txt", "echo x > .mcp.json; touch begun; exec sleep 1000\n");
    let mut child = desk
        .command(&["call", "Bash", r#"{"command":"sh a.txt"}"#])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while !desk.path("work/begun").exists() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let mut left: Vec<_> = std::fs::read_dir(desk.path("work")).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".mcp.json", "a.txt", "begun"], "no placeholder is left");
    let ran = desk.run(&["call", "Bash", r#"{"command":"true"}"#]);
    let said = format!("{}{}", ran.out, ran.err);
    assert!(
        said.contains("work/.mcp.json is protected and was created while commands ran. It was moved to "),
        "{said}"
    );
    assert!(!desk.path("work/.mcp.json").exists());
}

#[test]
fn the_program_is_position_independent() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_helve")).unwrap();
    // The type of an ELF file stands at byte 16; 3 is a shared object, which is what such a program is.
    assert_eq!((&program[..4], program[16]), (&b"\x7fELF"[..], 3));
}
