//! Torn or garbled files, files of another version, and read-only files. None is deleted, and the message says what
//! to do.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use helve_faults::{BatchProcess, ProcessResult, TestEnv, env_number};
use helve_script::{ModelScript, ScriptStep};
use rusqlite::Connection;
use serde_json::{Value, json};

const WRITE: [&str; 5] = ["call", "write", "--dialect", "solo", r#"{"path":"a.txt","content":"x"}"#];

fn save(desk: &TestEnv, text: &str) -> ProcessResult {
    desk.run(&["call", "memory_save", &json!({ "content": text }).to_string()]).unwrap()
}

#[test]
fn a_record_goes_on_after_whatever_was_in_it() {
    let good = r#"{"eventId":"evt_1","seq":1,"type":"tool.call","runId":"cli","data":{}}"#;
    let long = format!("{{\"seq\":2,\"x\":\"{}\"}}\n", "y".repeat(env_number("HELVE_LONG", 5_000_000) as usize));
    let crafted: [(&str, Vec<u8>); 10] = [
        ("empty", Vec::new()),
        ("torn", format!("{good}\n{{\"seq\":2,\"da").into_bytes()),
        ("without its last end", good.as_bytes().to_vec()),
        ("a run of NUL", [good.as_bytes(), b"\n", &[0; 4096]].concat()),
        ("NUL and more", [good.as_bytes(), b"\n", &[0; 4096], b"\n", good.as_bytes(), b"\n"].concat()),
        ("CRLF", format!("{good}\r\n").into_bytes()),
        ("U+2028", "{\"seq\":1,\"runId\":\"cli\",\"x\":\"a\u{2028}b\"}\n".as_bytes().to_vec()),
        ("a long line", [good.as_bytes(), b"\n", long.as_bytes()].concat()),
        ("a long line that is torn", [good.as_bytes(), b"\n", &long.as_bytes()[..long.len() - 5]].concat()),
        ("no text", vec![0xff; 1000]),
    ];
    for (what, bytes) in crafted {
        let desk = TestEnv::new().unwrap();
        fs::create_dir_all(desk.events().parent().unwrap()).unwrap();
        fs::write(desk.events(), &bytes).unwrap();
        let ran = desk.run(&WRITE).unwrap();
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{what}");
        let text = fs::read(desk.events()).unwrap();
        let events: Vec<Value> = text
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .filter(|it: &Value| it["data"]["tool"] == "write")
            .collect();
        assert_eq!(events.len(), 2, "{what}: each of the two on a line of its own");
        assert_eq!(events[1]["seq"].as_u64(), events[0]["seq"].as_u64().map(|it| it + 1), "{what}");
    }
}

#[test]
fn a_settings_file_that_makes_no_sense_is_told_and_stays() {
    for (what, bytes, goes) in [
        ("torn", b"dialect = \"so".as_slice(), false),
        ("NUL", &[0; 64], false),
        ("no text", &[0xff; 64], false),
        ("another kind", b"{\"dialect\": 1}", false),
        ("CRLF", b"dialect = \"solo\"\r\n", true),
        ("empty", b"", true),
    ] {
        let desk = TestEnv::new().unwrap();
        desk.write_file("home/.config/helve/helve.toml", bytes).unwrap();
        let ran = desk.run(&WRITE).unwrap();
        assert_eq!(ran.code == 0, goes, "{what}: {ran:?}");
        assert!(goes || ran.code == 2 && ran.err.contains("helve.toml"), "{what}: {ran:?}");
        assert_eq!(fs::read(desk.path("home/.config/helve/helve.toml")).unwrap(), bytes, "{what}");
    }
}

#[test]
fn a_list_of_trust_that_is_damaged_is_not_written_over() {
    let desk = TestEnv::new().unwrap();
    desk.write_file("work/helve.toml", "dialect = \"solo\"\n").unwrap();
    desk.write_file("home/.local/state/helve/trust.json", "{\"/a/helve.toml\": \"012").unwrap();
    let ran = desk.run(&["config", "trust"]).unwrap();
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("trust.json is damaged; move it away"), "{}", ran.err);
    let text = fs::read_to_string(desk.state().join("trust.json")).unwrap();
    assert_eq!(text, "{\"/a/helve.toml\": \"012");
}

/// What is in the state directory beside the store.
fn names(folder: &Path) -> Vec<String> {
    let all = fs::read_dir(folder).unwrap().flatten().map(|it| it.file_name().into_string().unwrap());
    let mut names: Vec<String> = all.filter(|it| it.starts_with("helve.db")).collect();
    names.sort();
    names
}

#[test]
fn a_store_that_is_damaged_is_set_aside_and_never_deleted() {
    for what in ["garbage", "cut", "emptied", "a torn log"] {
        let desk = TestEnv::new().unwrap();
        assert_eq!(save(&desk, "tea is green").code, 0);
        let store = desk.store();
        let whole = fs::read(&store).unwrap();
        match what {
            "garbage" => fs::write(&store, b"not a database, but long enough to look at".repeat(50)).unwrap(),
            "cut" => fs::write(&store, &whole[..whole.len() / 2 + 100]).unwrap(),
            "emptied" => fs::write(&store, b"").unwrap(),
            _ => fs::write(store.with_extension("db-wal"), vec![7; 9000]).unwrap(),
        }
        let before = fs::read(&store).unwrap();
        let ran = save(&desk, "coffee is brown");
        assert_eq!(ran.code, 0, "{what}: {ran:?}");
        let aside: Vec<String> = names(&desk.state()).into_iter().filter(|it| it.contains("damaged")).collect();
        match what {
            "emptied" | "a torn log" => assert_eq!(aside, Vec::<String>::new(), "{what}: nothing is damaged"),
            _ => {
                assert!(ran.err.contains("has been set aside as"), "{what}: {}", ran.err);
                assert_eq!(fs::read(desk.state().join(&aside[0])).unwrap(), before, "{what}");
            }
        }
        if what == "a torn log" {
            let store = Connection::open(desk.store()).unwrap();
            let count: i64 = store.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)).unwrap();
            assert_eq!(count, 2, "what a torn log holds was never acknowledged; the rest is there");
        }
    }
}

