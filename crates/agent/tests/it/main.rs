//! The agent's stories, each against a model that follows a script.

#![allow(clippy::unwrap_used, missing_docs)]

mod agents;
mod backends;
mod bench;
mod crash;
mod endpoint;
mod faults;
mod leases;
mod loops;
mod opaque;
mod room;
