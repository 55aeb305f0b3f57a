//! `claude` (004): the tools of the Claude agent SDK. Paths are absolute, errors begin with `Error: `.

mod agents;
mod fetch;
mod search;
mod user;

use std::time::Duration;

use helve_contract::{ArgumentProblem, Error, FileErrorKind, PathStyle, Port, PortSet, Reply, Result, TruncateSide};
use helve_engine::{
    Dialect, ExternalRow, Limit, MessageTemplates, Mode, OutputLimits, ParameterRange, TruncationNotice,
};
use helve_tools::{fs, shell};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words;

/// The dialect.
pub fn claude() -> Dialect {
    let tools = table! {
        // The model calls  with             and we run           answering
        "Agent"             agents::AgentArgs => helve_tools::agents::AgentStartTool, agents::render_agent;
        "Bash"              BashArgs          => shell::RunTool,          shell::RunToolOutput::render_merged_or_error;
        "TaskOutput"        TaskOutputArgs    => shell::TaskOutputTool,   render_task_output;
        "ExitPlanMode"      user::ExitPlanModeArgs => helve_tools::user::UserExitPlanTool, user::render_exit_plan;
        "FileEdit"          FileEditArgs      => fs::EditTool,            render_edit;
        "FileRead"          FileReadArgs      => fs::ReadTool,            render_read;
        "FileWrite"         FileWriteArgs     => fs::WriteTool,           render_write;
        "Glob"              GlobArgs          => fs::GlobTool,            render_glob;
        "Grep"              GrepArgs          => fs::GrepTool,            render_grep;
        "TaskStop"          TaskStopArgs      => shell::TaskStopTool,     render_task_stop;
        "NotebookEdit"      NotebookEditArgs  => fs::NotebookEditTool,    render_notebook_edit;
        "TodoWrite"         user::TodoWriteArgs => helve_tools::user::UserTodosTool, user::render_todos;
        "WebFetch"          fetch::WebFetchArgs => helve_tools::web::WebFetchTool, fetch::render_fetch;
        "WebSearch"         search::WebSearchArgs => helve_tools::web::WebSearchTool, search::render_search;
        "AskUserQuestion"   user::AskUserQuestionArgs => helve_tools::user::UserAskTool, user::render_answers;
        "Config"            user::ConfigArgs  => helve_tools::user::UserSettingTool, user::render_config;
    };
    let tools = tools.into_iter().map(|tool| match tool.spec.name.as_str() {
        "Agent" => tool.with_aliases(&["Task"]),
        "FileEdit" => tool.with_aliases(&["Edit"]),
        "FileRead" => tool.with_aliases(&["Read"]),
        "FileWrite" => tool.with_aliases(&["Write"]),
        "TaskOutput" => tool.with_aliases(&["BashOutput", "AgentOutputTool"]),
        "TaskStop" => tool.with_aliases(&["KillShell", "KillBash"]),
        _ => tool,
    });
    Dialect {
        name: "claude",
        description: "the tools of the Claude agent SDK",
        tools: tools.collect(),
        external: EXTERNAL,
        roles: &[],
        default_role: None,
        path_style: PathStyle::Absolute,
        limits: OutputLimits {
            general: Limit::bytes(1 << 20),
            by_tool: const {
                &[
                    // The reader truncates the page at 1 MiB; line numbers and the continuation hint come on top.
                    ("FileRead", Limit::bytes(4 << 20)),
                    ("Bash", Limit::bytes(30_000)),
                    // The whole output of ripgrep, up to the engine's limit; the model chooses `head_limit`.
                    ("Grep", Limit::bytes(4 << 20)),
                    ("TaskOutput", Limit::bytes(30_000)),
                ]
            },
            paged: &["FileRead"],
            ranges: const { &[ParameterRange { tool: "TaskOutput", parameter: "timeout", min: 0, max: 600_000 }] },
        },
        templates: MessageTemplates {
            error: render_error,
            error_prefix: "Error: ",
            notice: render_truncation,
            cancelled: "cancelled",
        },
        mode: Mode::Default,
    }
}

