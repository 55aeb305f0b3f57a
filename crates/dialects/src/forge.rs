//! `forge` (001): the toolset of planned multi-agent runs. Paths are absolute, every answer is a JSON object.

mod fetch;
mod plan;
mod search;

use std::{num::NonZeroU64, time::Duration};

use helve_contract::{Entry, Error, PathStyle, Reply, Result, TruncateSide, ports::Streams};
use helve_engine::{Dialect, Limit, MessageTemplates, Mode, OutputLimits, Role, TruncationNotice};
use helve_tools::{agents, artifacts, fs, git, plan::Draft, shell};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::words;

/// The dialect.
pub fn forge() -> Dialect {
    let mut tools = table! {
        // The model calls  with     and we run      answering
        "read"              ReadArgs  => fs::ReadTool,       render_read;
        "write"             WriteArgs => fs::WriteTool,      render_write;
        "edit"              EditArgs  => fs::EditTool,       render_edit;
        "bash"              BashArgs  => shell::RunTool,     shell::RunToolOutput::render_streams;
        "plan_read"         plan::PlanReadArgs  => Draft<fs::ReadTool>,    plan::render_plan_read;
        "plan_write"        plan::PlanWriteArgs => Draft<fs::WriteTool>,   plan::render_plan_write;
        "plan_edit"         plan::PlanEditArgs  => Draft<fs::EditTool>,    plan::render_plan_edit;
        "plan_bash"         plan::PlanBashArgs  => Draft<shell::RunTool>,  shell::RunToolOutput::render_streams;
        "web_search"        search::WebSearchArgs => helve_tools::web::WebSearchTool, search::render_search;
        "web_fetch"         fetch::WebFetchArgs => helve_tools::web::WebFetchTool, fetch::render_fetch;
    };
    tools.extend([
        // These tools exist only in this dialect and need no adapter.
        Entry::from_tool::<artifacts::CreateSpec>(),
        Entry::from_tool::<artifacts::CreateTask>(),
        Entry::from_tool::<artifacts::SetDag>(),
        Entry::from_tool::<agents::SpawnAgent>(),
        Entry::from_tool::<artifacts::EmitWalkthrough>(),
        Entry::from_tool::<artifacts::AddSubtask>(),
        Entry::from_tool::<artifacts::ReadSubtasks>(),
        Entry::from_tool::<git::MergeBranches>(),
        Entry::from_tool::<git::RunTests>(),
        Entry::from_tool::<git::FixConflict>(),
        Entry::from_tool::<artifacts::EmitCr>(),
        Entry::from_tool::<artifacts::ReadSpec>(),
        Entry::from_tool::<artifacts::ReadTask>(),
        Entry::from_tool::<artifacts::ReadDag>(),
        Entry::from_tool::<artifacts::ReadWalkthrough>(),
        Entry::from_tool::<artifacts::MarkTaskStatus>(),
        Entry::from_tool::<git::PrepareBranch>(),
    ]);
    tools = tools
        .into_iter()
        .map(|tool| match tool.spec.name.as_str() {
            "read" => tool.with_output_schema::<ReadResult>(),
            "write" => tool.with_output_schema::<WriteResult>(),
            "edit" => tool.with_output_schema::<EditResult>(),
            "bash" | "plan_bash" => tool.with_output_schema::<BashResult>(),
            "plan_read" => tool.with_output_schema::<plan::PlanReadResult>(),
            "plan_write" | "plan_edit" => tool.with_output_schema::<plan::PlanWriteResult>(),
            "web_search" => tool.with_output_schema::<search::WebSearchResult>(),
            "web_fetch" => tool.with_output_schema::<fetch::WebFetchResult>(),
            _ => tool,
        })
        .collect();
    Dialect {
        name: "forge",
        description: "planned runs of several agents over git",
        tools,
        external: &[],
        roles: ROLES,
        default_role: None,
        path_style: PathStyle::Absolute,
        limits: OutputLimits { general: Limit::bytes(1 << 20), by_tool: &[], paged: &[], ranges: &[] },
        templates: MessageTemplates {
            error: render_error,
            error_prefix: "",
            notice: render_truncation,
            cancelled: "cancelled",
        },
        mode: Mode::Open,
    }
}

/// The access table: the tools of each role.
#[rustfmt::skip]
const ROLES: &[Role] = &[
    Role { name: "captain", tools: &["read", "write", "edit", "bash", "plan_read", "plan_write", "plan_edit", "plan_bash",
        "web_search", "web_fetch", "create_spec", "create_task", "set_dag"], imports: true },
    Role { name: "type1", tools: &["read", "write", "edit", "bash", "web_search", "web_fetch", "emit_walkthrough"], imports: true },
    Role { name: "type2", tools: &["read", "write", "edit", "bash", "web_search", "web_fetch", "emit_walkthrough", "spawn_agent"], imports: true },
    Role { name: "type3", tools: &["read", "write", "edit", "bash", "web_search", "web_fetch", "emit_walkthrough", "spawn_agent",
        "add_subtask", "read_subtasks"], imports: true },
    Role { name: "refinery", tools: &["read", "write", "edit", "bash", "web_search", "web_fetch", "emit_walkthrough", "spawn_agent",
        "add_subtask", "read_subtasks", "merge_branches", "run_tests", "fix_conflict", "emit_cr"], imports: true },
    Role { name: "executor", tools: &["spawn_agent", "read_spec", "read_task", "read_dag", "read_walkthrough", "mark_task_status",
        "prepare_branch"], imports: true },
];

