//! `helve tools`: what a model can call, in the format of each protocol, and what it costs in tokens.

use std::{process::ExitCode, sync::Arc};

use helve_contract::Spec;
use serde_json::{Value, json};

use super::Choice;
use crate::{
    fault::{Fault, Outcome},
    print::{Ink, first_sentence, ink},
    say, setup,
    wire::{self, Format},
};

/// List the tools of a dialect, as a table or as definitions for a model.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve tools
  helve tools --dialect preset --role readonly
  helve tools --dialect solo --format openai > tools.json
  helve tools --tokens")]
pub(crate) struct Args {
    #[command(flatten)]
    choice: Choice,
    /// How to write them.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Count the tokens (o200k_base) of each definition as it is sent, and their sum.
    #[arg(long)]
    tokens: bool,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        let settings = self.choice.settings()?;
        let dialect = super::dialect(&settings)?;
        let name = dialect.name;
        let engine = setup::listing(&settings, dialect)?;
        let specs: Vec<_> = engine.specs().collect();
        match (self.format, self.tokens) {
            (Format::Table, false) => table(&specs),
            (Format::Table, true) => bills(&specs, Format::Openai, name),
            (format, true) => say!("{}", counted(&specs, format)),
            (format, false) => say!("{}", pretty(&definitions(&specs, format))?),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn definitions(specs: &[Arc<Spec>], format: Format) -> Value {
    let list: Vec<_> = specs.iter().map(|spec| wire::definition(spec, format)).collect();
    if format == Format::Mcp { json!({ "tools": list }) } else { Value::from(list) }
}

fn counted(specs: &[Arc<Spec>], format: Format) -> Value {
    let tools: Vec<_> =
        specs.iter().map(|spec| json!({ "name": spec.name, "tokens": wire::bill(spec, format) })).collect();
    let sum: usize = specs.iter().map(|spec| wire::bill(spec, format)).sum();
    json!({ "encoding": "o200k_base", "tools": tools, "sum": sum })
}

fn pretty(value: &Value) -> Result<String, Fault> {
    serde_json::to_string_pretty(value).map_err(|error| Fault::failed(error.to_string()))
}

fn table(specs: &[Arc<Spec>]) {
    let width = specs.iter().map(|spec| spec.name.len()).max().unwrap_or_default().max(4);
    let head = format!("{:width$}  {:14}  {}", "TOOL", "TIER", "WHAT IT DOES");
    say!("{}", ink(Ink::Bold, &head));
    for spec in specs {
        let tier = serde_json::to_value(spec.tier()).ok();
        let tier = tier.as_ref().and_then(Value::as_str).unwrap_or_default();
        say!("{:width$}  {tier:14}  {}", spec.name, first_sentence(&spec.description));
    }
    say!("{}", ink(Ink::Dim, &format!("{} tools", specs.len())));
}

fn bills(specs: &[Arc<Spec>], format: Format, dialect: &str) {
    let width = specs.iter().map(|spec| spec.name.len()).max().unwrap_or_default().max(8);
    say!("{}", ink(Ink::Bold, &format!("{:width$}  {:>6}", "TOOL", "TOKENS")));
    let mut sum = 0;
    for spec in specs {
        let tokens = wire::bill(spec, format);
        sum += tokens;
        say!("{:width$}  {tokens:>6}", spec.name);
    }
    say!("{:width$}  {sum:>6}", format!("{} tools", specs.len()));
    say!("{}", ink(Ink::Dim, &format!("dialect {dialect}, definitions as OpenAI's API takes them, o200k_base")));
}
