//! The dialects as a whole: their pages, their tables, and the order of the crates.
#![allow(clippy::unwrap_used, missing_docs)]

mod bare;
mod desk;
mod layers;
mod scenarios;
mod tables;
mod threats;
mod torture;
