//! Rules of the settings, from the command line: what they stop, and which of them stop the start.

use serde_json::json;

use crate::desk::Desk;

fn call(desk: &Desk, tool: &str, args: &serde_json::Value, more: &[&str]) -> crate::desk::Ran {
    let args = args.to_string();
    let all: Vec<&str> = ["call", tool, &args].iter().chain(more).copied().collect();
    desk.run(&all)
}

#[test]
fn a_rule_about_a_path_holds_for_searches_links_and_commands() {
    let desk = Desk::new();
    desk.put("work/keys/id.pem", "TOPSECRET\n").put("work/deploy.sh", "orig\n").put("work/a.txt", "plain\n");
    std::os::unix::fs::symlink("keys/id.pem", desk.path("work/link")).unwrap();
    let rules = ["--set", r#"approval.deny=["Read(**/*.pem)","Edit(deploy.sh)"]"#];
    let grep = json!({"pattern": ".", "glob": "*.pem", "output_mode": "content"});
    for (tool, args) in [
        ("Grep", grep),
        ("FileRead", json!({"file_path": desk.path("work/link")})),
        ("FileEdit", json!({"file_path": desk.path("work/keys/id.pem"), "old_string": "TOP", "new_string": "X"})),
        ("FileWrite", json!({"file_path": desk.path("work/deploy.sh"), "content": "EVIL"})),
        ("Bash", json!({"command": "cat keys/id.pem"})),
        // Nothing in these lines names the file, so that only the sandbox can keep it.
        ("Bash", json!({"command": "cat keys/*"})),
        ("Bash", json!({"command": "cd keys; for f in *; do cat $f; done"})),
        ("Bash", json!({"command": "cat link"})),
        ("Bash", json!({"command": "mv keys k2; cat k2/*"})),
        (
            "Bash",
            json!({"command": "d=deploy; echo EVIL | tee $d.sh; sed -i s/orig/EVIL/ $d.*; mv $d.sh x; rm -f $d.*"}),
        ),
    ] {
        let ran = call(&desk, tool, &args, &rules);
        assert!(!ran.out.contains("TOPSECRET"), "{tool} {args}: {}", ran.out);
        assert_eq!(desk.get("work/keys/id.pem"), "TOPSECRET\n", "{tool} {args}: {}", ran.out);
        assert_eq!(desk.get("work/deploy.sh"), "orig\n", "{tool} {args}: {}", ran.out);
    }
    let ran = call(&desk, "Bash", &json!({"command": "cat a.txt"}), &rules);
    assert!(ran.out.contains("plain"), "other files stay readable: {} {}", ran.out, ran.err);
    // Without the rule the command reads it.
    let ran = call(&desk, "Bash", &json!({"command": "cat keys/*"}), &[]);
    assert!(ran.out.contains("TOPSECRET"), "{} {}", ran.out, ran.err);
}

#[test]
fn a_level_without_mounts_refuses_commands_while_denied_files_exist() {
    let desk = Desk::new();
    desk.put("work/keys/id.pem", "TOPSECRET\n");
    for set in [r#"approval.deny=["Read(**/*.pem)"]"#, "paths.deny_read=*.pem"] {
        let more = ["--set", set, "--set", "sandbox.level=none"];
        let ran = call(&desk, "Bash", &json!({"command": "cat keys/*"}), &more);
        assert!(ran.code == 1 && ran.out.contains("cannot keep a command from it"), "{set}: {} {}", ran.out, ran.err);
    }
    std::fs::remove_file(desk.path("work/keys/id.pem")).unwrap();
    let more = ["--set", "paths.deny_read=*.pem", "--set", "sandbox.level=none"];
    assert_eq!(call(&desk, "Bash", &json!({"command": "true"}), &more).code, 0);
}

#[test]
fn a_rule_about_a_command_holds_for_tests_too() {
    let desk = Desk::new();
    for (dialect, tool) in [("forge", "run_tests"), ("forge", "bash"), ("solo", "exec"), ("oxydra", "shell_exec")] {
        let more = ["--dialect", dialect, "--set", r#"approval.deny=["Bash(touch:*)"]"#];
        let ran = call(&desk, tool, &json!({"command": "touch B"}), &more);
        assert!(ran.code == 1 && !desk.path("work/B").exists(), "{tool}: {} {}", ran.out, ran.err);
    }
}

#[test]
fn a_rule_about_no_tool_stops_the_start() {
    let desk = Desk::new();
    for (rule, said) in [
        ("bsah(rm)", "Did you mean `bash`? Fix or remove the rule."),
        ("Reed", "no tool of any dialect"),
        ("mcp__files__read", "no MCP server `files` is configured"),
    ] {
        for list in ["deny", "ask", "allow"] {
            let set = format!(r#"approval.{list}=["{rule}"]"#);
            let ran = call(&desk, "Glob", &json!({"pattern": "*"}), &["--set", &set]);
            assert!(ran.code == 2 && ran.err.contains(said), "{set}: {} {}", ran.out, ran.err);
        }
    }
    // A tool of another dialect, a class and a pattern are no mistakes.
    let set = r#"approval.deny=["shell_exec(rm)","apply_patch","MultiEdit(x)","mcp__*","create_spec"]"#;
    let ran = call(&desk, "Glob", &json!({"pattern": "*"}), &["--set", set]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let doctor = desk.run(&["doctor", "--set", set]);
    assert!(doctor.out.contains("create_spec") && doctor.out.contains("5 rules are in force"), "{}", doctor.out);
}

#[test]
fn a_rule_names_a_tool_that_a_configured_plugin_has() {
    let desk = Desk::new();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plugins/shell/today.sh");
    let path = path.canonicalize().unwrap();
    desk.put("home/.config/helve/helve.toml", &format!("[[plugins]]\npath = \"/bin/sh\"\nargs = [{path:?}]\n"));
    for (rule, code) in [("bsah(rm)", 2), ("today", 0), ("wether", 2), ("Bash(rm:*)", 0), ("apply_patch", 0)] {
        let set = format!(r#"approval.deny=["{rule}"]"#);
        let ran = call(&desk, "Glob", &json!({"pattern": "*"}), &["--set", &set]);
        assert_eq!(ran.code, code, "{rule}: {} {}", ran.out, ran.err);
    }
    // What a plugin that does not start would bring is unknown.
    desk.put("home/.config/helve/helve.toml", "[[plugins]]\npath = \"/bin/false\"\n");
    let ran = call(&desk, "Glob", &json!({"pattern": "*"}), &["--set", r#"approval.deny=["wether"]"#]);
    assert!(ran.code == 0 && ran.err.contains("is left out"), "{} {}", ran.out, ran.err);
}

#[test]
fn a_command_leaves_no_new_file_that_a_rule_denies() {
    for level in ["L3", "L2", "L1"] {
        let desk = Desk::new();
        desk.put("work/a.txt", "plain\n");
        std::os::unix::fs::symlink("a.txt", desk.path("work/current.cfg")).unwrap();
        let rules = r#"approval.deny=["Edit(deploy.sh)","Edit(dist/**)","Edit(*.cfg)","Read(**/*.pem)"]"#;
        let level = format!("sandbox.level={level}");
        // The gate must not see the names.
        desk.put(
            "work/run",
            "echo x > deploy.sh; mkdir -p dist/b keys; echo x > dist/b/c; mv a.txt keys/K.PEM; ln -s /etc/passwd n.cfg\n\
             ln -sfn run current.cfg; echo y > keys/other; (sleep 0.2; echo x > late.pem) &\n wait",
        );
        let ran = call(&desk, "Bash", &json!({"command": "sh run"}), &["--set", rules, "--set", &level]);
        assert_eq!(ran.code, 0, "{level}: {} {}", ran.out, ran.err);
        for name in ["deploy.sh", "dist", "keys/K.PEM", "n.cfg", "late.pem"] {
            assert!(desk.path("work").join(name).symlink_metadata().is_err(), "{level} {name}: {}", ran.out);
            assert!(ran.out.contains(name), "{level} {name} is reported: {}", ran.out);
        }
        assert_eq!(desk.get("work/keys/other"), "y\n", "{level}");
        assert_eq!(std::fs::read_link(desk.path("work/current.cfg")).unwrap().to_str(), Some("a.txt"), "{level}");
    }
}