/// The tools for resources of MCP servers. The MCP client supplies them if servers are configured.
const EXTERNAL: &[ExternalRow] = &[
    ExternalRow {
        name: "ListMcpResources",
        about: "Lists the resources that MCP servers offer.",
        needs: PortSet::of(&[Port::McpServers]),
    },
    ExternalRow {
        name: "ReadMcpResource",
        about: "Reads a resource of an MCP server.",
        needs: PortSet::of(&[Port::McpServers]),
    },
];

fn render_error(_: &str, error: &Error) -> Reply {
    let text = match error {
        // No tool of this dialect lists a directory.
        Error::File { path, fault: FileErrorKind::IsFolder } => {
            format!("{path}: this is a folder, not a file; list it with `ls` in Bash, or find its files with Glob")
        }
        error => words::error_text(error),
    };
    Reply::error(text)
}

fn render_truncation(notice: &TruncationNotice) -> String {
    let shown = notice.part(words::group_thousands);
    match &notice.file {
        Some(file) => format!("[Output truncated: {shown} shown. Full output saved to: {}]", file.display()),
        None => format!("[Output truncated: {shown} shown.]"),
    }
}

/// Runs a bash command in a sandbox and returns its output; a non-zero exit is an error. For a long job set run_in_background and read it with TaskOutput.
#[derive(Deserialize, Serialize, JsonSchema)]
struct BashArgs {
    command: String,
    /// Milliseconds (120000; at most 600000)
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<u64>,
    /// What it does, in 5-10 words
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_in_background: Option<bool>,
}

/// Reads the output of a background task, running or ended.
#[derive(Deserialize, Serialize, JsonSchema)]
struct TaskOutputArgs {
    task_id: String,
    /// Wait until it ends (true)
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<bool>,
    /// Longest wait in milliseconds (30000)
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<u64>,
}

/// Replaces text in a file. old_string must occur exactly once, unless replace_all is set; a miss shows the nearest lines. Returns a diff.
#[derive(Deserialize, Serialize, JsonSchema)]
struct FileEditArgs {
    /// Absolute path
    file_path: String,
    old_string: String,
    new_string: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    replace_all: Option<bool>,
}

/// Reads a file: text with line numbers (2000 lines unless limit says more), images, notebooks, PDFs by page.
#[derive(Deserialize, Serialize, JsonSchema)]
struct FileReadArgs {
    /// Absolute path
    file_path: String,
    /// First line, from 1
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// Number of lines
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
    /// PDF pages, as "3" or "1-5"; at most 20
    #[serde(skip_serializing_if = "Option::is_none")]
    pages: Option<String>,
}

/// Creates or replaces a file. Missing folders are made.
#[derive(Deserialize, Serialize, JsonSchema)]
struct FileWriteArgs {
    /// Absolute path
    file_path: String,
    content: String,
}

