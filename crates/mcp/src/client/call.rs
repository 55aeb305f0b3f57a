//! Calls a server's tool and converts its answer to a reply.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use helve_contract::{Call, Error, Media, Reply, Result};
use serde_json::{Value, json};

use super::{
    definition::ToolDefinition,
    link::RpcClientError,
    resources,
    servers::{ConnectedServer, McpServersInner},
    text,
};

const MAX_IMAGES: usize = 20;

/// Calls a tool. Arguments were checked by the engine before.
pub(crate) async fn call_tool(
    inner: &McpServersInner,
    server: &Arc<ConnectedServer>,
    tool: &ToolDefinition,
    args: Value,
    call: Call,
) -> Result<Reply> {
    let link = server.connection_for(tool)?;
    let limit = server.settings.call_timeout;
    let params = json!({ "name": tool.server_name, "arguments": args });
    let answer = tokio::select! {
        answer = link.request("tools/call", params, limit, Some(&call)) => answer,
        () = call.cancel.cancelled() => return Err(Error::Cancelled),
    };
    match answer {
        Ok(answer) => Ok(reply(inner, server, answer)),
        Err(RpcClientError::Timeout) => Err(Error::Timeout(limit)),
        Err(lost @ RpcClientError::Refused(..)) => {
            Err(Error::failed(format!("the MCP server `{}` {}", server.settings.name, lost.message())))
        }
        Err(RpcClientError::Closed(why)) => Err(Error::failed(format!(
            "the MCP server `{}` was lost during this call: {why}. It is started again by itself; \
             whether the call had an effect is not known",
            server.settings.name
        ))),
    }
}

fn reply(inner: &McpServersInner, server: &ConnectedServer, mut answer: Value) -> Reply {
    let mut reply = Reply { is_error: answer["isError"] == true, ..Reply::default() };
    let mut parts = Vec::new();
    if let Value::Array(content) = answer["content"].take() {
        for part in content {
            match part["type"].as_str() {
                Some("image") => push_image(&part, &mut reply.media, &mut parts),
                _ => parts.push(part_text(inner, server, &part)),
            }
        }
    }
    parts.retain(|it| !it.is_empty());
    let data = answer["structuredContent"].take();
    if data.is_object() && data.to_string().len() <= server.settings.max_output_bytes {
        if parts.is_empty() && reply.media.is_empty() {
            return Reply { is_error: reply.is_error, ..Reply::json(data) };
        }
        reply.data = Some(data);
    }
    reply.text = truncate(&parts.join("\n"), server.settings.max_output_bytes);
    if reply.text.is_empty() && reply.media.is_empty() {
        reply.text = "(the tool answered nothing)".into();
    }
    reply
}

/// A content part as text.
fn part_text(inner: &McpServersInner, server: &ConnectedServer, part: &Value) -> String {
    let shown = |key: &str| text::quote_message(part[key].as_str().unwrap_or_default());
    match part["type"].as_str() {
        Some("text") => text::strip_control(part["text"].as_str().unwrap_or_default()),
        Some("resource_link") => {
            let about = [shown("name"), shown("mimeType"), shown("description")];
            let about: Vec<String> = about.into_iter().filter(|it| !it.is_empty()).collect();
            format!("[resource of {}: {} ({})]", server.settings.name, shown("uri"), about.join(", "))
        }
        Some("resource") => match resources::content(inner, server, &part["resource"]) {
            Ok(content) => match (content["text"].as_str(), content["blobSavedTo"].as_str()) {
                (Some(words), _) => words.to_owned(),
                (None, Some(file)) => format!("[{} was saved to {file}]", content["uri"].as_str().unwrap_or_default()),
                _ => String::new(),
            },
            Err(why) => format!("[a resource was left out: {why}]"),
        },
        Some("audio") => format!("[a sound ({}) was left out]", shown("mimeType")),
        _ => format!("[a part of an unknown kind ({}) was left out]", shown("type")),
    }
}

/// Adds an image, typed by its bytes and not by its declared type.
fn push_image(part: &Value, media: &mut Vec<Media>, parts: &mut Vec<String>) {
    let bytes = BASE64.decode(part["data"].as_str().unwrap_or_default()).unwrap_or_default();
    match image_mime(&bytes) {
        Some(mime) if media.len() < MAX_IMAGES => media.push(Media { mime: mime.into(), bytes }),
        _ => parts.push("[a picture that cannot be shown was left out]".into()),
    }
}

fn image_mime(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// The text, or as much of it as is taken.
pub(crate) fn truncate(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let kept = &text[..text.floor_char_boundary(most)];
    format!("{kept}\n[cut: the server sent {} bytes, {} are shown]", text.len(), kept.len())
}
