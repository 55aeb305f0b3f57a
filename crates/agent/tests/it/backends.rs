//! Backends by name: LM Studio, OpenRouter and OpenAI's Codex models behind servers that answer in the shapes these
//! services document. The real services are not asked.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
};

use helve_agent::model::{Endpoint, Model as _, ModelConfig, ModelRequest, OpenAi, ToolCall, discover};
use helve_contract::{
    CancellationToken,
    jiff::Timestamp,
    ports::{Message, MessagePart, MessageRole},
};
use serde_json::{Value, json};

/// What a backend was sent: method and path, headers in lower case, body.
type Seen = (String, Vec<String>, Value);

/// A server that answers each request by `answer`, which makes the content type, the status and the body of it.
struct Backend {
    url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Backend {
    fn new(answer: impl Fn(&str, &Value) -> (u16, &'static str, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/api/v1", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let kept = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut lines = Vec::new();
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
                        break;
                    }
                    lines.push(line.trim_end().to_owned());
                }
                let Some(first) = lines.first() else { continue };
                let place = first.trim_end_matches(" HTTP/1.1").to_owned();
                let headers: Vec<String> = lines[1..].iter().map(|it| it.to_lowercase()).collect();
                let length = headers.iter().find_map(|it| it.strip_prefix("content-length: ")?.parse().ok());
                let mut body = vec![0; length.unwrap_or(0)];
                reader.read_exact(&mut body).unwrap();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (status, kind, text) = answer(&place, &body);
                kept.lock().unwrap().push((place, headers, body));
                let length = text.len();
                let head = format!(
                    "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                stream.write_all(format!("{head}{text}").as_bytes()).unwrap();
            }
        });
        Self { url, seen }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// A stream of chunks, with what stands between them.
fn stream(pieces: &[&str]) -> (u16, &'static str, String) {
    (200, "text/event-stream", pieces.concat() + "data: [DONE]\n\n")
}

