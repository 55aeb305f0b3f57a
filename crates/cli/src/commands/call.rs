//! `helve call`: one call of one tool, by the user's own hand.

use std::{
    io::{self, Read},
    process::ExitCode,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use helve_agent::Need;
use helve_contract::{Call, Form, Keep, Reply, nearest};
use helve_engine::Dialect;
use helve_runtime::Caller;
use serde_json::{Value, json};

use super::Choice;
use crate::{
    config::Settings,
    fault::{FAILED, Fault, Outcome, USAGE},
    outside::Wanted,
    print, remark, say, setup,
    workshop::Bench,
};

/// More than this is no argument.
const LARGEST: u64 = 64 << 20;

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
    choice: Choice,
    /// Print the whole reply as JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        let settings = self.choice.settings()?;
        let dialect = dialect_with(&self.tool, self.choice.dialect.is_some(), &settings)?;
        let text = if self.given == "-" { from_stdin()? } else { self.given };
        let runtime = setup::runtime()?;
        let name = dialect.name.to_owned();
        let bench = Bench::with_external(settings, &dialect, &Wanted::For(&self.tool), &runtime)?;
        let need = Need { dialect: Some(name), ..Need::default() };
        let opened = bench.session(need).caller(Caller::Person).build()?;
        if opened.engine.find(&self.tool).is_none() {
            return Err(Fault::usage(absent(&self.tool, &opened.engine)));
        }
        let sense = serde_json::from_str::<Value>(&text).is_ok();
        let reply = runtime.block_on(async {
            let call = Call::new("cli", opened.session.clone());
            let cancel = call.cancel.clone();
            let work = opened.engine.run(&self.tool, text, call);
            let reply = setup::until_interrupted(cancel, work).await;
            setup::end_tasks(opened.session.clone()).await;
            setup::end_servers(bench.servers()).await;
            reply
        });
        if self.json {
            say!("{}", whole(&reply));
        } else {
            show(&reply);
        }
        Ok(match reply.is_error {
            false => ExitCode::SUCCESS,
            true if !sense => {
                remark!("helve: the arguments are not JSON; quote them, such as '{{\"path\":\"a.txt\"}}'");
                ExitCode::from(USAGE)
            }
            true => ExitCode::from(FAILED),
        })
    }
}

fn from_stdin() -> Result<String, Fault> {
    let mut text = String::new();
    io::stdin()
        .take(LARGEST)
        .read_to_string(&mut text)
        .map_err(|error| Fault::usage(format!("standard input: {error}; the arguments must be JSON in UTF-8")))?;
    Ok(text)
}

/// The dialect that was asked for; else the configured one if it has the tool; else the only one that has it.
pub(crate) fn dialect_with(tool: &str, asked: bool, settings: &Settings) -> Result<Dialect, Fault> {
    let configured = super::dialect(settings)?;
    let has = |dialect: &Dialect| dialect.tools.iter().any(|entry| entry.spec.answers_to(tool));
    if asked || has(&configured) {
        return Ok(configured);
    }
    let config = &settings.config;
    let outside = config.all_plugins().next().is_some() || !config.wasm.is_empty() || !config.mcp.servers.is_empty();
    if outside && !helve_dialects::all().iter().any(has) {
        // A plugin or a server may bring it.
        return Ok(configured);
    }
    let mut others: Vec<_> = helve_dialects::all().into_iter().filter(has).collect();
    match others.len() {
        0 => {
            let all = helve_dialects::all();
            let names = std::iter::once(&configured).chain(&all).flat_map(names_of);
            Err(Fault::usage(match nearest(tool, names).first() {
                None => format!("no dialect has a tool `{tool}`; `helve tools` lists them"),
                Some(near) => format!("no dialect has a tool `{tool}`; did you mean {near}?"),
            }))
        }
        1 => Ok(others.remove(0)),
        _ => {
            let names: Vec<_> = others.iter().map(|it| it.name).collect();
            Err(Fault::usage(format!(
                "`{tool}` is a tool of several dialects ({}); choose one, such as --dialect {}",
                names.join(", "),
                names.first().copied().unwrap_or_default()
            )))
        }
    }
}

/// Every name that means a tool of the dialect.
fn names_of(dialect: &Dialect) -> impl Iterator<Item = &str> {
    let specs = dialect.tools.iter().map(|entry| &entry.spec);
    specs.flat_map(|spec| std::iter::once(&spec.name).chain(&spec.aliases).map(String::as_str))
}

/// What to say when the session has no such tool.
pub(crate) fn absent(tool: &str, engine: &helve_engine::Engine) -> String {
    let dialect = engine.dialect();
    if let Some(entry) = dialect.tools.iter().find(|entry| entry.spec.answers_to(tool)) {
        let status = engine.statuses().into_iter().find(|it| it.name == entry.spec.name);
        let reason = status.and_then(|it| it.offered.err());
        let reason = reason.map_or_else(|| "the settings leave it out".to_owned(), |it| it.to_string());
        return format!(
            "`{tool}` exists in the dialect {}, but this session does not offer it: {reason}",
            dialect.name
        );
    }
    match nearest(tool, names_of(dialect)).as_slice() {
        [] => format!("the dialect {} has no tool `{tool}`; see `helve tools --dialect {0}`", dialect.name),
        near => format!("the dialect {} has no tool `{tool}`; did you mean {}?", dialect.name, near.join(" or ")),
    }
}

/// The reply for people: its words on standard output, everything about it on standard error.
fn show(reply: &Reply) {
    print::from_tool(&reply.text);
    for media in &reply.media {
        remark!("[{}, {} bytes; --json prints it]", media.mime, media.bytes.len());
    }
    let facts: Vec<String> = reply.wall.iter().cloned().chain(reply.exit.map(|code| format!("exit {code}"))).collect();
    if !facts.is_empty() {
        remark!("[{}]", facts.join(", "));
    }
    for note in notes(reply) {
        remark!("[{note}]");
    }
}

/// What a caller must know about the call: how its arguments were understood, and what went wrong beside it. A JSON reply
/// holds the former itself.
pub(crate) fn notes(reply: &Reply) -> impl Iterator<Item = &String> {
    reply.model_notes.iter().chain(&reply.notes)
}

/// The whole reply as JSON.
pub(crate) fn whole(reply: &Reply) -> Value {
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
        "exit": reply.exit,
        "wall": reply.wall,
        "spill": reply.spill,
        "cut": reply.cut.map(|cut| json!({
            "bytes": cut.bytes,
            "lines": cut.lines,
            "kept": if reply.keep == Keep::Head { "head" } else { "tail" },
        })),
        "form": if reply.form == Form::Json { "json" } else { "text" },
        "notes": notes(reply).collect::<Vec<_>>(),
    })
}
