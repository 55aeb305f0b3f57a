//! The real binary, run as a user runs it.
#![allow(clippy::unwrap_used, missing_docs)]

mod assembly;
mod calling;
mod chatting;
mod desk;
mod forging;
mod hosts;
mod http;
mod install;
mod leaks;
mod model;
mod outside;
mod pages;
mod reference;
mod running;
mod scheduling;
mod serve;
mod serving;
mod serving_board;
mod serving_forge;
mod serving_rest;
mod serving_talks;
mod settings;
mod stories;
mod strangers;
mod walls;
