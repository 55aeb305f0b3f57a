//! A fixture with a real store and a fixed clock.

use std::sync::Arc;

use helve_contract::{
    Call, Entry, PathRules, PathStyle, Ports, Reply, Root, Session, Tool, Workspace,
    jiff::Timestamp,
    ports::{Clock, NoHost, Schedule, Store},
};
use helve_store::SqliteStore;

/// What the clock shows.
pub(super) const NOW: &str = "2026-01-05T09:00:00Z";

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        NOW.parse().unwrap()
    }
}

/// Calls of one user.
pub(super) struct ScheduleFixture {
    folder: Arc<tempfile::TempDir>,
    store: Arc<dyn Store>,
    user: String,
    is_driven: bool,
    session: String,
}

impl ScheduleFixture {
    pub(super) fn new() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let store =
            Arc::new(SqliteStore::open(folder.path().join("helve.db")).unwrap().with_clock(Arc::new(FixedClock)));
        Self { folder, store, user: "user".into(), is_driven: true, session: "session-1".into() }
    }

    /// The same fixture for another user.
    pub(super) fn of(&self, user: &str) -> Self {
        Self {
            folder: self.folder.clone(),
            store: self.store.clone(),
            user: user.into(),
            is_driven: self.is_driven,
            session: self.session.clone(),
        }
    }

    /// The same fixture in another session.
    pub(super) fn in_session(&self, id: &str) -> Self {
        Self { session: id.to_owned(), ..self.of(&self.user) }
    }

    pub(super) async fn schedule(&self, id: &str) -> Schedule {
        self.store.schedule(id).await.unwrap().unwrap()
    }

    /// The same fixture in a process that runs no schedules.
    pub(super) fn undriven(&self) -> Self {
        Self { is_driven: false, ..self.of(&self.user) }
    }

    pub(super) async fn call<T: Tool>(&self, args: &str) -> Reply {
        let workspace = Workspace::new([Root::writable("/w")], PathRules::default(), PathStyle::Relative);
        let ports = Ports { store: self.store.clone(), clock: Arc::new(FixedClock), ..Ports::new(Arc::new(NoHost)) };
        let mut session = Session::new(self.session.clone(), workspace, ports);
        session.user.clone_from(&self.user);
        session.schedule_rules.is_driven = self.is_driven;
        let args = serde_json::from_str(args).unwrap();
        Entry::from_tool::<T>().run(args, Call::new("call-1", Arc::new(session))).await.unwrap_or_else(Into::into)
    }
}
