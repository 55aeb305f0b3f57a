//! `solo` (000): twenty plain tools of a single agent. Paths start at the workspace, errors are flagged, nothing asks.

mod memory;
mod messages;
mod schedule;
mod sessions;

use std::{collections::BTreeMap, time::Duration};

use helve_contract::{Error, Keep, Reading, Reply};
use helve_engine::{Dialect, Limit, Limits, Mode, Notice, ParameterRange, Role, Words};
use helve_tools::{fs, shell};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::words;

/// The dialect.
pub fn solo() -> Dialect {
    Dialect {
        name: "solo",
        about: "twenty plain tools of a single agent",
        tools: table! {
            // The model calls  with            and we run           answering
            "read"              Read         => fs::Read,            read;
            "write"             Write        => fs::Write,           written;
            "edit"              Edit         => fs::Edit,            edited;
            "apply_patch"       ApplyPatch   => fs::ApplyPatch,      patched;
            "grep"              Grep         => fs::Grep,            matches;
            "glob"              Glob         => fs::Glob,            found;
            "ls"                Ls           => fs::List,            listed;
            "exec"              Exec         => shell::Run,          shell::RunOut::status_first;
            "process"           Process      => shell::Process,      process;
            "cron"              schedule::Cron => helve_tools::schedule::Crontab, schedule::cron;
            "message"           messages::Message => helve_tools::messages::Message, messages::sent;
            "agents_list"       sessions::Agents => helve_tools::sessions::Agents, sessions::plain;
            "sessions_list"     sessions::List => helve_tools::sessions::List, sessions::plain;
            "sessions_history"  sessions::History => helve_tools::sessions::History, sessions::plain;
            "sessions_send"     sessions::Send => helve_tools::sessions::Send, sessions::plain;
            "sessions_spawn"    sessions::Spawn => helve_tools::sessions::Spawn, sessions::plain;
            "subagents"         sessions::Subagents => helve_tools::sessions::Running, sessions::plain;
            "sessions_status"   sessions::Status => helve_tools::sessions::Status, sessions::plain;
            "memory_search"     memory::Search => helve_tools::memory::Search, memory::found;
            "memory_get"        memory::Get => helve_tools::memory::Get, memory::got;
        },
        external: &[],
        roles: &[
            Role { name: "main", tools: &["*"], imports: true },
            Role { name: "sub", tools: sessions::SUB, imports: false },
        ],
        default_role: Some("main"),
        reading: Reading::Relative,
        limits: Limits {
            general: Limit::bytes(51_200),
            by_tool: const {
                &[
                    // The reader cuts the page; its numbers and where to go on come on top.
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
        words: Words { error, error_prefix: "", notice, cancelled: "Cancelled" },
        mode: Mode::Open,
    }
}

fn error(tool: &str, error: &Error) -> Reply {
    match error {
        Error::UnknownTool(text) => Reply::failed(format!("Tool not found: {text}")),
        error => words::plain(tool, error),
    }
}

fn notice(notice: &Notice) -> String {
    let whole = match notice.kept {
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
struct Read {
    path: String,
    /// Lines to skip (0-based start)
    offset: Option<u64>,
    /// Most lines to return
    limit: Option<usize>,
}

/// Creates or replaces a file. Missing folders are made.
#[derive(Deserialize, JsonSchema)]
struct Write {
    path: String,
    content: String,
}

/// Replaces a piece of text that occurs exactly once in a file. A miss shows the nearest lines.
#[derive(Deserialize, JsonSchema)]
struct Edit {
    path: String,
    old_text: String,
    new_text: String,
}

/// Changes several files at once, all or nothing. Between `*** Begin Patch` and `*** End Patch`: `*** Add File: p`, `*** Update File: p` (then optionally `*** Move to: q`), `*** Delete File: p`; hunks start with `@@`, lines with ' ', '-' or '+'.
#[derive(Deserialize, JsonSchema)]
struct ApplyPatch {
    patch: String,
}

/// Searches file contents. Returns `path:line:text`; .gitignore holds.
#[derive(Deserialize, JsonSchema)]
struct Grep {
    /// Regex
    pattern: String,
    path: Option<String>,
    /// Only files like "*.go"
    include: Option<String>,
}

/// Finds files by path pattern, such as "**/*.go".
#[derive(Deserialize, JsonSchema)]
struct Glob {
    pattern: String,
    path: Option<String>,
}

/// Lists a folder with kinds and sizes.
#[derive(Deserialize, JsonSchema)]
struct Ls {
    path: String,
}

/// Runs a shell command in a sandbox. Returns the exit code and the output.
#[derive(Deserialize, JsonSchema)]
struct Exec {
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
struct Process {
    action: shell::Action,
    process_id: String,
    input: Option<String>,
    /// SIGTERM, SIGINT, SIGKILL …
    signal: Option<String>,
}

impl From<Exec> for shell::Run {
    fn from(Exec { command, workdir, env, background, timeout }: Exec) -> Self {
        Self {
            script: command,
            dir: workdir,
            env: env.unwrap_or_default(),
            // A background process may be written to later; below the least timeout the least is taken.
            stdin: if background == Some(true) { shell::Stdin::Open } else { shell::Stdin::Closed },
            timeout: Some(Duration::from_secs(timeout.unwrap_or(1800).max(10))),
            background: background.unwrap_or_default(),
            keep: Keep::Head,
            ..Self::default()
        }
    }
}

impl From<Process> for shell::Process {
    fn from(Process { action, process_id, input, signal }: Process) -> Self {
        Self { id: process_id, action, input, signal }
    }
}

fn process(out: shell::ProcessOut) -> Reply {
    out.into()
}

impl From<Write> for fs::Write {
    fn from(Write { path, content }: Write) -> Self {
        Self { path, content }
    }
}

fn written(out: fs::WriteOut) -> String {
    format!("wrote {} bytes to {}", out.bytes, out.path)
}

impl From<ApplyPatch> for fs::ApplyPatch {
    fn from(ApplyPatch { patch }: ApplyPatch) -> Self {
        Self { patch }
    }
}

fn patched(out: fs::PatchOut) -> Reply {
    out.into()
}

impl From<Grep> for fs::Grep {
    fn from(Grep { pattern, path, include }: Grep) -> Self {
        Self { pattern, path, globs: include.into_iter().collect(), ..Self::default() }
    }
}

fn matches(out: fs::GrepOut) -> Reply {
    out.reply(out.lines(fs::Numbers::Shown, fs::Names::Shown), fs::Nothing::default())
}

impl From<Glob> for fs::Glob {
    fn from(Glob { pattern, path }: Glob) -> Self {
        Self { pattern, path, ..Self::default() }
    }
}

fn found(out: fs::Files) -> Reply {
    out.reply(out.paths(), "No files found")
}

impl From<Ls> for fs::List {
    fn from(Ls { path }: Ls) -> Self {
        Self { path: Some(path), hidden: true, detail: fs::Detail::Full }
    }
}

fn listed(out: fs::Listing) -> String {
    out.with_sizes()
}

/// Bytes of a page when no limit is given, and at most.
const PAGE: (usize, usize) = (51_200, 524_288);

impl From<Read> for fs::Read {
    fn from(Read { path, offset, limit }: Read) -> Self {
        let max_bytes = Some(if limit.is_some() { PAGE.1 } else { PAGE.0 });
        Self { limit, max_bytes, ..Self::new(path).from_line(offset.unwrap_or(0).saturating_add(1)) }
    }
}

fn read(out: fs::ReadOut) -> Reply {
    match words::page_or_reply(out, |page| format!("pages from {page}; this tool shows the first 20")) {
        Ok(page) => Reply { saved: page.saved(), ..page.numbered(|line| format!("offset={}", line - 1)).into() },
        Err(reply) => *reply,
    }
}

impl From<Edit> for fs::Edit {
    fn from(Edit { path, old_text, new_text }: Edit) -> Self {
        words::edit(path, old_text, new_text)
    }
}

fn edited(out: fs::Edited) -> String {
    words::edited(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_for_half_an_hour_and_at_least_ten_seconds() {
        let seen = [None, Some(1), Some(10), Some(11)].map(|timeout| {
            let exec = Exec { command: "true".into(), workdir: None, env: None, background: None, timeout };
            shell::Run::from(exec).timeout.map(|it| it.as_secs())
        });
        assert_eq!(seen, [Some(1800), Some(10), Some(10), Some(11)]);
    }
}
