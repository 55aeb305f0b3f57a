//! `oxydra` (003): virtual roots, three safety tiers, answers cut at 16 KiB.

mod agents;
mod fetch;
mod memory;
mod messages;
mod schedule;
mod scratchpad;
mod search;
mod vault;

use std::time::Duration;

use helve_contract::{Cut, Error, Keep, Problem, Profile, Reading, Reply, Tier};
use helve_engine::{Dialect, Limit, Limits, Mode, Notice, ParameterRange, Words};
use helve_tools::{fs, shell};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::words;

/// The dialect.
pub fn oxydra() -> Dialect {
    let tools = table! {
        // The model calls  with          and we run      answering
        "file_read"         FileRead   => fs::Read,       content;
        "file_search"       FileSearch => fs::Grep,       matches;
        "file_list"         FileList   => fs::List,       listed;
        "file_write"        FileWrite  => fs::Write,      written;
        "file_edit"         FileEdit   => fs::Edit,       edited;
        "file_delete"       FileDelete => fs::Delete,     deleted;
        "attachment_save"   messages::AttachmentSave => helve_tools::messages::AttachmentSave, messages::saved;
        "web_fetch"         fetch::WebFetch => helve_tools::web::Fetch, fetch::fetched;
        "web_search"        search::WebSearch => helve_tools::web::Search, search::searched;
        "vault_copyto"      vault::VaultCopyto => helve_tools::vault::CopyTo, vault::copied;
        "send_media"        messages::SendMedia => helve_tools::messages::SendMedia, messages::sent;
        "delegate_to_agent" agents::DelegateToAgent => helve_tools::agents::Delegate, agents::delegated;
        "shell_exec"        ShellExec  => shell::Run,     ran;
        "memory_search"     memory::Search => helve_tools::memory::Search, memory::found;
        "memory_save"       memory::Save => helve_tools::memory::Save, memory::plain;
        "memory_update"     memory::Update => helve_tools::memory::Update, memory::plain;
        "memory_delete"     memory::Delete => helve_tools::memory::Delete, memory::plain;
        "scratchpad_read"   scratchpad::Read => helve_tools::scratchpad::Read, memory::plain;
        "scratchpad_write"  scratchpad::Write => helve_tools::scratchpad::Write, memory::plain;
        "scratchpad_clear"  scratchpad::Clear => helve_tools::scratchpad::Clear, memory::plain;
        "schedule_create"   schedule::Create => helve_tools::schedule::Create, schedule::plain;
        "schedule_search"   schedule::Search => helve_tools::schedule::Search, schedule::plain;
        "schedule_edit"     schedule::Edit => helve_tools::schedule::Edit, schedule::plain;
        "schedule_delete"   schedule::Delete => helve_tools::schedule::Delete, schedule::plain;
        "schedule_runs"     schedule::Runs => helve_tools::schedule::Runs, schedule::plain;
        "schedule_run_output" schedule::RunOutput => helve_tools::schedule::RunOutput, schedule::plain;
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
            // It looks at a file and changes none; what it may send goes to the user alone.
            "send_media" => return tool.with(|spec| spec.tier = Some(Tier::ReadOnly)),
            name if name.starts_with("schedule_") => 10,
            name if name.starts_with("web_") => 30,
            _ => 15,
        };
        tool.with(|spec| spec.timeout = Duration::from_secs(seconds))
    });
    Dialect {
        name: "oxydra",
        about: "virtual roots and three safety tiers",
        tools: tools.collect(),
        external: &[],
        roles: &[],
        default_role: None,
        reading: Reading::Virtual,
        limits: Limits {
            general: Limit::bytes(USUAL),
            // These have limits of their own in characters, which must fit in any script.
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
        words: Words { error, error_prefix: "Tool execution failed: ", notice, cancelled: "cancelled" },
        mode: Mode::Default,
    }
}

/// The capability profile of a tool. `vault_copyto` runs its two steps with a profile each, commands run in the sandbox,
/// and the other tools reach no files.
fn profile(tool: &str) -> Option<Profile> {
    Some(match tool {
        "file_read" | "file_search" | "file_list" | "send_media" => Profile::FileReadOnly,
        "file_write" | "file_edit" | "file_delete" | "attachment_save" => Profile::FileReadWrite,
        "web_fetch" | "web_search" => Profile::Web,
        _ => return None,
    })
}

fn error(_: &str, error: &Error) -> Reply {
    let text = match error {
        Error::InvalidArgs(problems) => words::problems(problems, problem),
        Error::Denied(text) if !text.starts_with("blocked by security policy") => {
            format!("blocked by security policy ({}): {text}", reason(text))
        }
        error => words::told(error),
    };
    Reply::failed(text)
}

fn problem(problem: &Problem) -> String {
    match problem {
        Problem::Missing { path, .. } => format!("missing required field '{path}' in arguments"),
        Problem::Misfit { path, wanted, sent } => format!("field '{path}' must be {wanted}, not {sent}"),
        Problem::Unknown { .. } | Problem::Other { .. } => problem.to_string(),
    }
}