#[test]
fn a_store_of_a_newer_program_is_refused_and_left_alone() {
    let desk = TestEnv::new().unwrap();
    assert_eq!(save(&desk, "tea is green").code, 0);
    let store = Connection::open(desk.store()).unwrap();
    store.pragma_update(None, "user_version", 1000).unwrap();
    drop(store);
    let before = fs::read(desk.store()).unwrap();
    let ran = save(&desk, "coffee is brown");
    assert_eq!(ran.code, 1);
    let told = ran.out + &ran.err;
    // The version of the program that wrote the file is named.
    assert!(told.contains(&format!("helve {}", env!("CARGO_PKG_VERSION"))), "{told}");
    assert_eq!(fs::read(desk.store()).unwrap(), before);
}

#[test]
fn a_store_that_may_only_be_read_says_so() {
    let desk = TestEnv::new().unwrap();
    assert_eq!(save(&desk, "tea is green").code, 0);
    fs::set_permissions(desk.store(), fs::Permissions::from_mode(0o400)).unwrap();
    if fs::OpenOptions::new().write(true).open(desk.store()).is_ok() {
        // Root writes all the same; what it meets on a disk that may only be read is in `disk`.
        assert_eq!(save(&desk, "coffee is brown").code, 0);
        return;
    }
    let ran = save(&desk, "coffee is brown");
    assert_eq!(ran.code, 1);
    assert!((ran.out + &ran.err).contains("is read-only"));
}

#[test]
fn a_huge_conversation_is_listed_and_goes_on() {
    let wanted = env_number("HELVE_SESSION_MB", 20) << 20;
    let model =
        helve_faults::MockModelThread::start(ModelScript::new([ScriptStep::text("Hello.")]).fallback("Going on."))
            .unwrap();
    let desk = model.configure(TestEnv::new().unwrap()).env("HELVE_MODEL_WINDOW", "64000");
    assert_eq!(desk.run(&["run", "hi there"]).unwrap().code, 0);
    let mut store = Connection::open(desk.store()).unwrap();
    let change = store.transaction().unwrap();
    let id: String = change.query_row("SELECT id FROM sessions", [], |row| row.get(0)).unwrap();
    let each = "words of an old talk ".repeat(500);
    let many = wanted / each.len() as u64;
    let parts = json!([{ "type": "text", "text": each }]).to_string();
    let last = "SELECT max(seq), max(created) FROM messages";
    let (last, time): (u64, i64) = change.query_row(last, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    for at in 1..=many {
        let role = if at % 2 == 1 { "user" } else { "assistant" };
        let sql =
            "INSERT INTO messages (tenant, session, seq, role, parts, created) VALUES ('default', ?1, ?2, ?3, ?4, ?5)";
        change.execute(sql, (&id, last + at, role, &parts, time)).unwrap();
    }
    change.execute("UPDATE sessions SET messages = messages + ?1", [many]).unwrap();
    change.commit().unwrap();
    drop(store);
    let list = desk.run(&["sessions", "list", "--json"]).unwrap();
    assert!(list.out.contains("hi there"), "{list:?}");
    let ran = desk.run(&["run", "--continue", "and now?"]).unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("Going on."), "{}", ran.out);
    let (asked, _) = model.requests().unwrap();
    let longest = asked.iter().map(|it| it.to_string().len()).max().unwrap() as u64;
    assert!(longest < wanted / 2, "only its end was sent: {longest}");
}

#[test]
fn strange_files_among_the_outputs_are_left_alone() {
    let desk = TestEnv::new().unwrap();
    desk.write_file("home/.local/state/helve/spill/cli/mine.txt", "mine").unwrap();
    desk.write_file("home/.local/state/helve/spill/0123/notes", [0; 100]).unwrap();
    desk.write_file("home/.local/state/helve/changes/x.json", "{\"version\":1,\"steps\":[{").unwrap();
    desk.write_file("home/.local/state/helve/changes/y.json", "{\"version\":99,\"steps\":[]}").unwrap();
    let mut hand = BatchProcess::start(&desk, &[], "solo").unwrap();
    assert!(!hand.call("write", json!({ "path": "a.txt", "content": "x" })).unwrap().unwrap().is_error);
    hand.wait().unwrap();
    let text = |name: &str| fs::read_to_string(desk.state().join(name)).unwrap();
    assert_eq!(text("spill/cli/mine.txt"), "mine");
    // Unreadable journal entries are kept under another name and ignored.
    assert_eq!(text("changes/x.unsettled"), "{\"version\":1,\"steps\":[{");
    assert_eq!(text("changes/y.unsettled"), "{\"version\":99,\"steps\":[]}");
}
