//! Calls over HTTP: an engine and a session a dialect, made when they are first wanted.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use helve_agent::{Need, Workshop as _};
use helve_contract::{Call, CancellationToken, Reply, Session, ids};
use helve_engine::Engine;
use helve_runtime::Caller;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::say::No;
use crate::{setup, workshop::Bench};

/// How many calls go on at once.
const AT_ONCE: usize = 32;
/// How many of those that ask, which may wait for a person.
const ASKING: usize = 100;

/// Whose consent a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Consent {
    /// Its maker's: nothing is asked, and what is denied stays denied.
    Given,
    /// Nobody's yet: the mode decides what is asked at the page.
    Asked,
}

/// What was made, by dialect.
type Made = BTreeMap<(String, Consent), (Arc<Engine>, Arc<Session>)>;

/// Where calls are made.
pub(super) struct Calls {
    bench: Arc<Bench>,
    made: Mutex<Made>,
    places: Semaphore,
    asking: Semaphore,
    numbers: AtomicU64,
    /// Set when calls that still run must end.
    stop: CancellationToken,
}

impl Calls {
    pub(super) fn new(bench: Arc<Bench>) -> Self {
        Self {
            bench,
            made: Mutex::default(),
            places: Semaphore::new(AT_ONCE),
            asking: Semaphore::new(ASKING),
            numbers: AtomicU64::new(1),
            stop: CancellationToken::new(),
        }
    }

    /// One call.
    pub(super) async fn call(&self, dialect: &str, consent: Consent, tool: &str, args: Value) -> Result<Reply, No> {
        let places = match consent {
            Consent::Given => &self.places,
            Consent::Asked => &self.asking,
        };
        let _place = places.try_acquire().map_err(|_| No::busy("too many calls are running; come back later"))?;
        let (engine, session) = self.of(dialect, consent)?;
        if engine.find(tool).is_none() {
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

    fn of(&self, dialect: &str, consent: Consent) -> Result<(Arc<Engine>, Arc<Session>), No> {
        let mut made = self.lock();
        let key = (dialect.to_owned(), consent);
        if let Some((engine, session)) = made.get(&key) {
            return Ok((engine.clone(), session.clone()));
        }
        let need = |label: &str| Need {
            id: ids::new_id(),
            label: Some(format!("{label}-{dialect}")),
            dialect: Some(dialect.to_owned()),
            ..Need::default()
        };
        let pair = match consent {
            Consent::Given => {
                let opened = self.bench.session(need("api")).caller(Caller::Program).build().map_err(No::broken)?;
                (opened.engine, opened.session)
            }
            Consent::Asked => self.bench.equip(&need("ask"))?,
        };
        made.insert(key, pair.clone());
        Ok(pair)
    }

    fn lock(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
