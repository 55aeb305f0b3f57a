//! Converts a session to OpenAI's format, as the strictest provider accepts it.

use std::collections::BTreeSet;

use helve_contract::ports::{Message, MessagePart, MessageRole};
use helve_engine::repair;
use serde_json::{Map, Value, json};

use super::{ModelRequest, accumulate::is_object};

/// What an endpoint has shown not to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnsupportedFeatures {
    /// `stream_options`.
    pub(crate) usage: bool,
    /// `max_tokens`, in favour of `max_completion_tokens`.
    pub(crate) max_tokens: bool,
    /// images.
    pub(crate) images: bool,
}

/// What a call says whose result was never kept.
pub(crate) const INTERRUPTED_RESULT: &str =
    "interrupted: it is not known whether this call did its work; look before you repeat it";

/// The field of an answer with the provider's items of reasoning.
pub(crate) const REASONING_DETAILS: &str = "reasoning_details";
/// The field of a call with what the provider attached to it, for example a signature.
pub(crate) const EXTRA_CONTENT: &str = "extra_content";

/// How many images are sent at most; the newest ones.
const MAX_IMAGES: usize = 8;

/// The body of a request.
pub(crate) fn request_body(ask: &ModelRequest<'_>, model: &str, refuses: UnsupportedFeatures) -> Value {
    let mut body = json!({ "model": model, "messages": convert_messages(ask, model, refuses), "stream": true });
    if !refuses.usage {
        body["stream_options"] = json!({ "include_usage": true });
    }
    if !ask.tools.is_empty() {
        body["tools"] = ask.tools.into();
    }
    if let Some(most) = ask.max_tokens {
        body[if refuses.max_tokens { "max_completion_tokens" } else { "max_tokens" }] = most.into();
    }
    body
}

/// Whether a request has images.
pub(crate) fn has_images(ask: &ModelRequest<'_>) -> bool {
    ask.messages.iter().flat_map(|it| &it.parts).any(is_image)
}

fn convert_messages(ask: &ModelRequest<'_>, model: &str, refuses: UnsupportedFeatures) -> Vec<Value> {
    let pictures = ask.messages.iter().flat_map(|it| &it.parts).filter(|it| is_image(it)).count();
    let mut writer = MessageConverter {
        model,
        out: Vec::new(),
        open_calls: Vec::new(),
        used: BTreeSet::new(),
        pending_images: Vec::new(),
        skip: if refuses.images { usize::MAX } else { pictures.saturating_sub(MAX_IMAGES) },
    };
    if !ask.system_prompt.is_empty() {
        writer.out.push(json!({ "role": "system", "content": ask.system_prompt }));
    }
    for message in ask.messages {
        match message.role {
            MessageRole::User => writer.user(message, ""),
            MessageRole::System => writer.user(message, "[Note of the program, not of the user]\n"),
            MessageRole::Assistant => writer.assistant(message),
            MessageRole::Tool => writer.tool(message),
        }
    }
    writer.answer_open_calls();
    writer.out
}

struct MessageConverter<'a> {
    model: &'a str,
    out: Vec<Value>,
    /// Calls that wait for their results: the id that is sent, and the one that is kept.
    open_calls: Vec<(String, String)>,
    used: BTreeSet<String>,
    /// images that tools answered with; they follow when all calls are answered.
    pending_images: Vec<Value>,
    /// How many of the images that come are left out.
    skip: usize,
}

