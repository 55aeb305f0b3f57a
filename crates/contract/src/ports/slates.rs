//! Small records of one session: its scratchpad, its to-do list.

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    leases::Lease,
    store::{NoStore, no_store_error},
};
use crate::Result;

/// What a session writes down for itself, by name. A new text replaces the old one. Writing needs the lease of the
/// session and fails with [`Error::LeaseLost`](crate::Error::LeaseLost) where that is stale.
#[async_trait]
pub trait SessionState: Send + Sync {
    /// What stands on a slate, if anything.
    async fn get_state(&self, session: &str, name: &str) -> Result<Option<StateValue>>;
    /// Replaces what stands on it.
    async fn set_state(&self, lease: &Lease, name: &str, value: Value) -> Result<()>;
    /// Wipes it. Whether something stood there.
    async fn delete_state(&self, lease: &Lease, name: &str) -> Result<bool>;
}

/// What stands on a slate.
#[derive(Clone, Debug, PartialEq)]
pub struct StateValue {
    /// The record.
    pub value: Value,
    /// When it was written.
    pub updated: Timestamp,
}

#[async_trait]
impl SessionState for NoStore {
    async fn get_state(&self, _: &str, _: &str) -> Result<Option<StateValue>> {
        Ok(None)
    }
    async fn set_state(&self, _: &Lease, _: &str, _: Value) -> Result<()> {
        no_store_error()
    }
    async fn delete_state(&self, _: &Lease, _: &str) -> Result<bool> {
        Ok(false)
    }
}
