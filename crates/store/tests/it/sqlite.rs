//! The suite for SQLite, and what is said about its file alone: rights, versions, damage.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use helve_contract::ports::{Sessions, Store, TokenUsage};
use helve_store::SqliteStore;
use rusqlite::Connection;

use crate::suite::{Maker, TestClock, add, begin, said, session, suite};

pub(crate) struct Place(tempfile::TempDir, Arc<TestClock>);

impl Default for Place {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap(), Arc::default())
    }
}

impl Place {
    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("state/store.db")
    }

    /// What lies in the directory, with timestamps left out.
    fn names(&self) -> Vec<String> {
        let folder = fs::read_dir(self.path().parent().unwrap()).unwrap();
        let mut names: Vec<_> = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
            .into_iter()
            .map(|name| match name.split_once("damaged-") {
                Some((front, rest)) => format!("{front}damaged-T{}", rest.split_at(16).1),
                None => name,
            })
            .collect()
    }

    fn put(&self, bytes: &[u8]) {
        fs::create_dir_all(self.path().parent().unwrap()).unwrap();
        fs::write(self.path(), bytes).unwrap();
    }

    fn damaged(&self) -> PathBuf {
        let folder = fs::read_dir(self.path().parent().unwrap()).unwrap();
        let mut found = folder.map(|entry| entry.unwrap().path());
        found.find(|path| path.to_string_lossy().contains("store.db.damaged-") && !is_log(path)).unwrap()
    }
}

fn is_log(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with("-wal") || name.ends_with("-shm")
}

impl Place {
    /// A store with the clock of this place.
    pub(crate) fn sqlite(&self) -> SqliteStore {
        SqliteStore::lazy(self.path()).with_clock(self.1.clone())
    }
}

impl Maker for Place {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.path()).unwrap().with_clock(self.1.clone()))
    }

    fn store_of(&self, tenant: &str) -> Arc<dyn Store> {
        Arc::new(self.sqlite().for_tenant(tenant))
    }

    fn clock(&self) -> &TestClock {
        &self.1
    }
}

suite! { Place:
    keeps_a_conversation_as_it_was_told
    keeps_every_kind_of_part
    counts_what_is_said_and_spent
    gives_messages_in_pages_from_the_end
    takes_a_turn_back
    lists_the_last_used_first
    says_anew_only_what_is_given
    discards_a_conversation_with_all_that_came_of_it
    keeps_slates_apart
    takes_eight_writers_at_once
    a_stale_lease_writes_nothing
    the_holder_moves_in_what_others_left
    nobody_removes_a_session_that_is_held
    tenants_see_nothing_of_each_other
}

/// A store with 200 messages, closed.
async fn full(place: &Place) {
    let store = SqliteStore::open(place.path()).unwrap();
    begin(&store, &session("a")).await.unwrap();
    let messages: Vec<_> = (0..200).map(|n| said(&format!("{n} {}", "x".repeat(2000)), n)).collect();
    add(&store, "a", &messages, TokenUsage::default()).await.unwrap();
}

#[tokio::test]
async fn is_its_owners_alone() {
    let place = Place::default();
    let store = SqliteStore::lazy(place.path());
    assert!(!place.path().parent().unwrap().exists(), "nothing is made before it is used");
    begin(&store, &session("a")).await.unwrap();
    let mode = |path: &Path| format!("{:o}", fs::metadata(path).unwrap().permissions().mode() & 0o777);
    assert_eq!(mode(place.path().parent().unwrap()), "700");
    assert_eq!(place.names(), ["store.db", "store.db-shm", "store.db-wal"]);
    for name in place.names() {
        assert_eq!(mode(&place.path().with_file_name(name)), "600");
    }
}

#[tokio::test]
async fn sets_aside_what_is_no_database() {
    let place = Place::default();
    place.put(&b"dear diary, this is no database at all. ".repeat(200));
    let store = SqliteStore::open(place.path()).unwrap();
    begin(&store, &session("a")).await.unwrap();
    let damaged = place.damaged();
    assert_eq!(
        store.warnings(),
        [format!(
            "the store {} was damaged; it has been set aside as {}, and a new one was begun",
            place.path().display(),
            fs::canonicalize(&damaged).unwrap().display()
        )]
    );
    assert!(fs::read(damaged).unwrap().starts_with(b"dear diary"));
    drop(store);
    assert_eq!(place.names(), ["store.db", "store.db.damaged-T"]);
}

#[tokio::test]
async fn a_link_in_place_of_the_store_or_its_log_is_refused_and_its_target_untouched() {
    for end in ["", "-wal", "-shm", "-journal"] {
        let place = Place::default();
        let victim = place.path().with_file_name("victim.txt");
        fs::create_dir_all(victim.parent().unwrap()).unwrap();
        fs::write(&victim, "dear diary").unwrap();
        let link = PathBuf::from(format!("{}{end}", place.path().display()));
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        let before = place.names();
        let told = match SqliteStore::lazy(place.path()).messages("a", None, 1).await {
            Ok(_) => panic!("{end}: the link was followed"),
            Err(error) => error.to_string(),
        };
        assert!(
            told.contains("is a symbolic link, and links are not followed there. Remove the link"),
            "{end}: {told}"
        );
        assert_eq!(fs::read_to_string(&victim).unwrap(), "dear diary", "{end}");
        assert_eq!(place.names(), before, "{end}");
    }
    // A directory above it may be a link.
    let place = Place::default();
    let folder = place.path().parent().unwrap().to_owned();
    fs::create_dir_all(folder.join("real")).unwrap();
    std::os::unix::fs::symlink("real", folder.join("way")).unwrap();
    begin(&SqliteStore::open(folder.join("way/store.db")).unwrap(), &session("a")).await.unwrap();
    assert!(folder.join("real/store.db").is_file());
}

