//! Directory walks with ripgrep's semantics for ignore files, hidden files, types and globs.

mod clock;
mod find;
mod start;

pub(super) use clock::WalkDeadline;
pub(crate) use find::NameFilter;
pub(super) use find::find;
pub(super) use start::{WalkRoot, builder};
