//! `helve call`: one call of one tool, with the user's authority.

use std::{
    io::{self, Read},
    process::ExitCode,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use helve_agent::SessionSpec;
use helve_contract::{Call, Reply, ReplyFormat, TruncateSide, closest_names};
use helve_engine::Dialect;
use helve_runtime::Caller;
use serde_json::{Value, json};

use super::SettingsArgs;
use crate::{
    config::Settings,
    fault::{CliError, CommandResult, EXIT_FAILURE, EXIT_USAGE},
    outside::Wanted,
    print, remark, say, setup,
    workshop::HelveRuntime,
};

/// The maximum length of arguments.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// Call one tool and print its answer.
///
/// Calling it is your consent: nothing is asked. Rules that deny, protected paths and the sandbox hold.
/// The exit code is 0 when the tool succeeded, 1 when it failed, 2 when the call makes no sense.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve call Read '{\"file_path\":\"'$PWD'/README.md\"}'
  helve call Bash '{\"command\":\"make test\"}' --set sandbox.network=on
  helve call grep '{\"pattern\":\"fn main\"}' --dialect preset
  echo '{\"path\":\"notes.md\"}' | helve call read - --dialect solo --json")]
pub(crate) struct Args {
    /// The tool's name. Its dialect need not be given when only one dialect has the tool.
    #[arg(value_name = "TOOL")]
    tool: String,
    /// The arguments as JSON; `-` reads them from standard input.
    #[arg(value_name = "JSON", default_value = "{}")]
    given: String,
    #[command(flatten)]
    choice: SettingsArgs,
    /// Print the whole reply as JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        let settings = self.choice.load_and_warn()?;
        let dialect = select_dialect(&self.tool, self.choice.dialect.is_some(), &settings)?;
        let text = if self.given == "-" { read_stdin()? } else { self.given };
        let runtime = setup::runtime()?;
        let name = dialect.name.to_owned();
        let bench = HelveRuntime::with_external(settings, &dialect, &Wanted::WithTool(&self.tool), &runtime)?;
        let need = SessionSpec { dialect: Some(name), ..SessionSpec::default() };
        let opened = bench.session(need).caller(Caller::Person).build()?;
        if opened.engine.find(&self.tool).is_none() {
            return Err(CliError::usage(missing_tool_message(&self.tool, &opened.engine)));
        }
        let sense = serde_json::from_str::<Value>(&text).is_ok();
        let reply = runtime.block_on(async {
            let call = Call::new("cli", opened.session.clone());
            let cancel = call.cancel.clone();
            let work = opened.engine.run(&self.tool, text, call);
            let reply = setup::run_until_interrupted(cancel, work).await;
            setup::stop_tasks(opened.session.clone()).await;
            setup::shutdown_servers(bench.servers()).await;
            reply
        });
        if self.json {
            say!("{}", reply_json(&reply));
        } else {
            print_reply(&reply);
        }
        Ok(match reply.is_error {
            false => ExitCode::SUCCESS,
            true if !sense => {
                remark!("helve: the arguments are not JSON; quote them, such as '{{\"path\":\"a.txt\"}}'");
                ExitCode::from(EXIT_USAGE)
            }
            true => ExitCode::from(EXIT_FAILURE),
        })
    }
}

fn read_stdin() -> Result<String, CliError> {
    let mut text = String::new();
    io::stdin()
        .take(MAX_INPUT_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| CliError::usage(format!("standard input: {error}; the arguments must be JSON in UTF-8")))?;
    Ok(text)
}

