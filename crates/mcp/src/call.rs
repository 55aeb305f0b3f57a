//! `tools/list` and `tools/call`: converts an engine's tools and replies to MCP.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use helve_contract::{Annotations, Media, Reply, Spec, json::ObjectWriter};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    answer::{self, ResponseBuilder},
    revision::ProtocolEra,
    wire::RequestId,
};

/// A tool as a client sees it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolListing<'a> {
    name: &'a str,
    title: String,
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a Value>,
    annotations: Annotations,
}

/// The JSON of all tools, in the engine's order.
pub(crate) fn list<'a>(specs: impl Iterator<Item = &'a Spec>) -> String {
    let tools: Vec<_> = specs
        .map(|spec| ToolListing {
            name: &spec.name,
            title: title(&spec.name),
            description: &spec.description,
            input_schema: object_schema(&spec.input_schema),
            output_schema: output_schema(spec),
            annotations: spec.annotations(),
        })
        .collect();
    serde_json::to_string(&tools).unwrap_or_else(|_| "[]".into())
}

/// The output schema, if it is an object: MCP supports no other.
pub(crate) fn output_schema(spec: &Spec) -> Option<&Value> {
    spec.output_schema.as_ref().filter(|it| it.get("type").is_some_and(|it| it == "object"))
}

/// A schema with an object at its root, as MCP requires.
fn object_schema(schema: &Value) -> Cow<'_, Value> {
    match schema {
        Value::Object(map) if map.get("type").is_some_and(|it| it == "object") => Cow::Borrowed(schema),
        Value::Object(map) if !map.contains_key("type") => {
            let mut map = map.clone();
            map.insert("type".into(), "object".into());
            Cow::Owned(map.into())
        }
        _ => Cow::Owned(json!({ "type": "object" })),
    }
}

/// A display name: `web_fetch` is `Web Fetch`, `FileRead` is `File Read`.
fn title(name: &str) -> String {
    let mut title = String::new();
    let mut last = ' ';
    for it in name.chars() {
        let starts = last == '_' || last == ' ' || (it.is_uppercase() && last.is_lowercase());
        if it != '_' {
            if starts && !title.is_empty() {
                title.push(' ');
            }
            title.extend(starts.then(|| it.to_ascii_uppercase()).or(Some(it)));
        }
        last = it;
    }
    title
}

/// A part of a result that is not text.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ContentPart<'a> {
    Image {
        data: String,
        #[serde(rename = "mimeType")]
        mime: &'a str,
    },
    Audio {
        data: String,
        #[serde(rename = "mimeType")]
        mime: &'a str,
    },
    Resource {
        resource: EmbeddedResource<'a>,
    },
}

#[derive(Serialize)]
struct EmbeddedResource<'a> {
    uri: String,
    #[serde(rename = "mimeType")]
    mime: &'a str,
    blob: String,
}

/// A reply as the result of a call.
pub(crate) fn result(id: &RequestId, era: ProtocolEra, reply: &Reply, has_shape: bool) -> Vec<u8> {
    let mut answer = ResponseBuilder::new(id, era).nested("content", |bytes| content(bytes, reply));
    if let Some(data @ Value::Object(_)) = &reply.data
        && has_shape
        && !reply.is_error
    {
        answer = answer.field("structuredContent", data);
    }
    answer.field("isError", &reply.is_error).finish()
}

/// The content parts of a result: the text, unless it is empty, and the media.
fn content(mut bytes: Vec<u8>, reply: &Reply) -> Vec<u8> {
    bytes.push(b'[');
    let begin = bytes.len();
    if !reply.text.is_empty() || reply.media.is_empty() {
        bytes = ObjectWriter::with_prefix(bytes).string("type", "text").string("text", &reply.text).finish();
    }
    // Notes have a separate block: the first one may be JSON.
    if let Some(notes) = reply.notes_text() {
        if bytes.len() > begin {
            bytes.push(b',');
        }
        bytes = ObjectWriter::with_prefix(bytes).string("type", "text").string("text", &notes).finish();
    }
    for (at, media) in reply.media.iter().enumerate() {
        if bytes.len() > begin {
            bytes.push(b',');
        }
        answer::write(&mut bytes, &part(at, media));
    }
    bytes.push(b']');
    bytes
}

fn part(at: usize, media: &Media) -> ContentPart<'_> {
    let (mime, data) = (media.mime.as_str(), BASE64.encode(&media.bytes));
    match mime.split('/').next() {
        Some("image") => ContentPart::Image { data, mime },
        Some("audio") => ContentPart::Audio { data, mime },
        _ => ContentPart::Resource {
            resource: EmbeddedResource { uri: format!("helve://reply/{at}"), mime, blob: data },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_titles() {
        let titles = ["web_fetch", "FileRead", "ls", "TodoWrite", "mcp__git__log"].map(title);
        assert_eq!(titles, ["Web Fetch", "File Read", "Ls", "Todo Write", "Mcp Git Log"]);
    }

    #[test]
    fn notes_are_a_second_block() {
        let mut reply = Reply::json(json!([1]));
        assert_eq!(content(Vec::new(), &reply), br#"[{"type":"text","text":"[1]"}]"#);
        reply.model_notes.push("ignored the unknown parameter \"x\"".into());
        let blocks: Value = serde_json::from_slice(&content(Vec::new(), &reply)).unwrap();
        assert_eq!(
            blocks,
            json!([
                { "type": "text", "text": "[1]" },
                { "type": "text", "text": "[Note: ignored the unknown parameter \"x\"]" },
            ])
        );
    }

    #[test]
    fn every_schema_is_an_object() {
        let seen = [json!({}), json!({ "type": "null" }), json!({ "type": "object", "properties": {} })]
            .map(|it| object_schema(&it).to_string());
        assert_eq!(seen, [r#"{"type":"object"}"#, r#"{"type":"object"}"#, r#"{"type":"object","properties":{}}"#]);
    }
}
