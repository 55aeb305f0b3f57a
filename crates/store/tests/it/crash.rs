//! Concurrent writers and a repeatedly killed one. Every acknowledged write stays.

use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use helve_contract::ports::{MemoryQuery, MessagePart, NewNote, Notes, Sessions, TokenUsage};
use helve_store::SqliteStore;

use crate::{
    sqlite::Place,
    suite::{add, begin, said, session},
};

/// Set for the process that writes: the store's file, the session and how many messages.
const ORDER: [&str; 3] = ["HELVE_TEST_STORE", "HELVE_TEST_SESSION", "HELVE_TEST_MANY"];

/// Letters of a note's id: `note-` and a UUID.
const ID: usize = 41;

/// Not a test: this binary started again as a writer.
#[tokio::test]
async fn writer() {
    let [Ok(path), Ok(id), Ok(many)] = ORDER.map(std::env::var) else { return };
    let store = SqliteStore::lazy(path);
    if store.get_session(&id).await.unwrap().is_none() {
        begin(&store, &session(&id)).await.unwrap();
    }
    let mut next = store.messages(&id, None, 1).await.unwrap().first().map_or(1, |last| last.seq + 1);
    for _ in 0..many.parse::<u64>().unwrap() {
        // From one to three messages at once, some of them over several pages.
        let batch: Vec<_> = (next..next + 1 + next % 3).map(|n| said(&text(n), 0)).collect();
        let last = add(&store, &id, &batch, TokenUsage::default()).await.unwrap();
        next = last + 1;
        let mut out = std::io::stderr().lock();
        writeln!(out, "kept {last}").unwrap();
    }
}

fn text(n: u64) -> String {
    format!("{n} {}", "words ".repeat((n * 37 % 2000) as usize))
}

/// A process that writes, ended with the test.
struct Writer(Child);

impl Writer {
    fn start(path: &Path, session: &str, many: u64) -> Self {
        Self::of("crash::writer", path, session, many)
    }