/// Finds files by path pattern, such as "**/*.ts"; newest first, at most 100.
#[derive(Deserialize, Serialize, JsonSchema)]
struct GlobArgs {
    pattern: String,
    /// Folder to search; the workspace by default
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

/// Searches file contents with ripgrep's regex and rules. Returns file paths unless output_mode says otherwise.
#[derive(Deserialize, Serialize, JsonSchema)]
struct GrepArgs {
    pattern: String,
    /// File or folder; the workspace by default
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Only files like "*.js" or "*.{ts,tsx}"
    #[serde(skip_serializing_if = "Option::is_none")]
    glob: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_mode: Option<OutputMode>,
    /// Lines before each match (content mode)
    #[serde(rename = "-B")]
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<usize>,
    /// Lines after each match (content mode)
    #[serde(rename = "-A")]
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<usize>,
    /// Lines before and after (content mode)
    #[serde(rename = "-C")]
    #[serde(skip_serializing_if = "Option::is_none")]
    around: Option<usize>,
    /// Same as -C
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<usize>,
    /// Line numbers in content mode (true)
    #[serde(rename = "-n")]
    #[serde(skip_serializing_if = "Option::is_none")]
    numbers: Option<bool>,
    /// Ignore case
    #[serde(rename = "-i")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ignore_case: Option<bool>,
    /// File type: js, py, rust …
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<String>,
    /// First N lines or files (0: all)
    #[serde(skip_serializing_if = "Option::is_none")]
    head_limit: Option<usize>,
    /// Skip the first N
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<usize>,
    /// Let . match newlines and patterns span lines
    #[serde(skip_serializing_if = "Option::is_none")]
    multiline: Option<bool>,
}

#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OutputMode {
    Content,
    FilesWithMatches,
    Count,
}

/// Stops a background task.
#[derive(Deserialize, Serialize, JsonSchema)]
struct TaskStopArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    /// Old name of task_id
    #[serde(skip_serializing_if = "Option::is_none")]
    shell_id: Option<String>,
}

/// Replaces, inserts or deletes one cell of a Jupyter notebook.
#[derive(Deserialize, Serialize, JsonSchema)]
struct NotebookEditArgs {
    /// Absolute path
    notebook_path: String,
    /// The cell; for insert, the one before the new cell
    #[serde(skip_serializing_if = "Option::is_none")]
    cell_id: Option<String>,
    new_source: String,
    /// Needed for insert
    #[serde(skip_serializing_if = "Option::is_none")]
    cell_type: Option<fs::CellType>,
    /// Default replace
    #[serde(skip_serializing_if = "Option::is_none")]
    edit_mode: Option<fs::CellMode>,
}

impl TryFrom<BashArgs> for shell::RunTool {
    type Error = Error;

    fn try_from(BashArgs { command, timeout, description, run_in_background }: BashArgs) -> Result<Self> {
        let background = run_in_background.unwrap_or_default();
        // 0 means no explicit timeout: a command that ends at once is useless.
        let timeout = timeout.filter(|it| *it > 0);
        if let Some(timeout) = timeout.filter(|it| *it > 600_000) {
            let next = if background {
                "leave it out: without it a background command runs until it ends or is stopped"
            } else {
                "run it in the background instead, without a timeout"
            };
            return Err(Error::invalid_argument("timeout", format!("{timeout} ms is more than 600000; {next}")));
        }
        // A background task has no timeout unless the call sets one. It ends by TaskStop or with the session.
        let timeout = timeout.or((!background).then_some(120_000));
        Ok(Self {
            script: command,
            description,
            background,
            timeout: timeout.map(Duration::from_millis),
            keep: TruncateSide::KeepHead,
            keep_dir: true,
            ..Self::default()
        })
    }
}

impl From<FileWriteArgs> for fs::WriteTool {
    fn from(FileWriteArgs { file_path, content }: FileWriteArgs) -> Self {
        Self { path: file_path, content }
    }
}

fn render_write(out: fs::WriteOutput) -> String {
    let lines = if out.lines == 1 { "1 line".to_owned() } else { format!("{} lines", out.lines) };
    format!("File written successfully at: {} ({lines})", out.path)
}

impl From<GlobArgs> for fs::GlobTool {
    fn from(GlobArgs { pattern, path }: GlobArgs) -> Self {
        Self { pattern, path, order: fs::GlobOrder::Newest, limit: Some(100), ..Self::default() }
    }
}

fn render_glob(out: fs::GlobOutput) -> Reply {
    out.reply(out.paths(), "No files found")
}

