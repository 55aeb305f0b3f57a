//! Parses and checks a server's tool definition.

use std::collections::HashMap;

use helve_contract::Annotations;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{name, text};

/// Characters of a description.
const MAX_DESCRIPTION_CHARS: usize = 2048;
/// Bytes of a schema.
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// How deep a schema may lead, references followed.
const MAX_SCHEMA_DEPTH: usize = 100;
/// How many schemas one check may have to look at, references followed.
const MAX_SCHEMA_COST: u64 = 50_000;

/// A tool that can be offered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolDefinition {
    /// What the server calls it.
    pub(crate) server_name: String,
    /// Its name before disambiguation and truncation: `mcp__SERVER__TOOL`.
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) schema: Value,
    pub(crate) annotations: Annotations,
    /// A hash of the whole definition.
    pub(crate) fingerprint: String,
}

/// The name that a server gives a tool, fit to be shown.
pub(crate) fn display_name(told: &Value) -> String {
    text::clean_description(told["name"].as_str().unwrap_or("(no name)"), 100)
}

impl ToolDefinition {
    /// Parses a definition, or returns why it is refused.
    pub(crate) fn parse(server: &str, told: &Value) -> Result<Self, String> {
        let tool = told["name"].as_str().ok_or("it has no name")?;
        if tool.is_empty() || tool.len() > 256 || tool.chars().any(|it| text::is_invisible(it) || it == '\n') {
            return Err("its name is empty, too long or has characters that are not seen".into());
        }
        let described = told["description"].as_str().unwrap_or_default();
        Ok(Self {
            server_name: tool.to_owned(),
            name: name::plain(server, tool),
            description: text::clean_description(described, MAX_DESCRIPTION_CHARS),
            schema: schema(&told["inputSchema"])?,
            annotations: annotations(&told["annotations"]),
            fingerprint: fingerprint(&[told["name"].clone(), told["description"].clone(), told["inputSchema"].clone()]),
        })
    }
}

/// The server's hints. A missing or invalid hint gets the protocol's default, which is the more dangerous one.
fn annotations(told: &Value) -> Annotations {
    let hint = |name: &str, default: bool| told[name].as_bool().unwrap_or(default);
    Annotations {
        read_only_hint: hint("readOnlyHint", false),
        destructive_hint: hint("destructiveHint", true),
        idempotent_hint: hint("idempotentHint", false),
        open_world_hint: hint("openWorldHint", true),
    }
}

/// A hash that does not depend on the order of keys.
fn fingerprint(parts: &[Value]) -> String {
    let parts: Vec<Value> = parts.iter().map(sorted).collect();
    name::hex(&Sha256::digest(Value::from(parts).to_string()))
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut pairs: Vec<_> = map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            pairs.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(pairs.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        value => value.clone(),
    }
}

/// The schema in the form that providers take, or why it cannot be taken.
fn schema(told: &Value) -> Result<Value, String> {
    let mut schema = match told {
        Value::Null => json!({}),
        Value::Object(_) => told.clone(),
        _ => return Err("its schema is not an object".into()),
    };
    if schema.to_string().len() > MAX_SCHEMA_BYTES {
        return Err(format!("its schema has more than {MAX_SCHEMA_BYTES} bytes"));
    }
    if let Value::Object(map) = &mut schema {
        map.remove("$id");
        let known = map.get("$schema").and_then(Value::as_str).is_some_and(is_known_draft);
        if !known {
            map.remove("$schema");
        }
        match map.get("type") {
            None => _ = map.insert("type".into(), "object".into()),
            Some(kind) if kind == "object" => {}
            Some(_) => return Err("its schema is not one of an object".into()),
        }
        map.entry("properties").or_insert_with(|| json!({}));
    }
    sanitize_schema(&mut schema, 0)?;
    SchemaCost { root: &schema, weighed: HashMap::new() }.cost(&schema, &[String::new()], 0)?;
    jsonschema::options()
        .offline()
        .build(&schema)
        .map_err(|error| format!("its schema does not compile: {}", text::quote_message(&error.to_string())))?;
    Ok(schema)
}

fn is_known_draft(uri: &str) -> bool {
    let uri = uri.trim_end_matches('#');
    ["http://json-schema.org/draft-", "https://json-schema.org/draft/"].iter().any(|it| uri.starts_with(it))
        && uri.ends_with("/schema")
}

