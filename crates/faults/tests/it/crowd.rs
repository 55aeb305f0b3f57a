//! Many processes at once on the same files.

use std::{collections::BTreeMap, fs, thread, time::Duration};

use helve_faults::{BatchProcess, TestEnv, env_number, verify_events};
use serde_json::{Value, json};

#[test]
fn eight_processes_edit_one_file_and_no_edit_is_lost() {
    let many = env_number("HELVE_EDITS", 12);
    let desk = TestEnv::new().unwrap();
    let lines: Vec<String> = (0..8).map(|at| format!("counter {at}: 0;")).collect();
    desk.write_file("work/a.txt", lines.join("\n")).unwrap();
    let refused: u64 = thread::scope(|scope| {
        let editors: Vec<_> =
            (0..8).map(|at| (at, &desk)).map(|(at, desk)| scope.spawn(move || edit(desk, at, many))).collect();
        editors.into_iter().map(|it| it.join().unwrap()).sum()
    });
    let text = fs::read_to_string(desk.path("work/a.txt")).unwrap();
    let wanted: Vec<String> = (0..8).map(|at| format!("counter {at}: {many};")).collect();
    assert_eq!(text, wanted.join("\n"), "{refused} were refused and tried again");
    assert_eq!(desk.leftover_files(), Vec::<String>::new());
    eprintln!("8 × {many} edits are there, {refused} were refused and tried again");
}

/// Counts one line up so many times. A refusal must have changed nothing, and is tried again. How many there were.
fn edit(desk: &TestEnv, at: usize, many: u64) -> u64 {
    let mut hand = BatchProcess::start(desk, &[], "solo").unwrap();
    let (mut count, mut refused) = (0, 0);
    while count < many {
        let [old, new] = [count, count + 1].map(|it| format!("counter {at}: {it};"));
        let answer = hand.call("edit", json!({ "path": "a.txt", "old_text": old, "new_text": new })).unwrap().unwrap();
        if answer.is_error {
            refused += 1;
            assert!(refused < 50 * many, "{}", answer.text);
        } else {
            count += 1;
        }
    }
    refused
}

#[test]
fn four_processes_write_one_record_and_no_line_is_torn() {
    let many = env_number("HELVE_LINES", 40);
    let desk = TestEnv::new().unwrap();
    thread::scope(|scope| {
        for at in 0..4 {
            let desk = &desk;
            scope.spawn(move || {
                let mut hand = BatchProcess::start(desk, &[], "solo").unwrap();
                // Twice in its event: lines of about 30 kB.
                let text = "x".repeat(14_500);
                for _ in 0..many {
                    let args = json!({ "path": format!("{at}.txt"), "content": text });
                    assert!(!hand.call("write", args).unwrap().unwrap().is_error);
                }
            });
        }
    });
    assert_eq!(verify_events(&desk.events(), 4 * many, false).unwrap(), []);
    let longest = fs::read_to_string(desk.events()).unwrap().lines().map(str::len).max().unwrap();
    assert!(longest > 29_000, "{longest}");
}

#[test]
fn ten_processes_trust_at_once_and_all_of_it_is_kept() {
    let many = env_number("HELVE_WRITES", 3);
    let desk = TestEnv::new().unwrap();
    for at in 0..10 * many {
        desk.write_file(&format!("work/p{at}/helve.toml"), format!("# {at}\n")).unwrap();
    }
    thread::scope(|scope| {
        for one in 0..10 {
            let desk = &desk;
            scope.spawn(move || {
                for at in one * many..(one + 1) * many {
                    let ran = desk.run(&["config", "trust", "--workspace", &format!("p{at}")]).unwrap();
                    assert_eq!(ran.code, 0, "{ran:?}");
                }
            });
        }
    });
    let text = fs::read_to_string(desk.state().join("trust.json")).unwrap();
    let list: BTreeMap<String, String> = serde_json::from_str(&text).unwrap();
    assert_eq!(list.len() as u64, 10 * many);
    let left: Vec<_> = fs::read_dir(desk.state()).unwrap().flatten().map(|it| it.file_name()).collect();
    assert!(!left.iter().any(|it| it.to_string_lossy().ends_with(".new")), "{left:?}");
}

#[test]
fn eight_processes_keep_notes_and_none_hears_that_the_store_is_busy() {
    let many = env_number("HELVE_WRITES", 6);
    let desk = TestEnv::new().unwrap();
    thread::scope(|scope| {
        for at in 0..8 {
            let desk = &desk;
            scope.spawn(move || {
                let mut hand = BatchProcess::start(desk, &[], "oxydra").unwrap();
                for n in 0..many {
                    let answer = hand.call("memory_save", json!({ "content": format!("note {n} of {at}") })).unwrap();
                    let answer = answer.unwrap();
                    assert!(!answer.is_error, "{}", answer.text);
                }
            });
        }
    });
    let store = rusqlite::Connection::open(desk.store()).unwrap();
    let count: i64 = store.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)).unwrap();
    assert_eq!(count as u64, 8 * many);
}

#[test]
fn four_readers_and_two_writers_of_one_file_never_meet_half_of_it() {
    let many = env_number("HELVE_WRITES", 20);
    let desk = TestEnv::new().unwrap();
    // As long as a graph of some hundred tasks, and telling whether it is whole.
    let graph = |at: u64| {
        let nodes: Vec<Value> = (0..200).map(|n| json!({ "id": format!("t{n}"), "round": at })).collect();
        json!({ "nodes": nodes, "round": at }).to_string()
    };
    desk.write_file("work/dag.json", graph(0)).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let looks: u64 = thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut looks = 0;
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        let text = fs::read_to_string(desk.path("work/dag.json")).unwrap();
                        let value: Value = serde_json::from_str(&text).unwrap();
                        let round = &value["round"];
                        assert!(value["nodes"].as_array().unwrap().iter().all(|node| node["round"] == *round));
                        looks += 1;
                        thread::sleep(Duration::from_millis(1));
                    }
                    looks
                })
            })
            .collect();
        let writers: Vec<_> = (0..2)
            .map(|one| {
                let (desk, graph) = (&desk, &graph);
                scope.spawn(move || {
                    let mut hand = BatchProcess::start(desk, &[], "solo").unwrap();
                    for at in 0..many {
                        let args = json!({ "path": "dag.json", "content": graph(at * 2 + one) });
                        assert!(!hand.call("write", args).unwrap().unwrap().is_error);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
        readers.into_iter().map(|it| it.join().unwrap()).sum()
    });
    assert!(looks > 4, "{looks}");
}