    fn of(test: &str, path: &Path, session: &str, many: u64) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .envs([(ORDER[0], path.as_os_str()), (ORDER[1], session.as_ref()), (ORDER[2], many.to_string().as_ref())])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[tokio::test]
async fn eight_processes_write_at_once_into_a_store_that_is_not_there_yet() {
    let place = Place::default();
    let mut writers: Vec<_> = (0..8).map(|n| Writer::start(&place.path(), &format!("s{n}"), 20)).collect();
    for writer in &mut writers {
        let err = std::io::read_to_string(writer.0.stderr.take().unwrap()).unwrap();
        assert!(writer.0.wait().unwrap().success(), "{err}");
        assert_eq!(err.lines().filter(|line| line.starts_with("kept ")).count(), 20, "{err}");
    }
    let store = SqliteStore::open(place.path()).unwrap();
    for n in 0..8 {
        assert_eq!(whole(&store, &format!("s{n}")).await, 30);
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill() {
    let kills = std::env::var("HELVE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let place = Place::default();
    let mut dice = 0x2545_F491_4F6C_DD1D_u64;
    let mut roll = |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % sides
    };
    let mut acknowledged = 0;
    for kill in 0..kills {
        let mut writer = Writer::start(&place.path(), "a", u64::MAX);
        let mut lines = BufReader::new(writer.0.stderr.take().unwrap()).lines();
        let mut hear = |line: Option<std::io::Result<String>>| {
            let Some(Ok(line)) = line else { return false };
            // The last line may be cut in the middle: then it was not heard.
            if let Some(seq) = line.strip_prefix("kept ").and_then(|seq| seq.parse::<u64>().ok()) {
                acknowledged = acknowledged.max(seq);
            }
            true
        };
        for _ in 0..roll(12) {
            assert!(hear(lines.next()), "the writer ended by itself in round {kill}");
        }
        // Somewhere in the next few transactions.
        let moment = Instant::now() + Duration::from_micros(roll(4000));
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        writer.0.kill().unwrap();
        writer.0.wait().unwrap();
        while hear(lines.next()) {}
        let store = SqliteStore::open(place.path()).unwrap();
        assert_eq!(store.warnings(), [""; 0]);
        if store.get_session("a").await.unwrap().is_some() {
            let kept = whole(&store, "a").await;
            assert!(kept >= acknowledged, "{acknowledged} were acknowledged, {kept} are there after kill {kill}");
        } else {
            assert_eq!(acknowledged, 0);
        }
    }
    assert!(acknowledged > 0);
}

/// Not a test of its own: this binary started again, as one who saves, changes and forgets notes.
#[tokio::test]
async fn noter() {
    let [Ok(path), Ok(user), Ok(many)] = ORDER.map(std::env::var) else { return };
    let store = SqliteStore::lazy(path);
    let tell = |line: String| writeln!(std::io::stderr().lock(), "{line}").unwrap();
    let first = store.notes(&user, 0, 0).await.unwrap().1;
    for n in first..first + many.parse::<u64>().unwrap() {
        let note = NewNote { text: text(n), tags: None, ..NewNote::default() };
        let saved = store.save_note(&user, &note).await.unwrap();
        tell(format!("kept {} {n}", saved.id));
        if n % 3 == 1 {
            let changed = NewNote { text: text(n + 1), tags: None, ..NewNote::default() };
            tell(format!("going {}", saved.id));
            store.update_note(&user, &saved.id, &changed).await.unwrap();
            tell(format!("kept {} {}", saved.id, n + 1));
        }
        if n % 3 == 2 {
            tell(format!("going {}", saved.id));
            store.delete_note(&user, &saved.id).await.unwrap();
            tell(format!("gone {}", saved.id));
        }
    }
}

#[tokio::test]
async fn acknowledged_notes_survive_a_kill() {
    let kills = std::env::var("HELVE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let place = Place::default();
    let (mut kept, mut gone) = (HashMap::<String, u64>::new(), HashSet::<String>::new());
    for kill in 0..kills {
        let mut writer = Writer::of("crash::noter", &place.path(), "ann", 100_000);
        let mut lines = BufReader::new(writer.0.stderr.take().unwrap()).lines();
        let mut hear = |line: Option<std::io::Result<String>>| {
            let Some(Ok(line)) = line else { return false };
            match line.split(' ').collect::<Vec<_>>()[..] {
                // An id or a number that is cut in the middle was not heard.
                ["kept", id, n] if id.len() == ID && n.parse::<u64>().is_ok() => {
                    kept.insert(id.to_owned(), n.parse().unwrap());
                }
                ["going", id] => _ = kept.remove(id),
                ["gone", id] if id.len() == ID => _ = gone.insert(id.to_owned()),
                _ => {}
            }
            true
        };
        for _ in 0..kill * 7 % 11 {
            assert!(hear(lines.next()), "the writer ended by itself in round {kill}");
        }
        let moment = Instant::now() + Duration::from_micros(kill * 977 % 4000);
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        writer.0.kill().unwrap();
        writer.0.wait().unwrap();
        while hear(lines.next()) {}
        let store = SqliteStore::open(place.path()).unwrap();
        assert_eq!(store.warnings(), [""; 0]);
        let (notes, _) = store.notes("ann", 0, u64::from(u32::MAX)).await.unwrap();
        let there: HashMap<_, _> = notes.into_iter().map(|it| (it.id, it.text)).collect();
        for (id, n) in &kept {
            assert_eq!(there.get(id), Some(&text(*n)), "after kill {kill}");
        }
        assert!(gone.iter().all(|id| !there.contains_key(id)), "a forgotten note came back after kill {kill}");
    }
    assert!(!kept.is_empty() && !gone.is_empty());
    let store = SqliteStore::open(place.path()).unwrap();
    let question = MemoryQuery { text: "words".into(), user: Some("ann".into()), limit: 5, ..MemoryQuery::default() };
    assert_eq!(store.search_memory(&question).await.unwrap().len(), 5, "the index is whole");
}

/// How many messages a session has, once it is clear that none is missing or torn.
async fn whole(store: &SqliteStore, id: &str) -> u64 {
    let record = store.get_session(id).await.unwrap().unwrap();
    let messages = store.messages(id, None, usize::MAX).await.unwrap();
    for (n, message) in (1..).zip(&messages) {
        assert_eq!(message.seq, n);
        assert_eq!(message.parts, [MessagePart::Text { text: text(n) }]);
    }
    assert_eq!(record.messages, messages.len() as u64);
    record.messages
}
