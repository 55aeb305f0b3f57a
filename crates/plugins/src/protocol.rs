//! The plugin protocol: `init`, `describe`, `call` and `result`, in every variant that plugins use.
//!
//! The published text defines `init` with many tools; the published examples answer only `describe` with one, and
//! omit the call's id in a result. Both are supported; the first answer decides.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use helve_contract::{Media, Reply};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Images in one result.
const MAX_IMAGES: usize = 20;

/// The protocol variant, detected from the first answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolForm {
    /// `init`: many tools, calls carry the tool's name.
    Init,
    /// `describe`: one tool, calls carry no name.
    Describe,
}

/// One tool of a plugin.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct PluginTool {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default, alias = "input_schema", alias = "inputSchema")]
    pub(crate) parameters: Value,
}

/// What a line from a plugin means while we wait for its tools.
#[derive(Debug, PartialEq)]
pub(crate) enum HandshakeLine {
    /// These are its tools; one that cannot be read says why.
    Tools(ProtocolForm, Vec<Result<PluginTool, String>>),
    /// It does not know the message: try the other form.
    NotUnderstood,
    /// Something else; keep waiting.
    Ignored,
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
pub(crate) fn call(form: ProtocolForm, name: &str, id: &str, params: Value) -> Value {
    match form {
        ProtocolForm::Init => json!({"type": "call", "name": name, "call_id": id, "params": params}),
        ProtocolForm::Describe => json!({"type": "call", "call_id": id, "params": params}),
    }
}

/// Reads an answer to `init` or `describe`.
pub(crate) fn parse_handshake(line: &[u8]) -> HandshakeLine {
    let Ok(Value::Object(message)) = serde_json::from_slice(line) else { return HandshakeLine::Ignored };
    if let Some(tools) = message.get("tools") {
        return match tools.as_array() {
            Some(tools) if !tools.is_empty() => {
                HandshakeLine::Tools(ProtocolForm::Init, tools.iter().map(told).collect())
            }
            _ => HandshakeLine::Ignored,
        };
    }
    if message.contains_key("name") && message.contains_key("parameters") {
        return HandshakeLine::Tools(ProtocolForm::Describe, vec![told(&Value::Object(message))]);
    }
    let is_error =
        ["error", "is_error"].iter().any(|key| message.get(*key).is_some_and(|it| it != &Value::Bool(false)));
    if is_error { HandshakeLine::NotUnderstood } else { HandshakeLine::Ignored }
}

fn told(tool: &Value) -> Result<PluginTool, String> {
    let name = tool.get("name").and_then(Value::as_str).unwrap_or("(no name)");
    serde_json::from_value(tool.clone()).map_err(|error| format!("the tool {name:?} is left out: {error}"))
}

/// What a line from a plugin means while a call is under way.
#[derive(Debug, PartialEq)]
pub(crate) enum CallLine {
    /// The result of the call, or of one without an id.
    Result(Box<Reply>),
    /// The result of a cancelled call.
    Stale,
    /// Not a result.
    Ignored,
}

/// Parses an answer to the call `id`. Empty fields may be missing: some encoders omit them.
pub(crate) fn parse_result(form: ProtocolForm, line: &[u8], id: &str) -> CallLine {
    let Ok(Value::Object(message)) = serde_json::from_slice::<Value>(line) else { return CallLine::Ignored };
    let its_id = message.get("call_id").and_then(Value::as_str).filter(|it| !it.is_empty());
    let is_result = match message.get("type").filter(|it| !it.is_null()) {
        Some(kind) => kind == "result",
        // The older form has no type, and all its fields may be left out.
        None => {
            let fields = ["content", "error", "is_error"];
            fields.iter().any(|field| message.contains_key(*field))
                || its_id == Some(id)
                || (form == ProtocolForm::Describe && message.is_empty())
        }
    };
    if !is_result {
        return CallLine::Ignored;
    }
    if its_id.is_some_and(|it| it != id) {
        return CallLine::Stale;
    }
    CallLine::Result(Box::new(reply(&message)))
}

fn reply(message: &Map<String, Value>) -> Reply {
    let truthy = |key: &str| match message.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    };
    let mut reply = Reply { is_error: truthy("is_error") || truthy("error"), ..Reply::default() };
    match message.get("content") {
        Some(Value::String(text)) => reply.text.clone_from(text),
        Some(Value::Array(blocks)) => blocks.iter().for_each(|it| block(it, &mut reply)),
        Some(one @ Value::Object(_)) => block(one, &mut reply),
        _ => {}
    }
    if reply.text.is_empty() && reply.media.is_empty() {
        let error = message.get("error").and_then(Value::as_str).filter(|it| !it.is_empty());
        reply.text.push_str(error.unwrap_or("(the tool returned nothing)"));
    }
    reply
}

/// Adds one block of content: text, or an image.
fn block(block: &Value, reply: &mut Reply) {
    match block.get("type").and_then(Value::as_str) {
        Some("image" | "image_url") => match image(block) {
            Some(media) if reply.media.len() < MAX_IMAGES => reply.media.push(media),
            _ => reply.text.push_str("[an image that cannot be shown was left out]"),
        },
        _ => match (block.get("text").or(Some(block)).and_then(Value::as_str), block.get("type")) {
            (Some(text), _) => reply.text.push_str(text),
            (None, Some(Value::String(kind))) if kind != "text" => {
                let kind: String = kind.chars().filter(|it| !it.is_control()).take(40).collect();
                reply.text.push_str(&format!("[a block of the type {kind} was left out]"));
            }
            _ => {}
        },
    }
}

