//! Stories about stores: what every one does, and what becomes of a file when things go wrong.
#![allow(clippy::unwrap_used, missing_docs)]

mod artifacts;
mod blobs;
mod crash;
mod job_workers;
mod jobs;
mod migration;
mod notes;
mod schedules;
mod sqlite;
mod stopped;
mod suite;
