//! Full and read-only disks, mounted in a private namespace of the test.

use std::fs;

use helve_faults::{
    BatchProcess, SKIPPED, SmallDisk, TestEnv, in_mount_namespace, rerun_in_mount_namespace, verify_events,
};
use serde_json::{Value, json};

/// Whether the test goes on here: in a namespace of its own. Elsewhere it has been run in one by now, or cannot be.
fn inside(test: &str) -> bool {
    if in_mount_namespace() {
        return true;
    }
    match rerun_in_mount_namespace(&["--exact", test, "--nocapture", "--test-threads", "1"]).unwrap() {
        Some(went_well) => assert!(went_well, "{test} failed in its namespace"),
        None => eprintln!("{SKIPPED}: NOTHING CAN BE MOUNTED HERE (NEITHER AS ROOT NOR IN A USER NAMESPACE)"),
    }
    false
}

#[test]
fn a_full_disk_keeps_the_old_file_and_says_so() {
    if !inside("disk::a_full_disk_keeps_the_old_file_and_says_so") {
        return;
    }
    let desk = TestEnv::new().unwrap();
    let disk = SmallDisk::mount(&desk.path("work"), 64).unwrap();
    let old = format!("the first line\n{}", "the old text\n".repeat(20));
    desk.write_file("work/a.txt", &old).unwrap();
    disk.fill(8 << 10).unwrap();
    let mut hand = BatchProcess::start(&desk, &[], "solo").unwrap();
    let long = "new text\n".repeat(5000);
    let patch = format!(
        "*** Begin Patch\n*** Update File: a.txt\n@@\n-the first line\n+the new line\n the old text\n*** Add File: b.txt\n{}*** End Patch\n",
        format!("+{}\n", "x".repeat(100)).repeat(400)
    );
    for (tool, args) in [
        ("write", json!({ "path": "a.txt", "content": long })),
        ("edit", json!({ "path": "a.txt", "old_text": old, "new_text": long })),
        ("apply_patch", json!({ "patch": patch })),
        ("write", json!({ "path": "new/folder/c.txt", "content": long })),
    ] {
        let answer = hand.call(tool, args).unwrap().unwrap();
        assert!(answer.is_error && answer.text.contains("disk is full"), "{tool}: {}", answer.text);
        assert_eq!(fs::read_to_string(desk.path("work/a.txt")).unwrap(), old);
        let mut names: Vec<_> = fs::read_dir(desk.path("work")).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a.txt", "ballast"], "nothing is left behind");
    }
    disk.free().unwrap();
    let answer = hand.call("write", json!({ "path": "a.txt", "content": "short\n" })).unwrap().unwrap();
    assert!(!answer.is_error, "{}", answer.text);
}

#[test]
fn a_disk_that_may_only_be_read_is_named() {
    if !inside("disk::a_disk_that_may_only_be_read_is_named") {
        return;
    }
    let desk = TestEnv::new().unwrap();
    let disk = SmallDisk::mount(&desk.path("work"), 64).unwrap();
    desk.write_file("work/a.txt", "old\n").unwrap();
    disk.read_only().unwrap();
    let mut hand = BatchProcess::start(&desk, &[], "solo").unwrap();
    for (tool, args) in [
        ("write", json!({ "path": "a.txt", "content": "new" })),
        ("edit", json!({ "path": "a.txt", "old_text": "old", "new_text": "new" })),
    ] {
        let answer = hand.call(tool, args).unwrap().unwrap();
        assert!(answer.is_error && answer.text.contains("read-only"), "{tool}: {}", answer.text);
    }
    assert_eq!(fs::read_to_string(desk.path("work/a.txt")).unwrap(), "old\n");
}

#[test]
fn the_record_waits_for_room_and_goes_on() {
    if !inside("disk::the_record_waits_for_room_and_goes_on") {
        return;
    }
    let desk = TestEnv::new().unwrap();
    let disk = SmallDisk::mount(&desk.state(), 256).unwrap();
    let mut hand = BatchProcess::start(&desk, &[], "solo").unwrap();
    let write = |hand: &mut BatchProcess, at: u64| {
        let text = format!("{at} {}", "words ".repeat(500));
        let answer = hand.call("write", json!({ "path": "a.txt", "content": text })).unwrap().unwrap();
        assert!(!answer.is_error, "a record never fails a call: {}", answer.text);
        answer.whole["notes"].to_string()
    };
    for at in 0..3 {
        assert_eq!(write(&mut hand, at), "[]");
    }
    disk.fill(2000).unwrap();
    let notes: Vec<String> = (3..9).map(|at| write(&mut hand, at)).collect();
    assert!(notes.iter().any(|it| it.contains("events wait to be written")), "{notes:?}");
    disk.free().unwrap();
    assert_eq!(write(&mut hand, 9), "[]");
    hand.wait().unwrap();
    assert_eq!(verify_events(&desk.events(), 10, false).unwrap(), [], "every call is there, and no number is missing");
    let text = fs::read_to_string(desk.events()).unwrap();
    let told: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|it| it["type"] == "events.recovered")
        .collect();
    assert_eq!((told.len(), &told[0]["data"]["lost"]), (1, &json!(0)), "{told:?}");
}

#[test]
fn a_store_on_a_full_disk_says_so_and_goes_on() {
    if !inside("disk::a_store_on_a_full_disk_says_so_and_goes_on") {
        return;
    }
    let desk = TestEnv::new().unwrap();
    let disk = SmallDisk::mount(&desk.state(), 2048).unwrap();
    let mut hand = BatchProcess::start(&desk, &[], "oxydra").unwrap();
    let save = |hand: &mut BatchProcess, at: u64| {
        let text = format!("note {at} {}", "of words ".repeat(2000));
        hand.call("memory_save", json!({ "content": text })).unwrap().unwrap()
    };
    let mut kept = 0;
    for at in 0..3 {
        let answer = save(&mut hand, at);
        assert!(!answer.is_error, "{}", answer.text);
        kept += 1;
    }
    disk.fill(0).unwrap();
    let mut refused = 0;
    for at in 3..40 {
        let answer = save(&mut hand, at);
        if answer.is_error {
            assert!(answer.text.contains("disk is full") || answer.text.contains("full"), "{}", answer.text);
            refused += 1;
        } else {
            kept += 1;
        }
        if refused == 3 {
            break;
        }
    }
    assert_eq!(refused, 3, "the disk was never full");
    disk.free().unwrap();
    let answer = save(&mut hand, 99);
    assert!(!answer.is_error, "{}", answer.text);
    kept += 1;
    hand.wait().unwrap();
    let store = rusqlite::Connection::open(desk.store()).unwrap();
    let count: i64 = store.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)).unwrap();
    let sound: String = store.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!((count, sound.as_str()), (kept, "ok"));
    let aside =
        fs::read_dir(desk.state()).unwrap().flatten().any(|it| it.file_name().to_string_lossy().contains("damaged"));
    assert!(!aside, "a full disk is no damage");
}