/// Cleans the texts in a schema and refuses misleading names.
fn sanitize_schema(schema: &mut Value, depth: usize) -> Result<(), String> {
    if depth > MAX_SCHEMA_DEPTH {
        return Err("its schema is too deep".into());
    }
    match schema {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                if key.chars().any(text::is_invisible) {
                    return Err("its schema has names with characters that are not seen".into());
                }
                match value {
                    Value::String(words) if matches!(key.as_str(), "description" | "title" | "$comment") => {
                        *words = text::clean_description(words, MAX_DESCRIPTION_CHARS);
                    }
                    Value::String(words) if words.chars().any(text::is_invisible) => {
                        return Err("its schema has values with characters that are not seen".into());
                    }
                    value => sanitize_schema(value, depth + 1)?,
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                match item {
                    Value::String(words) if words.chars().any(text::is_invisible) => {
                        return Err("its schema has values with characters that are not seen".into());
                    }
                    item => sanitize_schema(item, depth + 1)?,
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Computes the cost of a schema, to refuse one whose validation would take too long.
struct SchemaCost<'a> {
    root: &'a Value,
    weighed: HashMap<String, u64>,
}

impl SchemaCost<'_> {
    /// The number of schemas that a validation visits. `here` contains references followed without descending into
    /// the value.
    fn cost(&mut self, schema: &Value, here: &[String], depth: usize) -> Result<u64, String> {
        let Value::Object(map) = schema else { return Ok(1) };
        if depth > MAX_SCHEMA_DEPTH {
            return Err("its schema is too deep".into());
        }
        if depth > 0 && map.get("$id").is_some_and(Value::is_string) {
            return Err("its schema has an $id inside".into());
        }
        let mut weight: u64 = 1;
        for (word, value) in map {
            let more = match word.as_str() {
                "$ref" => self.follow(value, here, depth)?,
                "$dynamicRef" | "$recursiveRef" => return Err(format!("its schema has a {word}")),
                "allOf" | "anyOf" | "oneOf" => self.total(value.as_array().into_iter().flatten(), here, depth)?,
                "not" | "if" | "then" | "else" => self.cost(value, here, depth + 1)?,
                "dependentSchemas" | "dependencies" => self.total(values(value), here, depth)?,
                "properties" | "patternProperties" => self.total(values(value), &[], depth)?,
                // Counted where they are used.
                "$defs" | "definitions" => 0,
                "prefixItems" => self.total(value.as_array().into_iter().flatten(), &[], depth)?,
                "items"
                | "additionalProperties"
                | "additionalItems"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties" => match value {
                    Value::Array(items) => self.total(items.iter(), &[], depth)?,
                    value => self.cost(value, &[], depth + 1)?,
                },
                _ => 0,
            };
            weight = weight.saturating_add(more);
            if weight > MAX_SCHEMA_COST {
                return Err("its schema unfolds to too much".into());
            }
        }
        Ok(weight)
    }

    fn total<'v>(
        &mut self,
        schemas: impl Iterator<Item = &'v Value>,
        here: &[String],
        depth: usize,
    ) -> Result<u64, String> {
        schemas.map(|it| self.cost(it, here, depth + 1)).try_fold(0, |sum: u64, it| Ok(sum.saturating_add(it?)))
    }

    fn follow(&mut self, reference: &Value, here: &[String], depth: usize) -> Result<u64, String> {
        let place =
            reference.as_str().and_then(|it| it.strip_prefix('#')).filter(|it| it.is_empty() || it.starts_with('/'));
        let Some(place) = place.filter(|it| !it.contains('%')) else {
            return Err("its schema refers to something outside of it".into());
        };
        if here.iter().any(|it| it == place) {
            return Err("its schema refers to itself without end".into());
        }
        if let Some(weight) = self.weighed.get(place) {
            return Ok(*weight);
        }
        let root = self.root;
        let Some(target) = root.pointer(place) else { return Err("its schema refers to nothing".into()) };
        self.weighed.insert(place.to_owned(), 1);
        let here: Vec<String> = here.iter().cloned().chain([place.to_owned()]).collect();
        let weight = self.cost(target, &here, depth + 1)?;
        self.weighed.insert(place.to_owned(), weight);
        Ok(weight)
    }
}

