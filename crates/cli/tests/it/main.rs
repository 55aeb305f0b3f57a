//! The real binary, run as a user runs it.
#![allow(clippy::unwrap_used, missing_docs)]

mod assembly;
mod attaching;
mod calling;
mod chatting;
mod configuring;
mod desk;
mod forging;
mod hostile;
mod hosts;
mod http;
mod install;
mod leaks;
mod mcp_client;
mod model;
mod outside;
mod pages;
mod plain_git;
mod policy;
mod reference;
mod rules;
mod running;
mod scheduling;
mod serve;
mod serving;
mod serving_board;
mod serving_forge;
mod serving_jobs;
mod serving_rest;
mod serving_talks;
mod settings;
#[path = "../../../hosts/tests/it/sshd.rs"]
mod sshd;
mod stories;
mod strangers;
mod walls;
