//! Makers of [`Store`](helve_contract::ports::Store): one SQLite file by default.

pub mod embed;
mod jobs;
pub mod sqlite;

pub use jobs::InProcessJobs;
pub use sqlite::{Heard, Memory, Sqlite};
