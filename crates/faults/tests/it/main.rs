//! Fault injection against the real program, one kind per file.

#![allow(clippy::unwrap_used, missing_docs)]

mod clock;
mod crowd;
mod disk;
mod git;
mod inject;
mod kill;
mod slow;
mod torn;
