//! `helve tools`: the table of a dialect, what a session offers, and the token counts of the definitions.

use std::{process::ExitCode, sync::Arc};

use helve_contract::{Port, PortSet, Spec};
use helve_engine::{Dialect, NotOffered, ToolStatus};
use serde_json::{Value, json};

use super::{SettingsArgs, mcp};
use crate::{
    config::Settings,
    fault::{CliError, CommandResult},
    print::{TextStyle, first_sentence, styled},
    say, setup,
    wire::{self, DefinitionFormat},
    workshop::HelveRuntime,
};

/// List the tools of a dialect, as a table or as definitions for a model.
///
/// The table has every row of the dialect and marks those that a session cannot offer, with the reason. With --offered
/// it has exactly what `tools/list` of `helve mcp` carries: MCP servers, plugins and modules are started for that.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve tools
  helve tools --dialect preset --role readonly
  helve tools --offered
  helve tools --dialect solo --format openai > tools.json
  helve tools --tokens")]
pub(crate) struct Args {
    #[command(flatten)]
    choice: SettingsArgs,
    /// How to write them.
    #[arg(long, value_enum, default_value = "table")]
    format: DefinitionFormat,
    /// Start MCP servers, plugins and modules, and list only what a session offers.
    #[arg(long)]
    offered: bool,
    /// Count the tokens (o200k_base) of each definition as it is sent, and their sum.
    #[arg(long)]
    tokens: bool,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        let settings = self.choice.load_and_warn()?;
        let dialect = super::configured_dialect(&settings)?;
        let name = dialect.name;
        let statuses = statuses(settings, &dialect, self.offered)?;
        let specs: Vec<_> = statuses.iter().filter(|it| it.offered.is_ok()).filter_map(|it| it.spec.clone()).collect();
        match (self.format, self.tokens) {
            (DefinitionFormat::Table, false) => print_table(&statuses),
            (DefinitionFormat::Table, true) => print_token_counts(&specs, DefinitionFormat::Openai, name),
            (format, true) => say!("{}", with_token_counts(&specs, format)),
            (format, false) => say!("{}", pretty(&definitions(&specs, format))?),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The rows of the dialect, with the reason if an MCP session does not offer one. With `offered`, servers, plugins and
/// modules are started, and only offered tools are returned.
fn statuses(mut settings: Settings, dialect: &Dialect, offered: bool) -> Result<Vec<ToolStatus>, CliError> {
    let has_servers = !settings.config.mcp.servers.is_empty();
    if !offered {
        settings.config.mcp.servers.clear();
        settings.config.plugins.clear();
        settings.config.tools.plugins.clear();
        settings.config.wasm.clear();
    }
    let runtime = setup::runtime()?;
    let bench = HelveRuntime::new(settings, dialect, &runtime)?;
    let opened = mcp::client_session(&bench, &Arc::default(), None)?;
    let mut statuses = opened.engine.statuses();
    runtime.block_on(setup::shutdown_servers(bench.servers()));
    runtime.shutdown_background();
    let only_servers = NotOffered::Missing(PortSet::of(&[Port::McpServers]));
    for status in &mut statuses {
        // Servers are configured, but not started for this list.
        if !offered && has_servers && status.offered == Err(only_servers) {
            status.offered = Ok(());
        }
    }
    if offered {
        statuses.retain(|it| it.offered.is_ok());
        let order: Vec<String> = opened.engine.specs().map(|spec| spec.name.clone()).collect();
        statuses.sort_by_key(|it| order.iter().position(|name| *name == it.name));
    }
    Ok(statuses)
}

fn definitions(specs: &[Arc<Spec>], format: DefinitionFormat) -> Value {
    let list: Vec<_> = specs.iter().map(|spec| wire::definition(spec, format)).collect();
    if format == DefinitionFormat::Mcp { json!({ "tools": list }) } else { Value::from(list) }
}

fn with_token_counts(specs: &[Arc<Spec>], format: DefinitionFormat) -> Value {
    let tools: Vec<_> = specs
        .iter()
        .map(|spec| json!({ "name": spec.name, "tokens": wire::definition_tokens(spec, format) }))
        .collect();
    let sum: usize = specs.iter().map(|spec| wire::definition_tokens(spec, format)).sum();
    json!({ "encoding": "o200k_base", "tools": tools, "sum": sum })
}

fn pretty(value: &Value) -> Result<String, CliError> {
    serde_json::to_string_pretty(value).map_err(|error| CliError::failed(error.to_string()))
}

fn print_table(rows: &[ToolStatus]) {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default().max(4);
    let head = format!("{:width$}  {:14}  {}", "TOOL", "TIER", "WHAT IT DOES");
    say!("{}", styled(TextStyle::Bold, &head));
    for row in rows {
        let tier = row.spec.as_ref().and_then(|spec| serde_json::to_value(spec.tier()).ok());
        let tier = tier.as_ref().and_then(Value::as_str).unwrap_or_default();
        let line = format!("{:width$}  {tier:14}  {}", row.name, first_sentence(&row.description));
        match &row.offered {
            Ok(()) => say!("{line}"),
            Err(reason) => say!("{}", styled(TextStyle::Dim, &format!("{line} [not offered: {reason}]"))),
        }
    }
    let missing = rows.iter().filter(|row| row.offered.is_err()).count();
    let count = match missing {
        0 => format!("{} tools", rows.len()),
        missing => format!("{} tools, {} offered here", rows.len(), rows.len() - missing),
    };
    say!("{}", styled(TextStyle::Dim, &count));
}

fn print_token_counts(specs: &[Arc<Spec>], format: DefinitionFormat, dialect: &str) {
    let width = specs.iter().map(|spec| spec.name.len()).max().unwrap_or_default().max(8);
    say!("{}", styled(TextStyle::Bold, &format!("{:width$}  {:>6}", "TOOL", "TOKENS")));
    let mut sum = 0;
    for spec in specs {
        let tokens = wire::definition_tokens(spec, format);
        sum += tokens;
        say!("{:width$}  {tokens:>6}", spec.name);
    }
    say!("{:width$}  {sum:>6}", format!("{} tools", specs.len()));
    say!(
        "{}",
        styled(TextStyle::Dim, &format!("dialect {dialect}, definitions as OpenAI's API takes them, o200k_base"))
    );
}