/// A failure is also an object, with a message and a code.
fn render_error(_: &str, error: &Error) -> Reply {
    let code = match error {
        Error::UnknownTool(_) => "UNKNOWN_TOOL",
        Error::InvalidArgs(_) => "INVALID_REQUEST",
        Error::Denied(_) => "DENIED",
        Error::Timeout(_) => "TIMEOUT",
        Error::Cancelled => "CANCELLED",
        Error::File { .. } => "FILE_ERROR",
        Error::LeaseLost(_) => "LEASE_LOST",
        Error::SessionHeld(_) => "SESSION_HELD",
        Error::VersionConflict(_) => "VERSION_CONFLICT",
        Error::RunHeld(_) => "RUN_HELD",
        Error::BlobTooLarge { .. } | Error::BlobDamaged(_) => "FILE_ERROR",
        Error::Failed(_) => "FAILED",
        Error::Internal(_) => "INTERNAL_ERROR",
    };
    Reply { is_error: true, ..Reply::json(json!({ "error": words::error_text(error), "code": code })) }
}

fn render_truncation(notice: &TruncationNotice) -> String {
    let file = notice.file.as_ref().map(|file| format!("; the whole is in {}", file.display())).unwrap_or_default();
    match notice.kept_size {
        Some(kept) => format!("[{kept} of {} {} shown{file}]", notice.total, notice.unit),
        None => format!("[{} shown{file}]", notice.part(|it| it.to_string())),
    }
}

/// Read a file. Returns {content, totalLines}.
#[derive(Deserialize, JsonSchema)]
struct ReadArgs {
    /// Absolute path
    path: String,
    /// [startLine, endLine], counted from 1
    range: Option<(NonZeroU64, NonZeroU64)>,
}

/// Replace a whole file, or create it and its folders. Returns {success, bytesWritten}.
#[derive(Deserialize, JsonSchema)]
struct WriteArgs {
    /// Absolute path
    path: String,
    content: String,
}

/// Replace text that occurs exactly once in a file. Returns {success, diff}; a miss shows the nearest lines.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EditArgs {
    /// Absolute path
    path: String,
    /// Exact text to find
    old_str: String,
    new_str: String,
}

/// Run a bash command in the sandbox. Returns {stdout, stderr, exitCode}.
#[derive(Deserialize, JsonSchema)]
struct BashArgs {
    command: String,
    /// Milliseconds (default 120000)
    timeout: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadResult {
    content: String,
    total_lines: u64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WriteResult {
    success: bool,
    bytes_written: u64,
}

#[derive(Serialize, JsonSchema)]
struct EditResult {
    success: bool,
    diff: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct BashResult {
    stdout: String,
    stderr: String,
    exit_code: i32,
}

impl From<WriteArgs> for fs::WriteTool {
    fn from(WriteArgs { path, content }: WriteArgs) -> Self {
        Self { path, content }
    }
}

fn render_write(out: fs::WriteOutput) -> Reply {
    Reply::json(json!({ "success": true, "bytesWritten": out.bytes }))
}

impl From<BashArgs> for shell::RunTool {
    fn from(BashArgs { command, timeout }: BashArgs) -> Self {
        Self {
            script: command,
            // 0 means no explicit timeout: a command that ends at once is useless.
            timeout: Some(Duration::from_millis(timeout.filter(|it| *it > 0).unwrap_or(120_000))),
            keep: TruncateSide::KeepTail,
            streams: Streams::Separate,
            ..Self::default()
        }
    }
}

impl TryFrom<ReadArgs> for fs::ReadTool {
    type Error = Error;

    fn try_from(ReadArgs { path, range }: ReadArgs) -> Result<Self> {
        // Half of the reply limit, because JSON escapes many characters with two bytes.
        let whole = Self { max_bytes: Some(1 << 19), ..Self::new(path) };
        let Some((first, last)) = range else { return Ok(whole) };
        if last < first {
            return Err(Error::invalid_argument("range", format!("[{first}, {last}] ends before it starts")));
        }
        let limit = Some((last.get() - first.get() + 1) as usize);
        Ok(Self { limit, ..whole.from_line(first.get()) })
    }
}

fn render_read(out: fs::ReadOutput) -> Reply {
    match words::page_or_reply(out, |page| format!("pages from {page}; this tool shows the first 20")) {
        Ok(page) => {
            let mut data = json!({ "content": page.to_exact_text(), "totalLines": page.total.count() });
            if page.cut == Some(fs::PageLimit::Bytes) {
                data["truncated"] =
                    format!("go on with range [{0}, {1}]", page.last_line() + 1, page.last_line() + 2000).into();
            }
            if let Some(encoding) = page.encoding {
                data["note"] = encoding.into();
            }
            Reply::json(data)
        }
        Err(reply) => Reply { media: reply.media, ..Reply::json(json!({ "content": reply.text, "totalLines": 0 })) },
    }
}

impl From<EditArgs> for fs::EditTool {
    fn from(EditArgs { path, old_str, new_str }: EditArgs) -> Self {
        words::exact_edit(path, old_str, new_str)
    }
}

fn render_edit(out: fs::EditOutput) -> Reply {
    let mut data = json!({ "success": true, "diff": out.unified() });
    if let Some(note) = out.match_level.note() {
        data["note"] = note.into();
    }
    Reply::json(data)
}
