//! The real binary, run as a user runs it.
#![allow(clippy::unwrap_used, missing_docs)]

mod calling;
mod desk;
mod http;
mod install;
mod outside;
mod reference;
mod serving;
mod settings;
mod walls;
