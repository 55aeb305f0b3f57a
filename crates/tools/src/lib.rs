//! All built-in tools, one file each. They depend only on the contract; files and programs come from the ports of a
//! call.

pub mod agents;
pub mod artifacts;
pub mod fs;
pub mod git;
pub mod memory;
pub mod messages;
pub mod plan;
pub mod schedule;
pub mod scratchpad;
pub mod sessions;
pub mod shell;
pub mod user;
pub mod vault;
pub mod web;

#[cfg(test)]
mod testing;
#[cfg(any(test, fuzzing))]
pub mod trials;
