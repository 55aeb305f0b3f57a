//! Tool definitions in the plain form that every provider accepts.

use helve_contract::Spec;
use helve_engine::Engine;
use serde_json::{Map, Value, json};

/// How deep a schema is followed.
const MAX_DEPTH: usize = 24;
/// What providers refuse or do not need.
const DROPPED_KEYWORDS: [&str; 8] =
    ["$schema", "$id", "$defs", "definitions", "$comment", "$anchor", "title", "examples"];

/// The tools of an engine, in its order.
pub fn tool_definitions(engine: &Engine) -> Vec<Value> {
    engine.specs().map(|spec| tool_definition(&spec)).collect()
}

/// One tool.
pub fn tool_definition(spec: &Spec) -> Value {
    json!({
        "type": "function",
        "function": { "name": spec.name, "description": spec.description, "parameters": inline_schema(&spec.input_schema) },
    })
}

/// A schema with an object at its root, and nothing by reference.
pub fn inline_schema(schema: &Value) -> Value {
    let mut root = match inline_refs(schema, schema, 0) {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    flatten_root_choice(&mut root);
    root.insert("type".into(), "object".into());
    if !root.get("properties").is_some_and(Value::is_object) {
        root.insert("properties".into(), json!({}));
    }
    if let (Some(Value::Array(required)), Some(Value::Object(known))) =
        (root.get("required").cloned(), root.get("properties"))
    {
        let required: Vec<Value> =
            required.into_iter().filter(|it| it.as_str().is_some_and(|name| known.contains_key(name))).collect();
        root.insert("required".into(), required.into());
    }
    root.into()
}

/// Flattens a choice at the root: providers refuse one there. Only fields that every choice requires stay required.
fn flatten_root_choice(root: &mut Map<String, Value>) {
    for word in ["oneOf", "anyOf", "allOf"] {
        let Some(Value::Array(choices)) = root.remove(word) else { continue };
        let fields = |it: &Value| it["properties"].as_object().cloned().unwrap_or_default();
        let mut all = root.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        for choice in &choices {
            for (name, field) in fields(choice) {
                all.entry(name).or_insert(field);
            }
        }
        let asks = |choice: &Value, name: &Value| choice["required"].as_array().is_some_and(|it| it.contains(name));
        let mut required = root.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        for name in all.keys().map(|it| Value::from(it.as_str())) {
            let wanted = match word {
                "allOf" => choices.iter().any(|it| asks(it, &name)),
                _ => choices.iter().all(|it| asks(it, &name)),
            };
            if wanted && !required.contains(&name) {
                required.push(name);
            }
        }
        root.insert("properties".into(), all.into());
        if !required.is_empty() {
            root.insert("required".into(), required.into());
        }
    }
}

fn inline_refs(schema: &Value, root: &Value, depth: usize) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    if depth > MAX_DEPTH {
        return json!({});
    }
    let mut map = map.clone();
    if let Some(target) = map.remove("$ref") {
        let found = target.as_str().and_then(|it| it.strip_prefix('#')).and_then(|it| root.pointer(it));
        if let Some(Value::Object(found)) = found {
            for (key, value) in found {
                map.entry(key.clone()).or_insert_with(|| value.clone());
            }
            return inline_refs(&map.into(), root, depth + 1);
        }
    }
    let mut plain = Map::new();
    for (key, value) in map {
        if DROPPED_KEYWORDS.contains(&key.as_str()) {
            continue;
        }
        let value = match (key.as_str(), value) {
            // The names in here are parameters, not words of the schema.
            ("properties" | "patternProperties", Value::Object(fields)) => {
                fields.into_iter().map(|(name, it)| (name, inline_refs(&it, root, depth + 1))).collect()
            }
            ("enum" | "const" | "default" | "required", value) => value,
            (_, Value::Array(items)) => items.iter().map(|it| inline_refs(it, root, depth + 1)).collect(),
            (_, value) => inline_refs(&value, root, depth + 1),
        };
        plain.insert(key, value);
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_by_reference_and_the_root_is_an_object() {
        let schema = json!({
            "$schema": "x", "title": "T", "$ref": "#/$defs/T",
            "$defs": {
                "T": { "type": "object", "properties": { "title": { "$ref": "#/$defs/S" }, "next": { "$ref": "#/$defs/N" } }, "required": ["title", "gone"] },
                "S": { "type": "string", "title": "S" },
                "N": { "type": "integer" },
            },
        });
        let wanted = json!({
            "type": "object",
            "properties": { "title": { "type": "string" }, "next": { "type": "integer" } },
            "required": ["title"],
        });
        assert_eq!(inline_schema(&schema), wanted);
    }

    #[test]
    fn what_refers_to_itself_ends() {
        let schema = json!({ "properties": { "a": { "$ref": "#" } } });
        let text = inline_schema(&schema).to_string();
        assert!(text.len() < 2000 && !text.contains("$ref"), "{text}");
    }

    #[test]
    fn odd_roots_become_objects() {
        let empty = json!({ "type": "object", "properties": {} });
        assert_eq!((inline_schema(&json!(true)), inline_schema(&json!({}))), (empty.clone(), empty));
        let choice = json!({ "oneOf": [
            { "properties": { "a": { "type": "string" }, "b": {} }, "required": ["a", "b"] },
            { "properties": { "a": { "type": "string" } }, "required": ["a"] },
        ] });
        let wanted =
            json!({ "properties": { "a": { "type": "string" }, "b": {} }, "required": ["a"], "type": "object" });
        assert_eq!(inline_schema(&choice), wanted);
    }
}
