//! `preset` (002): small sets of tools. Paths start at the working directory, output is truncated at 50 KB or 2000
//! lines.

mod fetch;
mod search;
mod syntax;

use std::time::Duration;

use helve_contract::{ArgumentProblem, Error, PathStyle, Reply, TruncateSide, TruncatedBy, format_size};
use helve_engine::{Dialect, Limit, MessageTemplates, Mode, OutputLimits, ParameterRange, Role, TruncationNotice};
use helve_tools::{fs, shell};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::words;

/// The dialect.
pub fn preset() -> Dialect {
    Dialect {
        name: "preset",
        description: "small sets of tools, chosen by preset",
        tools: table! {
            // The model calls  with     and we run      answering
            "read"              ReadArgs  => fs::ReadTool,       render_read;
            "bash"              BashArgs  => shell::RunTool,     shell::RunToolOutput::render_status_last;
            "edit"              EditArgs  => fs::EditTool,       render_edit;
            "write"             WriteArgs => fs::WriteTool,      render_write;
            "grep"              GrepArgs  => fs::GrepTool,       render_grep;
            "find"              FindArgs  => fs::FindTool,       render_find;
            "ls"                LsArgs    => fs::ListTool,       render_list;
            "web_search"        search::WebSearchArgs => helve_tools::web::WebSearchTool, search::render_search;
            "web_fetch"         fetch::WebFetchArgs => helve_tools::web::WebFetchTool, fetch::render_fetch;
        },
        external: &[],
        roles: &[
            Role { name: "coding", tools: &["read", "bash", "edit", "write"], imports: true },
            Role { name: "readonly", tools: &["read", "grep", "find", "ls"], imports: true },
            Role { name: "web", tools: &["web_search", "web_fetch"], imports: true },
            Role { name: "all", tools: &["*"], imports: true },
            Role { name: "none", tools: &[], imports: true },
        ],
        default_role: Some("coding"),
        path_style: PathStyle::Relative,
        limits: OutputLimits {
            general: Limit::bytes(51_200).lines(2000),
            // The reader truncates a page at a line and says how to continue; that hint must not be truncated again.
            by_tool: const { &[("read", Limit::bytes(204_800).lines(2010))] },
            paged: &["read"],
            ranges: const {
                &[
                    ParameterRange { tool: "read", parameter: "limit", min: 1, max: 2000 },
                    ParameterRange { tool: "bash", parameter: "timeout", min: 0, max: 86_400 },
                    ParameterRange { tool: "web_search", parameter: "max_results", min: 1, max: 20 },
                    ParameterRange { tool: "web_fetch", parameter: "max_bytes", min: 1_024, max: 102_400 },
                ]
            },
        },
        templates: MessageTemplates {
            error: render_error,
            error_prefix: "",
            notice: render_truncation,
            cancelled: "Skipped due to user interrupt.",
        },
        mode: Mode::Open,
    }
}

fn render_error(tool: &str, error: &Error) -> Reply {
    match error {
        Error::InvalidArgs(problems) => {
            Reply::error(format!("validation error: {}", words::render_problems(problems, render_problem)))
        }
        error => words::plain_error(tool, error),
    }
}

/// The seed's message for a missing parameter only names it.
fn render_problem(problem: &ArgumentProblem) -> String {
    match problem {
        ArgumentProblem::Missing { path, .. } => format!("missing required parameter \"{path}\""),
        problem => problem.to_string(),
    }
}

fn render_truncation(notice: &TruncationNotice) -> String {
    let limit = match notice.by {
        Some(TruncatedBy::Lines) => format!("{} lines", notice.limit.lines),
        _ => format_size(notice.limit.size as u64),
    };
    match &notice.file {
        Some(file) => format!("[Output truncated at {limit}. Full output saved to: {}]", file.display()),
        None => format!("[Output truncated at {limit}. The whole has {}]", format_size(notice.truncation.bytes)),
    }
}

/// Read a file as text. Long files are cut and say how to go on.
#[derive(Deserialize, JsonSchema)]
struct ReadArgs {
    path: String,
    /// First line, from 1
    offset: Option<u64>,
    /// Most lines
    limit: Option<usize>,
}

/// Run a shell command in a sandbox. Returns stdout and stderr together.
#[derive(Deserialize, JsonSchema)]
struct BashArgs {
    command: String,
    /// Seconds (120)
    timeout: Option<f64>,
}

/// Replace text that occurs exactly once in a file.
#[derive(Deserialize, JsonSchema)]
struct EditArgs {
    path: String,
    old_text: String,
    new_text: String,
}

