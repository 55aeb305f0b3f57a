//! Small records of one session: its scratchpad, its to-do list.

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use super::store::{NoStore, nothing_kept};
use crate::Result;

/// What a session writes down for itself, by name. A new text replaces the old one.
#[async_trait]
pub trait Slates: Send + Sync {
    /// What stands on a slate, if anything.
    async fn slate(&self, session: &str, name: &str) -> Result<Option<Slate>>;
    /// Replaces what stands on it.
    async fn write_slate(&self, session: &str, name: &str, value: Value, now: Timestamp) -> Result<()>;
    /// Wipes it. Whether something stood there.
    async fn wipe_slate(&self, session: &str, name: &str) -> Result<bool>;
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
    async fn write_slate(&self, _: &str, _: &str, _: Value, _: Timestamp) -> Result<()> {
        nothing_kept()
    }
    async fn wipe_slate(&self, _: &str, _: &str) -> Result<bool> {
        Ok(false)
    }
}
