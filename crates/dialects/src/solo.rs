//! `solo` (000): twenty plain tools of a single agent. Paths start at the workspace, errors are flagged, nothing asks.

mod memory;
mod messages;
mod schedule;
mod sessions;

use std::{collections::BTreeMap, time::Duration};

use helve_contract::{Error, PathStyle, Reply, TruncateSide};
use helve_engine::{Dialect, Limit, MessageTemplates, Mode, OutputLimits, ParameterRange, Role, TruncationNotice};
use helve_tools::{fs, shell};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::words;

/// The dialect.
pub fn solo() -> Dialect {
    Dialect {
        name: "solo",
        description: "twenty plain tools of a single agent",
        tools: table! {
            // The model calls  with            and we run           answering
            "read"              ReadArgs         => fs::ReadTool,            render_read;
            "write"             WriteArgs        => fs::WriteTool,           render_write;
            "edit"              EditArgs         => fs::EditTool,            render_edit;
            "apply_patch"       ApplyPatchArgs   => fs::ApplyPatchTool,      render_patch;
            "grep"              GrepArgs         => fs::GrepTool,            render_grep;
            "glob"              GlobArgs         => fs::GlobTool,            render_glob;
            "ls"                LsArgs           => fs::ListTool,            render_list;
            "exec"              ExecArgs         => shell::RunTool,          shell::RunToolOutput::render_status_first;
            "process"           ProcessArgs      => shell::ProcessTool,      render_process;
            "cron"              schedule::CronArgs => helve_tools::schedule::CronTool, schedule::render_cron;
            "message"           messages::MessageArgs => helve_tools::messages::MessageTool, messages::render_message;
            "agents_list"       sessions::AgentsListArgs => helve_tools::sessions::AgentsListTool, sessions::render_plain;
            "sessions_list"     sessions::SessionsListArgs => helve_tools::sessions::SessionsListTool, sessions::render_plain;
            "sessions_history"  sessions::SessionsHistoryArgs => helve_tools::sessions::SessionsHistoryTool, sessions::render_plain;
            "sessions_send"     sessions::SessionsSendArgs => helve_tools::sessions::SessionsSendTool, sessions::render_plain;
            "sessions_spawn"    sessions::SessionsSpawnArgs => helve_tools::sessions::SessionsSpawnTool, sessions::render_plain;
            "subagents"         sessions::SubagentsArgs => helve_tools::sessions::SubagentsTool, sessions::render_plain;
            "sessions_status"   sessions::SessionsStatusArgs => helve_tools::sessions::SessionsStatusTool, sessions::render_plain;
            "memory_search"     memory::MemorySearchArgs => helve_tools::memory::MemorySearchTool, memory::render_search;
            "memory_get"        memory::MemoryGetArgs => helve_tools::memory::MemoryGetTool, memory::render_get;
        },
        external: &[],
        roles: &[
            Role { name: "main", tools: &["*"], imports: true },
            Role { name: "sub", tools: sessions::SUBAGENT_TOOLS, imports: false },
        ],
        default_role: Some("main"),
        path_style: PathStyle::Relative,
        limits: OutputLimits {
            general: Limit::bytes(51_200),
            by_tool: const {
                &[
                    // The reader truncates the page; line numbers and the continuation hint come on top.
                    ("read", Limit::bytes(4 << 20)),
                    ("exec", Limit::chars(100_000)),
                    ("process", Limit::chars(10_000)),
                ]
            },
            paged: &["read"],
            ranges: const {
                &[
                    ParameterRange { tool: "exec", parameter: "timeout", min: 10, max: u32::MAX },
                    ParameterRange { tool: "memory_search", parameter: "max_results", min: 1, max: 50 },
                    ParameterRange { tool: "sessions_list", parameter: "limit", min: 1, max: 500 },
                    ParameterRange { tool: "sessions_history", parameter: "limit", min: 1, max: 500 },
                ]
            },
        },
        templates: MessageTemplates {
            error: render_error,
            error_prefix: "",
            notice: render_truncation,
            cancelled: "Cancelled",
        },
        mode: Mode::Open,
    }
}

fn render_error(tool: &str, error: &Error) -> Reply {
    match error {
        Error::UnknownTool(text) => Reply::error(format!("Tool not found: {text}")),
        error => words::plain_error(tool, error),
    }
}

fn render_truncation(notice: &TruncationNotice) -> String {
    let whole = match notice.kept_size {
        Some(kept) => format!("{kept} of {} {}", notice.total, notice.unit),
        None => notice.part(|it| it.to_string()),
    };
    match &notice.file {
        Some(file) => format!("[output truncated: {whole} shown; the whole is in {}]", file.display()),
        None => format!("[output truncated: {whole} shown]"),
    }
}

/// Reads a file; lines come numbered. A long file comes in pages that say how to go on.
#[derive(Deserialize, JsonSchema)]
struct ReadArgs {
    path: String,
    /// Lines to skip (0-based start)
    offset: Option<u64>,
    /// Most lines to return
    limit: Option<usize>,
}

/// Creates or replaces a file. Missing folders are made.
#[derive(Deserialize, JsonSchema)]
struct WriteArgs {
    path: String,
    content: String,
}

/// Replaces a piece of text that occurs exactly once in a file. A miss shows the nearest lines.
#[derive(Deserialize, JsonSchema)]
struct EditArgs {
    path: String,
    old_text: String,
    new_text: String,
}

/// Changes several files at once, all or nothing. Between `*** Begin Patch` and `*** End Patch`: `*** Add File: p`, `*** Update File: p` (then optionally `*** Move to: q`), `*** Delete File: p`; hunks start with `@@`, lines with ' ', '-' or '+'.
#[derive(Deserialize, JsonSchema)]
struct ApplyPatchArgs {
    patch: String,
}

