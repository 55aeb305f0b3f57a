//! Fixtures of the MCP conformance suite: tools, resources and prompts with its names.
//!
//! A server has them only on request, besides the engine's tools. They test only the protocol.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use futures::FutureExt;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::{sync::broadcast, time::sleep};

use crate::{
    answer::{self, server_info},
    peer::{MessageResponse, Outbox, Peer},
    revision::ProtocolEra,
    wire::{RequestId, RpcError},
};

/// An image of one red point, and a sound without a sample.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
/// What the suite calls a little while.
const SHORT_DELAY: Duration = Duration::from_millis(50);

/// Kinds of lists that a tool pretended to change.
static CHANGES: LazyLock<broadcast::Sender<&'static str>> = LazyLock::new(|| broadcast::Sender::new(16));

/// A request, with all that the fixtures look at.
pub(crate) struct FixtureRequest {
    pub(crate) id: RequestId,
    pub(crate) method: String,
    pub(crate) era: ProtocolEra,
    pub(crate) logs: bool,
    pub(crate) params: Value,
}

/// The answer of a fixture; `None` if it is not one.
pub(crate) fn handle(
    peer: &Arc<Peer>,
    asked: FixtureRequest,
    out: &Arc<dyn Outbox>,
) -> Option<Result<MessageResponse, RpcError>> {
    let name = asked.params["name"].as_str().unwrap_or_default();
    let ready = match (asked.method.as_str(), asked.era) {
        ("tools/call", _) if schema(name).is_some() => return Some(tool(peer, asked, out)),
        ("subscriptions/listen", ProtocolEra::Modern) => return Some(subscribe(peer, asked, out)),
        ("prompts/list", _) => Ok(asked.cacheable_result(json!({ "prompts": prompts() }))),
        ("prompts/get", _) => prompt(&asked),
        ("resources/list", _) => Ok(asked.cacheable_result(json!({ "resources": resources() }))),
        ("resources/templates/list", _) => {
            let template = json!({ "uriTemplate": "test://template/{id}/data", "name": "template" });
            Ok(asked.cacheable_result(json!({ "resourceTemplates": [template] })))
        }
        ("resources/read", _) => resource(&asked),
        ("resources/subscribe" | "resources/unsubscribe", ProtocolEra::Legacy) => Ok(asked.result(json!({}))),
        ("completion/complete", _) => {
            Ok(asked.result(json!({ "completion": { "values": ["paris", "park"], "total": 2, "hasMore": false } })))
        }
        _ => return None,
    };
    Some(ready.map(MessageResponse::Ready))
}

/// The capabilities besides tools.
pub(crate) fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": true },
        "completions": {},
        "logging": {},
    })
}

/// The tools as a client sees them.
pub(crate) fn tools() -> Vec<Value> {
    let tool = |name: &&str| json!({ "name": name, "description": "For tests.", "inputSchema": schema(name) });
    TOOLS.iter().map(tool).collect()
}

const TOOLS: [&str; 28] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_error_handling",
    "test_sampling",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "json_schema_2020_12_tool",
    "test_reconnection",
    "test_custom_headers",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_logging_tool",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
];
/// The schema of a tool's arguments.
pub(crate) fn schema(tool: &str) -> Option<Value> {
    Some(match tool {
        "test_sampling" => text_argument("prompt"),
        "test_elicitation" => text_argument("message"),
        "test_custom_headers" => json!({
            "type": "object",
            "properties": {
                "region": { "type": "string", "x-mcp-header": "Region" },
                "priority": { "type": "integer", "x-mcp-header": "Priority" },
            },
            "required": ["region"],
        }),
        "json_schema_2020_12_tool" => json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": { "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            } },
            "properties": {
                "name": { "type": "string" },
                "address": { "$ref": "#/$defs/address" },
                "contactMethod": { "type": "string", "enum": ["phone", "email"] },
                "phone": { "type": "string" },
                "email": { "type": "string" },
            },
            "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
            "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
            "then": { "required": ["phone"] },
            "else": { "required": ["email"] },
            "additionalProperties": false,
        }),
        known if TOOLS.contains(&known) => json!({ "type": "object", "properties": {} }),
        _ => return None,
    })
}

