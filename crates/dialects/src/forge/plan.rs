//! Planning tools: files and a shell in memory, in `forge`.

use std::time::Duration;

use helve_contract::{Reply, TruncateSide, ports::Streams};
use helve_tools::{fs, plan::Draft, shell};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Reads a file of the draft in memory.
#[derive(Deserialize, JsonSchema)]
pub(super) struct PlanReadArgs {
    path: String,
}

/// Creates or replaces a file of the draft in memory. Missing folders are made.
#[derive(Deserialize, JsonSchema)]
pub(super) struct PlanWriteArgs {
    path: String,
    content: String,
}

/// Replaces text that occurs exactly once in a file of the draft in memory.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanEditArgs {
    path: String,
    old_str: String,
    new_str: String,
}

/// Runs a shell command on the draft in memory: pipes, redirections, loops, and the usual commands (find, grep, sed, awk, jq, sort …), but no real programs. Files stay between calls; variables and the folder do not.
#[derive(Deserialize, JsonSchema)]
pub(super) struct PlanBashArgs {
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

impl From<PlanReadArgs> for Draft<fs::ReadTool> {
    fn from(PlanReadArgs { path }: PlanReadArgs) -> Self {
        Self(fs::ReadTool { max_bytes: Some(1 << 20), ..fs::ReadTool::new(path) })
    }
}

impl From<PlanWriteArgs> for Draft<fs::WriteTool> {
    fn from(PlanWriteArgs { path, content }: PlanWriteArgs) -> Self {
        Self(fs::WriteTool { path, content })
    }
}

impl From<PlanEditArgs> for Draft<fs::EditTool> {
    fn from(PlanEditArgs { path, old_str, new_str }: PlanEditArgs) -> Self {
        Self(crate::words::exact_edit(path, old_str, new_str))
    }
}

impl From<PlanBashArgs> for Draft<shell::RunTool> {
    fn from(PlanBashArgs { command }: PlanBashArgs) -> Self {
        Self(shell::RunTool {
            script: command,
            timeout: Some(Duration::from_secs(30)),
            keep: TruncateSide::KeepHead,
            streams: Streams::Separate,
            ..shell::RunTool::default()
        })
    }
}

pub(super) fn render_plan_read(out: fs::ReadOutput) -> Reply {
    super::render_read(out)
}

pub(super) fn render_plan_write(_: fs::WriteOutput) -> Reply {
    Reply::json(json!({ "success": true }))
}

pub(super) fn render_plan_edit(_: fs::EditOutput) -> Reply {
    Reply::json(json!({ "success": true }))
}
