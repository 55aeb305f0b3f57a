//! Small records of one session: its scratchpad, its to-do list.

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    leases::Lease,
    store::{NoStore, nothing_kept},
};
use crate::Result;

/// What a session writes down for itself, by name. A new text replaces the old one. Writing needs the lease of the
/// session and fails with [`Error::LeaseLost`](crate::Error::LeaseLost) where that is stale.
#[async_trait]
pub trait Slates: Send + Sync {
    /// What stands on a slate, if anything.
    async fn slate(&self, session: &str, name: &str) -> Result<Option<Slate>>;
    /// Replaces what stands on it.
    async fn write_slate(&self, lease: &Lease, name: &str, value: Value) -> Result<()>;
    /// Wipes it. Whether something stood there.
    async fn wipe_slate(&self, lease: &Lease, name: &str) -> Result<bool>;
}

/// What stands on a slate.
#[derive(Clone, Debug, PartialEq)]
pub struct Slate {
    /// The record.
    pub value: Value,
    /// When it was written.
    pub updated: Timestamp,
}

#[async_trait]
impl Slates for NoStore {
    async fn slate(&self, _: &str, _: &str) -> Result<Option<Slate>> {
        Ok(None)
    }
    async fn write_slate(&self, _: &Lease, _: &str, _: Value) -> Result<()> {
        nothing_kept()
    }
    async fn wipe_slate(&self, _: &Lease, _: &str) -> Result<bool> {
        Ok(false)
    }
}
