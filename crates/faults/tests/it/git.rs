//! Merges: what may block them, and a kill during one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use helve_faults::{BatchProcess, Rng, SKIPPED, TestEnv, env_number, seed};
use serde_json::{Value, json};

fn git(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=A", "-c", "user.email=a@b"]).args(args).current_dir(folder);
    let output = command.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", folder).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A repository with `main` and branches that each add a file; `clash` changes what `main` changed too. Nothing where the
/// tools cannot run git.
fn repository(branches: u64) -> Option<TestEnv> {
    let desk = TestEnv::new().unwrap();
    let work = desk.path("work");
    git(&work, &["init", "--quiet", "--initial-branch=main"]);
    desk.write_file("work/shared.txt", "begin\n").unwrap();
    git(&work, &["add", "--all"]);
    git(&work, &["commit", "--quiet", "-m", "begin"]);
    for at in 0..branches {
        git(&work, &["checkout", "--quiet", "-b", &format!("b{at}"), "main"]);
        desk.write_file(&format!("work/part-{at}.txt"), format!("{at}\n").repeat(500)).unwrap();
        git(&work, &["add", "--all"]);
        git(&work, &["commit", "--quiet", "-m", &format!("part {at}")]);
    }
    git(&work, &["checkout", "--quiet", "-b", "clash", "main"]);
    desk.write_file("work/shared.txt", "theirs\n").unwrap();
    git(&work, &["commit", "--quiet", "--all", "-m", "theirs"]);
    git(&work, &["checkout", "--quiet", "main"]);
    desk.write_file("work/shared.txt", "ours\n").unwrap();
    git(&work, &["commit", "--quiet", "--all", "-m", "ours"]);
    let tried = merge(&desk, &["main"], false);
    if tried.get("success").is_none() {
        eprintln!("{SKIPPED}: THE TOOLS CANNOT RUN GIT HERE: {tried}");
        return None;
    }
    Some(desk)
}

fn merge(desk: &TestEnv, sources: &[&str], abort: bool) -> Value {
    let args = json!({ "sourceBranches": sources, "targetBranch": "main", "abort": abort }).to_string();
    let ran = desk.run(&["call", "merge_branches", "--dialect", "forge", &args]).unwrap();
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[test]
fn a_merge_that_cannot_be_changes_nothing_and_one_that_was_is_not_repeated() {
    let Some(desk) = repository(2) else { return };
    let work = desk.path("work");
    let head = || git(&work, &["rev-parse", "main"]);
    // A branch that is not there: not even the first is merged.
    let before = head();
    let said = merge(&desk, &["b0", "nowhere"], false);
    assert!(said["error"].as_str().unwrap().contains("no branch `nowhere`; nothing was merged"), "{said}");
    assert_eq!(head(), before);
    // A conflict names its files, and is undone where that was asked for.
    let said = merge(&desk, &["clash"], true);
    assert_eq!(said, json!({ "success": false, "conflicts": ["shared.txt"], "branch": "clash" }));
    assert_eq!((head(), git(&work, &["status", "--porcelain"])), (before.clone(), String::new()));
    // Changes in the work tree that are in the way stay as they are.
    desk.write_file("work/part-0.txt", "mine\n").unwrap();
    let said = merge(&desk, &["b0"], true);
    assert_ne!(said["success"], true, "{said}");
    assert_eq!((head(), fs::read_to_string(work.join("part-0.txt")).unwrap().as_str()), (before, "mine\n"));
    fs::remove_file(work.join("part-0.txt")).unwrap();
    // Merged is merged.
    assert_eq!(merge(&desk, &["b0", "b1"], false), json!({ "success": true }));
    let merged = head();
    assert_eq!(merge(&desk, &["b1", "b0", "main"], false), json!({ "success": true }));
    assert_eq!(head(), merged);
}

#[test]
fn a_lock_that_is_not_ours_is_named_and_stays() {
    let Some(desk) = repository(1) else { return };
    desk.write_file("work/.git/index.lock", "").unwrap();
    let said = merge(&desk, &["b0"], false);
    assert!(said.to_string().contains("index.lock"), "{said}");
    assert!(desk.path("work/.git/index.lock").exists());
    fs::remove_file(desk.path("work/.git/index.lock")).unwrap();
    assert_eq!(merge(&desk, &["b0"], false), json!({ "success": true }));
}

/// The locks of a repository.
fn locks(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|it| it.is_dir());
    let inside = dirs.iter().filter(|it| !it.ends_with("objects")).flat_map(|it| locks(it));
    files.into_iter().filter(|it| it.extension().is_some_and(|it| it == "lock")).chain(inside).collect()
}

#[test]
fn a_kill_in_a_merge_loses_no_branch() {
    let kills = env_number("HELVE_KILLS", 4);
    let Some(desk) = repository(kills) else { return };
    let work = desk.path("work");
    let mut dice = Rng::new(seed());
    let tips = |at: u64| git(&work, &["rev-parse", &format!("b{at}")]);
    let before: Vec<String> = (0..kills).map(tips).collect();
    for at in 0..kills {
        let mut hand = BatchProcess::start(&desk, &[], "forge").unwrap();
        assert!(hand.call("read", json!({ "path": "shared.txt" })).unwrap().is_some());
        hand.kill_after(Duration::from_millis(dice.below(120)));
        let args = json!({ "sourceBranches": [format!("b{at}")], "targetBranch": "main" });
        hand.call("merge_branches", args).unwrap();
        hand.wait().unwrap();
        // What git itself left is git's word for "somebody was here": people look, and remove it. That is one of its locks; or,
        // where it had time to give them back, a file that it wrote already, which it takes for a change of ours.
        let mut said = merge(&desk, &[&format!("b{at}")], true);
        if said["success"] != true {
            let (locks, part) = (locks(&desk.path("work/.git")), format!("part-{at}.txt"));
            if !locks.is_empty() {
                let names = |it: &PathBuf| said.to_string().contains(it.file_name().unwrap().to_str().unwrap());
                assert!(locks.iter().any(names), "{said} does not name one of {locks:?}");
                for lock in &locks {
                    fs::remove_file(lock).unwrap();
                }
            } else {
                assert!(said.to_string().contains("would be overwritten by merge"), "{said}");
                let there = fs::read_to_string(work.join(&part)).unwrap();
                assert_eq!(there.trim(), git(&work, &["show", &format!("b{at}:{part}")]).trim());
            }
            git(&work, &["reset", "--quiet", "--hard"]);
            git(&work, &["clean", "--quiet", "--force", "--", &part]);
            said = merge(&desk, &[&format!("b{at}")], true);
        }
        assert_eq!(said, json!({ "success": true }), "after kill {at}");
        git(&work, &["merge-base", "--is-ancestor", &format!("b{at}"), "main"]);
    }
    assert_eq!((0..kills).map(tips).collect::<Vec<_>>(), before);
    git(&work, &["fsck", "--no-dangling", "--no-progress"]);
    assert_eq!(git(&work, &["status", "--porcelain"]), "");
}
