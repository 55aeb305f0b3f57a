//! `helve docs`: generates the reference pages from the program's own tables.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use helve_contract::{
    Entry, PathStyle, Spec,
    events::{EVENTS, EventInfo, EventPlace, FieldInfo},
};
use helve_engine::{Dialect, Limit, Mode};
use serde_json::Value;

use crate::{
    config::SETTINGS,
    fault::{CliError, CommandResult, EXIT_FAILURE},
    remark, say,
    wire::{self, DefinitionFormat},
};

/// Write the reference pages (tools.md, dialects.md, settings.md, events.md), or check that they are up to date.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve docs --write docs
  helve docs --check docs")]
#[group(required = true, multiple = false)]
pub(crate) struct Args {
    /// Write the pages into this folder.
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// Fail when the pages in this folder differ from what would be written.
    #[arg(long, value_name = "DIR")]
    check: Option<PathBuf>,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        let dialects = helve_dialects::all();
        let pages = [
            ("tools.md", tools_page(&dialects)),
            ("dialects.md", dialects.iter().fold(DIALECTS_HEADER.to_owned(), |page, it| page + &dialect_section(it))),
            ("settings.md", settings_page()),
            ("events.md", events()),
        ];
        if let Some(folder) = &self.write {
            for (name, text) in &pages {
                write_page(&folder.join(name), text)?;
            }
        }
        let stale: Vec<_> = match &self.check {
            Some(folder) => pages.iter().filter(|(name, text)| !is_up_to_date(&folder.join(name), text)).collect(),
            None => Vec::new(),
        };
        for (name, _) in &stale {
            remark!("{name} is out of date; run `helve docs --write` on its folder");
        }
        Ok(if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILURE) })
    }
}

fn write_page(path: &Path, text: &str) -> Result<(), CliError> {
    let told = |error| CliError::failed(format!("{}: {error}", path.display()));
    if is_up_to_date(path, text) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(told)?;
    }
    fs::write(path, text).map_err(told)?;
    say!("{}", path.display());
    Ok(())
}

fn is_up_to_date(path: &Path, text: &str) -> bool {
    fs::read(path).is_ok_and(|there| there == text.as_bytes())
}

const GENERATED_NOTICE: &str =
    "<!-- Written by `helve docs --write docs`. Change the tables in the code, not this page. -->\n\n";

const DIALECTS_HEADER: &str = "\
<!-- Written by `helve docs --write docs`. Change the tables in the code, not this page. -->

# Dialects

A dialect is a table of tools: what a model calls, what it sends, how it is answered. Below is each definition as a
model reads it, with its tokens (o200k_base) on the wire in the form of OpenAI's API.
";

/// Every tool by what runs, with its name in each dialect.
fn tools_page(dialects: &[Dialect]) -> String {
    let mut rooms: BTreeMap<&str, Vec<(&Dialect, &Entry)>> = BTreeMap::new();
    let entries = || dialects.iter().flat_map(|it| it.tools.iter().map(move |entry| (it, entry)));
    for (dialect, entry) in entries() {
        rooms.entry(entry.tool_name().unwrap_or("other")).or_default().push((dialect, entry));
    }
    let mut page = format!(
        "{GENERATED_NOTICE}# Tools\n\nEach thing that Helve can do, and what it is called in each dialect. A parameter with `?` may be \
         left out. The tier\nis what approval goes by; effects are the facts it follows from. {} names, {} things.\n",
        entries().count(),
        rooms.len()
    );
    for (tool, rows) in &rooms {
        _ = write!(page, "\n## {tool}\n\n| dialect | name | parameters | effects | tier |\n|---|---|---|---|---|\n");
        for (dialect, entry) in rows {
            let spec = &entry.spec;
            let names: Vec<_> = std::iter::once(&spec.name).chain(&spec.aliases).map(|it| format!("`{it}`")).collect();
            let effects: Vec<_> = spec.effects.names().collect();
            _ = writeln!(
                page,
                "| {} | {} | {} | {} | {} |",
                dialect.name,
                names.join(", "),
                signature(spec),
                effects.join(", "),
                tier(spec)
            );
        }
    }
    page
}

/// The parameters in short: `path, offset?`.
fn signature(spec: &Spec) -> String {
    let names: Vec<_> =
        parameters(spec).map(|(name, _, required)| format!("`{name}{}`", optional_mark(required))).collect();
    names.join(", ")
}

const fn optional_mark(required: bool) -> &'static str {
    if required { "" } else { "?" }
}

fn parameters(spec: &Spec) -> impl Iterator<Item = (&String, &Value, bool)> {
    let required: Vec<_> = spec
        .input_schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let map = spec.input_schema.get("properties").and_then(Value::as_object);
    map.into_iter().flatten().map(move |(name, schema)| (name, schema, required.contains(&name.as_str())))
}