#[tokio::test]
async fn sets_aside_a_file_that_was_cut_or_overwritten() {
    type Harm = fn(&mut Vec<u8>);
    let harms: [Harm; 3] =
        [|bytes| bytes.truncate(bytes.len() / 2), |bytes| bytes[4096..].fill(0xAA), |bytes| bytes[100..200].fill(0xFF)];
    for harm in harms {
        let place = Place::default();
        full(&place).await;
        let mut bytes = fs::read(place.path()).unwrap();
        harm(&mut bytes);
        place.put(&bytes);
        let store = SqliteStore::lazy(place.path());
        // The first one who meets the damage may be told; the next one finds a sound store.
        let first = store.messages("a", None, 1000).await;
        if let Err(error) = &first {
            assert!(error.to_string().ends_with("a new one was begun; do this again"), "{error}");
        }
        begin(&store, &session("b")).await.unwrap();
        assert_eq!(add(&store, "b", &[said("hello", 1)], TokenUsage::default()).await.unwrap(), 1);
        assert_eq!(store.warnings().len(), 1);
        assert_eq!(fs::read(place.damaged()).unwrap(), bytes, "as it was found");
    }
}

#[tokio::test]
async fn keeps_the_log_of_a_file_that_was_emptied() {
    let place = Place::default();
    let store = SqliteStore::open(place.path()).unwrap();
    begin(&store, &session("a")).await.unwrap();
    let log = fs::read(place.path().with_file_name("store.db-wal")).unwrap();
    drop(store);
    place.put(b"");
    fs::write(place.path().with_file_name("store.db-wal"), &log).unwrap();
    let store = SqliteStore::open(place.path()).unwrap();
    begin(&store, &session("a")).await.unwrap();
    drop(store);
    assert_eq!(place.names(), ["store.db", "store.db.damaged-T", "store.db.damaged-T-wal"]);
}

#[tokio::test]
async fn is_set_aside_once_however_many_find_it() {
    let place = Arc::new(Place::default());
    place.put(&[b'x'; 9000]);
    let all: Vec<_> = (0..8)
        .map(|n| {
            let place = place.clone();
            tokio::spawn(
                async move { begin(&SqliteStore::lazy(place.path()), &session(&n.to_string())).await.unwrap() },
            )
        })
        .collect();
    for one in all {
        one.await.unwrap();
    }
    let store = SqliteStore::open(place.path()).unwrap();
    for n in 0..8 {
        assert!(store.get_session(&n.to_string()).await.unwrap().is_some(), "{n}");
    }
    drop(store);
    assert_eq!(place.names(), ["store.db", "store.db.damaged-T"]);
}

#[tokio::test]
async fn refuses_what_a_newer_program_wrote_and_leaves_it_alone() {
    for (writer, name) in [(Some("9.1.0"), "helve 9.1.0"), (None, "a newer helve")] {
        let place = Place::default();
        full(&place).await;
        let raw = Connection::open(place.path()).unwrap();
        raw.pragma_update(None, "user_version", 99).unwrap();
        match writer {
            Some(writer) => raw.execute("UPDATE meta SET value = ?1 WHERE name = 'writer'", [writer]).map(drop),
            None => raw.execute_batch("DROP TABLE meta"),
        }
        .unwrap();
        drop(raw);
        let before = fs::read(place.path()).unwrap();
        let refused = SqliteStore::open(place.path()).map(drop).unwrap_err().to_string();
        let want = format!(
            "{} was written by {name} in format 99, and this helve ({}) reads up to format 7. Use {name} or a later \
             one, or choose another file with store.file",
            place.path().display(),
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(refused, want);
        assert!(fs::read(place.path()).unwrap() == before);
        assert_eq!(place.names(), ["store.db"]);
    }
}

#[tokio::test]
async fn leaves_the_database_of_another_program_alone() {
    let place = Place::default();
    place.put(b"");
    let raw = Connection::open(place.path()).unwrap();
    raw.execute_batch("CREATE TABLE recipes (name TEXT)").unwrap();
    drop(raw);
    let before = fs::read(place.path()).unwrap();
    let refused = SqliteStore::lazy(place.path()).get_session("a").await.unwrap_err().to_string();
    let want = " is a database of another program; choose another file for the store";
    assert_eq!(refused, format!("{}{want}", place.path().display()));
    assert!(fs::read(place.path()).unwrap() == before);
    assert_eq!(place.names(), ["store.db"]);
}

#[tokio::test]
async fn begins_anew_when_the_file_is_taken_away() {
    let place = Place::default();
    let store = SqliteStore::open(place.path()).unwrap();
    begin(&store, &session("a")).await.unwrap();
    for name in place.names() {
        fs::remove_file(place.path().with_file_name(name)).unwrap();
    }
    assert_eq!(store.get_session("a").await.unwrap(), None);
    begin(&store, &session("b")).await.unwrap();
    assert!(SqliteStore::open(place.path()).unwrap().get_session("b").await.unwrap().is_some());
}

#[tokio::test]
async fn says_what_to_do_when_there_is_no_place_for_it() {
    let place = Place::default();
    fs::write(place.path().parent().unwrap(), "a file where the folder should be").unwrap();
    let error = SqliteStore::open(place.path()).map(|_| ()).unwrap_err().to_string();
    let want = " cannot be made, because a file lies where its folder should be; move that away";
    assert_eq!(error, format!("{}{want}", place.path().display()));
}