fn text_argument(name: &str) -> Value {
    json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] })
}

impl FixtureRequest {
    /// The result, as the revision writes it.
    fn result(&self, mut result: Value) -> Vec<u8> {
        if let (ProtocolEra::Modern, Value::Object(fields)) = (self.era, &mut result) {
            fields.entry("resultType").or_insert_with(|| "complete".into());
            fields.insert("_meta".into(), json!({ "io.modelcontextprotocol/serverInfo": server_info() }));
        }
        json!({ "jsonrpc": "2.0", "id": self.id, "result": result }).to_string().into_bytes()
    }

    /// A result that a client may keep.
    fn cacheable_result(&self, mut result: Value) -> Vec<u8> {
        if self.era == ProtocolEra::Modern {
            result["ttlMs"] = 0.into();
            result["cacheScope"] = "private".into();
        }
        self.result(result)
    }

    fn text(&self, text: impl Into<String>) -> Vec<u8> {
        self.content(&json!([{ "type": "text", "text": text.into() }]))
    }

    fn content(&self, content: &Value) -> Vec<u8> {
        self.result(json!({ "content": content }))
    }

    fn argument(&self, name: &str) -> &str {
        self.params["arguments"][name].as_str().unwrap_or_default()
    }

    fn can(&self, capability: &str) -> bool {
        self.params["_meta"]["io.modelcontextprotocol/clientCapabilities"].get(capability).is_some()
    }

    /// What the client says to a question of the last round.
    fn input_response(&self, question: &str) -> Option<&Value> {
        self.params["inputResponses"].get(question).filter(|it| it.is_object())
    }

    /// Asks the client to elicit input and to repeat the request with the answers.
    fn input_required(&self, questions: Value, state: Option<&str>) -> Vec<u8> {
        let mut result = json!({ "resultType": "input_required", "inputRequests": questions });
        if let Some(state) = state {
            result["requestState"] = sign_state(state).into();
        }
        self.result(result)
    }

    /// The state that the client returned, if it was not modified.
    fn state(&self) -> Result<Option<&str>, RpcError> {
        let Some(carried) = self.params.get("requestState") else { return Ok(None) };
        let plain = carried.as_str().and_then(|it| it.split_once('.')).map(|(plain, _)| plain).unwrap_or_default();
        if *carried == sign_state(plain) {
            return Ok(Some(plain));
        }
        Err(RpcError::invalid_params("requestState is not what we gave out"))
    }
}

fn sign_state(state: &str) -> String {
    format!("{state}.{}", BASE64.encode(Sha256::digest(format!("fixture {state}"))))
}

fn tool(peer: &Arc<Peer>, asked: FixtureRequest, out: &Arc<dyn Outbox>) -> Result<MessageResponse, RpcError> {
    let name = asked.params["name"].as_str().unwrap_or_default().to_owned();
    let resource = |uri: &str, mime: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "text": text } });
    let picture = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let ready = match name.as_str() {
        "test_simple_text" => asked.text("This is a simple text response for testing."),
        "test_image_content" => asked.content(&json!([picture])),
        "test_audio_content" => asked.content(&json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }])),
        "test_embedded_resource" => {
            let text = "This is an embedded resource content.";
            asked.content(&json!([resource("test://embedded-resource", "text/plain", text)]))
        }
        "test_multiple_content_types" => {
            let data = resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#);
            asked.content(&json!([{ "type": "text", "text": "Multiple content types test:" }, picture, data]))
        }
        "test_error_handling" => {
            let text = "This tool intentionally returns an error for testing";
            asked.result(json!({ "content": [{ "type": "text", "text": text }], "isError": true }))
        }
        "test_missing_capability" if !asked.can("sampling") => {
            return Err(RpcError::new(-32021, "Missing required client capability")
                .with_data(json!({ "requiredCapabilities": { "sampling": {} } })));
        }
        "test_trigger_tool_change" => changed(&asked, "tools"),
        "test_trigger_prompt_change" => changed(&asked, "prompts"),
        "test_streaming_elicitation" => asked.input_required(json!({ "user_name": name_question() }), None),
        known if known.starts_with("test_input_required_result_") => run_input_tool(known, &asked)?,
        "test_tool_with_logging"
        | "test_tool_with_progress"
        | "test_sampling"
        | "test_elicitation"
        | "test_elicitation_sep1034_defaults"
        | "test_elicitation_sep1330_enums"
        | "test_reconnection"
        | "test_logging_tool" => return slow(peer, name, asked, out),
        _ => asked.text("ok"),
    };
    Ok(MessageResponse::Ready(ready))
}

