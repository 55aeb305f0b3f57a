//! Tool definitions as each protocol sends them.

use clap::ValueEnum;
use helve_contract::Spec;
use serde_json::{Value, json};

use crate::tokens;

/// How definitions are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DefinitionFormat {
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
pub(crate) fn definition(spec: &Spec, format: DefinitionFormat) -> Value {
    match format {
        DefinitionFormat::Table | DefinitionFormat::Openai => json!({
            "type": "function",
            "function": { "name": spec.name, "description": spec.description, "parameters": spec.input_schema },
        }),
        DefinitionFormat::Anthropic => {
            json!({ "name": spec.name, "description": spec.description, "input_schema": spec.input_schema })
        }
        DefinitionFormat::Mcp => {
            let mut tool = json!({
                "name": spec.name,
                "description": spec.description,
                "inputSchema": spec.input_schema,
                "annotations": spec.effects.annotations(),
            });
            if let (Some(output), Value::Object(tool)) = (&spec.output_schema, &mut tool) {
                tool.insert("outputSchema".into(), output.clone());
            }
            tool
        }
        DefinitionFormat::Json => json!({
            "name": spec.name,
            "aliases": spec.aliases,
            "description": spec.description,
            "parameters": spec.input_schema,
            "output": spec.output_schema,
            "effects": spec.effects.names().collect::<Vec<_>>(),
            "tier": spec.tier(),
            "side_effect": spec.effects.side_effect(),
            "timeout_secs": timeout_secs(spec),
        }),
    }
}

/// The number of tokens of a definition on the wire: its JSON without whitespace.
pub(crate) fn definition_tokens(spec: &Spec, format: DefinitionFormat) -> usize {
    tokens::count_tokens(&definition(spec, format).to_string())
}

/// The timeout of a call, unless the tool has its own.
pub(crate) fn timeout_secs(spec: &Spec) -> Option<u64> {
    // A day exceeds every real timeout; `Duration::MAX` means none.
    Some(spec.timeout.as_secs()).filter(|it| *it <= 86_400)
}
