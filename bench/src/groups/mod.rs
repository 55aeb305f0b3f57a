//! The groups of comparisons.

mod engine;
mod exec;
mod files;
mod forge;
mod mcp;
mod memory;
mod patch;
mod schedules;
mod search;
mod web;

pub(crate) use mcp::echo;

use anyhow::Result;

use crate::report::Report;

/// Measures one group.
type Group = fn(&mut Report) -> Result<()>;

/// All groups, in the order in which they run.
pub(crate) const ALL: [(&str, Group); 10] = [
    ("engine", engine::run),
    ("files", files::run),
    ("search", search::run),
    ("patch", patch::run),
    ("exec", exec::run),
    ("mcp", mcp::run),
    ("memory", memory::run),
    ("schedules", schedules::run),
    ("forge", forge::run),
    ("web", web::run),
];