/// Splits several globs in one text, separated by commas or spaces: `*.rs,*.toml`.
fn split_globs(list: &str) -> Vec<String> {
    let parts = |glob: &str| -> Vec<String> {
        if glob.contains(['{', '[', '\\']) {
            return vec![glob.to_owned()];
        }
        glob.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect()
    };
    let words: Vec<&str> = list.split_whitespace().collect();
    // A name may contain spaces.
    let is_list = words.len() > 1 && words.iter().all(|it| it.contains('*'));
    if is_list { words.into_iter().flat_map(parts).collect() } else { parts(list) }
}

impl From<GrepArgs> for fs::GrepTool {
    fn from(it: GrepArgs) -> Self {
        let around = it.around.or(it.context);
        Self {
            pattern: it.pattern,
            path: it.path,
            // Hidden files are searched too, as in the original, except those of git.
            globs: it.glob.iter().flat_map(|list| split_globs(list)).chain(["!.git".to_owned()]).collect(),
            hidden: true,
            mode: match it.output_mode.unwrap_or(OutputMode::FilesWithMatches) {
                OutputMode::Content => fs::GrepMode::Lines,
                OutputMode::FilesWithMatches => fs::GrepMode::Files,
                OutputMode::Count => fs::GrepMode::Counts,
            },
            before: around.or(it.before).unwrap_or(0),
            after: around.or(it.after).unwrap_or(0),
            numbers: if it.numbers == Some(false) { fs::LineNumbers::Hidden } else { fs::LineNumbers::Shown },
            ignore_case: it.ignore_case.unwrap_or(false),
            file_type: it.r#type,
            limit: it.head_limit.filter(|limit| *limit > 0),
            offset: it.offset.unwrap_or(0),
            unit: fs::LimitUnit::Rows,
            multiline: it.multiline.unwrap_or(false),
            ..Self::default()
        }
    }
}

fn render_grep(out: fs::GrepOutput) -> Reply {
    let rows = match out.request.mode {
        fs::GrepMode::Lines => out.lines(out.request.numbers, fs::FileNames::Shown),
        fs::GrepMode::Counts => out.counts(fs::FileNames::Shown),
        fs::GrepMode::Files => out.files(),
    };
    out.reply(rows, fs::NoMatchHints { any_case: "set -i", ..fs::NoMatchHints::default() })
}

impl From<TaskOutputArgs> for shell::TaskOutputTool {
    fn from(TaskOutputArgs { task_id, block, timeout }: TaskOutputArgs) -> Self {
        let timeout = Duration::from_millis(timeout.unwrap_or(30_000).min(600_000));
        Self { id: task_id, block: block.unwrap_or(true), timeout: Some(timeout) }
    }
}

fn render_task_output(out: shell::TaskOutputResult) -> Reply {
    out.into()
}

impl TryFrom<TaskStopArgs> for shell::TaskStopTool {
    type Error = Error;

    fn try_from(TaskStopArgs { task_id, shell_id }: TaskStopArgs) -> Result<Self> {
        let id = task_id.or(shell_id).ok_or_else(|| {
            Error::InvalidArgs(vec![ArgumentProblem::Missing { path: "task_id".into(), wanted: "a string".into() }])
        })?;
        Ok(Self { id })
    }
}

fn render_task_stop(out: shell::TaskStopOutput) -> Reply {
    out.into()
}

impl TryFrom<FileReadArgs> for fs::ReadTool {
    type Error = Error;

    fn try_from(FileReadArgs { file_path, offset, limit, pages }: FileReadArgs) -> Result<Self> {
        let pages = pages.filter(|it| !it.trim().is_empty()).map(|it| it.parse()).transpose()?;
        Ok(Self {
            limit: Some(limit.unwrap_or(2000)),
            max_line: Some(2000),
            max_bytes: Some(1 << 20),
            pages,
            ..Self::new(file_path).from_line(offset.unwrap_or(1))
        })
    }
}

