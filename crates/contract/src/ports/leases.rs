//! Leases: the right to write, held by one owner at a time.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use jiff::Timestamp;

use super::Store;
use crate::{Error, Result, ids};

/// How long the lease of a session lasts without renewal.
pub const SESSION_LEASE: Duration = Duration::from_secs(30);

/// The right of one owner to write, until a time of the store's clock.
///
/// Every claim increases `epoch`. A write with an older epoch fails with [`Error::LeaseLost`]. So an owner that stalled
/// beyond its lease writes nothing after another owner has claimed the key. An expired lease is valid until somebody
/// claims the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The id of the session, run or job.
    pub key: String,
    /// The owner.
    pub owner: String,
    /// The number of the claim.
    pub epoch: u64,
    /// When it expires without renewal.
    pub until: Timestamp,
}

/// The holder of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHolder {
    /// The session.
    pub session: String,
    /// The machine.
    pub host: String,
    /// The process on it.
    pub pid: u32,
    /// When it was claimed.
    pub since: Timestamp,
    /// When the lease expires without renewal.
    pub until: Timestamp,
}

/// A held lease of a session. Renew it with [`renew`](Self::renew) and release it with [`Leases::release`]. If it is
/// dropped instead, the store releases it when it can.
pub struct HeldLease {
    lease: Mutex<Lease>,
    store: Arc<dyn Store>,
    is_released: Mutex<bool>,
}

impl HeldLease {
    /// The current lease.
    pub fn get(&self) -> Lease {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Renews the lease.
    pub async fn renew(&self) -> Result<()> {
        let renewed = self.store.hold_session(&self.get(), SESSION_LEASE).await?;
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = renewed;
        Ok(())
    }

    fn release_once(&self) -> bool {
        !std::mem::replace(&mut *self.is_released.lock().unwrap_or_else(PoisonError::into_inner), true)
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        if self.release_once() {
            self.store.abandon_session(&self.get());
        }
    }
}

/// The lease of one open session, shared by its turns and tools.
#[derive(Clone)]
pub struct Leases {
    owner: String,
    current: Arc<futures::lock::Mutex<Weak<HeldLease>>>,
}

impl Default for Leases {
    fn default() -> Self {
        Self { owner: ids::new_id(), current: Arc::default() }
    }
}

impl Leases {
    /// Claims the session, or shares the held lease. [`Error::SessionHeld`]: another owner holds it.
    pub async fn hold(&self, store: &Arc<dyn Store>, session: &str) -> Result<Arc<HeldLease>> {
        let mut current = self.current.lock().await;
        if let Some(held) = current.upgrade() {
            return Ok(held);
        }
        let lease = store.claim_session(session, &self.owner, SESSION_LEASE).await?;
        let held =
            Arc::new(HeldLease { lease: Mutex::new(lease), store: store.clone(), is_released: Mutex::new(false) });
        *current = Arc::downgrade(&held);
        Ok(held)
    }

    /// Releases the lease, unless another part of this session still uses it. A lost lease is not an error here.
    pub async fn release(&self, held: Arc<HeldLease>) -> Result<()> {
        let _current = self.current.lock().await;
        let Ok(held) = Arc::try_unwrap(held) else { return Ok(()) };
        held.release_once();
        match held.store.release_session(&held.get()).await {
            Err(Error::LeaseLost(_)) => Ok(()),
            outcome => outcome,
        }
    }
}
