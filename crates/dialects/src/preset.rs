//! `preset` (002): small sets of tools by preset. Paths start at the working folder, output is cut at 50 KB or 2000 lines.

mod fetch;
mod search;
mod syntax;

use std::time::Duration;

use helve_contract::{Error, Keep, Problem, Reading, Reply, TruncatedBy, format_size};
use helve_engine::{Dialect, Limit, Limits, Mode, Notice, ParameterRange, Role, Words};
use helve_tools::{fs, shell};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::words;

/// The dialect.
pub fn preset() -> Dialect {
    Dialect {
        name: "preset",
        about: "small sets of tools, chosen by preset",
        tools: table! {
            // The model calls  with     and we run      answering
            "read"              Read  => fs::Read,       read;
            "bash"              Bash  => shell::Run,     shell::RunOut::status_last;
            "edit"              Edit  => fs::Edit,       edited;
            "write"             Write => fs::Write,      written;
            "grep"              Grep  => fs::Grep,       matches;
            "find"              Find  => fs::Find,       found;
            "ls"                Ls    => fs::List,       listed;
            "web_search"        search::WebSearch => helve_tools::web::Search, search::searched;
            "web_fetch"         fetch::WebFetch => helve_tools::web::Fetch, fetch::fetched;
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
        reading: Reading::Relative,
        limits: Limits {
            general: Limit::bytes(51_200).lines(2000),
            // A page is cut by its reader, at a line, and says where to go on; that must not be cut off again.
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
        words: Words { error, error_prefix: "", notice, cancelled: "Skipped due to user interrupt." },
        mode: Mode::Open,
    }
}

fn error(tool: &str, error: &Error) -> Reply {
    match error {
        Error::InvalidArgs(problems) => {
            Reply::failed(format!("validation error: {}", words::problems(problems, problem)))
        }
        error => words::plain(tool, error),
    }
}

/// The seed's sentence for a missing parameter names it and no more.
fn problem(problem: &Problem) -> String {
    match problem {
        Problem::Missing { path, .. } => format!("missing required parameter \"{path}\""),
        problem => problem.to_string(),
    }
}

fn notice(notice: &Notice) -> String {
    let limit = match notice.by {
        Some(TruncatedBy::Lines) => format!("{} lines", notice.limit.lines),
        _ => format_size(notice.limit.size as u64),
    };
    match &notice.file {
        Some(file) => format!("[Output truncated at {limit}. Full output saved to: {}]", file.display()),
        None => format!("[Output truncated at {limit}. The whole has {}]", format_size(notice.cut.bytes)),
    }
}

/// Read a file as text. Long files are cut and say how to go on.
#[derive(Deserialize, JsonSchema)]
struct Read {
    path: String,
    /// First line, from 1
    offset: Option<u64>,
    /// Most lines
    limit: Option<usize>,
}

/// Run a shell command in a sandbox. Returns stdout and stderr together.
#[derive(Deserialize, JsonSchema)]
struct Bash {
    command: String,
    /// Seconds (120)
    timeout: Option<f64>,
}

/// Replace text that occurs exactly once in a file.
#[derive(Deserialize, JsonSchema)]
struct Edit {
    path: String,
    old_text: String,
    new_text: String,
}

/// Create or overwrite a file.
#[derive(Deserialize, JsonSchema)]
struct Write {
    path: String,
    content: String,
}

/// Search files for a regex. Returns path:line: text.
#[derive(Deserialize, JsonSchema)]
struct Grep {
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
struct Find {
    path: Option<String>,
    pattern: Option<String>,
    r#type: Option<Type>,
    /// Default 200
    max_results: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Type {
    File,
    Dir,
    #[serde(rename = "")]
    Both,
}

/// List a folder with sizes and times.
#[derive(Deserialize, JsonSchema)]
struct Ls {
    path: Option<String>,
    show_hidden: Option<bool>,
}

impl From<Bash> for shell::Run {
    fn from(Bash { command, timeout }: Bash) -> Self {
        let timeout = timeout.filter(|it| it.is_finite() && *it > 0.0).unwrap_or(120.0).min(86_400.0);
        Self { script: command, timeout: Some(Duration::from_secs_f64(timeout)), keep: Keep::Tail, ..Self::default() }
    }
}

impl From<Write> for fs::Write {
    fn from(Write { path, content }: Write) -> Self {
        Self { path, content }
    }
}

fn written(out: fs::WriteOut) -> String {
    format!("Wrote {} bytes to {}", out.bytes, out.path)
}

impl From<Grep> for fs::Grep {
    fn from(Grep { pattern, path, glob, case_sensitive, context_lines, max_results }: Grep) -> Self {
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

fn matches(out: fs::GrepOut) -> Reply {
    out.reply(
        out.spaced_lines(),
        fs::Nothing {
            any_case: "leave case_sensitive out",
            next: |_| "raise max_results, or narrow the search with path, glob or pattern".to_owned(),
            ..fs::Nothing::default()
        },
    )
}

impl From<Find> for fs::Find {
    fn from(Find { path, pattern, r#type, max_results }: Find) -> Self {
        let only = match r#type {
            Some(Type::File) => Some(fs::Only::File),
            Some(Type::Dir) => Some(fs::Only::Dir),
            Some(Type::Both) | None => None,
        };
        Self { path, pattern, only, limit: Some(max_results.unwrap_or(200)), ..Self::default() }
    }
}

fn found(out: fs::FindOut) -> Reply {
    out.0.reply(out.0.marked_paths(), "No files found")
}

impl From<Ls> for fs::List {
    fn from(Ls { path, show_hidden }: Ls) -> Self {
        Self { path, hidden: show_hidden.unwrap_or(false), detail: fs::Detail::Full }
    }
}

fn listed(out: fs::Listing) -> String {
    out.with_sizes_and_times()
}

impl From<Read> for fs::Read {
    fn from(Read { path, offset, limit }: Read) -> Self {
        let limit = Some(limit.unwrap_or(2000).min(2000));
        Self { limit, max_bytes: Some(51_200), ..Self::new(path).from_line(offset.unwrap_or(1)) }
    }
}

fn read(out: fs::ReadOut) -> Reply {
    match words::page_or_reply(out, |page| format!("pages from {page}; this tool shows the first 20")) {
        Ok(page) => {
            // The seed wants the size of the whole beside the lines.
            let size = page.next().map(|_| format!("[the whole file has {}]", format_size(page.size)));
            let text = words::plain_page(&page, |line| format!("offset={line}"));
            Reply { saved: page.saved(), after: size.unwrap_or_default(), ..text.into() }
        }
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
