//! The dialects: one file with a table of tools for each.
//!
//! A row names what the model calls, the parameters it sends, the tool that runs, and the reply format. The conversions
//! are `TryFrom` implementations that the compiler checks.

/// Defines a table of tools. A row is `"name" Args => Tool, reply;`
///
/// The model calls `name` with `Args`; `Tool` runs; `reply` formats the output.
macro_rules! table {
    ($($name:literal $args:ty => $tool:ty, $reply:expr;)*) => {
        vec![$(helve_contract::Entry::row::<$args, $tool, _>($name, $reply)),*]
    };
}

mod claude;
mod forge;
mod oxydra;
mod preset;
mod solo;
mod words;

pub use claude::claude;
pub use forge::forge;
use helve_contract::ports::AgentKind;
use helve_engine::Dialect;
pub use oxydra::oxydra;
pub use preset::preset;
pub use solo::solo;

/// The names of the dialects, in the order of their numbers.
pub const NAMES: [&str; 5] = ["solo", "forge", "preset", "oxydra", "claude"];

/// All dialects.
pub fn all() -> Vec<Dialect> {
    NAMES.iter().filter_map(|name| by_name(name)).collect()
}

/// The dialect with this name or number (`claude`, `004`).
pub fn by_name(name: &str) -> Option<Dialect> {
    Some(match name {
        "solo" | "000" => solo(),
        "forge" | "001" => forge(),
        "preset" | "002" => preset(),
        "oxydra" | "003" => oxydra(),
        "claude" | "004" => claude(),
        _ => return None,
    })
}

/// Parameters that name a kind of agent.
const KIND_PARAMETERS: [&str; 2] = ["subagent_type", "agent_name"];

/// Adds the kinds of agents to the dialect's tools that start agents: as an enum in the schema, with descriptions.
#[must_use]
pub fn with_agent_kinds(mut dialect: Dialect, kinds: &[AgentKind]) -> Dialect {
    if kinds.is_empty() {
        return dialect;
    }
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
    let about: Vec<String> = kinds.iter().map(describe).collect();
    for entry in &mut dialect.tools {
        let parameter = KIND_PARAMETERS.into_iter().find(|it| entry.spec.input_schema["properties"].get(it).is_some());
        let Some(parameter) = parameter else { continue };
        *entry = entry.clone().map_spec(|spec| {
            let schema = &mut spec.input_schema["properties"][parameter];
            schema["enum"] = names.clone().into();
            schema["description"] = about.join("; ").into();
        });
    }
    dialect
}

/// The maximum length of a kind's description for the model, in characters.
const MAX_ABOUT: usize = 200;

fn describe(kind: &AgentKind) -> String {
    let about: String = kind.description.split_whitespace().collect::<Vec<_>>().join(" ");
    match about.char_indices().nth(MAX_ABOUT) {
        _ if about.is_empty() => kind.name.clone(),
        Some((end, _)) => format!("{}: {}…", kind.name, &about[..end]),
        None => format!("{}: {about}", kind.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_agents_are_an_enum_with_descriptions() {
        let kind = |name: &str, about: &str| AgentKind { name: name.into(), description: about.into() };
        let kinds = [kind("Explore", "finds things"), kind("reviewer", "Reads\na change"), kind("bare", "")];
        for (dialect, tool, parameter) in
            [(claude(), "Agent", "subagent_type"), (oxydra(), "delegate_to_agent", "agent_name")]
        {
            let dialect = with_agent_kinds(dialect, &kinds);
            let entry = dialect.tools.iter().find(|it| it.spec.name == tool).unwrap();
            let schema = &entry.spec.input_schema["properties"][parameter];
            assert_eq!(schema["enum"], serde_json::json!(["Explore", "reviewer", "bare"]));
            assert_eq!(schema["description"], "Explore: finds things; reviewer: Reads a change; bare");
        }
        assert_eq!(with_agent_kinds(solo(), &kinds).tools.len(), solo().tools.len());
    }
}