/// An image in one of the usual forms: `data` beside the type, in a `source`, or in a `data:` address. What it is
/// follows from its bytes.
fn image(block: &Value) -> Option<Media> {
    let places = ["/data", "/source/data", "/image_url/url", "/image_url", "/url"];
    let data = places.iter().find_map(|place| block.pointer(place)?.as_str())?;
    let data = match data.strip_prefix("data:") {
        Some(rest) => rest.split_once(";base64,")?.1,
        None => data,
    };
    let bytes = BASE64.decode(data).ok()?;
    let mime = match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        _ => return None,
    };
    Some(Media { mime: mime.into(), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ways_to_tell_tools() {
        let tool = PluginTool { name: "a".into(), description: "A.".into(), parameters: json!({"type": "object"}) };
        let init = br#"{"type":"init","tools":[{"name":"a","description":"A.","parameters":{"type":"object"}}]}"#;
        assert_eq!(parse_handshake(init), HandshakeLine::Tools(ProtocolForm::Init, vec![Ok(tool.clone())]));
        let one = br#"{"name":"a","description":"A.","parameters":{"type":"object"}}"#;
        assert_eq!(parse_handshake(one), HandshakeLine::Tools(ProtocolForm::Describe, vec![Ok(tool)]));
        let unknown = br#"{"content":[{"type":"text","text":"unknown message type: init"}],"error":true}"#;
        assert_eq!(parse_handshake(unknown), HandshakeLine::NotUnderstood);
        assert_eq!(parse_handshake(b"hello"), HandshakeLine::Ignored);
    }

    #[test]
    fn two_ways_to_answer() {
        let words = |line: &str| match parse_result(ProtocolForm::Init, line.as_bytes(), "7") {
            CallLine::Result(reply) => format!("{} {}", reply.text, reply.is_error),
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
        assert_eq!(words(r#"{"type":"result","call_id":"6","content":[]}"#), "Stale");
        assert_eq!(words(r#"{"type":"log","content":"x"}"#), "Ignored");
    }

    #[test]
    fn a_result_without_content_is_a_result() {
        let seen = |form: ProtocolForm, line: &str| match parse_result(form, line.as_bytes(), "7") {
            CallLine::Result(reply) => format!("{} {}", reply.text, reply.is_error),
            other => format!("{other:?}"),
        };
        let nothing = "(the tool returned nothing)";
        for line in [
            r#"{"type":"result","call_id":"7"}"#,
            r#"{"type":"result"}"#,
            r#"{"type":"result","call_id":"7","content":[]}"#,
            r#"{"type":"result","call_id":"7","content":null,"is_error":false}"#,
            r#"{"type":"result","call_id":"7","content":""}"#,
            r#"{"type":"result","call_id":"7","content":[{"type":"text"}]}"#,
            r#"{"call_id":"7"}"#,
        ] {
            assert_eq!(seen(ProtocolForm::Init, line), format!("{nothing} false"), "{line}");
        }
        assert_eq!(
            seen(ProtocolForm::Init, r#"{"type":"result","call_id":"7","is_error":true}"#),
            format!("{nothing} true")
        );
        assert_eq!(seen(ProtocolForm::Init, r#"{"type":"result","call_id":"7","error":"no key"}"#), "no key true");
        assert_eq!(seen(ProtocolForm::Describe, "{}"), format!("{nothing} false"));
        assert_eq!(seen(ProtocolForm::Init, "{}"), "Ignored");
        assert_eq!(seen(ProtocolForm::Init, r#"{"type":"result","call_id":"6"}"#), "Stale");
        assert_eq!(seen(ProtocolForm::Init, r#"{"type":"log"}"#), "Ignored");
    }

    #[test]
    fn an_image_arrives_as_media() {
        let png = BASE64.encode(b"\x89PNG\r\n\x1a\n");
        for block in [
            json!({ "type": "image", "data": png, "mimeType": "image/png" }),
            json!({ "type": "image", "source": { "type": "base64", "media_type": "image/jpeg", "data": png } }),
            json!({ "type": "image", "data": format!("data:image/png;base64,{png}") }),
            json!({ "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{png}") } }),
        ] {
            let line = json!({ "type": "result", "content": [{ "type": "text", "text": "seen" }, block] }).to_string();
            let CallLine::Result(reply) = parse_result(ProtocolForm::Init, line.as_bytes(), "7") else {
                panic!("{line}")
            };
            assert_eq!((reply.text.as_str(), reply.media.len()), ("seen", 1), "{line}");
            assert_eq!((reply.media[0].mime.as_ref(), reply.media[0].bytes.len()), ("image/png", 8));
        }
        let line = json!({ "type": "result", "content": [
            { "type": "image", "data": "no base64!" }, { "type": "audio", "data": "" }, { "type": "text", "text": "!" },
        ] });
        let CallLine::Result(reply) = parse_result(ProtocolForm::Init, line.to_string().as_bytes(), "7") else {
            panic!()
        };
        assert_eq!(reply.text, "[an image that cannot be shown was left out][a block of the type audio was left out]!");
    }

    #[test]
    fn one_tool_that_cannot_be_read_leaves_the_others() {
        let line = br#"{"type":"init","tools":[{"name":"a"},{"description":"no name"},{"name":7},"b"]}"#;
        let HandshakeLine::Tools(ProtocolForm::Init, tools) = parse_handshake(line) else { panic!() };
        assert_eq!(tools.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, false]);
    }
}
