//! `oxydra` (003): virtual roots, three safety tiers, replies truncated at 16 KiB.

mod agents;
mod fetch;
mod memory;
mod messages;
mod schedule;
mod scratchpad;
mod search;
mod vault;

use std::time::Duration;

use helve_contract::{ArgumentProblem, CapabilityProfile, Error, PathStyle, Reply, Tier, TruncateSide, Truncation};
use helve_engine::{Dialect, Limit, MessageTemplates, Mode, OutputLimits, ParameterRange, TruncationNotice};
use helve_tools::{fs, shell};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::words;

/// The dialect.
pub fn oxydra() -> Dialect {
    let tools = table! {
        // The model calls  with          and we run      answering
        "file_read"         FileReadArgs   => fs::ReadTool,       render_read;
        "file_search"       FileSearchArgs => fs::GrepTool,       render_search;
        "file_list"         FileListArgs   => fs::ListTool,       render_list;
        "file_write"        FileWriteArgs  => fs::WriteTool,      render_write;
        "file_edit"         FileEditArgs   => fs::EditTool,       render_edit;
        "file_delete"       FileDeleteArgs => fs::DeleteTool,     render_delete;
        "attachment_save"   messages::AttachmentSaveArgs => helve_tools::messages::AttachmentSaveTool, messages::render_attachment;
        "web_fetch"         fetch::WebFetchArgs => helve_tools::web::WebFetchTool, fetch::render_fetch;
        "web_search"        search::WebSearchArgs => helve_tools::web::WebSearchTool, search::render_search;
        "vault_copyto"      vault::VaultCopyToArgs => helve_tools::vault::VaultCopyTool, vault::render_copy;
        "send_media"        messages::SendMediaArgs => helve_tools::messages::SendMediaTool, messages::render_media;
        "delegate_to_agent" agents::DelegateToAgentArgs => helve_tools::agents::AgentDelegateTool, agents::render_delegate;
        "shell_exec"        ShellExecArgs  => shell::RunTool,     render_shell;
        "memory_search"     memory::MemorySearchArgs => helve_tools::memory::MemorySearchTool, memory::render_search;
        "memory_save"       memory::MemorySaveArgs => helve_tools::memory::MemorySaveTool, memory::render_plain;
        "memory_update"     memory::MemoryUpdateArgs => helve_tools::memory::MemoryUpdateTool, memory::render_plain;
        "memory_delete"     memory::MemoryDeleteArgs => helve_tools::memory::MemoryDeleteTool, memory::render_plain;
        "scratchpad_read"   scratchpad::ScratchpadReadArgs => helve_tools::scratchpad::ScratchpadReadTool, memory::render_plain;
        "scratchpad_write"  scratchpad::ScratchpadWriteArgs => helve_tools::scratchpad::ScratchpadWriteTool, memory::render_plain;
        "scratchpad_clear"  scratchpad::ScratchpadClearArgs => helve_tools::scratchpad::ScratchpadClearTool, memory::render_plain;
        "schedule_create"   schedule::ScheduleCreateArgs => helve_tools::schedule::ScheduleCreateTool, schedule::render_plain;
        "schedule_search"   schedule::ScheduleSearchArgs => helve_tools::schedule::ScheduleSearchTool, schedule::render_plain;
        "schedule_edit"     schedule::ScheduleEditArgs => helve_tools::schedule::ScheduleEditTool, schedule::render_plain;
        "schedule_delete"   schedule::ScheduleDeleteArgs => helve_tools::schedule::ScheduleDeleteTool, schedule::render_plain;
        "schedule_runs"     schedule::ScheduleRunsArgs => helve_tools::schedule::ScheduleRunsTool, schedule::render_plain;
        "schedule_run_output" schedule::ScheduleRunOutputArgs => helve_tools::schedule::ScheduleRunOutputTool, schedule::render_plain;
    };
    let tools = tools.into_iter().map(|tool| match profile(&tool.spec.name) {
        Some(profile) => tool.confined(profile),
        None => tool,
    });
    let tools = tools.map(|tool| {
        let seconds = match tool.spec.name.as_str() {
            "file_read" | "file_list" => 10,
            "file_search" => 20,
            "shell_exec" | "delegate_to_agent" => return tool,
            // It reads a file and changes none; it sends only to the user.
            "send_media" => return tool.map_spec(|spec| spec.tier = Some(Tier::ReadOnly)),
            name if name.starts_with("schedule_") => 10,
            name if name.starts_with("web_") => 30,
            _ => 15,
        };
        tool.map_spec(|spec| spec.timeout = Duration::from_secs(seconds))
    });
    Dialect {
        name: "oxydra",
        description: "virtual roots and three safety tiers",
        tools: tools.collect(),
        external: &[],
        roles: &[],
        default_role: None,
        path_style: PathStyle::Virtual,
        limits: OutputLimits {
            general: Limit::bytes(USUAL),
            // These have limits in characters, which must fit in any script.
            by_tool: const { &[("scratchpad_read", Limit::bytes(1 << 16)), ("schedule_run_output", Limit::bytes(1 << 16))] },
            paged: &["scratchpad_read", "schedule_run_output"],
            ranges: const {
                &[
                    ParameterRange { tool: "memory_search", parameter: "top_k", min: 1, max: 20 },
                    ParameterRange { tool: "web_search", parameter: "count", min: 1, max: 10 },
                    ParameterRange { tool: "schedule_search", parameter: "limit", min: 1, max: 50 },
                    ParameterRange { tool: "schedule_runs", parameter: "limit", min: 1, max: 20 },
                    ParameterRange { tool: "schedule_run_output", parameter: "max_chars", min: 200, max: 8_000 },
                ]
            },
        },
        templates: MessageTemplates {
            error: render_error,
            error_prefix: "Tool execution failed: ",
            notice: render_truncation,
            cancelled: "cancelled",
        },
        mode: Mode::Default,
    }
}

