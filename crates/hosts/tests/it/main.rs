//! Integration tests of the hosts.

#![allow(clippy::unwrap_used, missing_docs)]

mod attributes;
mod disks;
mod docker;
mod e2b;
mod files;
mod folder;
mod hidden;
mod kill;
mod memory;
mod order;
mod payloads;
mod programs;
mod quarantine;
mod race;
mod remote;
mod rg;
mod sandbox;
mod sockets;
mod sshd;
mod stub;
mod suite;
mod tasks;
mod walls;