/// Create or overwrite a file.
#[derive(Deserialize, JsonSchema)]
struct WriteArgs {
    path: String,
    content: String,
}

/// Search files for a regex. Returns path:line: text.
#[derive(Deserialize, JsonSchema)]
struct GrepArgs {
    pattern: String,
    path: Option<String>,
    /// Such as "*.go"
    glob: Option<String>,
    /// Default false
    case_sensitive: Option<bool>,
    context_lines: Option<usize>,
    /// Default 100
    max_results: Option<usize>,
}

/// Find files and folders by name: a glob, or a part of the name.
#[derive(Deserialize, JsonSchema)]
struct FindArgs {
    path: Option<String>,
    pattern: Option<String>,
    r#type: Option<FindType>,
    /// Default 200
    max_results: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FindType {
    File,
    Dir,
    #[serde(rename = "")]
    Both,
}

/// List a folder with sizes and times.
#[derive(Deserialize, JsonSchema)]
struct LsArgs {
    path: Option<String>,
    show_hidden: Option<bool>,
}

impl From<BashArgs> for shell::RunTool {
    fn from(BashArgs { command, timeout }: BashArgs) -> Self {
        let timeout = timeout.filter(|it| it.is_finite() && *it > 0.0).unwrap_or(120.0).min(86_400.0);
        Self {
            script: command,
            timeout: Some(Duration::from_secs_f64(timeout)),
            keep: TruncateSide::KeepTail,
            ..Self::default()
        }
    }
}

impl From<WriteArgs> for fs::WriteTool {
    fn from(WriteArgs { path, content }: WriteArgs) -> Self {
        Self { path, content }
    }
}

fn render_write(out: fs::WriteOutput) -> String {
    format!("Wrote {} bytes to {}", out.bytes, out.path)
}

impl From<GrepArgs> for fs::GrepTool {
    fn from(GrepArgs { pattern, path, glob, case_sensitive, context_lines, max_results }: GrepArgs) -> Self {
        let context = context_lines.unwrap_or(0);
        Self {
            pattern: syntax::from_go(&pattern),
            path,
            globs: glob.into_iter().collect(),
            ignore_case: !case_sensitive.unwrap_or(false),
            before: context,
            after: context,
            limit: Some(max_results.unwrap_or(100)),
            ..Self::default()
        }
    }
}

fn render_grep(out: fs::GrepOutput) -> Reply {
    out.reply(
        out.spaced_lines(),
        fs::NoMatchHints {
            any_case: "leave case_sensitive out",
            next: |_| "raise max_results, or narrow the search with path, glob or pattern".to_owned(),
            ..fs::NoMatchHints::default()
        },
    )
}

impl From<FindArgs> for fs::FindTool {
    fn from(FindArgs { path, pattern, r#type, max_results }: FindArgs) -> Self {
        let only = match r#type {
            Some(FindType::File) => Some(fs::EntryFilter::File),
            Some(FindType::Dir) => Some(fs::EntryFilter::Dir),
            Some(FindType::Both) | None => None,
        };
        Self { path, pattern, only, limit: Some(max_results.unwrap_or(200)), ..Self::default() }
    }
}

fn render_find(out: fs::FindOutput) -> Reply {
    out.0.reply(out.0.paths_with_slash(), "No files found")
}

impl From<LsArgs> for fs::ListTool {
    fn from(LsArgs { path, show_hidden }: LsArgs) -> Self {
        Self { path, hidden: show_hidden.unwrap_or(false), detail: fs::ListDetail::Full }
    }
}

fn render_list(out: fs::ListOutput) -> String {
    out.with_sizes_and_times()
}

impl From<ReadArgs> for fs::ReadTool {
    fn from(ReadArgs { path, offset, limit }: ReadArgs) -> Self {
        let limit = Some(limit.unwrap_or(2000).min(2000));
        Self { limit, max_bytes: Some(51_200), ..Self::new(path).from_line(offset.unwrap_or(1)) }
    }
}

fn render_read(out: fs::ReadOutput) -> Reply {
    match words::page_or_reply(out, |page| format!("pages from {page}; this tool shows the first 20")) {
        Ok(page) => {
            // The seed requires the total size beside the lines.
            let size = page.next_line().map(|_| format!("[the whole file has {}]", format_size(page.size)));
            let text = words::plain_page(&page, |line| format!("offset={line}"));
            Reply { saved: page.saved(), after: size.unwrap_or_default(), ..text.into() }
        }
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