/// The capability profile of a tool. `vault_copyto` uses one profile for each of its two steps. Commands run in the
/// sandbox, and the other tools access no files.
fn profile(tool: &str) -> Option<CapabilityProfile> {
    Some(match tool {
        "file_read" | "file_search" | "file_list" | "send_media" => CapabilityProfile::FileReadOnly,
        "file_write" | "file_edit" | "file_delete" | "attachment_save" => CapabilityProfile::FileReadWrite,
        "web_fetch" | "web_search" => CapabilityProfile::Web,
        _ => return None,
    })
}

fn render_error(_: &str, error: &Error) -> Reply {
    let text = match error {
        Error::InvalidArgs(problems) => words::render_problems(problems, render_problem),
        Error::Denied(text) if !text.starts_with("blocked by security policy") => {
            format!("blocked by security policy ({}): {text}", policy_reason(text))
        }
        error => words::error_text(error),
    };
    Reply::error(text)
}

fn render_problem(problem: &ArgumentProblem) -> String {
    match problem {
        ArgumentProblem::Missing { path, .. } => format!("missing required field '{path}' in arguments"),
        ArgumentProblem::Mismatch { path, wanted, sent } => format!("field '{path}' must be {wanted}, not {sent}"),
        ArgumentProblem::Unknown { .. } | ArgumentProblem::Other { .. } => problem.to_string(),
    }
}

/// The policy name for the kind of refusal.
fn policy_reason(text: &str) -> &'static str {
    if text.contains("outside the workspace") || text.contains("read-only root") || text.contains("is protected") {
        "PathOutsideAllowedRoots"
    } else {
        "NotAllowed"
    }
}

fn render_truncation(notice: &TruncationNotice) -> String {
    let line = format!("[output truncated — original size: {} bytes]", words::group_thousands(notice.truncation.bytes));
    match &notice.file {
        Some(file) => format!("{line}\n[full output: {}]", file.display()),
        None => line,
    }
}

/// Reads a text file.
#[derive(Deserialize, JsonSchema)]
struct FileReadArgs {
    /// Path under /shared, /tmp or /vault
    path: String,
}

/// Searches for literal text in all files beneath a path. Returns path:line:text.
#[derive(Deserialize, JsonSchema)]
struct FileSearchArgs {
    path: String,
    query: String,
}

/// Lists a folder; folders end in /.
#[derive(Deserialize, JsonSchema)]
struct FileListArgs {
    /// Default /shared
    path: Option<String>,
}

/// Creates or overwrites a file under /shared or /tmp.
#[derive(Deserialize, JsonSchema)]
struct FileWriteArgs {
    path: String,
    content: String,
}

