//! Failing system calls, one after the other: the file is old or new, the message says what to do, and the next call
//! works.

use std::fs;

use helve_faults::{
    MockModelThread, Rng, SKIPPED, SYSCALL_FAULTS, SyscallFault, TestEnv, env_number, seed, strace_available,
};
use helve_script::{ModelScript, ScriptStep};
use serde_json::{Value, json};

/// A call and the file that it changes.
struct Story {
    tool: &'static str,
    dialect: &'static str,
    args: Value,
    before: &'static str,
    after: &'static str,
}

const OLD: &str = "one\ntwo\nthree\n";
const NEW: &str = "one\n2\nthree\n";

fn stories(desk: &TestEnv) -> Vec<Story> {
    let file = desk.path("work/a.txt");
    let book = desk.path("work/a.ipynb");
    let cell = |text: &str| {
        let cell = json!({ "cell_type": "code", "id": "x", "metadata": {}, "outputs": [], "execution_count": null, "source": text });
        json!({ "cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5 }).to_string()
    };
    let old_book: &'static str = Box::leak(cell("one").into_boxed_str());
    let story = |tool, dialect, args| Story { tool, dialect, args, before: OLD, after: NEW };
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n one\n-two\n+2\n*** Add File: b.txt\n+b\n*** End Patch\n";
    vec![
        story("write", "solo", json!({ "path": "a.txt", "content": NEW })),
        story("edit", "solo", json!({ "path": "a.txt", "old_text": "two", "new_text": "2" })),
        story("apply_patch", "solo", json!({ "patch": patch })),
        story("FileWrite", "claude", json!({ "file_path": file, "content": NEW })),
        story("FileEdit", "claude", json!({ "file_path": file, "old_string": "two", "new_string": "2" })),
        Story {
            tool: "NotebookEdit",
            dialect: "claude",
            args: json!({ "notebook_path": book, "cell_id": "x", "new_source": "two" }),
            before: old_book,
            after: "two",
        },
        story("memory_save", "oxydra", json!({ "content": "tea is green" })),
        story("schedule_create", "oxydra", json!({ "goal": "g", "cadence_type": "interval", "cadence_value": "9000" })),
    ]
}

#[test]
fn any_call_that_fails_leaves_the_old_file_or_the_new_one() {
    if !strace_available() {
        eprintln!("{SKIPPED}: STRACE IS NOT HERE OR MAY NOT TRACE");
        return;
    }
    let mut dice = Rng::new(seed());
    let desk = TestEnv::new().unwrap();
    let stories = stories(&desk);
    let (mut failed, mut passed) = (0, 0);
    // Every story with every kind of failure at every point is a few thousand runs; a few of them each time.
    for _ in 0..env_number("HELVE_INJECTIONS", 48) {
        let story = &stories[dice.below(stories.len() as u64) as usize];
        let (calls, faults) = dice.pick(&SYSCALL_FAULTS).unwrap();
        let mut inject = SyscallFault::error(calls, "", 1 + dice.below(9));
        inject.what = dice.pick(faults).unwrap().to_owned();
        // Half of them anywhere, the start of the program among it; half of them only where files are kept.
        if dice.below(2) == 0 {
            let state = desk.state().display().to_string();
            let (work, store) = (desk.path("work").display().to_string(), desk.store().display().to_string());
            inject = inject.on_paths([work, state, store.clone(), format!("{store}-wal")]);
        }
        let file = if story.tool == "NotebookEdit" { "work/a.ipynb" } else { "work/a.txt" };
        desk.write_file(file, story.before).unwrap();
        _ = fs::remove_file(desk.path("work/b.txt"));

        let args = ["call", story.tool, "--dialect", story.dialect, &story.args.to_string()];
        let ran = desk.run_wrapped(&inject.args(), &args).unwrap();
        let label = format!("{} {inject:?}: {ran:?}", story.tool);
        // A failure while libraries are loaded ends the program before it is one of ours: 127, in the loader's words.
        // And the runtime wakes itself by a write that cannot fail but here; it takes that for the end of the world.
        let unreal = ran.code == 127 || ran.err.contains("failed to wake I/O driver");
        assert!(ran.exited_normally() || unreal, "{label}");
        assert!(ran.code == 0 || !ran.err.trim().is_empty() || !ran.out.trim().is_empty(), "silent: {label}");
        let found = fs::read_to_string(desk.path(file)).unwrap();
        let is_new = if story.after == "two" {
            found != story.before && found.contains("\"two\"")
        } else {
            found == story.after
        };
        assert!(found == story.before || is_new, "{label}\n{found}");
        if story.tool.starts_with("memory") || story.tool.starts_with("schedule") {
            assert_eq!(found, story.before);
        } else if ran.code == 0 {
            assert!(is_new, "acknowledged and not there: {label}");
        }
        if story.tool == "apply_patch" {
            assert_eq!(desk.path("work/b.txt").exists(), is_new, "half a patch: {label}");
        }
        *(if ran.code == 0 { &mut passed } else { &mut failed }) += 1;

        let next = desk.run(&["call", "write", "--dialect", "solo", r#"{"path":"next.txt","content":"x"}"#]).unwrap();
        assert_eq!(next.code, 0, "after {label}: {next:?}");
        assert_eq!(desk.leftover_files(), Vec::<String>::new(), "after {label}");
    }
    eprintln!("{failed} calls failed in words, {passed} went well all the same");
    assert!(failed > 0);
}

#[test]
fn a_disk_that_cannot_sync_is_an_error_and_not_a_success() {
    if !strace_available() {
        eprintln!("{SKIPPED}: STRACE IS NOT HERE OR MAY NOT TRACE");
        return;
    }
    let desk = TestEnv::new().unwrap();
    // The first sync is the file's, before the rename; the second one the directory's, after it.
    for (at, is) in [(1, OLD), (2, NEW)] {
        desk.write_file("work/a.txt", OLD).unwrap();
        let about = [desk.path("work").display().to_string()];
        let inject = SyscallFault::error("fsync", "EIO", at);
        let inject = if at == 2 { SyscallFault { at: 1, ..inject }.on_paths(about) } else { inject };
        let args = json!({ "path": "a.txt", "content": NEW }).to_string();
        let ran = desk.run_wrapped(&inject.args(), &["call", "write", "--dialect", "solo", &args]).unwrap();
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!((ran.out + &ran.err).contains("a.txt: the disk reports an input/output error"));
        assert_eq!(fs::read_to_string(desk.path("work/a.txt")).unwrap(), is);
    }
}

#[test]
fn a_turn_on_a_failing_disk_ends_in_words_and_goes_on_later() {
    if !strace_available() {
        eprintln!("{SKIPPED}: STRACE IS NOT HERE OR MAY NOT TRACE");
        return;
    }
    let step = |request: &Value| {
        let wrote = request["messages"].to_string().contains("wrote 2 bytes");
        if wrote {
            ScriptStep::text("Done.")
        } else {
            ScriptStep::call("write", json!({ "path": "a.txt", "content": "x\n" }))
        }
    };
    let model = MockModelThread::start(ModelScript::new([ScriptStep::computed(step).repeat(10_000)])).unwrap();
    for at in 1..=env_number("HELVE_INJECTIONS", 48).div_ceil(12) {
        let desk = model.configure(TestEnv::new().unwrap());
        let first = ["run", "write a file", "--dialect", "solo", "--mode", "bypassPermissions"];
        let error = if at % 2 == 0 { "ENOSPC" } else { "EIO" };
        let inject = SyscallFault::error("fdatasync,fsync", error, at * 2);
        let ran = desk.run_wrapped(&inject.args(), &first).unwrap();
        assert!(ran.exited_normally(), "{inject:?}: {ran:?}");
        let begun = desk.run(&["sessions", "list"]).unwrap().out.contains("write a file");
        let words = if begun { "--continue" } else { "write a file" };
        // A turn that went well has nothing to go on with, and says so.
        if ran.code != 0 {
            let next = desk.run(&["run", words, "--dialect", "solo", "--mode", "bypassPermissions"]).unwrap();
            // What was said before the disk failed may be kept; then nothing is left to do.
            let was_said = ran.out.contains("Done.") && next.out.is_empty();
            let answer = if was_said { "" } else { "Done.\n" };
            assert_eq!((next.code, next.out.as_str()), (0, answer), "{inject:?} {ran:?}\n{}", next.err);
        }
        assert_eq!(fs::read_to_string(desk.path("work/a.txt")).unwrap(), "x\n");
    }
    assert_eq!(model.requests().unwrap().1, Vec::<String>::new());
}
