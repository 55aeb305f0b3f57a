//! The real binary, run as a user runs it.
#![allow(clippy::unwrap_used, missing_docs)]

mod calling;
mod chatting;
mod desk;
mod forging;
mod http;
mod install;
mod model;
mod outside;
mod pages;
mod reference;
mod running;
mod scheduling;
mod serve;
mod serving;
mod settings;
mod stories;
mod walls;