fn tier(spec: &Spec) -> String {
    serde_json::to_value(spec.tier()).ok().and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
}

/// One dialect: its description, its roles, its definitions and their token counts.
fn dialect_section(dialect: &Dialect) -> String {
    let paths = match dialect.path_style {
        PathStyle::Relative => "absolute, or relative to the workspace",
        PathStyle::Absolute => "absolute only",
        PathStyle::Virtual => "in virtual roots (`/shared`, `/tmp`, `/vault`)",
    };
    let mut page = format!(
        "\n## {}\n\n{}\n\nPaths: {paths}. Approval when nothing is configured: {}. A reply holds {}.\n",
        dialect.name,
        dialect.description,
        mode_description(dialect.mode),
        format_limit(dialect.limits.general)
    );
    if !dialect.roles.is_empty() {
        page.push_str("\n| role | tools |\n|---|---|\n");
        for role in dialect.roles {
            let default = if dialect.default_role == Some(role.name) { " (default)" } else { "" };
            _ = writeln!(page, "| `{}`{default} | {} |", role.name, role.tools.join(", "));
        }
    }
    page.push_str("\n| tool | tokens |\n|---|---:|\n");
    let bills: Vec<_> =
        dialect.tools.iter().map(|entry| wire::definition_tokens(&entry.spec, DefinitionFormat::Openai)).collect();
    for (entry, tokens) in dialect.tools.iter().zip(&bills) {
        _ = writeln!(page, "| `{}` | {tokens} |", entry.spec.name);
    }
    _ = writeln!(page, "| {} tools | {} |", bills.len(), bills.iter().sum::<usize>());
    for entry in &dialect.tools {
        page.push_str(&tool_section(&entry.spec, dialect.limits.for_tool(&entry.spec.name), dialect.limits.general));
    }
    page
}

/// One definition.
fn tool_section(spec: &Spec, own: Limit, general: Limit) -> String {
    let mut text = format!("\n### {}\n\n", spec.name);
    for line in spec.description.lines() {
        _ = writeln!(text, "> {line}");
    }
    let mut facts = vec![format!("{}, {:?}", tier(spec), spec.effects.side_effect())];
    if !spec.aliases.is_empty() {
        facts.push(format!("also `{}`", spec.aliases.join("`, `")));
    }
    facts.extend(wire::timeout_secs(spec).map(|seconds| format!("at most {seconds} s")));
    if own != general {
        facts.push(format!("a reply holds {}", format_limit(own)));
    }
    _ = writeln!(text, "\n{}.", facts.join("; "));
    if parameters(spec).next().is_some() {
        text.push_str("\n| parameter | type | |\n|---|---|---|\n");
    }
    for (name, schema, required) in parameters(spec) {
        let about = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        _ = writeln!(text, "| `{name}{}` | {} | {} |", optional_mark(required), type_name(schema), table_cell(about));
    }
    text
}

fn type_name(schema: &Value) -> String {
    let of = |schema: &Value| match schema.get("type") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    };
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return words.iter().filter_map(Value::as_str).map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ");
    }
    match schema.get("items") {
        Some(items) => format!("array of {}", of(items)),
        None => of(schema),
    }
}

fn table_cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn format_limit(limit: Limit) -> String {
    match (limit.size, limit.lines) {
        (usize::MAX, usize::MAX) => "any length".to_owned(),
        (size, usize::MAX) => format!("{size} {}", limit.unit),
        (usize::MAX, lines) => format!("{lines} lines"),
        (size, lines) => format!("{size} {} or {lines} lines", limit.unit),
    }
}

const fn mode_description(mode: Mode) -> &'static str {
    match mode {
        Mode::Default => "`default` (looking passes, the rest is asked)",
        Mode::AcceptEdits => "`acceptEdits`",
        Mode::Plan => "`plan`",
        Mode::DontAsk => "`dontAsk`",
        Mode::BypassPermissions => "`bypassPermissions`",
        Mode::Open => "`open` (nothing is asked; the sandbox is the wall)",
    }
}

