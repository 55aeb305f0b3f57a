//! What the hosts promise, tried from outside.

#![allow(clippy::unwrap_used, missing_docs)]

mod folder;
mod rg;
mod sandbox;
mod disks;
mod files;
mod kill;
mod race;
mod suite;