fn render_read(out: fs::ReadOutput) -> Reply {
    match words::page_or_reply(out, |page| format!("pages \"{page}-{}\"", page + 19)) {
        Ok(page) => page.numbered(|line| format!("offset={line}")).into(),
        Err(reply) => *reply,
    }
}

impl From<FileEditArgs> for fs::EditTool {
    fn from(FileEditArgs { file_path, old_string, new_string, replace_all }: FileEditArgs) -> Self {
        let all = replace_all.unwrap_or(false);
        // Without a text to replace, the tool creates the file, as models expect.
        Self { all, create: true, ..words::exact_edit(file_path, old_string, new_string) }
    }
}

fn render_edit(out: fs::EditOutput) -> String {
    words::edit_summary(&out)
}

impl From<NotebookEditArgs> for fs::NotebookEditTool {
    fn from(NotebookEditArgs { notebook_path, cell_id, new_source, cell_type, edit_mode }: NotebookEditArgs) -> Self {
        Self { path: notebook_path, cell_id, new_source, cell_type, mode: edit_mode.unwrap_or_default() }
    }
}

fn render_notebook_edit(out: fs::NotebookEditOutput) -> Reply {
    out.into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn several_globs_may_be_in_one_text() {
        assert_eq!(split_globs("*.rs,*.toml"), ["*.rs", "*.toml"]);
        assert_eq!(split_globs("*.rs *.toml"), ["*.rs", "*.toml"]);
        assert_eq!(split_globs("*.{rs,toml}"), ["*.{rs,toml}"]);
        assert_eq!(split_globs("my notes.md"), ["my notes.md"]);
    }

    #[test]
    fn a_task_is_stopped_by_either_name() {
        let id = |args: Value| {
            let stop: TaskStopArgs = serde_json::from_value(args).unwrap();
            shell::TaskStopTool::try_from(stop).map(|it| it.id).map_err(|error| error.to_string())
        };
        assert_eq!(id(json!({ "task_id": "t" })), Ok("t".to_owned()));
        assert_eq!(id(json!({ "shell_id": "s" })), Ok("s".to_owned()));
        assert!(id(json!({})).unwrap_err().contains("task_id"));
    }

    #[test]
    fn a_timeout_holds_in_the_background_too() {
        let timeout = |timeout| {
            let bash = BashArgs { command: "x".into(), timeout, description: None, run_in_background: Some(true) };
            shell::RunTool::try_from(bash).map(|run| run.timeout)
        };
        assert_eq!(timeout(Some(500)).unwrap(), Some(Duration::from_millis(500)));
        assert_eq!(timeout(None).unwrap(), None);
        assert_eq!(timeout(Some(0)).unwrap(), None);
        let told = timeout(Some(700_000)).unwrap_err().to_string();
        assert!(told.contains("leave it out") && !told.contains("run it in the background"), "{told}");
    }

    #[test]
    fn no_time_at_all_is_the_usual_time() {
        let bash = |timeout| BashArgs { command: "x".into(), timeout, description: None, run_in_background: None };
        for timeout in [None, Some(0)] {
            let run = shell::RunTool::try_from(bash(timeout)).unwrap_or_default();
            assert_eq!(run.timeout, Some(Duration::from_secs(120)));
        }
    }

    /// Each input type with an input that sets every field.
    #[test]
    fn every_input_survives_a_round_trip_through_json() {
        fn same<T: Serialize + serde::de::DeserializeOwned>(name: &str, input: &Value) {
            let read: T = serde_json::from_value(input.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(&serde_json::to_value(&read).unwrap_or_default(), input, "{name}");
        }
        type Check = fn(&str, &Value);
        let inputs: [(&str, Check, Value); 16] = [
            (
                "Agent",
                same::<agents::AgentArgs>,
                json!({
                    "description": "d", "prompt": "p", "subagent_type": "Explore", "model": "haiku", "resume": "id",
                    "run_in_background": true, "max_turns": 3, "name": "n", "team_name": "t", "mode": "acceptEdits",
                }),
            ),
            (
                "Bash",
                same::<BashArgs>,
                json!({
                    "command": "ls", "timeout": 5, "description": "d", "run_in_background": false,
                }),
            ),
            ("TaskOutput", same::<TaskOutputArgs>, json!({ "task_id": "t", "block": false, "timeout": 1000 })),
            (
                "ExitPlanMode",
                same::<user::ExitPlanModeArgs>,
                json!({
                    "plan": "p", "allowedPrompts": [{ "tool": "Bash", "prompt": "run tests" }], "pushToRemote": true,
                    "remoteSessionId": "i", "remoteSessionUrl": "u", "remoteSessionTitle": "t",
                }),
            ),
            (
                "FileEdit",
                same::<FileEditArgs>,
                json!({
                    "file_path": "/a", "old_string": "o", "new_string": "n", "replace_all": true,
                }),
            ),
            ("FileRead", same::<FileReadArgs>, json!({ "file_path": "/a", "offset": 1, "limit": 2, "pages": "1-2" })),
            ("FileWrite", same::<FileWriteArgs>, json!({ "file_path": "/a", "content": "c" })),
            ("Glob", same::<GlobArgs>, json!({ "pattern": "*", "path": "/a" })),
            (
                "Grep",
                same::<GrepArgs>,
                json!({
                    "pattern": "p", "path": "/a", "glob": "*", "output_mode": "files_with_matches", "-B": 1, "-A": 2, "-C": 3,
                    "context": 4, "-n": true, "-i": true, "type": "rust", "head_limit": 5, "offset": 6, "multiline": true,
                }),
            ),
            ("TaskStop", same::<TaskStopArgs>, json!({ "task_id": "t", "shell_id": "s" })),
            (
                "NotebookEdit",
                same::<NotebookEditArgs>,
                json!({
                    "notebook_path": "/a", "cell_id": "c", "new_source": "s", "cell_type": "markdown", "edit_mode": "insert",
                }),
            ),
            (
                "TodoWrite",
                same::<user::TodoWriteArgs>,
                json!({
                    "todos": [{ "content": "c", "status": "in_progress", "activeForm": "a" }],
                }),
            ),
            ("WebFetch", same::<fetch::WebFetchArgs>, json!({ "url": "https://a.example", "prompt": "p" })),
            (
                "WebSearch",
                same::<search::WebSearchArgs>,
                json!({
                    "query": "q", "allowed_domains": ["a"], "blocked_domains": ["b"],
                }),
            ),
            (
                "AskUserQuestion",
                same::<user::AskUserQuestionArgs>,
                json!({
                    "questions": [{
                        "question": "q", "header": "h", "multiSelect": true,
                        "options": [{ "label": "a", "description": "x" }, { "label": "b", "description": "y" }],
                    }],
                    "answers": { "q": "a" },
                }),
            ),
            ("Config", same::<user::ConfigArgs>, json!({ "setting": "model", "value": 1.5 })),
        ];
        let names: Vec<String> = claude().tools.iter().map(|tool| tool.spec.name.clone()).collect();
        assert_eq!(names, inputs.iter().map(|(name, ..)| (*name).to_owned()).collect::<Vec<_>>());
        for (tool, (name, check, whole)) in claude().tools.iter().zip(&inputs) {
            check(name, whole);
            // Only the required fields, without nulls for the others.
            let required = tool.spec.input_schema["required"].as_array().cloned().unwrap_or_default();
            let short = required.iter().filter_map(Value::as_str).map(|key| (key.to_owned(), whole[key].clone()));
            check(name, &Value::Object(short.collect()));
            // The complete input contains every field of the schema, so that none is untested.
            for key in tool.spec.input_schema["properties"].as_object().into_iter().flat_map(|it| it.keys()) {
                assert!(whole.get(key).is_some(), "{name}.{key} is not tested");
            }
        }
    }
}
