//! The requests of one client in progress.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use helve_contract::CancellationToken;

use crate::wire::{RequestId, RpcError};

/// The maximum number of requests in progress; more are refused, because each uses memory.
const MAX_REQUESTS: usize = 4096;

/// Requests under way, by id.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<HashMap<RequestId, CancellationToken>>);

impl InFlight {
    /// Registers a request; refused if its id is in use.
    pub(crate) fn begin(self: &Arc<Self>, id: &RequestId) -> Result<RequestGuard, RpcError> {
        let mut under_way = self.lock();
        let full = under_way.len() >= MAX_REQUESTS;
        let Entry::Vacant(place) = under_way.entry(id.clone()) else {
            return Err(RpcError::invalid_request("a request with this id is still running"));
        };
        if full {
            return Err(RpcError::new(
                -32000,
                format!("{MAX_REQUESTS} requests are running already; wait for some of them"),
            ));
        }
        let token = CancellationToken::new();
        place.insert(token.clone());
        Ok(RequestGuard { flight: self.clone(), id: id.clone(), token })
    }

    /// The client gives up on a request.
    pub(crate) fn cancel(&self, id: &RequestId) {
        if let Some(token) = self.lock().remove(id) {
            token.cancel();
        }
    }

    /// The client is gone.
    pub(crate) fn cancel_all(&self) {
        for (_, token) in self.lock().drain() {
            token.cancel();
        }
    }

    /// Whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registered request. Dropping it before the answer cancels it.
pub(crate) struct RequestGuard {
    flight: Arc<InFlight>,
    id: RequestId,
    token: CancellationToken,
}

impl RequestGuard {
    /// Set when the client gives up.
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Completes the request; returns whether the client still waits.
    pub(crate) fn complete(self) -> bool {
        !self.token.is_cancelled()
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        // A cancelled id may be in use again; only a running one belongs to this guard.
        if !self.token.is_cancelled() {
            self.flight.lock().remove(&self.id);
            self.token.cancel();
        }
    }
}