impl MessageConverter<'_> {
    /// Answers what is open, so that something else can be said.
    fn answer_open_calls(&mut self) {
        for (id, _) in std::mem::take(&mut self.open_calls) {
            self.out.push(json!({ "role": "tool", "tool_call_id": id, "content": INTERRUPTED_RESULT }));
        }
        let pictures = std::mem::take(&mut self.pending_images);
        if !pictures.is_empty() {
            self.push_user_parts(
                [json!({ "type": "text", "text": "What the tools above showed:" })].into_iter().chain(pictures),
            );
        }
    }

    /// Adds user parts. Consecutive user messages are merged, because some models require it.
    fn push_user_parts(&mut self, parts: impl IntoIterator<Item = Value>) {
        let last = self.out.last_mut().filter(|it| it["role"] == "user");
        let mut all = match last.map(|it| it["content"].take()) {
            Some(Value::Array(before)) => before,
            Some(Value::String(text)) => vec![json!({ "type": "text", "text": text })],
            _ => {
                self.out.push(json!({ "role": "user" }));
                Vec::new()
            }
        };
        all.extend(parts);
        // Plain words travel as a string, which everybody takes.
        let words: Option<Vec<&str>> = all.iter().map(|it| it["text"].as_str()).collect();
        let content = words.map(|it| it.join("\n\n").into()).unwrap_or(Value::Array(all));
        if let Some(last) = self.out.last_mut() {
            last["content"] = content;
        }
    }

    fn user(&mut self, message: &Message, before: &str) {
        self.answer_open_calls();
        let mut parts: Vec<Value> = Vec::new();
        for part in &message.parts {
            match part {
                MessagePart::Text { text } if !text.is_empty() => {
                    parts.push(json!({ "type": "text", "text": format!("{before}{text}") }));
                }
                MessagePart::Binary { .. } => parts.push(self.image_part(part)),
                _ => {}
            }
        }
        if !parts.is_empty() {
            self.push_user_parts(parts);
        }
    }

    fn assistant(&mut self, message: &Message) {
        self.answer_open_calls();
        let mut text = String::new();
        let mut calls = Vec::new();
        let (mut details, mut extra) = (None, None);
        for part in &message.parts {
            match part {
                MessagePart::Text { text: more } => text.push_str(more),
                MessagePart::Opaque { api, model, data } if api == "chat" && model == self.model => {
                    details = details.or_else(|| data.get(REASONING_DETAILS));
                    extra = data.get(EXTRA_CONTENT).or(extra);
                }
                MessagePart::ToolCall { id, name, input, finished: true } => {
                    let mut sent = sanitize_identifier(id, "call");
                    while !self.used.insert(sent.clone()) {
                        sent = super::accumulate::generate_call_id();
                    }
                    let function =
                        json!({ "name": sanitize_identifier(name, "unknown"), "arguments": arguments_object(input) });
                    let mut call = json!({ "id": sent, "type": "function", "function": function });
                    if let Some(extra) = extra.take() {
                        call[EXTRA_CONTENT] = extra.clone();
                    }
                    calls.push(call);
                    self.open_calls.push((sent, id.clone()));
                }
                _ => {}
            }
        }
        if calls.is_empty() && text.trim().is_empty() {
            return;
        }
        let mut message = Map::from_iter([("role".to_owned(), Value::from("assistant"))]);
        let silent = text.trim().is_empty();
        message.insert("content".into(), if silent { Value::Null } else { text.into() });
        if !calls.is_empty() {
            message.insert("tool_calls".into(), calls.into());
        }
        if let Some(details) = details {
            message.insert(REASONING_DETAILS.into(), details.clone());
        }
        self.out.push(message.into());
    }

    fn tool(&mut self, message: &Message) {
        let mut answered = false;
        for part in &message.parts {
            match part {
                MessagePart::ToolResult { tool_call_id, content, .. } => {
                    // A result without its call cannot be sent; the call was taken back.
                    let at = self.open_calls.iter().position(|(_, kept)| kept == tool_call_id);
                    answered = at.is_some();
                    if let Some(at) = at {
                        let (id, _) = self.open_calls.remove(at);
                        // A failed result contains the dialect's prefix.
                        self.out.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
                    }
                }
                MessagePart::Binary { .. } if answered => {
                    let picture = self.image_part(part);
                    self.pending_images.push(picture);
                }
                _ => {}
            }
        }
    }

    /// An image, or words in its place.
    fn image_part(&mut self, part: &MessagePart) -> Value {
        let MessagePart::Binary { path, mime_type, data } = part else { return Value::Null };
        let words = |why: &str| json!({ "type": "text", "text": format!("[{mime_type} of {path}: {why}]") });
        if !is_image(part) {
            return words("this model cannot be shown it");
        }
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(1);
            return words("left out; look at it again if you need it");
        }
        json!({ "type": "image_url", "image_url": { "url": format!("data:{mime_type};base64,{data}") } })
    }
}

fn is_image(part: &MessagePart) -> bool {
    matches!(part, MessagePart::Binary { mime_type, .. } if
        matches!(mime_type.as_str(), "image/png" | "image/jpeg" | "image/gif" | "image/webp"))
}

/// A name or an id in the letters that every provider takes.
fn sanitize_identifier(name: &str, otherwise: &str) -> String {
    let good = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    let name: String = name.chars().map(|it| if good(it) { it } else { '_' }).take(64).collect();
    if name.is_empty() { otherwise.to_owned() } else { name }
}

/// Arguments as a JSON object, whatever the model wrote.
fn arguments_object(input: &str) -> String {
    if is_object(input) {
        return input.to_owned();
    }
    if input.trim().is_empty() {
        return "{}".to_owned();
    }
    match repair::repair_json(input) {
        Ok(mended) if mended.value.is_object() => mended.value.to_string(),
        _ => json!({ "not_json": input }).to_string(),
    }
}