/// Replaces text that occurs exactly once in a file.
#[derive(Deserialize, JsonSchema)]
struct FileEditArgs {
    path: String,
    old_text: String,
    new_text: String,
}

/// Deletes a file, or a folder with all that is in it.
#[derive(Deserialize, JsonSchema)]
struct FileDeleteArgs {
    path: String,
}

/// Runs a shell command in a sandbox, starting in /shared. Returns its output; a non-zero exit is an error.
#[derive(Deserialize, JsonSchema)]
struct ShellExecArgs {
    command: String,
}

impl From<FileSearchArgs> for fs::GrepTool {
    fn from(FileSearchArgs { path, query }: FileSearchArgs) -> Self {
        Self {
            pattern: query,
            path: Some(path),
            literal: true,
            ignored: true,
            hidden: true,
            // Files in `.git` are searched only if the path names them.
            globs: vec!["!.git".to_owned()],
            limit: Some(200),
            ..Self::default()
        }
    }
}

fn render_search(out: fs::GrepOutput) -> Reply {
    let nothing = fs::NoMatchHints {
        text: "no matches found",
        any_case: "search for it as it is written there",
        next: |_| "narrow the search with a deeper path or a longer query".to_owned(),
        ..fs::NoMatchHints::default()
    };
    out.reply(out.lines(fs::LineNumbers::Shown, fs::FileNames::Shown), nothing)
}

impl From<FileListArgs> for fs::ListTool {
    fn from(FileListArgs { path }: FileListArgs) -> Self {
        Self { path, hidden: true, ..Self::default() }
    }
}

fn render_list(out: fs::ListOutput) -> String {
    if out.entries.is_empty() { "no entries found".into() } else { out.names() }
}

impl From<FileWriteArgs> for fs::WriteTool {
    fn from(FileWriteArgs { path, content }: FileWriteArgs) -> Self {
        Self { path, content }
    }
}

fn render_write(out: fs::WriteOutput) -> String {
    format!("wrote {} bytes to {}", out.bytes, out.path)
}

impl From<FileDeleteArgs> for fs::DeleteTool {
    fn from(FileDeleteArgs { path }: FileDeleteArgs) -> Self {
        Self { path }
    }
}

fn render_delete(out: fs::DeleteOutput) -> String {
    format!("deleted {} {}", out.kind_label(), out.path)
}

fn render_shell(out: shell::RunToolOutput) -> Reply {
    out.render_text_or_error()
}

impl From<ShellExecArgs> for shell::RunTool {
    fn from(ShellExecArgs { command }: ShellExecArgs) -> Self {
        let timeout = Some(Duration::from_secs(60));
        Self { script: command, timeout, session_timeout: true, keep: TruncateSide::KeepHead, ..Self::default() }
    }
}

/// The default limit of a reply.
const USUAL: usize = 16_384;
/// How much of a file is read before the reply is truncated: as much as the setting for replies allows.
const READ_BYTES: usize = 1 << 20;

impl From<FileReadArgs> for fs::ReadTool {
    fn from(FileReadArgs { path }: FileReadArgs) -> Self {
        Self { max_bytes: Some(READ_BYTES), ..Self::new(path) }
    }
}

/// The text as it is in the file. A truncated reply states the full size.
fn render_read(out: fs::ReadOutput) -> Reply {
    match words::page_or_reply(out, |page| format!("pages from {page}; this tool shows the first 20")) {
        Ok(page) if page.cut.is_some() || page.size > USUAL as u64 => {
            let is_part = page.cut.is_some() || page.size > READ_BYTES as u64;
            let cut = is_part.then(|| Truncation { bytes: page.size, lines: page.total.count() });
            // The full text is in the file itself.
            Reply { truncation: cut, spill_file: Some(page.path.clone()), ..page.to_exact_text().into() }
        }
        Ok(page) => words::plain_page(&page, |line| format!("line {line}")).into(),
        Err(reply) => *reply,
    }
}

impl From<FileEditArgs> for fs::EditTool {
    fn from(FileEditArgs { path, old_text, new_text }: FileEditArgs) -> Self {
        words::exact_edit(path, old_text, new_text)
    }
}

fn render_edit(out: fs::EditOutput) -> String {
    format!("updated {}\n{}", out.path, out.unified())
}
