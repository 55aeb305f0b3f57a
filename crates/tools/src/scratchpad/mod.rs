//! The scratchpad of a session: what it works on right now, in a few lines.

mod clear;
mod read;
mod write;

pub use clear::{Clear, Cleared};
pub use read::{Pad, Read};
pub use write::{Write, Written};

/// The slate that it stands on.
const SLATE: &str = "scratchpad";
