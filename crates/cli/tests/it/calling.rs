//! Tests of `helve call` and `helve batch`: replies, exit codes, and output streams.

use std::{io, process::Stdio};

use serde_json::json;

use crate::desk::Desk;

#[test]
fn a_call_that_works() {
    let desk = Desk::new();
    desk.put("work/a.txt", "one\ntwo\n");
    let ran = desk.run(&["call", "read", r#"{"path":"a.txt"}"#, "--dialect", "preset"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains("one") && ran.out.contains("two"), "{}", ran.out);

    let whole = desk.run(&["call", "read", r#"{"path":"a.txt"}"#, "--dialect", "preset", "--json"]).json();
    assert_eq!((&whole["is_error"], &whole["media"]), (&json!(false), &json!([])));
    let events = desk.get("home/.local/state/helve/runs/cli/events.ndjson");
    assert_eq!(events.lines().count(), 4, "{events}");
}

#[test]
fn calls_by_hand_in_two_workspaces_share_nothing() {
    let desk = Desk::new();
    desk.put("work/a.txt", "a").put("other/b.txt", "b");
    let other = desk.path("other").display().to_string();
    let call = |tool: &str, args: &str, more: &[&str]| {
        let mut all = vec!["call", tool, args, "--dialect", "oxydra"];
        all.extend(more);
        let ran = desk.run(&all);
        format!("{} {}", ran.code, ran.out)
    };
    let there = ["--workspace", other.as_str()];
    assert!(call("scratchpad_write", r#"{"items":["of work"]}"#, &[]).starts_with("0 "));
    assert!(call("file_write", r#"{"path":"/tmp/note.txt","content":"of work"}"#, &[]).starts_with("0 "));
    // The next call in the same workspace goes on with it, the other workspace sees nothing.
    assert!(call("scratchpad_read", "{}", &[]).contains("of work"));
    assert!(call("file_read", r#"{"path":"/tmp/note.txt"}"#, &[]).contains("of work"));
    assert!(!call("scratchpad_read", "{}", &there).contains("of work"));
    assert!(call("file_read", r#"{"path":"/tmp/note.txt"}"#, &there).starts_with("1 "));
    // Nor does another user in the same workspace.
    assert!(!call("scratchpad_read", "{}", &["--user", "bob"]).contains("of work"));
}

#[test]
fn the_dialect_is_found_by_the_tool() {
    let desk = Desk::new();
    desk.put("work/a.txt", "found me\n");
    // Only one dialect calls it so.
    let ran = desk.run(&["call", "file_read", r#"{"path":"/shared/a.txt"}"#]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("found me"));
    let ran = desk.run(&["call", "grep", r#"{"pattern":"x"}"#]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("is a tool of several dialects"), "{}", ran.err);
}

#[test]
fn a_tool_that_fails() {
    let desk = Desk::new();
    let ran = desk.run(&["call", "read", r#"{"path":"nothing.txt"}"#, "--dialect", "preset"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("nothing.txt"), "{}", ran.out);
}

#[test]
fn calls_that_make_no_sense() {
    let desk = Desk::new();
    let unknown = desk.run(&["call", "Raed", "{}"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("did you mean") && unknown.err.contains("Read"), "{}", unknown.err);

    let garbage = desk.run(&["call", "Read", "certainly not"]);
    assert_eq!(garbage.code, 2);
    assert!(garbage.err.contains("the arguments are not JSON"), "{}", garbage.err);

    assert_eq!(desk.run(&["call", "Read", "{}", "--dialect", "latin"]).code, 2);
    let left_out = desk.run(&["call", "Write", "{}", "--set", "tools.disable=Write"]);
    assert_eq!(left_out.code, 2);
    assert!(left_out.err.contains("`tools.disable` names it"), "{}", left_out.err);
}

#[test]
fn arguments_come_from_standard_input() {
    let desk = Desk::new();
    let ran = desk.fed(&["call", "write", "-", "--dialect", "preset"], r#"{"path":"n.txt","content":"from a pipe\n"}"#);
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert_eq!(desk.get("work/n.txt"), "from a pipe\n");
}

#[test]
fn denied_paths_and_protected_names_hold_even_for_the_user() {
    let desk = Desk::new();
    desk.put("work/keys/id.pem", "secret").put("work/.git/config", "[core]\n");
    let read = desk.run(&[
        "call",
        "read",
        r#"{"path":"keys/id.pem"}"#,
        "--dialect",
        "preset",
        "--set",
        "paths.deny_read=*.pem",
    ]);
    assert_eq!(read.code, 1);
    assert!(read.out.contains("may not be read here") && !read.out.contains("secret"), "{}", read.out);
    let write = desk.run(&["call", "write", r#"{"path":".git/config","content":"x"}"#, "--dialect", "preset"]);
    assert_eq!(write.code, 1);
    assert_eq!(desk.get("work/.git/config"), "[core]\n");
}

#[test]
fn the_state_folder_inside_the_workspace_is_left_alone() {
    let desk = Desk::new();
    let args = ["--dialect", "preset", "--set", "state_dir=state"];
    let call = |tool: &str, json: &str| {
        let all: Vec<_> = ["call", tool, json].iter().chain(&args).copied().collect();
        desk.run(&all)
    };
    assert_eq!(call("ls", "{}").code, 0);
    let ran = call("read", r#"{"path":"state/runs/cli/events.ndjson"}"#);
    assert!(ran.code == 1 && ran.out.contains("belongs to Helve itself"), "{}", ran.out);
}

#[test]
fn a_batch_answers_in_order() {
    let desk = Desk::new();
    desk.put("work/a.txt", "alpha\n");
    let lines = [
        r#"{"tool":"read","args":{"path":"a.txt"}}"#,
        r#"{"id":"w","tool":"write","args":{"path":"b.txt","content":"beta\n"}}"#,
        "not json",
        r#"{"args":{}}"#,
        r#"{"tool":"read","args":{"path":"b.txt"}}"#,
    ];
    let ran = desk.fed(&["batch", "--dialect", "preset"], &(lines.join("\n") + "\n"));
    let seen: Vec<_> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|it| (it["id"].clone(), it["is_error"].clone(), it["text"].as_str().unwrap().to_owned()))
        .collect();
    let short: Vec<_> = seen.iter().map(|(id, bad, _)| (id.clone(), bad == true)).collect();
    assert_eq!(short, [(json!(1), false), (json!("w"), false), (json!(3), true), (json!(4), true), (json!(5), false)]);
    assert!(seen[0].2.contains("alpha") && seen[4].2.contains("beta"), "{seen:?}");
    assert!(seen[2].2.starts_with("line 3: ") && seen[3].2.starts_with("line 4 names no tool"), "{seen:?}");
    assert_eq!(ran.code, 1);
}

#[test]
fn escape_sequences_go_through_a_pipe_untouched() {
    let desk = Desk::new();
    desk.put("work/a.txt", "red \u{1b}[31m text\n");
    let ran = desk.run(&["call", "read", r#"{"path":"a.txt"}"#, "--dialect", "preset"]);
    assert!(ran.out.contains('\u{1b}') || ran.out.contains("\\x1b") || ran.out.contains("\\u{1b}"), "{:?}", ran.out);
}

#[test]
fn a_plugin_brings_its_tool() {
    let desk = Desk::new();
    desk.put(
        "home/plugin.sh",
        "#!/bin/sh\nread -r first\n\
         echo '{\"type\":\"init\",\"tools\":[{\"name\":\"greet\",\"description\":\"Greets.\",\
         \"parameters\":{\"type\":\"object\",\"properties\":{}}}]}'\n\
         while read -r line; do id=$(echo \"$line\" | sed 's/.*\"call_id\":\"\\([^\"]*\\)\".*/\\1/')\n\
         echo '{\"type\":\"result\",\"call_id\":\"'$id'\",\"content\":[{\"type\":\"text\",\"text\":\"hello\"}],\"is_error\":false}'\n\
         done\n",
    );
    let program = desk.path("home/plugin.sh");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let plugin = format!("tools.plugins={}", program.display());
    let ran = desk.run(&["call", "greet", "{}", "--set", &plugin]);
    if ran.err.contains("no sandbox works on this machine") {
        return;
    }
    assert_eq!((ran.code, ran.out.as_str()), (0, "hello\n"), "{}", ran.err);
}

#[test]
fn notes_about_a_call_are_told_on_standard_error_and_in_json() {
    let desk = Desk::new();
    desk.put("work/a.txt", "hello\n");
    let args = ["call", "read", r#"{"path":"a.txt","colour":"red"}"#, "--dialect", "preset"];
    let ran = desk.run(&args);
    assert!(ran.code == 0 && !ran.out.contains("colour") && ran.err.contains("colour"), "{} {}", ran.out, ran.err);
    let told = desk.run(&[&args[..], &["--json"]].concat()).json();
    assert!(told["notes"].to_string().contains("colour") && !told["text"].to_string().contains("colour"), "{told}");
}

#[test]
fn repairs_that_change_nothing_are_not_reported_and_others_once() {
    let desk = Desk::new();
    desk.put("work/a.txt", "hello\n");
    let harmless = r#"{"path":"a.txt","limit":"2","offset":null}"#;
    let ran = desk.run(&["call", "read", harmless, "--dialect", "preset"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let told = desk.run(&["call", "read", harmless, "--dialect", "preset", "--json"]).json();
    assert_eq!(told["notes"], json!([]));
    // A JSON dialect has the note in its reply, and nowhere else.
    let args = json!({ "path": desk.path("work/a.txt"), "colour": "red" }).to_string();
    let ran = desk.run(&["call", "read", &args, "--dialect", "forge"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(format!("{}{}", ran.out, ran.err).matches("colour").count(), 1, "{} {}", ran.out, ran.err);
}

#[test]
fn a_module_brings_its_tool_and_leaves_a_record() {
    let desk = Desk::new();
    let module = r#"(module
        (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1) (data (i32.const 0) "\10\00\00\00\0e\00\00\00")
        (data (i32.const 16) "{\"ok\":\"hello\"}")
        (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;
    desk.put("home/hi.json", r#"{"name": "hi", "description": "Says hello.", "profile": "FileReadOnly"}"#);
    std::fs::write(desk.path("home/hi.wasm"), wat::parse_str(module).unwrap()).unwrap();
    let module = format!("wasm={}", desk.path("home/hi.wasm").display());
    let ran = desk.run(&["call", "hi", "{}", "--set", &module]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "hello\n"), "{}", ran.err);
    assert!(ran.err.starts_with("[audit {\"request_id\":\"hi-1\""), "{}", ran.err);
    let told = desk.run(&["call", "hi", "{}", "--set", &module, "--set", "events=stdout"]).out;
    let record = told.lines().find(|line| line.contains("\"wasm.call\"")).unwrap();
    let record: serde_json::Value = serde_json::from_str(record).unwrap();
    let mounts = serde_json::json!([{"path": "/shared", "access": "ro"}]);
    assert_eq!((&record["data"]["request_id"], &record["data"]["mounts"]), (&"hi-1".into(), &mounts));
}

#[test]
fn a_command_of_another_machine_is_run_only_when_listed() {
    let desk = Desk::new().env("SSH_ORIGINAL_COMMAND", "'echo' 'from afar'");
    desk.put("home/list", "# for the agent\necho\n").put("home/empty", "true\n");
    let list = |name: &str| desk.path(name).to_str().unwrap().to_owned();
    assert_eq!(desk.run(&["host-exec", "--allowed", &list("home/list")]).all(), (0, "from afar\n", ""));
    let denied = desk.run(&["host-exec", "--allowed", &list("home/empty")]);
    assert_eq!(denied.code, 1);
    assert!(denied.err.contains("is not in this machine's list"), "{}", denied.err);
    assert!(desk.run(&["host-exec"]).err.contains("every command is denied"));
}

#[test]
fn a_plugin_that_does_not_start_is_told_and_left_out() {
    let desk = Desk::new();
    desk.put("work/a.txt", "still here\n");
    let ran = desk.run(&[
        "call",
        "read",
        r#"{"path":"a.txt"}"#,
        "--dialect",
        "preset",
        "--set",
        "tools.plugins=/no/such/plugin",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.err, "helve: the plugin /no/such/plugin is left out: No such file or directory (os error 2)\n");
}

#[test]
fn a_reader_that_went_away_ends_it_without_a_word() {
    let desk = Desk::new();
    desk.put("work/a.txt", "one\ntwo\n");
    let read = r#"{"path":"a.txt"}"#;
    for args in [
        &["completions", "bash"][..],
        &["config"],
        &["tools"],
        &["tools", "--dialect", "preset", "--format", "openai"],
        &["call", "read", read, "--dialect", "preset"],
        &["sessions", "list"],
        &["man", "pages"],
        &["plan-bash", "seq 3"],
        &["version"],
        &["--help"],
    ] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let ran = desk.command(args).stdin(Stdio::null()).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!((ran.status.code(), &*said), (Some(0), ""), "{args:?}");
    }
}