/// The requested dialect; else the configured one if it has the tool; else the only one that has it.
pub(crate) fn select_dialect(tool: &str, asked: bool, settings: &Settings) -> Result<Dialect, CliError> {
    let configured = super::configured_dialect(settings)?;
    let has = |dialect: &Dialect| dialect.tools.iter().any(|entry| entry.spec.has_name(tool));
    if asked || has(&configured) {
        return Ok(configured);
    }
    let config = &settings.config;
    let outside = config.all_plugins().next().is_some() || !config.wasm.is_empty() || !config.mcp.servers.is_empty();
    if outside && !helve_dialects::all().iter().any(has) {
        // A plugin or a server may provide it.
        return Ok(configured);
    }
    let mut others: Vec<_> = helve_dialects::all().into_iter().filter(has).collect();
    match others.len() {
        0 => {
            let all = helve_dialects::all();
            let names = std::iter::once(&configured).chain(&all).flat_map(tool_names);
            Err(CliError::usage(match closest_names(tool, names).first() {
                None => format!("no dialect has a tool `{tool}`; `helve tools` lists them"),
                Some(near) => format!("no dialect has a tool `{tool}`; did you mean {near}?"),
            }))
        }
        1 => Ok(others.remove(0)),
        _ => {
            let names: Vec<_> = others.iter().map(|it| it.name).collect();
            Err(CliError::usage(format!(
                "`{tool}` is a tool of several dialects ({}); choose one, such as --dialect {}",
                names.join(", "),
                names.first().copied().unwrap_or_default()
            )))
        }
    }
}

/// Every name that means a tool of the dialect.
fn tool_names(dialect: &Dialect) -> impl Iterator<Item = &str> {
    let specs = dialect.tools.iter().map(|entry| &entry.spec);
    specs.flat_map(|spec| std::iter::once(&spec.name).chain(&spec.aliases).map(String::as_str))
}

/// The error if the session has no such tool.
pub(crate) fn missing_tool_message(tool: &str, engine: &helve_engine::Engine) -> String {
    let dialect = engine.dialect();
    if let Some(entry) = dialect.tools.iter().find(|entry| entry.spec.has_name(tool)) {
        let status = engine.statuses().into_iter().find(|it| it.name == entry.spec.name);
        let reason = status.and_then(|it| it.offered.err());
        let reason = reason.map_or_else(|| "the settings leave it out".to_owned(), |it| it.to_string());
        return format!(
            "`{tool}` exists in the dialect {}, but this session does not offer it: {reason}",
            dialect.name
        );
    }
    match closest_names(tool, tool_names(dialect)).as_slice() {
        [] => format!("the dialect {} has no tool `{tool}`; see `helve tools --dialect {0}`", dialect.name),
        near => format!("the dialect {} has no tool `{tool}`; did you mean {}?", dialect.name, near.join(" or ")),
    }
}

/// Prints the reply for people: its text on standard output, everything else on standard error.
fn print_reply(reply: &Reply) {
    print::print_tool_text(&reply.text);
    for media in &reply.media {
        remark!("[{}, {} bytes; --json prints it]", media.mime, media.bytes.len());
    }
    let facts: Vec<String> =
        reply.sandbox.iter().cloned().chain(reply.exit_code.map(|code| format!("exit {code}"))).collect();
    if !facts.is_empty() {
        remark!("[{}]", facts.join(", "));
    }
    for note in notes(reply) {
        remark!("[{note}]");
    }
}

/// Notes for the caller: how the arguments were interpreted, and further problems. A JSON reply already contains the
/// former.
pub(crate) fn notes(reply: &Reply) -> impl Iterator<Item = &String> {
    reply.model_notes.iter().chain(&reply.notes)
}

/// The whole reply as JSON.
pub(crate) fn reply_json(reply: &Reply) -> Value {
    let media: Vec<_> = reply
        .media
        .iter()
        .map(|it| json!({ "mime": it.mime, "bytes": it.bytes.len(), "base64": STANDARD.encode(&it.bytes) }))
        .collect();
    json!({
        "is_error": reply.is_error,
        "text": reply.text,
        "data": reply.data,
        "media": media,
        "exit": reply.exit_code,
        "wall": reply.sandbox,
        "spill": reply.spill_file,
        "cut": reply.truncation.map(|cut| json!({
            "bytes": cut.bytes,
            "lines": cut.lines,
            "kept": if reply.truncate_side == TruncateSide::KeepHead { "head" } else { "tail" },
        })),
        "form": if reply.format == ReplyFormat::Json { "json" } else { "text" },
        "notes": notes(reply).collect::<Vec<_>>(),
    })
}