fn chunk(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn delta(delta: Value, finish: Value) -> Value {
    json!({
        "id": "gen-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
        "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }],
    })
}

/// A call of `Read` in three pieces.
fn call() -> [String; 3] {
    let piece = |value: Value| chunk(&delta(json!({ "tool_calls": [value] }), Value::Null));
    [
        piece(
            json!({ "index": 0, "id": "call_1", "type": "function", "function": { "name": "Read", "arguments": "" } }),
        ),
        piece(json!({ "index": 0, "function": { "arguments": "{\"file_path\":" } })),
        piece(json!({ "index": 0, "function": { "arguments": "\"/w/a\"}" } })),
    ]
}

fn read() -> Vec<ToolCall> {
    vec![ToolCall {
        id: "call_1".into(),
        name: "Read".into(),
        input: "{\"file_path\":\"/w/a\"}".into(),
        ..ToolCall::default()
    }]
}

async fn ask(endpoint: Endpoint) -> helve_agent::model::ModelResponse {
    let parts = vec![MessagePart::Text { text: "Hello".into() }];
    let message = Message { seq: 1, role: MessageRole::User, parts, created: Timestamp::UNIX_EPOCH };
    let schema = json!({ "type": "object", "properties": { "file_path": { "type": "string" } } });
    let tool = json!({ "type": "function", "function": { "name": "Read", "description": "d", "parameters": schema } });
    let ask = ModelRequest {
        system_prompt: "S",
        messages: &[message],
        tools: &[tool],
        max_tokens: Some(99),
        cancel: CancellationToken::new(),
    };
    OpenAi::new(endpoint).unwrap().complete(&ask, &|_| {}).await.unwrap()
}

fn has(headers: &[String], line: &str) -> bool {
    headers.iter().any(|it| it == line)
}

#[tokio::test]
async fn open_router_takes_its_key_and_says_the_cost() {
    let backend = Backend::new(|place, _| match place {
        "GET /api/v1/models" => {
            let models = json!({ "data": [
                { "id": "openai/gpt-4o-mini", "created": 9, "context_length": 128_000,
                  "pricing": { "prompt": "0.00000015", "completion": "0.0000006" } },
                { "id": "anthropic/claude-sonnet-4.5", "created": 8, "context_length": 200_000,
                  "pricing": { "prompt": "0.000003", "completion": "0.000015" } },
            ] });
            (200, "application/json", models.to_string())
        }
        _ => {
            let [first, second, third] = call();
            let thought = delta(json!({ "role": "assistant", "content": "", "reasoning": "Hm." }), Value::Null);
            let mut last = delta(json!({ "role": "assistant", "content": "" }), json!("tool_calls"));
            last["choices"][0]["native_finish_reason"] = json!("tool_use");
            let mut usage = delta(json!({ "role": "assistant", "content": "" }), Value::Null);
            usage["usage"] =
                json!({ "prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34, "cost": 0.000_15 });
            let waiting = ": OPENROUTER PROCESSING\n\n";
            stream(&[waiting, &chunk(&thought), waiting, &first, &second, &third, &chunk(&last), &chunk(&usage)])
        }
    });
    let url = backend.url.clone();
    let env = move |name: &str| match name {
        "OPENROUTER_API_KEY" => Some("sk-or-v1-0123456789".to_owned()),
        "OPENROUTER_BASE_URL" => Some(url.clone()),
        _ => None,
    };
    let found = discover(&env, &ModelConfig::default()).await.unwrap();
    assert_eq!(found.endpoint.model, "anthropic/claude-sonnet-4.5");
    assert_eq!(found.endpoint.context_window, Some(200_000));
    let answer = ask(found.endpoint).await;
    assert_eq!((answer.calls, answer.reasoning.as_str(), answer.usage.cost), (read(), "Hm.", 0.000_15));
    let seen = backend.seen();
    assert_eq!(
        seen.iter().map(|it| it.0.as_str()).collect::<Vec<_>>(),
        ["GET /api/v1/models", "POST /api/v1/chat/completions"]
    );
    assert!(seen.iter().all(|it| has(&it.1, "authorization: bearer sk-or-v1-0123456789")), "{seen:?}");
    assert_eq!(seen[1].2["model"], "anthropic/claude-sonnet-4.5");
    assert_eq!(seen[1].2["tools"][0]["function"]["parameters"]["type"], "object");
}

#[tokio::test]
async fn lm_studio_needs_no_key_and_lists_what_is_loaded() {
    let backend = Backend::new(|place, _| match place {
        "GET /api/v1/models" => {
            let models = json!({ "object": "list", "data": [
                { "id": "text-embedding-nomic-embed-text-v1.5", "object": "model", "owned_by": "organization_owner" },
                { "id": "qwen3-8b", "object": "model", "owned_by": "organization_owner" },
            ] });
            (200, "application/json", models.to_string())
        }
        _ => {
            let [first, second, third] = call();
            let mut thought = delta(json!({ "role": "assistant", "reasoning_content": "Hm." }), Value::Null);
            thought["system_fingerprint"] = json!("qwen3-8b");
            let last = delta(json!({}), json!("tool_calls"));
            let mut usage = delta(json!({}), Value::Null);
            usage["choices"] = json!([]);
            usage["usage"] = json!({ "prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34 });
            stream(&[&chunk(&thought), &first, &second, &third, &chunk(&last), &chunk(&usage)])
        }
    });
    let wanted = ModelConfig { base_url: Some(backend.url.clone()), ..ModelConfig::default() };
    let found = discover(&|_: &str| None, &wanted).await.unwrap();
    assert_eq!(found.endpoint.model, "qwen3-8b");
    let answer = ask(found.endpoint).await;
    assert_eq!((answer.calls, answer.reasoning.as_str(), answer.usage.prompt_tokens), (read(), "Hm.", 30));
    let seen = backend.seen();
    assert!(!seen.iter().any(|it| it.1.iter().any(|line| line.starts_with("authorization:"))), "{seen:?}");
}

#[tokio::test]
async fn a_codex_model_gets_the_parameters_that_it_takes() {
    let backend = Backend::new(|_, body| {
        if !body["max_tokens"].is_null() {
            let error = json!({ "error": {
                "message": "Unsupported parameter: 'max_tokens' is not supported with this model. \
                            Use 'max_completion_tokens' instead.",
                "type": "invalid_request_error", "param": "max_tokens", "code": "unsupported_parameter",
            } });
            return (400, "application/json", error.to_string());
        }
        let [first, second, third] = call();
        let mut opening = delta(json!({ "role": "assistant", "content": null, "refusal": null }), Value::Null);
        (opening["service_tier"], opening["obfuscation"]) = (json!("default"), json!("Zx9"));
        let mut usage = delta(json!({}), Value::Null);
        usage["choices"] = json!([]);
        usage["usage"] = json!({
            "prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34,
            "prompt_tokens_details": { "cached_tokens": 0 }, "completion_tokens_details": { "reasoning_tokens": 2 },
        });
        let last = delta(json!({}), json!("tool_calls"));
        stream(&[&chunk(&opening), &first, &second, &third, &chunk(&last), &chunk(&usage)])
    });
    let url = backend.url.clone();
    let env = move |name: &str| match name {
        "OPENAI_API_KEY" => Some("sk-proj-0123456789".to_owned()),
        "OPENAI_BASE_URL" => Some(url.clone()),
        _ => None,
    };
    let wanted = ModelConfig { model: Some("gpt-5.3-codex".into()), ..ModelConfig::default() };
    let answer = ask(discover(&env, &wanted).await.unwrap().endpoint).await;
    assert_eq!((answer.calls, answer.usage.completion_tokens), (read(), 4));
    let seen = backend.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|it| has(&it.1, "authorization: bearer sk-proj-0123456789")), "{seen:?}");
    assert_eq!((&seen[1].2["max_completion_tokens"], &seen[1].2["model"]), (&json!(99), &json!("gpt-5.3-codex")));
}
