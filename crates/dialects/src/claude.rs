//! `claude` (004): the tools of the Claude agent SDK. Paths are absolute, errors begin with `Error: `.

mod agents;
mod fetch;
mod search;
mod user;

use std::time::Duration;

use helve_contract::{Error, FileFault, Keep, Port, PortSet, Problem, Reading, Reply, Result};
use helve_engine::{Dialect, ExternalRow, Limit, Limits, Mode, Notice, ParameterRange, Words};
use helve_tools::{fs, shell};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words;

/// The dialect.
pub fn claude() -> Dialect {
    let tools = table! {
        // The model calls  with             and we run           answering
        "Agent"             agents::Agent => helve_tools::agents::Start, agents::started;
        "Bash"              Bash          => shell::Run,          shell::RunOut::merged_or_error;
        "TaskOutput"        TaskOutput    => shell::TaskOutput,   task_output;
        "ExitPlanMode"      user::ExitPlanMode => helve_tools::user::ExitPlan, user::judged;
        "FileEdit"          FileEdit      => fs::Edit,            edited;
        "FileRead"          FileRead      => fs::Read,            read;
        "FileWrite"         FileWrite     => fs::Write,           written;
        "Glob"              Glob          => fs::Glob,            found;
        "Grep"              Grep          => fs::Grep,            matches;
        "TaskStop"          TaskStop      => shell::TaskStop,     stopped;
        "NotebookEdit"      NotebookEdit  => fs::NotebookEdit,    cell_edited;
        "TodoWrite"         user::TodoWrite => helve_tools::user::Todos, user::listed;
        "WebFetch"          fetch::WebFetch => helve_tools::web::Fetch, fetch::fetched;
        "WebSearch"         search::WebSearch => helve_tools::web::Search, search::searched;
        "AskUserQuestion"   user::AskUserQuestion => helve_tools::user::Ask, user::answered;
        "Config"            user::Config  => helve_tools::user::Setting, user::configured;
    };
    let tools = tools.into_iter().map(|tool| match tool.spec.name.as_str() {
        "Agent" => tool.also(&["Task"]),
        "FileEdit" => tool.also(&["Edit"]),
        "FileRead" => tool.also(&["Read"]),
        "FileWrite" => tool.also(&["Write"]),
        "TaskOutput" => tool.also(&["BashOutput", "AgentOutputTool"]),
        "TaskStop" => tool.also(&["KillShell", "KillBash"]),
        _ => tool,
    });
    Dialect {
        name: "claude",
        about: "the tools of the Claude agent SDK",
        tools: tools.collect(),
        external: EXTERNAL,
        roles: &[],
        default_role: None,
        reading: Reading::Absolute,
        limits: Limits {
            general: Limit::bytes(1 << 20),
            by_tool: const {
                &[
                    // The reader cuts the page at 1 MiB; its numbers and where to go on come on top.
                    ("FileRead", Limit::bytes(4 << 20)),
                    ("Bash", Limit::bytes(30_000)),
                    // As much as ripgrep says, up to what the engine lets through; head_limit is the model's to choose.
                    ("Grep", Limit::bytes(4 << 20)),
                    ("TaskOutput", Limit::bytes(30_000)),
                ]
            },
            paged: &["FileRead"],
            ranges: const { &[ParameterRange { tool: "TaskOutput", parameter: "timeout", min: 0, max: 600_000 }] },
        },
        words: Words { error, error_prefix: "Error: ", notice, cancelled: "cancelled" },
        mode: Mode::Default,
    }
}

/// The tools over resources of MCP servers. The MCP client supplies them where servers are configured.
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

fn error(_: &str, error: &Error) -> Reply {
    let text = match error {
        // No tool of this dialect lists a folder.
        Error::File { path, fault: FileFault::IsFolder } => {
            format!("{path}: this is a folder, not a file; list it with `ls` in Bash, or find its files with Glob")
        }
        error => words::told(error),
    };
    Reply::failed(text)
}

fn notice(notice: &Notice) -> String {
    let shown = notice.part(words::thousands);
    match &notice.file {
        Some(file) => format!("[Output truncated: {shown} shown. Full output saved to: {}]", file.display()),
        None => format!("[Output truncated: {shown} shown.]"),
    }
}

