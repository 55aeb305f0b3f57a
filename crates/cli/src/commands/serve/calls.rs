//! Calls over HTTP: an engine and a session a dialect, made when they are first wanted.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use helve_agent::{Need, Workshop as _};
use helve_contract::{Call, CancellationToken, Reply, Session};
use helve_engine::Engine;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::say::No;
use crate::{setup, state, workshop::Bench};

/// How many calls go on at once.
const AT_ONCE: usize = 32;

/// What was made, by dialect.
type Made = BTreeMap<String, (Arc<Engine>, Arc<Session>)>;

/// Where calls are made.
pub(super) struct Calls {
    bench: Arc<Bench>,
    made: Mutex<Made>,
    places: Semaphore,
    numbers: AtomicU64,
    /// Set when calls that still run must end.
    stop: CancellationToken,
}

impl Calls {
    pub(super) fn new(bench: Arc<Bench>) -> Self {
        let places = Semaphore::new(AT_ONCE);
        Self { bench, made: Mutex::default(), places, numbers: AtomicU64::new(1), stop: CancellationToken::new() }
    }

    /// One call. It is the caller's consent, as with `helve call`: nothing is asked, and what is denied stays denied.
    pub(super) async fn call(&self, dialect: &str, tool: &str, args: Value) -> Result<Reply, No> {
        let _place = self.places.try_acquire().map_err(|_| No::busy("too many calls are running; come back later"))?;
        let (engine, session) = self.of(dialect)?;
        if engine.get(tool).is_none() {
            return Err(No::missing(crate::commands::call::absent(tool, &engine)));
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let call = Call { cancel: self.stop.child_token(), ..Call::new(format!("http-{number}"), session) };
        Ok(engine.run(tool, args, call).await)
    }

    /// Ends what still runs.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        let all: Vec<_> = self.lock().values().map(|(_, session)| session.clone()).collect();
        for session in all {
            setup::end_tasks(session).await;
        }
    }

    fn of(&self, dialect: &str) -> Result<(Arc<Engine>, Arc<Session>), No> {
        let mut made = self.lock();
        if let Some((engine, session)) = made.get(dialect) {
            return Ok((engine.clone(), session.clone()));
        }
        let settings = self.bench.settings();
        let need = Need {
            id: format!("api-{dialect}-{}", state::random_id().map_err(No::broken)?),
            dialect: Some(dialect.to_owned()),
            mode: Some(setup::mode_by_hand(settings)),
            alone: true,
            ..Need::default()
        };
        let pair = self.bench.equip(&need)?;
        made.insert(dialect.to_owned(), pair.clone());
        Ok(pair)
    }

    fn lock(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
