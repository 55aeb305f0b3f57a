//! Leases: the right to write, held by one owner at a time.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use jiff::Timestamp;

use super::Store;
use crate::{Error, Result, ids};

/// How long the lease of a session lasts unless it is renewed.
pub const SESSION_LEASE: Duration = Duration::from_secs(30);

/// The right of one owner to write something, until a time of the store's clock.
///
/// `epoch` grows with every claim. A write that carries an older epoch fails with [`Error::LeaseLost`], so an owner that
/// was stopped beyond its lease writes nothing after somebody else has claimed it. A lease that ran out and that nobody
/// claimed since is still good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What it is for: the id of a session, a run or a job.
    pub key: String,
    /// Who holds it.
    pub owner: String,
    /// The number of the claim.
    pub epoch: u64,
    /// When it ends unless it is renewed.
    pub until: Timestamp,
}

/// Who holds a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHolder {
    /// The session.
    pub session: String,
    /// The machine.
    pub host: String,
    /// The process on it.
    pub pid: u32,
    /// Since when.
    pub since: Timestamp,
    /// When the lease ends unless it is renewed.
    pub until: Timestamp,
}

/// A lease of a session that is held now. It is renewed with [`renew`](Self::renew) and given back with
/// [`Leases::release`]; when it is dropped instead, the store gives it back when it can.
pub struct HeldLease {
    lease: Mutex<Lease>,
    store: Arc<dyn Store>,
    is_released: Mutex<bool>,
}

impl HeldLease {
    /// The lease.
    pub fn get(&self) -> Lease {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Prolongs the lease.
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

/// The lease of one open session, shared by its turns and its tools.
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
    /// Claims the session, or shares the lease that is held already. [`Error::SessionHeld`]: another owner has it.
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

    /// Gives the lease back, unless somebody else in this session still uses it. A lease that was lost is no error here.
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
