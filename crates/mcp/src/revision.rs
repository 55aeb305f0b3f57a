//! Protocol revisions and their negotiation.

use serde_json::json;

use crate::wire::{RpcError, truncate_name};

/// The revision without a handshake: every request states its revision.
pub(crate) const MODERN: &str = "2026-07-28";
/// The revisions with a handshake, the newest first.
pub(crate) const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Which kind of session a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolEra {
    /// After an `initialize`.
    Legacy,
    /// Each request for itself.
    Modern,
}

/// The requested revision if it is supported, otherwise the newest.
pub(crate) fn negotiate(asked: &str) -> &'static str {
    LEGACY.into_iter().find(|it| *it == asked).unwrap_or(LEGACY[0])
}

/// All that we speak, the newest first.
pub(crate) fn supported() -> Vec<&'static str> {
    [MODERN].into_iter().chain(LEGACY).collect()
}

/// The client speaks none of ours.
pub(crate) fn unsupported(version: &str) -> RpcError {
    RpcError::new(-32022, "Unsupported protocol version")
        .with_data(json!({ "supported": supported(), "requested": truncate_name(version) }))
}

/// Whether several messages may come in one array: before 2025-06-18 took it out.
pub(crate) fn has_batches(revision: &str) -> bool {
    revision < "2025-06-18"
}
