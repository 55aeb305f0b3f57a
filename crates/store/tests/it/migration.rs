//! A file of an older version: it is opened, loses nothing, and is the old one or the new one whenever a process is killed.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use helve_contract::{
    ids,
    ports::{MemoryQuery, MessagePart, Notes, Schedules, SessionFilter, SessionState, Sessions},
};
use helve_store::SqliteStore;
use rusqlite::{Connection, OpenFlags, types::ValueRef};
use serde_json::{Map, Value, json};

/// A store of version 6 with every kind of content, and its rows.
const OLD: &[u8] = include_bytes!("../data/v6.db");
const ROWS: &str = include_str!("../data/v6.json");

/// Set for the process that migrates: the store's file.
const ORDER: &str = "HELVE_TEST_MIGRATE";

type Rows = BTreeMap<String, Vec<Map<String, Value>>>;

/// All rows of these tables, in an order that does not depend on the file.
fn rows<'a>(path: &Path, tables: impl IntoIterator<Item = &'a String>) -> Rows {
    let raw = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    let rows = |table: &String| {
        let mut query = raw.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let names: Vec<String> = query.column_names().map(str::to_owned).collect();
        let found = query.query_map([], |row| {
            let cell = |(at, name): (usize, &String)| (name.clone(), cell(row.get_ref(at).unwrap()));
            Ok(names.iter().enumerate().map(cell).collect())
        });
        (table.clone(), found.unwrap().collect::<Result<_, _>>().unwrap())
    };
    sorted(tables.into_iter().map(rows).collect())
}

fn cell(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => str::from_utf8(text).unwrap().into(),
        ValueRef::Blob(bytes) => bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")).into(),
    }
}

fn sorted(mut rows: Rows) -> Rows {
    for table in rows.values_mut() {
        for row in &mut *table {
            row.sort_keys();
        }
        table.sort_by_key(|row| Value::Object(row.clone()).to_string());
    }
    rows
}

fn old_rows() -> Rows {
    sorted(serde_json::from_str(ROWS).unwrap())
}

/// What the rows of version 6 are in version 7.
fn new_rows() -> Rows {
    let mut rows = old_rows();
    let text = |row: &Map<String, Value>, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let mut new_ids: BTreeMap<String, String> = BTreeMap::new();
    for row in &rows["sessions"] {
        let (id, user, workspace) = (text(row, "id"), text(row, "user"), text(row, "workspace"));
        let new = if ids::is_id(&id) { id.clone() } else { ids::labelled_id("default", &user, &workspace, &id) };
        new_ids.insert(id, new);
    }
    let renamed = |old: &Value| match old.as_str() {
        None => Value::Null,
        Some(old) if ids::is_id(old) => old.into(),
        Some(old) => new_ids.get(old).cloned().unwrap_or_else(|| ids::labelled_id("default", "user", "", old)).into(),
    };
    let talk: Vec<Value> =
        rows["shelves"].iter().filter(|row| row["kind"] == "talk").map(|row| row["id"].clone()).collect();
    let owners: BTreeMap<String, Value> =
        rows["notes"].iter().map(|row| (text(row, "id"), row["user"].clone())).collect();
    for (table, rows) in &mut rows {
        for row in rows {
            match table.as_str() {
                "sessions" => {
                    let old = row["id"].clone();
                    let new = renamed(&old);
                    row.insert("label".into(), if old == new { Value::Null } else { old });
                    row.insert("id".into(), new);
                    row.insert("parent".into(), renamed(&row["parent"]));
                }
                "messages" | "slates" | "heard" => _ = row.insert("session".into(), renamed(&row["session"])),
                "note_tags" => _ = row.insert("user".into(), owners[&text(row, "note")].clone()),
                "memory_files" => _ = row.insert("user".into(), "user".into()),
                "shelves" => {
                    let name = row.remove("name").unwrap();
                    let (user, place) =
                        if row["kind"] == "files" { ("user".into(), name) } else { (name, Value::from("")) };
                    row.extend([("user".to_owned(), user), ("place".to_owned(), place)]);
                }
                "passages" => {
                    if talk.contains(&row["shelf"]) {
                        row.insert("source".into(), renamed(&row["source"]));
                    }
                    continue;
                }
                "schedules" => {
                    row.insert("session".into(), renamed(&row["session"]));
                    row.insert("origin".into(), renamed(&row["origin"]));
                }
                _ => {}
            }
            if matches!(table.as_str(), "sessions" | "messages") {
                for name in ["cache_read_tokens", "cache_write_tokens", "reasoning_tokens"] {
                    row.insert(name.into(), 0.into());
                }
            }
            row.insert("tenant".into(), "default".into());
        }
    }
    sorted(rows)
}