/// The policy's name for what a refusal is about.
fn reason(text: &str) -> &'static str {
    if text.contains("outside the workspace") || text.contains("read-only root") || text.contains("is protected") {
        "PathOutsideAllowedRoots"
    } else {
        "NotAllowed"
    }
}

fn notice(notice: &Notice) -> String {
    let line = format!("[output truncated — original size: {} bytes]", words::thousands(notice.cut.bytes));
    match &notice.file {
        Some(file) => format!("{line}\n[full output: {}]", file.display()),
        None => line,
    }
}

/// Reads a text file.
#[derive(Deserialize, JsonSchema)]
struct FileRead {
    /// Path under /shared, /tmp or /vault
    path: String,
}

/// Searches for literal text in all files beneath a path. Returns path:line:text.
#[derive(Deserialize, JsonSchema)]
struct FileSearch {
    path: String,
    query: String,
}

/// Lists a folder; folders end in /.
#[derive(Deserialize, JsonSchema)]
struct FileList {
    /// Default /shared
    path: Option<String>,
}

/// Creates or overwrites a file under /shared or /tmp.
#[derive(Deserialize, JsonSchema)]
struct FileWrite {
    path: String,
    content: String,
}

/// Replaces text that occurs exactly once in a file.
#[derive(Deserialize, JsonSchema)]
struct FileEdit {
    path: String,
    old_text: String,
    new_text: String,
}

/// Deletes a file, or a folder with all that is in it.
#[derive(Deserialize, JsonSchema)]
struct FileDelete {
    path: String,
}

/// Runs a shell command in a sandbox, starting in /shared. Returns its output; a non-zero exit is an error.
#[derive(Deserialize, JsonSchema)]
struct ShellExec {
    command: String,
}

impl From<FileSearch> for fs::Grep {
    fn from(FileSearch { path, query }: FileSearch) -> Self {
        Self {
            pattern: query,
            path: Some(path),
            literal: true,
            ignored: true,
            hidden: true,
            // The repository's own files are searched only where the path leads into them.
            globs: vec!["!.git".to_owned()],
            limit: Some(200),
            ..Self::default()
        }
    }
}

fn matches(out: fs::GrepOut) -> Reply {
    let nothing = fs::Nothing {
        text: "no matches found",
        any_case: "search for it as it is written there",
        next: |_| "narrow the search with a deeper path or a longer query".to_owned(),
        ..fs::Nothing::default()
    };
    out.reply(out.lines(fs::Numbers::Shown, fs::Names::Shown), nothing)
}

impl From<FileList> for fs::List {
    fn from(FileList { path }: FileList) -> Self {
        Self { path, hidden: true, ..Self::default() }
    }
}

fn listed(out: fs::Listing) -> String {
    if out.entries.is_empty() { "no entries found".into() } else { out.names() }
}

impl From<FileWrite> for fs::Write {
    fn from(FileWrite { path, content }: FileWrite) -> Self {
        Self { path, content }
    }
}

fn written(out: fs::WriteOut) -> String {
    format!("wrote {} bytes to {}", out.bytes, out.path)
}

impl From<FileDelete> for fs::Delete {
    fn from(FileDelete { path }: FileDelete) -> Self {
        Self { path }
    }
}

fn deleted(out: fs::Deleted) -> String {
    format!("deleted {} {}", out.word(), out.path)
}

fn ran(out: shell::RunOut) -> Reply {
    out.text_or_error()
}

impl From<ShellExec> for shell::Run {
    fn from(ShellExec { command }: ShellExec) -> Self {
        let timeout = Some(Duration::from_secs(60));
        Self { script: command, timeout, session_timeout: true, keep: Keep::Head, ..Self::default() }
    }
}

/// How much of an answer is shown, unless a setting says otherwise.
const USUAL: usize = 16_384;
/// How much of a file is taken before the reply is truncated: as much as the setting for replies allows.
const TAKEN: usize = 1 << 20;

impl From<FileRead> for fs::Read {
    fn from(FileRead { path }: FileRead) -> Self {
        Self { max_bytes: Some(TAKEN), ..Self::new(path) }
    }
}

/// The text as it is in the file. What does not fit is told by the size of the whole.
fn content(out: fs::ReadOut) -> Reply {
    match words::page_or_reply(out, |page| format!("pages from {page}; this tool shows the first 20")) {
        Ok(page) if page.cut.is_some() || page.size > USUAL as u64 => {
            let is_part = page.cut.is_some() || page.size > TAKEN as u64;
            let cut = is_part.then(|| Cut { bytes: page.size, lines: page.total.count() });
            // The whole is the file itself.
            Reply { cut, spill: Some(page.path.clone()), ..page.exact().into() }
        }
        Ok(page) => words::plain_page(&page, |line| format!("line {line}")).into(),
        Err(reply) => *reply,
    }
}

impl From<FileEdit> for fs::Edit {
    fn from(FileEdit { path, old_text, new_text }: FileEdit) -> Self {
        words::edit(path, old_text, new_text)
    }
}

fn edited(out: fs::Edited) -> String {
    format!("updated {}\n{}", out.path, out.unified())
}
