//! The words of the protocol: `init`, `describe`, `call`, `result`, in every form that plugins in the wild speak.
//!
//! The published text says `init` with many tools; the published examples answer only `describe` with one, and leave
//! the call's id out of a result. Both are spoken, told apart by the first answer.

use helve_contract::Reply;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// How a plugin talks, as its first answer showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `init`: many tools, calls carry the tool's name.
    Init,
    /// `describe`: one tool, calls carry no name.
    Describe,
}

/// One tool of a plugin.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct Told {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default, alias = "input_schema", alias = "inputSchema")]
    pub(crate) parameters: Value,
}

/// What a line from a plugin means while we wait for its tools.
#[derive(Debug, PartialEq)]
pub(crate) enum Greeting {
    /// These are its tools.
    Tools(Form, Vec<Told>),
    /// It does not know the message: try the other form.
    NotUnderstood,
    /// Something else; keep waiting.
    Noise,
}

/// The first message.
pub(crate) fn init() -> Value {
    json!({"type": "init", "protocol": 1, "tools": []})
}

/// The first message of the older form.
pub(crate) fn describe() -> Value {
    json!({"type": "describe"})
}

/// A call.
pub(crate) fn call(form: Form, name: &str, id: &str, params: Value) -> Value {
    match form {
        Form::Init => json!({"type": "call", "name": name, "call_id": id, "params": params}),
        Form::Describe => json!({"type": "call", "call_id": id, "params": params}),
    }
}

/// Reads an answer to `init` or `describe`.
pub(crate) fn greeting(line: &[u8]) -> Greeting {
    let Ok(Value::Object(message)) = serde_json::from_slice(line) else { return Greeting::Noise };
    if let Some(tools) = message.get("tools") {
        return match serde_json::from_value::<Vec<Told>>(tools.clone()) {
            Ok(tools) if !tools.is_empty() => Greeting::Tools(Form::Init, tools),
            _ => Greeting::Noise,
        };
    }
    if message.contains_key("name") && message.contains_key("parameters") {
        return match serde_json::from_value::<Told>(Value::Object(message)) {
            Ok(tool) => Greeting::Tools(Form::Describe, vec![tool]),
            Err(_) => Greeting::Noise,
        };
    }
    let is_error =
        ["error", "is_error"].iter().any(|key| message.get(*key).is_some_and(|it| it != &Value::Bool(false)));
    if is_error { Greeting::NotUnderstood } else { Greeting::Noise }
}

/// What a line from a plugin means while a call is under way.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// The result of the call, or of one without an id.
    Result(Box<Reply>),
    /// The result of a call that nobody waits for any more.
    Late,
    /// Not a result.
    Noise,
}

/// Reads an answer to the call `id`.
pub(crate) fn answer(line: &[u8], id: &str) -> Answer {
    let Ok(Value::Object(message)) = serde_json::from_slice::<Value>(line) else { return Answer::Noise };
    let kind = message.get("type").and_then(Value::as_str);
    if kind.is_some_and(|it| it != "result") || !(message.contains_key("content") || message.contains_key("error")) {
        return Answer::Noise;
    }
    if message.get("call_id").and_then(Value::as_str).is_some_and(|it| !it.is_empty() && it != id) {
        return Answer::Late;
    }
    Answer::Result(Box::new(reply(&message)))
}

fn reply(message: &Map<String, Value>) -> Reply {
    let text = match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            blocks.iter().filter_map(|block| block.get("text").and_then(Value::as_str)).collect::<String>()
        }
        _ => message.get("error").and_then(Value::as_str).unwrap_or_default().to_owned(),
    };
    let truthy = |key: &str| match message.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    };
    Reply { text, is_error: truthy("is_error") || truthy("error"), ..Reply::default() }
}

/// A schema that providers accept: an object at the root, whatever the plugin sent.
pub(crate) fn object_schema(schema: Value) -> Value {
    match schema {
        Value::Object(mut map) => {
            map.entry("type").or_insert_with(|| "object".into());
            map.entry("properties").or_insert_with(|| json!({}));
            Value::Object(map)
        }
        _ => json!({"type": "object", "properties": {}}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ways_to_tell_tools() {
        let tool = Told { name: "a".into(), description: "A.".into(), parameters: json!({"type": "object"}) };
        let init = br#"{"type":"init","tools":[{"name":"a","description":"A.","parameters":{"type":"object"}}]}"#;
        assert_eq!(greeting(init), Greeting::Tools(Form::Init, vec![tool.clone()]));
        let one = br#"{"name":"a","description":"A.","parameters":{"type":"object"}}"#;
        assert_eq!(greeting(one), Greeting::Tools(Form::Describe, vec![tool]));
        let unknown = br#"{"content":[{"type":"text","text":"unknown message type: init"}],"error":true}"#;
        assert_eq!(greeting(unknown), Greeting::NotUnderstood);
        assert_eq!(greeting(b"hello"), Greeting::Noise);
    }

    #[test]
    fn two_ways_to_answer() {
        let words = |line: &str| match answer(line.as_bytes(), "7") {
            Answer::Result(reply) => format!("{} {}", reply.text, reply.is_error),
            other => format!("{other:?}"),
        };
        assert_eq!(
            words(r#"{"type":"result","call_id":"7","content":[{"type":"text","text":"x"}],"is_error":true}"#),
            "x true"
        );
        assert_eq!(
            words(r#"{"content":[{"type":"text","text":"x"},{"type":"text","text":"y"}],"error":false}"#),
            "xy false"
        );
        assert_eq!(words(r#"{"type":"result","call_id":"6","content":[]}"#), "Late");
        assert_eq!(words(r#"{"type":"log","content":"x"}"#), "Noise");
    }
}
