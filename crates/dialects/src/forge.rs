//! `forge` (001): the toolset of planned multi-agent runs. Paths are absolute, every answer is a JSON object.

mod fetch;
mod plan;
mod search;

use std::{num::NonZeroU64, time::Duration};

use helve_contract::{Entry, Error, Keep, Reading, Reply, Result, ports::Streams};
use helve_engine::{Dialect, Limit, Limits, Mode, Notice, Role, Words};
use helve_tools::{agents, artifacts, fs, git, plan::Draft, shell};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::words;

/// The dialect.
pub fn forge() -> Dialect {
    let mut tools = table! {
        // The model calls  with     and we run      answering
        "read"              Read  => fs::Read,       content;
        "write"             Write => fs::Write,      written;
        "edit"              Edit  => fs::Edit,       edited;
        "bash"              Bash  => shell::Run,     shell::RunOut::streams;
        "plan_read"         plan::PlanRead  => Draft<fs::Read>,    plan::read;
        "plan_write"        plan::PlanWrite => Draft<fs::Write>,   plan::written;
        "plan_edit"         plan::PlanEdit  => Draft<fs::Edit>,    plan::edited;
        "plan_bash"         plan::PlanBash  => Draft<shell::Run>,  shell::RunOut::streams;
        "web_search"        search::WebSearch => helve_tools::web::Search, search::searched;
        "web_fetch"         fetch::WebFetch => helve_tools::web::Fetch, fetch::fetched;
    };
    tools.extend([
        // These are this dialect's own, and need no adapting.
        Entry::of::<artifacts::CreateSpec>(),
        Entry::of::<artifacts::CreateTask>(),
        Entry::of::<artifacts::SetDag>(),
        Entry::of::<agents::SpawnAgent>(),
        Entry::of::<artifacts::EmitWalkthrough>(),
        Entry::of::<artifacts::AddSubtask>(),
        Entry::of::<artifacts::ReadSubtasks>(),
        Entry::of::<git::MergeBranches>(),
        Entry::of::<git::RunTests>(),
        Entry::of::<git::FixConflict>(),
        Entry::of::<artifacts::EmitCr>(),
        Entry::of::<artifacts::ReadSpec>(),
        Entry::of::<artifacts::ReadTask>(),
        Entry::of::<artifacts::ReadDag>(),
        Entry::of::<artifacts::ReadWalkthrough>(),
        Entry::of::<artifacts::MarkTaskStatus>(),
        Entry::of::<git::PrepareBranch>(),
    ]);
    tools = tools
        .into_iter()
        .map(|tool| match tool.spec.name.as_str() {
            "read" => tool.answers::<ReadResult>(),
            "write" => tool.answers::<WriteResult>(),
            "edit" => tool.answers::<EditResult>(),
            "bash" | "plan_bash" => tool.answers::<BashResult>(),
            "plan_read" => tool.answers::<plan::PlanReadResult>(),
            "plan_write" | "plan_edit" => tool.answers::<plan::PlanWriteResult>(),
            "web_search" => tool.answers::<search::WebSearchResult>(),
            "web_fetch" => tool.answers::<fetch::WebFetchResult>(),
            _ => tool,
        })
        .collect();
    Dialect {
        name: "forge",
        about: "planned runs of several agents over git",
        tools,
        external: &[],
        roles: ROLES,
        default_role: None,
        reading: Reading::Absolute,
        limits: Limits { general: Limit::bytes(1 << 20), by_tool: &[], paged: &[], ranges: &[] },
        words: Words { error, error_prefix: "", notice, cancelled: "cancelled" },
        mode: Mode::Open,
    }
}

/// Who has which tools: the access table.
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

/// A failure is an object too: what went wrong, and its code.
fn error(_: &str, error: &Error) -> Reply {
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
    Reply { is_error: true, ..Reply::json(json!({ "error": words::told(error), "code": code })) }
}

fn notice(notice: &Notice) -> String {
    let file = notice.file.as_ref().map(|file| format!("; the whole is in {}", file.display())).unwrap_or_default();
    match notice.kept {
        Some(kept) => format!("[{kept} of {} {} shown{file}]", notice.total, notice.unit),
        None => format!("[{} shown{file}]", notice.part(|it| it.to_string())),
    }
}

/// Read a file. Returns {content, totalLines}.
#[derive(Deserialize, JsonSchema)]
struct Read {
    /// Absolute path
    path: String,
    /// [startLine, endLine], counted from 1
    range: Option<(NonZeroU64, NonZeroU64)>,
}

/// Replace a whole file, or create it and its folders. Returns {success, bytesWritten}.
#[derive(Deserialize, JsonSchema)]
struct Write {
    /// Absolute path
    path: String,
    content: String,
}

/// Replace text that occurs exactly once in a file. Returns {success, diff}; a miss shows the nearest lines.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Edit {
    /// Absolute path
    path: String,
    /// Exact text to find
    old_str: String,
    new_str: String,
}

/// Run a bash command in the sandbox. Returns {stdout, stderr, exitCode}.
#[derive(Deserialize, JsonSchema)]
struct Bash {
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

impl From<Write> for fs::Write {
    fn from(Write { path, content }: Write) -> Self {
        Self { path, content }
    }
}

fn written(out: fs::WriteOut) -> Reply {
    Reply::json(json!({ "success": true, "bytesWritten": out.bytes }))
}

impl From<Bash> for shell::Run {
    fn from(Bash { command, timeout }: Bash) -> Self {
        Self {
            script: command,
            // Who writes 0 wants no limit of their own, and a command that is ended at once helps nobody.
            timeout: Some(Duration::from_millis(timeout.filter(|it| *it > 0).unwrap_or(120_000))),
            keep: Keep::Tail,
            streams: Streams::Separate,
            ..Self::default()
        }
    }
}

impl TryFrom<Read> for fs::Read {
    type Error = Error;

    fn try_from(Read { path, range }: Read) -> Result<Self> {
        // Half of what a reply may have, because JSON spells many characters with two.
        let whole = Self { max_bytes: Some(1 << 19), ..Self::new(path) };
        let Some((first, last)) = range else { return Ok(whole) };
        if last < first {
            return Err(Error::argument("range", format!("[{first}, {last}] ends before it starts")));
        }
        let limit = Some((last.get() - first.get() + 1) as usize);
        Ok(Self { limit, ..whole.from_line(first.get()) })
    }
}

fn content(out: fs::ReadOut) -> Reply {
    match words::page_or_reply(out, |page| format!("pages from {page}; this tool shows the first 20")) {
        Ok(page) => {
            let mut data = json!({ "content": page.exact(), "totalLines": page.total.count() });
            if page.cut == Some(fs::CutBy::Bytes) {
                data["truncated"] = format!("go on with range [{0}, {1}]", page.last() + 1, page.last() + 2000).into();
            }
            if let Some(encoding) = page.encoding {
                data["note"] = encoding.into();
            }
            Reply::json(data)
        }
        Err(reply) => Reply { media: reply.media, ..Reply::json(json!({ "content": reply.text, "totalLines": 0 })) },
    }
}

impl From<Edit> for fs::Edit {
    fn from(Edit { path, old_str, new_str }: Edit) -> Self {
        words::edit(path, old_str, new_str)
    }
}

fn edited(out: fs::Edited) -> Reply {
    let mut data = json!({ "success": true, "diff": out.unified() });
    if let Some(note) = out.rung.note() {
        data["note"] = note.into();
    }
    Reply::json(data)
}