/// Runs a bash command in a sandbox and returns its output; a non-zero exit is an error. For a long job set run_in_background and read it with TaskOutput.
#[derive(Deserialize, Serialize, JsonSchema)]
struct Bash {
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
struct TaskOutput {
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
struct FileEdit {
    /// Absolute path
    file_path: String,
    old_string: String,
    new_string: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    replace_all: Option<bool>,
}

/// Reads a file: text with line numbers (2000 lines unless limit says more), images, notebooks, PDFs by page.
#[derive(Deserialize, Serialize, JsonSchema)]
struct FileRead {
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
struct FileWrite {
    /// Absolute path
    file_path: String,
    content: String,
}

/// Finds files by path pattern, such as "**/*.ts"; newest first, at most 100.
#[derive(Deserialize, Serialize, JsonSchema)]
struct Glob {
    pattern: String,
    /// Folder to search; the workspace by default
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

/// Searches file contents with ripgrep's regex and rules. Returns file paths unless output_mode says otherwise.
#[derive(Deserialize, Serialize, JsonSchema)]
struct Grep {
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
struct TaskStop {
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    /// Old name of task_id
    #[serde(skip_serializing_if = "Option::is_none")]
    shell_id: Option<String>,
}

/// Replaces, inserts or deletes one cell of a Jupyter notebook.
#[derive(Deserialize, Serialize, JsonSchema)]
struct NotebookEdit {
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

impl TryFrom<Bash> for shell::Run {
    type Error = Error;

    fn try_from(Bash { command, timeout, description, run_in_background }: Bash) -> Result<Self> {
        let background = run_in_background.unwrap_or_default();
        // Who writes 0 wants no limit of their own, and a command that is ended at once helps nobody.
        let timeout = timeout.filter(|it| *it > 0);
        if let Some(timeout) = timeout.filter(|it| *it > 600_000) {
            let next = if background {
                "leave it out: without it a background command runs until it ends or is stopped"
            } else {
                "run it in the background instead, without a timeout"
            };
            return Err(Error::argument("timeout", format!("{timeout} ms is more than 600000; {next}")));
        }
        // A job in the background has no limit unless the call sets one; it ends by TaskStop, or with the session.
        let timeout = timeout.or((!background).then_some(120_000));
        Ok(Self {
            script: command,
            description,
            background,
            timeout: timeout.map(Duration::from_millis),
            keep: Keep::Head,
            keep_dir: true,
            ..Self::default()
        })
    }
}

impl From<FileWrite> for fs::Write {
    fn from(FileWrite { file_path, content }: FileWrite) -> Self {
        Self { path: file_path, content }
    }
}

fn written(out: fs::WriteOut) -> String {
    let lines = if out.lines == 1 { "1 line".to_owned() } else { format!("{} lines", out.lines) };
    format!("File written successfully at: {} ({lines})", out.path)
}

impl From<Glob> for fs::Glob {
    fn from(Glob { pattern, path }: Glob) -> Self {
        Self { pattern, path, order: fs::Order::Newest, limit: Some(100), ..Self::default() }
    }
}

fn found(out: fs::Files) -> Reply {
    out.reply(out.paths(), "No files found")
}

/// Several globs in one text, with commas or blanks between them: `*.rs,*.toml`.
fn globs(list: &str) -> Vec<String> {
    let parts = |glob: &str| -> Vec<String> {
        if glob.contains(['{', '[', '\\']) {
            return vec![glob.to_owned()];
        }
        glob.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect()
    };
    let words: Vec<&str> = list.split_whitespace().collect();
    // A name may have blanks in it.
    let is_list = words.len() > 1 && words.iter().all(|it| it.contains('*'));
    if is_list { words.into_iter().flat_map(parts).collect() } else { parts(list) }
}

impl From<Grep> for fs::Grep {
    fn from(it: Grep) -> Self {
        let around = it.around.or(it.context);
        Self {
            pattern: it.pattern,
            path: it.path,
            // Hidden files are searched too, as the original does, but for git's own.
            globs: it.glob.iter().flat_map(|list| globs(list)).chain(["!.git".to_owned()]).collect(),
            hidden: true,
            mode: match it.output_mode.unwrap_or(OutputMode::FilesWithMatches) {
                OutputMode::Content => fs::Mode::Lines,
                OutputMode::FilesWithMatches => fs::Mode::Files,
                OutputMode::Count => fs::Mode::Counts,
            },
            before: around.or(it.before).unwrap_or(0),
            after: around.or(it.after).unwrap_or(0),
            numbers: if it.numbers == Some(false) { fs::Numbers::Hidden } else { fs::Numbers::Shown },
            ignore_case: it.ignore_case.unwrap_or(false),
            file_type: it.r#type,
            limit: it.head_limit.filter(|limit| *limit > 0),
            offset: it.offset.unwrap_or(0),
            unit: fs::Unit::Rows,
            multiline: it.multiline.unwrap_or(false),
            ..Self::default()
        }
    }
}

fn matches(out: fs::GrepOut) -> Reply {
    let rows = match out.asked.mode {
        fs::Mode::Lines => out.lines(out.asked.numbers, fs::Names::Shown),
        fs::Mode::Counts => out.counts(fs::Names::Shown),
        fs::Mode::Files => out.files(),
    };
    out.reply(rows, fs::Nothing { any_case: "set -i", ..fs::Nothing::default() })
}

impl From<TaskOutput> for shell::TaskOutput {
    fn from(TaskOutput { task_id, block, timeout }: TaskOutput) -> Self {
        let timeout = Duration::from_millis(timeout.unwrap_or(30_000).min(600_000));
        Self { id: task_id, block: block.unwrap_or(true), timeout: Some(timeout) }
    }
}

fn task_output(out: shell::TaskRead) -> Reply {
    out.into()
}

impl TryFrom<TaskStop> for shell::TaskStop {
    type Error = Error;

