//! The groups of comparisons.

mod crowd;
mod engine;
mod exec;
mod files;
mod forge;
mod http;
mod load;
mod mcp;
mod memory;
mod patch;
mod schedules;
mod search;
mod shell;
mod start;
mod web;

use std::path::PathBuf;

use anyhow::Result;

use crate::report::BenchReport;

/// Measures one group.
type Group = fn(&mut BenchReport) -> Result<()>;

/// All groups, in the order in which they run.
pub(crate) const ALL: [(&str, Group); 14] = [
    ("engine", engine::run),
    ("start", start::run),
    ("mcp", mcp::run),
    ("http", http::run),
    ("files", files::run),
    ("search", search::run),
    ("exec", exec::run),
    ("patch", patch::run),
    ("memory", memory::run),
    ("schedules", schedules::run),
    ("shell", shell::run),
    ("forge", forge::run),
    ("web", web::run),
    ("load", load::run),
];

/// Those that a check looks at: short, and with ratios that hold on a busy machine.
pub(crate) const CHECK_GROUPS: [&str; 7] = ["engine", "files", "search", "patch", "memory", "forge", "mcp"];

/// The `helve` to start; `None`, and told, where there is none.
fn helve(report: &mut BenchReport) -> Result<Option<PathBuf>> {
    let beside = std::env::current_exe()?.with_file_name("helve");
    let helve = report.helve.clone().unwrap_or(beside);
    if helve.is_file() {
        return Ok(Some(helve.canonicalize()?));
    }
    report.skip(&format!("{} is not there: build it with --release, or name one with --helve", helve.display()));
    Ok(None)
}