fn version(path: &Path) -> i64 {
    let raw = Connection::open(path).unwrap();
    let check: String = raw.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    raw.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

fn assert_same(found: &Rows, want: &Rows, what: &str) {
    for (table, rows) in want {
        assert_eq!(found[table].len(), rows.len(), "{what}: rows of {table}");
        for (found, row) in found[table].iter().zip(rows) {
            assert_eq!(found, row, "{what}: a row of {table}");
        }
    }
}

#[tokio::test]
async fn a_file_of_the_last_version_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("helve.db");
    fs::write(&path, OLD).unwrap();
    let want = new_rows();
    let store = SqliteStore::open(&path).unwrap();
    assert_same(&rows(&path, want.keys()), &want, "the new file");
    assert_eq!((version(&path), store.warnings()), (7, Vec::new()));
    let backup = folder.path().join("helve.db.v6.backup");
    assert_eq!(version(&backup), 6);
    assert_same(&rows(&backup, want.keys()), &old_rows(), "the copy");

    // It is not only there, it is found.
    let labelled = SessionFilter { label: Some("3f9a1c0b7d2e4f60".into()), limit: 2, ..SessionFilter::default() };
    let session = store.list_sessions(&labelled).await.unwrap().0.remove(0);
    assert_eq!((session.title.as_str(), session.model.as_str(), session.view_from), ("Ferns", "model-b", Some(4)));
    let messages = store.messages(&session.id, None, 9).await.unwrap();
    assert!(matches!(&messages[0].parts[1], MessagePart::Binary { data, .. } if data.starts_with("iVBOR")));
    assert_eq!(store.get_state(&session.id, "todos").await.unwrap().unwrap().value[0]["content"], "water the ferns");
    let hook = ids::labelled_id("default", "ci-bot", "/home/ann/alpha", "hook:build");
    assert_eq!(store.get_session(&hook).await.unwrap().unwrap().messages, 5);
    let ask = |text: &str, conversations| MemoryQuery {
        text: text.into(),
        user: Some("user".into()),
        include_sessions: conversations,
        limit: 3,
        ..MemoryQuery::default()
    };
    assert_eq!(store.search_memory(&ask("plumber", false)).await.unwrap()[0].text, "the plumber comes on Tuesday");
    assert!(store.search_memory(&ask("ferns shade", true)).await.unwrap().len() > 1);
    let schedule = store.schedule("8d8b2f7e-1111-4222-8333-444455556666").await.unwrap().unwrap();
    assert_eq!((schedule.session.as_ref(), schedule.origin.as_ref()), (Some(&session.id), Some(&session.id)));
    // The run that went on is taken over, under a new attempt.
    let taken = store.take_over_expired("me", Duration::from_secs(30), 9).await.unwrap();
    assert_eq!(taken.iter().map(|it| (it.run.attempt, it.lease.epoch)).collect::<Vec<_>>(), [(2, 2)]);
    let lease = store.claim_session(&session.id, "me", Duration::from_secs(30)).await.unwrap();
    store.set_state(&lease, "todos", json!([])).await.unwrap();
    drop(store);
    SqliteStore::open(&path).unwrap();
    assert_eq!(version(&backup), 6, "the second opening copies nothing");
}

#[tokio::test]
async fn a_migration_that_cannot_copy_the_file_leaves_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("helve.db");
    fs::write(&path, OLD).unwrap();
    // Something is in the way of the copy.
    fs::create_dir_all(folder.path().join("helve.db.v6.backup/x")).unwrap();
    assert!(SqliteStore::open(&path).is_err());
    assert_eq!(version(&path), 6);
    assert_same(&rows(&path, old_rows().keys()), &old_rows(), "the old file");
}

/// Not a test of its own: this binary started again, as one who migrates.
#[test]
fn migrator() {
    let Ok(path) = std::env::var(ORDER) else { return };
    eprintln!("begins");
    SqliteStore::open(path).unwrap();
}

/// A process that migrates from now on.
fn start(path: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["migration::migrator", "--exact", "--nocapture"])
        .env(ORDER, path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    while lines.next().unwrap().unwrap() != "begins" {}
    // It writes no more, so nobody need read.
    child
}

#[test]
fn a_kill_during_the_migration_leaves_the_old_file_or_the_new_one() {
    let kills: u64 = std::env::var("HELVE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(25);
    let (old, new) = (old_rows(), new_rows());
    // How long it takes when nobody interferes.
    let whole = {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helve.db");
        fs::write(&path, OLD).unwrap();
        let mut child = start(&path);
        let begun = Instant::now();
        assert!(child.wait().unwrap().success());
        begun.elapsed()
    };
    let mut versions = BTreeMap::<i64, u64>::new();
    for kill in 0..kills {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helve.db");
        fs::write(&path, OLD).unwrap();
        let mut child = start(&path);
        // Spread over the whole time, and a little beyond.
        let moment = Instant::now() + whole.mul_f64(1.2 * (kill as f64 + 0.5) / kills as f64);
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        _ = child.kill();
        child.wait().unwrap();
        let found = version(&path);
        *versions.entry(found).or_default() += 1;
        let want = if found == 6 { &old } else { &new };
        assert_same(&rows(&path, want.keys()), want, &format!("after kill {kill}"));
        let backup = folder.path().join("helve.db.v6.backup");
        if backup.exists() {
            assert_same(&rows(&backup, old.keys()), &old, &format!("the copy after kill {kill}"));
        }
        assert!(found == 6 || backup.exists());
        SqliteStore::open(&path).unwrap();
        assert_same(&rows(&path, new.keys()), &new, &format!("opened again after kill {kill}"));
    }
    assert!(versions.keys().all(|it| [6, 7].contains(it)), "{versions:?}");
    assert!(versions.contains_key(&6), "no kill came before the end: {versions:?}");
}
