//! Implementations of the storage ports: [`Store`](helve_contract::ports::Store) in one SQLite file, blobs and
//! artifacts of planned runs in directories.

mod artifacts;
mod blobs;
pub mod embed;
mod files;
mod jobs;
pub mod sqlite;

pub use artifacts::FileArtifacts;
pub use blobs::FileBlobs;
pub use jobs::InProcessJobs;
pub use sqlite::{MemoryConfig, MessageListener, SqliteStore};
