//! The `SessionState` port: small values of one session, such as its scratchpad and to-do list.

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    leases::Lease,
    store::{NoStore, no_store_error},
};
use crate::Result;

/// Named values of a session. A write replaces the old value. Writes need the lease of the session and fail with
/// [`Error::LeaseLost`](crate::Error::LeaseLost) if it is stale.
#[async_trait]
pub trait SessionState: Send + Sync {
    /// Reads a value.
    async fn get_state(&self, session: &str, name: &str) -> Result<Option<StateValue>>;
    /// Replaces a value.
    async fn set_state(&self, lease: &Lease, name: &str, value: Value) -> Result<()>;
    /// Deletes a value. Returns whether it existed.
    async fn delete_state(&self, lease: &Lease, name: &str) -> Result<bool>;
}

/// A value of the session state.
#[derive(Clone, Debug, PartialEq)]
pub struct StateValue {
    /// The value.
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