fn changed(asked: &FixtureRequest, kind: &'static str) -> Vec<u8> {
    _ = CHANGES.send(kind);
    asked.text("changed")
}

/// Tools that speak, ask or pause before they answer.
fn slow(
    peer: &Arc<Peer>,
    name: String,
    asked: FixtureRequest,
    out: &Arc<dyn Outbox>,
) -> Result<MessageResponse, RpcError> {
    let seat = peer.in_flight.begin(&asked.id)?;
    let (peer, out) = (peer.clone(), out.clone());
    let work = async move {
        let message = tokio::select! {
            () = seat.token().cancelled() => return None,
            message = run_slow_tool(&peer, &name, &asked, &out) => message,
        };
        seat.complete().then_some(message)
    };
    Ok(MessageResponse::Pending(work.boxed()))
}

async fn run_slow_tool(peer: &Arc<Peer>, name: &str, asked: &FixtureRequest, out: &Arc<dyn Outbox>) -> Vec<u8> {
    let log = |text: &str| {
        if asked.era == ProtocolEra::Legacy || asked.logs {
            let params = json!({ "level": "info", "logger": "fixtures", "data": text });
            out.send(answer::notification("notifications/message", &params));
        }
    };
    match name {
        "test_tool_with_logging" | "test_logging_tool" => {
            for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                log(text);
                sleep(SHORT_DELAY).await;
            }
            asked.text("logged")
        }
        "test_tool_with_progress" => {
            for progress in [0, 50, 100] {
                if let Some(token) = asked.params["_meta"].get("progressToken") {
                    let params = json!({ "progressToken": token, "progress": progress, "total": 100 });
                    out.send(answer::notification("notifications/progress", &params));
                }
                sleep(SHORT_DELAY).await;
            }
            asked.text("done")
        }
        "test_reconnection" => {
            log("The stream is about to close");
            sleep(SHORT_DELAY * 2).await;
            out.pause();
            sleep(SHORT_DELAY * 2).await;
            asked.text("Reconnection test completed")
        }
        "test_sampling" => {
            let message = json!({ "role": "user", "content": { "type": "text", "text": asked.argument("prompt") } });
            let said =
                request_client(peer, out, "sampling/createMessage", json!({ "messages": [message], "maxTokens": 100 }));
            let said = said.await;
            let text = said.pointer("/content/text").and_then(Value::as_str).unwrap_or("nothing").to_owned();
            asked.text(format!("LLM response: {text}"))
        }
        "test_elicitation" => {
            let schema = json!({
                "type": "object",
                "properties": {
                    "username": { "type": "string", "description": "User's response" },
                    "email": { "type": "string", "description": "User's email address" },
                },
                "required": ["username", "email"],
            });
            let form = json!({ "message": asked.argument("message"), "requestedSchema": schema });
            asked.text(format!("User response: {}", request_client(peer, out, "elicitation/create", form).await))
        }
        _ => {
            let properties = if name.ends_with("defaults") { defaults() } else { enums() };
            let schema = json!({ "type": "object", "properties": properties, "required": [] });
            let form = json!({ "message": "Please fill in the form", "requestedSchema": schema });
            let said = request_client(peer, out, "elicitation/create", form).await;
            asked.text(format!("Elicitation completed: action={}, content={}", said["action"], said["content"]))
        }
    }
}

/// Puts a question to the client.
async fn request_client(peer: &Arc<Peer>, out: &Arc<dyn Outbox>, method: &str, params: Value) -> Value {
    let (id, answered) = peer.client_requests.begin();
    out.send(answer::request(&id, method, &params));
    answered.await.unwrap_or_default()
}

