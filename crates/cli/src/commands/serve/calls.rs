//! Calls over HTTP: one engine and session per dialect, created on first use.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use helve_agent::{SessionFactory as _, SessionSpec};
use helve_contract::{Call, CancellationToken, Reply, Session, ids};
use helve_engine::Engine;
use helve_runtime::Caller;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::say::ApiError;
use crate::{setup, workshop::HelveRuntime};

/// The maximum number of concurrent calls.
const MAX_CONCURRENT: usize = 32;
/// The maximum number of concurrent calls that may wait for a person.
const MAX_PROMPTING: usize = 100;

/// The authority of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallConsent {
    /// The caller's: nothing needs approval, and denied calls stay denied.
    Implied,
    /// None yet: the mode decides what needs approval in the web UI.
    Required,
}

/// What was made, by dialect.
type SessionsByDialect = BTreeMap<(String, CallConsent), (Arc<Engine>, Arc<Session>)>;

/// Where calls are made.
pub(super) struct CallService {
    runtime: Arc<HelveRuntime>,
    sessions: Mutex<SessionsByDialect>,
    places: Semaphore,
    asking: Semaphore,
    numbers: AtomicU64,
    /// Set when calls that still run must end.
    shutdown: CancellationToken,
}

impl CallService {
    pub(super) fn new(bench: Arc<HelveRuntime>) -> Self {
        Self {
            runtime: bench,
            sessions: Mutex::default(),
            places: Semaphore::new(MAX_CONCURRENT),
            asking: Semaphore::new(MAX_PROMPTING),
            numbers: AtomicU64::new(1),
            shutdown: CancellationToken::new(),
        }
    }

    /// One call.
    pub(super) async fn call(
        &self,
        dialect: &str,
        consent: CallConsent,
        tool: &str,
        args: Value,
    ) -> Result<Reply, ApiError> {
        let places = match consent {
            CallConsent::Implied => &self.places,
            CallConsent::Required => &self.asking,
        };
        let _place =
            places.try_acquire().map_err(|_| ApiError::unavailable("too many calls are running; come back later"))?;
        let (engine, session) = self.session_for(dialect, consent)?;
        if engine.find(tool).is_none() {
            return Err(ApiError::not_found(crate::commands::call::missing_tool_message(tool, &engine)));
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let call = Call { cancel: self.shutdown.child_token(), ..Call::new(format!("http-{number}"), session) };
        Ok(engine.run(tool, args, call).await)
    }

    /// Ends what still runs.
    pub(super) async fn shutdown(&self) {
        self.shutdown.cancel();
        let all: Vec<_> = self.lock().values().map(|(_, session)| session.clone()).collect();
        for session in all {
            setup::stop_tasks(session).await;
        }
    }

    fn session_for(&self, dialect: &str, consent: CallConsent) -> Result<(Arc<Engine>, Arc<Session>), ApiError> {
        let mut made = self.lock();
        let key = (dialect.to_owned(), consent);
        if let Some((engine, session)) = made.get(&key) {
            return Ok((engine.clone(), session.clone()));
        }
        let need = |label: &str| SessionSpec {
            id: ids::new_id(),
            label: Some(format!("{label}-{dialect}")),
            dialect: Some(dialect.to_owned()),
            ..SessionSpec::default()
        };
        let pair = match consent {
            CallConsent::Implied => {
                let opened =
                    self.runtime.session(need("api")).caller(Caller::Program).build().map_err(ApiError::internal)?;
                (opened.engine, opened.session)
            }
            CallConsent::Required => self.runtime.create_session(&need("ask"))?,
        };
        made.insert(key, pair.clone());
        Ok(pair)
    }

    fn lock(&self) -> MutexGuard<'_, SessionsByDialect> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