fn values(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_object().into_iter().flat_map(Map::values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(input: Value) -> String {
        ToolDefinition::parse("s", &json!({ "name": "t", "inputSchema": input })).err().unwrap_or_default()
    }

    #[test]
    fn a_definition_is_bounded_and_cleaned() {
        let told = json!({
            "name": "read-file",
            "description": format!("Reads.\u{200b}\u{e0041} {}", "x".repeat(5000)),
            "inputSchema": { "$schema": "http://evil.example/x", "properties": { "p": { "type": "string", "description": "a\u{202e}b" } } },
        });
        let seen = ToolDefinition::parse("s", &told).unwrap();
        assert_eq!((seen.name.as_str(), seen.server_name.as_str()), ("mcp__s__read-file", "read-file"));
        assert_eq!((seen.description.chars().count(), &seen.description[..9]), (2048, "Reads. xx"));
        assert_eq!(
            seen.schema,
            json!({ "properties": { "p": { "type": "string", "description": "ab" } }, "type": "object" })
        );
    }

    #[test]
    fn hints_of_a_server_are_never_weakened() {
        let hints = |told: Value| {
            let told = json!({ "name": "t", "annotations": told });
            let seen = ToolDefinition::parse("s", &told).unwrap().annotations;
            [seen.read_only_hint, seen.destructive_hint, seen.idempotent_hint, seen.open_world_hint]
        };
        for unclear in [json!(null), json!({}), json!({ "destructiveHint": "false", "readOnlyHint": 1 }), json!([1])] {
            assert_eq!(hints(unclear), [false, true, false, true]);
        }
        assert_eq!(hints(json!({ "destructiveHint": true, "readOnlyHint": true })), [true, true, false, true]);
        assert_eq!(hints(json!({ "readOnlyHint": true, "openWorldHint": false })), [true, true, false, false]);
        assert_eq!(hints(json!({ "destructiveHint": false, "idempotentHint": true })), [false, false, true, true]);
    }

    #[test]
    fn the_order_of_keys_is_no_change() {
        let print = |input: &str| {
            let input: Value = serde_json::from_str(input).unwrap();
            ToolDefinition::parse("s", &json!({ "name": "t", "inputSchema": input })).unwrap().fingerprint
        };
        assert_eq!(print(r#"{"type":"object","title":"a"}"#), print(r#"{"title":"a","type":"object"}"#));
        assert_ne!(print(r#"{"type":"object","title":"a"}"#), print(r#"{"title":"b","type":"object"}"#));
    }

    #[test]
    fn a_schema_that_cannot_be_trusted_is_not_taken() {
        let mut levels = Map::new();
        for level in 0..30 {
            let next = json!({ "$ref": format!("#/$defs/a{}", level + 1) });
            levels.insert(format!("a{level}"), json!({ "allOf": [next, next] }));
        }
        levels.insert("a30".into(), json!({}));
        let seen = [
            json!({ "properties": { "x": { "$ref": "https://evil.example/x.json" } } }),
            json!({ "properties": { "x": { "$ref": "file:///etc/passwd" } } }),
            json!({ "$ref": "#" }),
            json!({ "allOf": [{ "$ref": "#/allOf/0" }] }),
            json!({ "properties": { "x": { "$ref": "#/$defs/a0" } }, "$defs": levels }),
            json!({ "type": "string" }),
            json!(["object"]),
            json!({ "properties": { "a\u{200b}": {} } }),
            json!({ "properties": { "x": { "enum": ["\u{e0041}"] } } }),
            json!({ "properties": { "x": { "type": "nonsense" } } }),
            json!({ "description": "x".repeat(70_000) }),
        ]
        .map(why);
        assert_eq!(
            seen.map(|it| it.chars().take(44).collect::<String>()),
            [
                "its schema refers to something outside of it",
                "its schema refers to something outside of it",
                "its schema refers to itself without end",
                "its schema refers to itself without end",
                "its schema unfolds to too much",
                "its schema is not one of an object",
                "its schema is not an object",
                "its schema has names with characters that ar",
                "its schema has values with characters that a",
                "its schema does not compile: \"nonsense\" is n",
                "its schema has more than 65536 bytes",
            ]
        );
    }

    #[test]
    fn a_tree_may_refer_to_itself() {
        let tree = json!({
            "properties": { "tree": { "$ref": "#/$defs/node" } },
            "$defs": { "node": { "type": "object", "properties": { "children": { "type": "array", "items": { "$ref": "#/$defs/node" } } } } },
        });
        assert_eq!(why(tree), "");
    }
}