fn defaults() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    })
}

fn enums() -> Value {
    let titled = |word: &str| -> Vec<Value> {
        [("value1", "First"), ("value2", "Second"), ("value3", "Third")]
            .map(|(value, nth)| json!({ "const": value, "title": format!("{nth} {word}") }))
            .into()
    };
    json!({
        "untitledSingle": { "type": "string", "enum": ["option1", "option2", "option3"] },
        "titledSingle": { "type": "string", "oneOf": titled("Option") },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": ["option1", "option2", "option3"] } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
    })
}

/// Tools that need user input, in the revision where the client repeats the request with the answers.
fn run_input_tool(name: &str, asked: &FixtureRequest) -> Result<Vec<u8>, RpcError> {
    let state = asked.state()?;
    Ok(match name.trim_start_matches("test_input_required_result_") {
        "elicitation" => match asked.input_response("user_name").and_then(|it| it.pointer("/content/name")) {
            Some(Value::String(name)) => asked.text(format!("Hello, {name}!")),
            _ => asked.input_required(json!({ "user_name": name_question() }), None),
        },
        "sampling" => match asked.input_response("capital_question") {
            Some(said) => asked.text(said.pointer("/content/text").and_then(Value::as_str).unwrap_or("?")),
            None => {
                asked.input_required(json!({ "capital_question": sample("What is the capital of France?", 100) }), None)
            }
        },
        "list_roots" => match asked.input_response("client_roots") {
            Some(said) => asked.text(format!("Roots: {}", said["roots"])),
            None => asked.input_required(json!({ "client_roots": { "method": "roots/list", "params": {} } }), None),
        },
        "request_state" | "tampered_state" => match (state, asked.input_response("confirm")) {
            (Some("confirm"), Some(_)) => asked.text("state-ok"),
            _ => asked.input_required(json!({ "confirm": form("Please confirm", "ok", "boolean") }), Some("confirm")),
        },
        "multiple_inputs" => {
            let all = ["user_name", "greeting", "client_roots"].iter().all(|it| asked.input_response(it).is_some());
            if all && state == Some("several") {
                asked.text("all heard")
            } else {
                let questions = json!({
                    "user_name": name_question(),
                    "greeting": sample("Generate a greeting", 50),
                    "client_roots": { "method": "roots/list", "params": {} },
                });
                asked.input_required(questions, Some("several"))
            }
        }
        "multi_round" => match state {
            Some("two") if asked.input_response("step2").is_some() => asked.text("both steps done"),
            Some("one") if asked.input_response("step1").is_some() => {
                let question = form("Step 2: What is your favorite color?", "color", "string");
                asked.input_required(json!({ "step2": question }), Some("two"))
            }
            _ => asked
                .input_required(json!({ "step1": form("Step 1: What is your name?", "name", "string") }), Some("one")),
        },
        // Only what the client can do is asked of it.
        _ => {
            let mut questions = Map::new();
            if asked.can("sampling") {
                questions.insert("greeting".into(), sample("Generate a greeting", 50));
            }
            if asked.can("elicitation") {
                questions.insert("user_name".into(), name_question());
            }
            let unheard = questions.keys().any(|it| asked.input_response(it).is_none());
            if unheard { asked.input_required(questions.into(), None) } else { asked.text("heard") }
        }
    })
}

fn name_question() -> Value {
    form("What is your name?", "name", "string")
}

fn form(message: &str, field: &str, kind: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { field: { "type": kind } }, "required": [field] });
    json!({ "method": "elicitation/create", "params": { "message": message, "requestedSchema": schema } })
}

fn sample(text: &str, tokens: u32) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
    json!({ "method": "sampling/createMessage", "params": { "messages": [message], "maxTokens": tokens } })
}

