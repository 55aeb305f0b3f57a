//! Checks names and schemas of external tools.

use serde_json::{Value, json};

/// Bytes of a schema.
const MAX_SCHEMA: usize = 64 << 10;

/// What is wrong with a tool's name, if something is.
pub(crate) fn name_error(name: &str) -> Option<&'static str> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-'));
    (!fits).then_some("a tool's name has 1 to 64 letters, digits, `_` and `-`")
}

/// The schema with an object at its root, as providers accept it; or what is wrong with it.
pub(crate) fn checked(schema: Value) -> Result<Value, String> {
    let mut map = match schema {
        Value::Null => serde_json::Map::new(),
        Value::Object(map) => map,
        _ => return Err("its schema is not a JSON object".into()),
    };
    match map.get("type") {
        None => _ = map.insert("type".into(), "object".into()),
        Some(kind) if kind == "object" => {}
        Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "object") => {
            map.insert("type".into(), "object".into());
        }
        Some(_) => return Err("its schema does not describe an object; write \"type\": \"object\"".into()),
    }
    if map.get("properties").is_none_or(Value::is_null) {
        map.insert("properties".into(), json!({}));
    }
    let schema = Value::Object(map);
    if schema.to_string().len() > MAX_SCHEMA {
        return Err(format!("its schema has more than {MAX_SCHEMA} bytes"));
    }
    // The engine compiles it in the same way, and would refuse the whole session.
    let compiled = jsonschema::options().offline().build(&schema);
    compiled.map_err(|error| format!("its schema does not compile: {}", short(&error.to_string())))?;
    Ok(schema)
}

/// The beginning of a message, on one line.
fn short(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_has_an_object_at_its_root() {
        let empty = json!({ "type": "object", "properties": {} });
        for schema in [json!(null), json!({}), json!({ "type": "object" }), json!({ "properties": null })] {
            assert_eq!(checked(schema), Ok(empty.clone()));
        }
        assert_eq!(checked(json!({ "type": ["object", "null"] })), Ok(empty));
    }

    #[test]
    fn what_cannot_be_checked_is_refused() {
        let seen = [
            json!("object"),
            json!(7),
            json!({ "type": "string" }),
            json!({ "properties": { "a": { "type": "strin" } } }),
            json!({ "properties": [] }),
            json!({ "properties": { "a": { "$ref": "https://example.com/a.json" } } }),
            json!({ "properties": { "a": { "pattern": "(" } } }),
            json!({ "description": "x".repeat(70_000) }),
        ]
        .map(|it| checked(it).unwrap_err());
        let starts = [
            "its schema is not a JSON object",
            "its schema is not a JSON object",
            "its schema does not describe an object",
            "its schema does not compile: ",
            "its schema does not compile: ",
            "its schema does not compile: ",
            "its schema does not compile: ",
            "its schema has more than 65536 bytes",
        ];
        for (seen, start) in seen.iter().zip(starts) {
            assert!(seen.starts_with(start) && seen.len() < 300, "{seen}");
        }
    }

    #[test]
    fn a_name_may_have_hyphens() {
        let seen = ["get-weather", "get_weather", "a b", "", "größe", "a.b"].map(|it| name_error(it).is_none());
        assert_eq!(seen, [true, true, false, false, false, false]);
    }
}