/// Searches file contents. Returns `path:line:text`; .gitignore holds.
#[derive(Deserialize, JsonSchema)]
struct GrepArgs {
    /// Regex
    pattern: String,
    path: Option<String>,
    /// Only files like "*.go"
    include: Option<String>,
}

/// Finds files by path pattern, such as "**/*.go".
#[derive(Deserialize, JsonSchema)]
struct GlobArgs {
    pattern: String,
    path: Option<String>,
}

/// Lists a folder with kinds and sizes.
#[derive(Deserialize, JsonSchema)]
struct LsArgs {
    path: String,
}

/// Runs a shell command in a sandbox. Returns the exit code and the output.
#[derive(Deserialize, JsonSchema)]
struct ExecArgs {
    command: String,
    workdir: Option<String>,
    env: Option<BTreeMap<String, String>>,
    /// Return at once with a process id for `process`
    background: Option<bool>,
    /// Seconds (1800, at least 10)
    timeout: Option<u64>,
}

/// Watches a background process: its status, its output (poll), input to it, a signal.
#[derive(Deserialize, JsonSchema)]
struct ProcessArgs {
    action: shell::ProcessAction,
    process_id: String,
    input: Option<String>,
    /// SIGTERM, SIGINT, SIGKILL …
    signal: Option<String>,
}

impl From<ExecArgs> for shell::RunTool {
    fn from(ExecArgs { command, workdir, env, background, timeout }: ExecArgs) -> Self {
        Self {
            script: command,
            dir: workdir,
            env: env.unwrap_or_default(),
            // A background process may get input later. Timeouts below the minimum become the minimum.
            stdin: if background == Some(true) { shell::RunStdin::Open } else { shell::RunStdin::Closed },
            timeout: Some(Duration::from_secs(timeout.unwrap_or(1800).max(10))),
            background: background.unwrap_or_default(),
            keep: TruncateSide::KeepHead,
            ..Self::default()
        }
    }
}

impl From<ProcessArgs> for shell::ProcessTool {
    fn from(ProcessArgs { action, process_id, input, signal }: ProcessArgs) -> Self {
        Self { id: process_id, action, input, signal }
    }
}

fn render_process(out: shell::ProcessOutput) -> Reply {
    out.into()
}

impl From<WriteArgs> for fs::WriteTool {
    fn from(WriteArgs { path, content }: WriteArgs) -> Self {
        Self { path, content }
    }
}

fn render_write(out: fs::WriteOutput) -> String {
    format!("wrote {} bytes to {}", out.bytes, out.path)
}

impl From<ApplyPatchArgs> for fs::ApplyPatchTool {
    fn from(ApplyPatchArgs { patch }: ApplyPatchArgs) -> Self {
        Self { patch }
    }
}

fn render_patch(out: fs::ApplyPatchOutput) -> Reply {
    out.into()
}

impl From<GrepArgs> for fs::GrepTool {
    fn from(GrepArgs { pattern, path, include }: GrepArgs) -> Self {
        Self { pattern, path, globs: include.into_iter().collect(), ..Self::default() }
    }
}

fn render_grep(out: fs::GrepOutput) -> Reply {
    out.reply(out.lines(fs::LineNumbers::Shown, fs::FileNames::Shown), fs::NoMatchHints::default())
}

impl From<GlobArgs> for fs::GlobTool {
    fn from(GlobArgs { pattern, path }: GlobArgs) -> Self {
        Self { pattern, path, ..Self::default() }
    }
}

fn render_glob(out: fs::GlobOutput) -> Reply {
    out.reply(out.paths(), "No files found")
}

impl From<LsArgs> for fs::ListTool {
    fn from(LsArgs { path }: LsArgs) -> Self {
        Self { path: Some(path), hidden: true, detail: fs::ListDetail::Full }
    }
}

fn render_list(out: fs::ListOutput) -> String {
    out.with_sizes()
}

/// The default and the maximum number of bytes of a page.
const PAGE_BYTES: (usize, usize) = (51_200, 524_288);

impl From<ReadArgs> for fs::ReadTool {
    fn from(ReadArgs { path, offset, limit }: ReadArgs) -> Self {
        let max_bytes = Some(if limit.is_some() { PAGE_BYTES.1 } else { PAGE_BYTES.0 });
        Self { limit, max_bytes, ..Self::new(path).from_line(offset.unwrap_or(0).saturating_add(1)) }
    }
}

fn render_read(out: fs::ReadOutput) -> Reply {
    match words::page_or_reply(out, |page| format!("pages from {page}; this tool shows the first 20")) {
        Ok(page) => Reply { saved: page.saved(), ..page.numbered(|line| format!("offset={}", line - 1)).into() },
        Err(reply) => *reply,
    }
}

impl From<EditArgs> for fs::EditTool {
    fn from(EditArgs { path, old_text, new_text }: EditArgs) -> Self {
        words::exact_edit(path, old_text, new_text)
    }
}

fn render_edit(out: fs::EditOutput) -> String {
    words::edit_summary(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_for_half_an_hour_and_at_least_ten_seconds() {
        let seen = [None, Some(1), Some(10), Some(11)].map(|timeout| {
            let exec = ExecArgs { command: "true".into(), workdir: None, env: None, background: None, timeout };
            shell::RunTool::from(exec).timeout.map(|it| it.as_secs())
        });
        assert_eq!(seen, [Some(1800), Some(10), Some(10), Some(11)]);
    }
}