/// Every setting.
fn settings_page() -> String {
    let mut page = format!(
        "{GENERATED_NOTICE}# Settings\n\n\
         Settings come from five places; a later one wins over an earlier one:\n\n\
         1. the defaults below,\n\
         2. the user's file: `$XDG_CONFIG_HOME/helve/helve.toml`, else `~/.config/helve/helve.toml` (or `helve.yaml`),\n\
         3. the project's file: `helve.toml` or `helve.yaml` in the workspace, **ignored until** `helve config trust`,\n\
         4. variables of the environment, named below,\n\
         5. flags: `--dialect`, `--role`, `--workspace`, `--tools`, and `--set KEY=VALUE` for any setting.\n\n\
         Lists of refusals add up over all places instead, so none can take back what another refuses. Trust is bound \
         to\nthe file's path and content: a changed file is ignored until it is trusted again. Even a trusted file may \
         set only\nwhat the last column says. No `.env` file is ever read. `helve config` shows what is in force and \
         where it came from.\n\nPaths in a file start at that file's folder; `~/` is the home folder. In a variable or \
         flag a list is separated by\ncommas, or written as JSON.\n\n\
         | setting | holds | default | variable | may a project set it? |\n|---|---|---|---|---|\n"
    );
    for key in SETTINGS.iter() {
        let default = if key.default.is_null() { "—".to_owned() } else { format!("`{}`", key.default) };
        let (holds, variable, project) =
            (table_cell(&key.value_type.describe()), key.env_var(), key.project.describe());
        _ = writeln!(page, "| `{}` | {holds} | {default} | `{variable}` | {project} |", key.name);
    }
    page.push_str("\n## What they do\n");
    for key in SETTINGS.iter() {
        _ = write!(page, "\n**`{}`**: {}\n", key.name, key.description);
    }
    page.push_str(EXAMPLE);
    page
}

const EVENTS_HEAD: &str = "\
# Events

Helve records what happens as one JSON object a line:

    {\"eventId\": ..., \"seq\": 1, \"timestamp\": ..., \"type\": ..., \"runId\": ..., \"taskId\": ..., \"attemptId\": ..., \"data\": {...}}

`seq` counts from 1 in each run, without gaps. `taskId` and `attemptId` are there for tasks of planned runs only. `type` is one
of the names below; `data` has its fields. A field with `?` is left out where there is no value.

Readers must pass over types and fields that they do not know: newer versions add some. Helve itself keeps them as they are.
An event that waited in memory because the disk was full has `heldSince` in its data.

`GET /events` of the server adds `dialect` and `at`, the number of the event in that process. Events of the server itself have
`timestamp`, `type`, `data`, `dialect` and `at` only.
";

/// Every event with its fields.
fn events() -> String {
    let mut page = format!("{GENERATED_NOTICE}{EVENTS_HEAD}");
    let places = [
        (EventPlace::Record, "Calls", "In `runs/RUN/events.ndjson` of the state directory, and from `GET /events`."),
        (
            EventPlace::ForgeRun,
            "Planned runs",
            "In `.forge/runs/RUN/events.ndjson` of the repository, with the calls of its agents.",
        ),
        (EventPlace::Server, "Server", "From `GET /events`."),
    ];
    for (place, title, about) in places {
        _ = write!(page, "\n## {title}\n\n{about}\n");
        for event in EVENTS.iter().filter(|it| it.place == place) {
            page.push_str(&one_event(event));
        }
    }
    page
}

fn one_event(event: &EventInfo) -> String {
    let mut text = format!("\n### `{}`\n\n{}\n\n| field | type | |\n|---|---|---|\n", event.name, event.about.trim());
    for field in event.fields {
        let (mark, about) = (optional_mark(!field.is_optional), table_cell(field.about));
        _ = writeln!(text, "| `{}{mark}` | {} | {about} |", field.name, field_type(field));
    }
    text
}

/// The type of a field, as JSON has it.
fn field_type(field: &FieldInfo) -> String {
    let rust = field.rust_type.replace(' ', "");
    let (inner, null) = match rust.strip_prefix("Option<") {
        // A missing field is never null, unless the value itself can be.
        Some(rest) if field.is_optional && !rest.starts_with("Option<") => (rest, ""),
        Some(rest) => (rest.trim_start_matches("Option<"), " or null"),
        None => (rust.as_str(), ""),
    };
    let inner = if rust.starts_with("Option<") { inner.trim_end_matches('>') } else { inner };
    let (inner, list) = match inner.strip_prefix("Vec<") {
        Some(rest) => (rest.trim_end_matches('>'), "array of "),
        None => (inner, ""),
    };
    if let Some(names) = field.names() {
        return names.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ") + null;
    }
    let name = match inner {
        "bool" => "boolean",
        "u32" | "u64" | "i32" | "i64" => "integer",
        "f64" => "number",
        "Value" => "any",
        "AgentType" => "integer or string",
        "Todo" | "MountInfo" | "ShownArgument" | "ShownQuestion" => "object",
        _ => "string",
    };
    format!("{list}{name}{null}")
}

const EXAMPLE: &str = "
## Example

```toml
dialect = \"claude\"
roots = [\"~/reference\", \"/srv/out:rw\"]

[tools]
disable = [\"WebSearch\"]

[tools.shell]
deny = [\"shutdown\"]

[approval]
mode = \"acceptEdits\"
allow = [\"Bash(npm test:*)\"]
deny = [\"Read(**/*.pem)\"]

[sandbox]
network = \"off\"
```
";
