//! Makers of [`Store`](helve_contract::ports::Store): one SQLite file by default.

pub mod embed;
pub mod sqlite;

pub use sqlite::{Heard, Memory, Sqlite};
