//! Planning tools: files and a shell in memory.

use std::time::Duration;

use helve_contract::{Keep, Reply, ports::Streams};
use helve_tools::{fs, plan::Draft, shell};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Reads a file of the draft in memory.
#[derive(Deserialize, JsonSchema)]
pub(super) struct PlanRead {
    path: String,
}

/// Creates or replaces a file of the draft in memory. Missing folders are made.
#[derive(Deserialize, JsonSchema)]
pub(super) struct PlanWrite {
    path: String,
    content: String,
}

/// Replaces text that occurs exactly once in a file of the draft in memory.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanEdit {
    path: String,
    old_str: String,
    new_str: String,
}

/// Runs a shell command on the draft in memory: pipes, redirections, loops, and the usual commands (find, grep, sed, awk, jq, sort …), but no real programs. Files stay between calls; variables and the folder do not.
#[derive(Deserialize, JsonSchema)]
pub(super) struct PlanBash {
    command: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct PlanReadResult {
    content: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct PlanWriteResult {
    success: bool,
}

impl From<PlanRead> for Draft<fs::Read> {
    fn from(PlanRead { path }: PlanRead) -> Self {
        Self(fs::Read { max_bytes: Some(1 << 20), ..fs::Read::new(path) })
    }
}

impl From<PlanWrite> for Draft<fs::Write> {
    fn from(PlanWrite { path, content }: PlanWrite) -> Self {
        Self(fs::Write { path, content })
    }
}

impl From<PlanEdit> for Draft<fs::Edit> {
    fn from(PlanEdit { path, old_str, new_str }: PlanEdit) -> Self {
        Self(crate::words::edit(path, old_str, new_str))
    }
}

impl From<PlanBash> for Draft<shell::Run> {
    fn from(PlanBash { command }: PlanBash) -> Self {
        Self(shell::Run {
            script: command,
            timeout: Some(Duration::from_secs(30)),
            keep: Keep::Head,
            streams: Streams::Separate,
            ..shell::Run::default()
        })
    }
}

pub(super) fn read(out: fs::ReadOut) -> Reply {
    super::content(out)
}

pub(super) fn written(_: fs::WriteOut) -> Reply {
    Reply::json(json!({ "success": true }))
}

pub(super) fn edited(_: fs::Edited) -> Reply {
    Reply::json(json!({ "success": true }))
}