/// A stream of the changes that a client wants to hear of.
fn subscribe(peer: &Arc<Peer>, asked: FixtureRequest, out: &Arc<dyn Outbox>) -> Result<MessageResponse, RpcError> {
    let seat = peer.in_flight.begin(&asked.id)?;
    let mut changes = CHANGES.subscribe();
    let meta = json!({ "io.modelcontextprotocol/subscriptionId": asked.id });
    let wanted = asked.params["notifications"].clone();
    let ack = json!({ "_meta": meta, "notifications": wanted });
    out.send(answer::notification("notifications/subscriptions/acknowledged", &ack));
    let out = out.clone();
    let work = async move {
        loop {
            let kind = tokio::select! {
                () = seat.token().cancelled() => return None,
                change = changes.recv() => match change {
                    Ok(kind) => kind,
                    Err(_) => return None,
                },
            };
            if wanted[format!("{kind}ListChanged")] == true {
                let method = format!("notifications/{kind}/list_changed");
                out.send(answer::notification(&method, &json!({ "_meta": meta })));
            }
        }
    };
    Ok(MessageResponse::Pending(work.boxed()))
}

fn resources() -> Value {
    json!([
        { "uri": "test://static-text", "name": "static-text", "mimeType": "text/plain" },
        { "uri": "test://static-binary", "name": "static-binary", "mimeType": "image/png" },
        { "uri": "test://watched-resource", "name": "watched-resource", "mimeType": "text/plain" },
    ])
}

fn resource(asked: &FixtureRequest) -> Result<Vec<u8>, RpcError> {
    let uri = asked.params["uri"].as_str().unwrap_or_default();
    let text = |text: String| json!({ "uri": uri, "mimeType": "text/plain", "text": text });
    let content = match uri {
        "test://static-text" => text("This is the content of the static text resource.".into()),
        "test://watched-resource" => text("Watched resource content".into()),
        "test://static-binary" => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
        _ => match uri.strip_prefix("test://template/").and_then(|it| it.strip_suffix("/data")) {
            Some(id) => {
                let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
                json!({ "uri": uri, "mimeType": "application/json", "text": data.to_string() })
            }
            None => {
                let code = if asked.era == ProtocolEra::Modern { -32602 } else { -32002 };
                return Err(RpcError::new(code, "Resource not found").with_data(json!({ "uri": uri })));
            }
        },
    };
    Ok(asked.cacheable_result(json!({ "contents": [content] })))
}

fn prompts() -> Value {
    let required = |name: &str| json!({ "name": name, "description": "For tests.", "required": true });
    let prompt = |name: &str, arguments: Vec<Value>| json!({ "name": name, "description": "For tests.", "arguments": arguments });
    json!([
        prompt("test_simple_prompt", vec![]),
        prompt("test_prompt_with_arguments", vec![required("arg1"), required("arg2")]),
        prompt("test_prompt_with_embedded_resource", vec![required("resourceUri")]),
        prompt("test_prompt_with_image", vec![]),
        prompt("test_input_required_result_prompt", vec![]),
    ])
}

fn prompt(asked: &FixtureRequest) -> Result<Vec<u8>, RpcError> {
    let text = |text: String| json!({ "role": "user", "content": { "type": "text", "text": text } });
    let messages = match asked.params["name"].as_str().unwrap_or_default() {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.".into())],
        "test_prompt_with_arguments" => {
            let (first, second) = (asked.argument("arg1"), asked.argument("arg2"));
            vec![text(format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let said = "Embedded resource content for testing.";
            let resource = json!({ "uri": asked.argument("resourceUri"), "mimeType": "text/plain", "text": said });
            let embedded = json!({ "role": "user", "content": { "type": "resource", "resource": resource } });
            vec![embedded, text("Please process the embedded resource above.".into())]
        }
        "test_prompt_with_image" => {
            let picture = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
            vec![json!({ "role": "user", "content": picture }), text("Please analyze the image above.".into())]
        }
        "test_input_required_result_prompt" => {
            match asked.input_response("user_context").and_then(|it| it.pointer("/content/context")) {
                Some(context) => vec![text(format!("Context: {context}"))],
                None => {
                    let question = form("What context should the prompt use?", "context", "string");
                    return Ok(asked.input_required(json!({ "user_context": question }), None));
                }
            }
        }
        other => {
            return Err(RpcError::invalid_params(format!("Unknown prompt: {}", crate::wire::truncate_name(other))));
        }
    };
    Ok(asked.result(json!({ "messages": messages })))
}
