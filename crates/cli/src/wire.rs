//! Tool definitions as each protocol sends them.

use clap::ValueEnum;
use helve_contract::Spec;
use serde_json::{Value, json};

use crate::tokens;

/// How definitions are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// The `tools` of OpenAI's chat completions.
    Openai,
    /// The `tools` of Anthropic's messages.
    Anthropic,
    /// The answer to MCP's `tools/list`.
    Mcp,
    /// All that is known, with effects and tiers.
    Json,
}

/// One definition. The table's is OpenAI's, which its token counts refer to.
pub(crate) fn definition(spec: &Spec, format: Format) -> Value {
    match format {
        Format::Table | Format::Openai => json!({
            "type": "function",
            "function": { "name": spec.name, "description": spec.description, "parameters": spec.schema },
        }),
        Format::Anthropic => {
            json!({ "name": spec.name, "description": spec.description, "input_schema": spec.schema })
        }
        Format::Mcp => {
            let mut tool = json!({
                "name": spec.name,
                "description": spec.description,
                "inputSchema": spec.schema,
                "annotations": spec.effects.annotations(),
            });
            if let (Some(output), Value::Object(tool)) = (&spec.output, &mut tool) {
                tool.insert("outputSchema".into(), output.clone());
            }
            tool
        }
        Format::Json => json!({
            "name": spec.name,
            "aliases": spec.aliases,
            "description": spec.description,
            "parameters": spec.schema,
            "output": spec.output,
            "effects": spec.effects.names().collect::<Vec<_>>(),
            "tier": spec.tier(),
            "side_effect": spec.effects.side_effect(),
            "timeout_secs": seconds(spec),
        }),
    }
}

/// How many tokens a definition is on the wire: its JSON without blanks.
pub(crate) fn bill(spec: &Spec, format: Format) -> usize {
    tokens::count(&definition(spec, format).to_string())
}

/// The time a call may take, unless the tool keeps its own clock.
pub(crate) fn seconds(spec: &Spec) -> Option<u64> {
    // A day is more than any clock of ours; `Duration::MAX` stands for none.
    Some(spec.timeout.as_secs()).filter(|it| *it <= 86_400)
}
