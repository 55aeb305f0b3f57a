//! Walking a tree as ripgrep does: ignore files, hidden files, types and globs mean what they mean there.

mod clock;
mod find;
mod start;

pub(super) use clock::WalkDeadline;
pub(crate) use find::NameFilter;
pub(super) use find::find;
pub(super) use start::{WalkRoot, builder};