    fn try_from(TaskStop { task_id, shell_id }: TaskStop) -> Result<Self> {
        let id = task_id.or(shell_id).ok_or_else(|| {
            Error::InvalidArgs(vec![Problem::Missing { path: "task_id".into(), wanted: "a string".into() }])
        })?;
        Ok(Self { id })
    }
}

fn stopped(out: shell::TaskStopped) -> Reply {
    out.into()
}

impl TryFrom<FileRead> for fs::Read {
    type Error = Error;

    fn try_from(FileRead { file_path, offset, limit, pages }: FileRead) -> Result<Self> {
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

fn read(out: fs::ReadOut) -> Reply {
    match words::page_or_reply(out, |page| format!("pages \"{page}-{}\"", page + 19)) {
        Ok(page) => page.numbered(|line| format!("offset={line}")).into(),
        Err(reply) => *reply,
    }
}

impl From<FileEdit> for fs::Edit {
    fn from(FileEdit { file_path, old_string, new_string, replace_all }: FileEdit) -> Self {
        let all = replace_all.unwrap_or(false);
        // Without a text to replace, the tool makes the file, as its model expects.
        Self { all, create: true, ..words::edit(file_path, old_string, new_string) }
    }
}

fn edited(out: fs::Edited) -> String {
    words::edited(&out)
}

impl From<NotebookEdit> for fs::NotebookEdit {
    fn from(NotebookEdit { notebook_path, cell_id, new_source, cell_type, edit_mode }: NotebookEdit) -> Self {
        Self { path: notebook_path, cell_id, new_source, cell_type, mode: edit_mode.unwrap_or_default() }
    }
}

fn cell_edited(out: fs::CellEdited) -> Reply {
    out.into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn several_globs_may_be_in_one_text() {
        assert_eq!(globs("*.rs,*.toml"), ["*.rs", "*.toml"]);
        assert_eq!(globs("*.rs *.toml"), ["*.rs", "*.toml"]);
        assert_eq!(globs("*.{rs,toml}"), ["*.{rs,toml}"]);
        assert_eq!(globs("my notes.md"), ["my notes.md"]);
    }

    #[test]
    fn a_task_is_stopped_by_either_name() {
        let id = |args: Value| {
            let stop: TaskStop = serde_json::from_value(args).unwrap();
            shell::TaskStop::try_from(stop).map(|it| it.id).map_err(|error| error.to_string())
        };
        assert_eq!(id(json!({ "task_id": "t" })), Ok("t".to_owned()));
        assert_eq!(id(json!({ "shell_id": "s" })), Ok("s".to_owned()));
        assert!(id(json!({})).unwrap_err().contains("task_id"));
    }

    #[test]
    fn a_timeout_holds_in_the_background_too() {
        let timeout = |timeout| {
            let bash = Bash { command: "x".into(), timeout, description: None, run_in_background: Some(true) };
            shell::Run::try_from(bash).map(|run| run.timeout)
        };
        assert_eq!(timeout(Some(500)).unwrap(), Some(Duration::from_millis(500)));
        assert_eq!(timeout(None).unwrap(), None);
        assert_eq!(timeout(Some(0)).unwrap(), None);
        let told = timeout(Some(700_000)).unwrap_err().to_string();
        assert!(told.contains("leave it out") && !told.contains("run it in the background"), "{told}");
    }

    #[test]
    fn no_time_at_all_is_the_usual_time() {
        let bash = |timeout| Bash { command: "x".into(), timeout, description: None, run_in_background: None };
        for timeout in [None, Some(0)] {
            let run = shell::Run::try_from(bash(timeout)).unwrap_or_default();
            assert_eq!(run.timeout, Some(Duration::from_secs(120)));
        }
    }

    /// Each input type, with an input that has every field.
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
                same::<agents::Agent>,
                json!({
                    "description": "d", "prompt": "p", "subagent_type": "Explore", "model": "haiku", "resume": "id",
                    "run_in_background": true, "max_turns": 3, "name": "n", "team_name": "t", "mode": "acceptEdits",
                }),
            ),
            (
                "Bash",
                same::<Bash>,
                json!({
                    "command": "ls", "timeout": 5, "description": "d", "run_in_background": false,
                }),
            ),
            ("TaskOutput", same::<TaskOutput>, json!({ "task_id": "t", "block": false, "timeout": 1000 })),
            (
                "ExitPlanMode",
                same::<user::ExitPlanMode>,
                json!({
                    "plan": "p", "allowedPrompts": [{ "tool": "Bash", "prompt": "run tests" }], "pushToRemote": true,
                    "remoteSessionId": "i", "remoteSessionUrl": "u", "remoteSessionTitle": "t",
                }),
            ),
            (
                "FileEdit",
                same::<FileEdit>,
                json!({
                    "file_path": "/a", "old_string": "o", "new_string": "n", "replace_all": true,
                }),
            ),
            ("FileRead", same::<FileRead>, json!({ "file_path": "/a", "offset": 1, "limit": 2, "pages": "1-2" })),
            ("FileWrite", same::<FileWrite>, json!({ "file_path": "/a", "content": "c" })),
            ("Glob", same::<Glob>, json!({ "pattern": "*", "path": "/a" })),
            (
                "Grep",
                same::<Grep>,
                json!({
                    "pattern": "p", "path": "/a", "glob": "*", "output_mode": "files_with_matches", "-B": 1, "-A": 2, "-C": 3,
                    "context": 4, "-n": true, "-i": true, "type": "rust", "head_limit": 5, "offset": 6, "multiline": true,
                }),
            ),
            ("TaskStop", same::<TaskStop>, json!({ "task_id": "t", "shell_id": "s" })),
            (
                "NotebookEdit",
                same::<NotebookEdit>,
                json!({
                    "notebook_path": "/a", "cell_id": "c", "new_source": "s", "cell_type": "markdown", "edit_mode": "insert",
                }),
            ),
            (
                "TodoWrite",
                same::<user::TodoWrite>,
                json!({
                    "todos": [{ "content": "c", "status": "in_progress", "activeForm": "a" }],
                }),
            ),
            ("WebFetch", same::<fetch::WebFetch>, json!({ "url": "https://a.example", "prompt": "p" })),
            (
                "WebSearch",
                same::<search::WebSearch>,
                json!({
                    "query": "q", "allowed_domains": ["a"], "blocked_domains": ["b"],
                }),
            ),
            (
                "AskUserQuestion",
                same::<user::AskUserQuestion>,
                json!({
                    "questions": [{
                        "question": "q", "header": "h", "multiSelect": true,
                        "options": [{ "label": "a", "description": "x" }, { "label": "b", "description": "y" }],
                    }],
                    "answers": { "q": "a" },
                }),
            ),
            ("Config", same::<user::Config>, json!({ "setting": "model", "value": 1.5 })),
        ];
        let names: Vec<String> = claude().tools.iter().map(|tool| tool.spec.name.clone()).collect();
        assert_eq!(names, inputs.iter().map(|(name, ..)| (*name).to_owned()).collect::<Vec<_>>());
        for (tool, (name, check, whole)) in claude().tools.iter().zip(&inputs) {
            check(name, whole);
            // The required fields alone, without nulls for the others.
            let required = tool.spec.schema["required"].as_array().cloned().unwrap_or_default();
            let short = required.iter().filter_map(Value::as_str).map(|key| (key.to_owned(), whole[key].clone()));
            check(name, &Value::Object(short.collect()));
            // Every field that the schema shows is in the whole input, so that none is left untested.
            for key in tool.spec.schema["properties"].as_object().into_iter().flat_map(|it| it.keys()) {
                assert!(whole.get(key).is_some(), "{name}.{key} is not tested");
            }
        }
    }
}
