//! `memory_search` and `memory_get`: memory files and notes.

use helve_contract::Reply;
use helve_tools::{fs, memory};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::words;

/// Searches MEMORY.md, memory/*.md and saved notes by words and meaning. Returns `[path:start-end] (score)` with the text, best first.
#[derive(Deserialize, JsonSchema)]
pub(super) struct MemorySearchArgs {
    query: String,
    /// Default 6
    max_results: Option<usize>,
    /// 0 to 1; default 0.35
    min_score: Option<f32>,
}

/// Reads lines of a memory file (MEMORY.md, memory/*.md).
#[derive(Deserialize, JsonSchema)]
pub(super) struct MemoryGetArgs {
    path: String,
    /// First line, from 1
    from: Option<u64>,
    /// How many
    lines: Option<usize>,
}

impl From<MemorySearchArgs> for memory::MemorySearchTool {
    fn from(it: MemorySearchArgs) -> Self {
        Self {
            query: it.query,
            most: Some(it.max_results.filter(|it| *it > 0).unwrap_or(6)),
            least: Some(it.min_score.unwrap_or(0.35)),
            files: true,
            ..Self::default()
        }
    }
}

impl From<MemoryGetArgs> for memory::MemoryGetTool {
    fn from(MemoryGetArgs { path, from, lines }: MemoryGetArgs) -> Self {
        Self { path, from: from.filter(|it| *it > 0), lines: lines.filter(|it| *it > 0) }
    }
}

pub(super) fn render_search(hits: memory::MemorySearchOutput) -> Reply {
    hits.with_untrusted_origin(hits.lines().into())
}

pub(super) fn render_get(out: fs::ReadOutput) -> Reply {
    match words::page_or_reply(out, |page| format!("pages from {page}")) {
        Ok(page) => page.numbered(|line| format!("from={line}")).into(),
        Err(reply) => *reply,
    }
}
