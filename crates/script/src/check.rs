//! Validates requests as strictly as the strictest provider.

use std::collections::BTreeSet;

use serde_json::Value;

/// All problems of a request; empty for a valid one.
pub fn validate_request(request: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    if request["model"].as_str().is_none_or(str::is_empty) {
        wrong.push("`model` must be a string".to_owned());
    }
    match request["messages"].as_array() {
        Some(messages) if !messages.is_empty() => conversation(messages, &mut wrong),
        _ => wrong.push("`messages` must be a list with something in it".to_owned()),
    }
    match &request["tools"] {
        Value::Null => {}
        Value::Array(list) if list.is_empty() => wrong.push("`tools` is an empty list".to_owned()),
        Value::Array(list) => tools(list, &mut wrong),
        _ => wrong.push("`tools` must be a list".to_owned()),
    }
    if request["stream"] != true && !request["stream_options"].is_null() {
        wrong.push("`stream_options` without `stream`".to_owned());
    }
    wrong
}

fn conversation(messages: &[Value], wrong: &mut Vec<String>) {
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut before = "";
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            wrong.push(format!("messages[{at}]: the calls {open:?} were not answered before it"));
            open.clear();
        }
        match role {
            "system" if at == 0 => content(at, message, wrong),
            "system" => wrong.push(format!("messages[{at}]: a system message must be the first")),
            "user" => {
                content(at, message, wrong);
                if before == "user" {
                    wrong.push(format!("messages[{at}]: two user messages follow each other"));
                }
            }
            "assistant" => assistant(at, message, &mut open, &mut seen, wrong),
            "tool" => {
                content(at, message, wrong);
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                if !open.remove(id) {
                    wrong.push(format!("messages[{at}]: `{id}` answers no open call, or answers it twice"));
                }
            }
            other => wrong.push(format!("messages[{at}]: unknown role `{other}`")),
        }
        before = role;
    }
    if !open.is_empty() {
        wrong.push(format!("the calls {open:?} were never answered"));
    }
    if before == "assistant" {
        wrong.push("the last message is the assistant's own".to_owned());
    }
}

fn content(at: usize, message: &Value, wrong: &mut Vec<String>) {
    match &message["content"] {
        Value::String(text) if message["role"] == "user" && text.is_empty() => {
            wrong.push(format!("messages[{at}]: empty content"));
        }
        Value::String(_) => {}
        Value::Array(parts) if !parts.is_empty() => {
            for part in parts {
                let good = match part["type"].as_str() {
                    Some("text") => part["text"].as_str().is_some_and(|it| !it.is_empty()),
                    Some("image_url") => part["image_url"]["url"].as_str().is_some_and(|it| it.contains(':')),
                    _ => false,
                };
                if !good {
                    wrong.push(format!("messages[{at}]: a part that is neither text nor a picture"));
                }
            }
        }
        _ => wrong.push(format!("messages[{at}]: content must be a string or a list of parts")),
    }
}

fn assistant(
    at: usize,
    message: &Value,
    open: &mut BTreeSet<String>,
    seen: &mut BTreeSet<String>,
    wrong: &mut Vec<String>,
) {
    let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    if calls.is_empty() {
        if !message["tool_calls"].is_null() {
            wrong.push(format!("messages[{at}]: `tool_calls` is empty"));
        }
        if message["content"].as_str().is_none_or(str::is_empty) {
            wrong.push(format!("messages[{at}]: an assistant message that says and calls nothing"));
        }
    } else if !message["content"].is_null() && !message["content"].is_string() {
        wrong.push(format!("messages[{at}]: content must be a string or null"));
    }
    for call in calls {
        let id = call["id"].as_str().unwrap_or_default();
        if id.is_empty() || call["type"] != "function" {
            wrong.push(format!("messages[{at}]: a call without an id or type"));
        }
        if !seen.insert(id.to_owned()) {
            wrong.push(format!("messages[{at}]: the id `{id}` was used before"));
        }
        open.insert(id.to_owned());
        if !is_name(call["function"]["name"].as_str().unwrap_or_default()) {
            wrong.push(format!("messages[{at}]: a call with a bad name: {}", call["function"]["name"]));
        }
        match call["function"]["arguments"].as_str().map(serde_json::from_str::<Value>) {
            Some(Ok(Value::Object(_))) => {}
            _ => wrong.push(format!("messages[{at}]: arguments must be a string that holds a JSON object")),
        }
    }
}

fn tools(list: &[Value], wrong: &mut Vec<String>) {
    let mut names = BTreeSet::new();
    for tool in list {
        let function = &tool["function"];
        let name = function["name"].as_str().unwrap_or_default();
        if tool["type"] != "function" || !is_name(name) {
            wrong.push(format!("a tool of a bad type or name: `{name}`"));
        }
        if !names.insert(name) {
            wrong.push(format!("two tools called `{name}`"));
        }
        let schema = &function["parameters"];
        if schema["type"] != "object" || !schema["properties"].is_object() {
            wrong.push(format!("the schema of `{name}` is not of type object with properties"));
        }
        if schema.to_string().contains("\"$ref\"") {
            wrong.push(format!("the schema of `{name}` has a $ref"));
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_' || it == b'-')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_good_request_has_nothing_wrong() {
        let call = json!({ "id": "a", "type": "function", "function": { "name": "Read", "arguments": "{}" } });
        let good = json!({
            "model": "m",
            "messages": [
                { "role": "system", "content": "s" },
                { "role": "user", "content": "u" },
                { "role": "assistant", "content": null, "tool_calls": [call] },
                { "role": "tool", "tool_call_id": "a", "content": "" },
            ],
            "tools": [{ "type": "function", "function": { "name": "Read", "parameters": { "type": "object", "properties": {} } } }],
        });
        assert_eq!(validate_request(&good), Vec::<String>::new());
    }

    #[test]
    fn a_call_is_answered_once_and_before_anything_else() {
        let call = json!({ "id": "a", "type": "function", "function": { "name": "Read", "arguments": "{" } });
        let bad = json!({
            "model": "m",
            "messages": [
                { "role": "user", "content": "u" },
                { "role": "assistant", "content": null, "tool_calls": [call] },
                { "role": "user", "content": "u" },
                { "role": "tool", "tool_call_id": "a", "content": "" },
            ],
        });
        assert_eq!(
            validate_request(&bad),
            [
                "messages[1]: arguments must be a string that holds a JSON object",
                "messages[2]: the calls {\"a\"} were not answered before it",
                "messages[3]: `a` answers no open call, or answers it twice",
            ]
        );
    }
}
