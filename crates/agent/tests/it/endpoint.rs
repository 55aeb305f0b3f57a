//! The client alone: what it sends, what it takes, how long it waits.

use std::{sync::Mutex, time::Duration};

use helve_agent::model::{
    ApiKey, Endpoint, Model, ModelConfig, ModelError, ModelInfo, ModelRequest, ModelResponse, OpenAi, Prices,
    StreamChunk, Timeouts, ToolCall, discover, list_models,
};
use helve_contract::{
    CancellationToken,
    jiff::Timestamp,
    ports::{Message, MessagePart, MessageRole},
};
use helve_script::{MockModelServer, ModelScript, ScriptStep, StreamFault};
use serde_json::json;

use crate::bench::hasty;

async fn ask(model: &OpenAi) -> (Result<ModelResponse, ModelError>, String) {
    let parts = vec![MessagePart::Text { text: "Hello".into() }];
    let message = Message { seq: 1, role: MessageRole::User, parts, created: Timestamp::UNIX_EPOCH };
    let heard = Mutex::new(String::new());
    let ear = |piece: StreamChunk<'_>| match piece {
        StreamChunk::Text(text) | StreamChunk::Reasoning(text) => heard.lock().unwrap().push_str(text),
        StreamChunk::Retry(..) => heard.lock().unwrap().push('↻'),
    };
    let ask = ModelRequest {
        system_prompt: "S",
        messages: &[message],
        tools: &[],
        max_tokens: Some(99),
        cancel: CancellationToken::new(),
    };
    let answer = model.complete(&ask, &ear).await;
    (answer, heard.into_inner().unwrap())
}

fn model(server: &MockModelServer) -> OpenAi {
    OpenAi::new(Endpoint { timeouts: hasty(), ..Endpoint::new(server.url(), "scripted") }).unwrap()
}

#[tokio::test]
async fn a_request_is_what_everybody_takes() {
    let server = ModelScript::new([ScriptStep::text("Hi.")]).serve().await.unwrap();
    ask(&model(&server)).await.0.unwrap();
    let wanted = json!({
        "model": "scripted",
        "messages": [{ "role": "system", "content": "S" }, { "role": "user", "content": "Hello" }],
        "stream": true,
        "stream_options": { "include_usage": true },
        "max_tokens": 99,
    });
    assert_eq!(server.requests(), [wanted]);
}

#[tokio::test]
async fn what_an_endpoint_does_not_know_is_left_out() {
    let server =
        ModelScript::new([ScriptStep::text("Hi.").repeat(2)]).reject_field("stream_options").serve().await.unwrap();
    let model = model(&server);
    for _ in 0..2 {
        let (answer, heard) = ask(&model).await;
        assert_eq!((answer.unwrap().text.as_str(), heard.as_str()), ("Hi.", "Hi."));
    }
    // The second question does not try it again.
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_taken_too() {
    let body = json!({ "choices": [{ "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": null, "reasoning": "Hm.",
        "tool_calls": [{ "id": "a", "type": "function", "function": { "name": "Read", "arguments": "{}" } }],
    } }], "usage": { "prompt_tokens": 3, "completion_tokens": 4, "cost": 0.5 } });
    let server = ModelScript::new([ScriptStep::status(200, body.to_string())]).serve().await.unwrap();
    let answer = ask(&model(&server)).await.0.unwrap();
    let calls = [ToolCall { id: "a".into(), name: "Read".into(), input: "{}".into(), opaque: None }];
    assert_eq!((answer.calls.as_slice(), answer.reasoning.as_str(), answer.usage.cost), (&calls[..], "Hm.", 0.5));
}

#[tokio::test]
async fn usage_is_counted_about_where_nobody_says() {
    let server = ModelScript::new([ScriptStep::text("x".repeat(400)).no_usage()]).serve().await.unwrap();
    let answer = ask(&model(&server)).await.0.unwrap();
    assert_eq!(answer.usage.completion_tokens, 100);
    assert!(answer.usage.prompt_tokens > 20);
}

#[tokio::test]
async fn window_and_prices_are_learned_from_the_list() {
    let server = ModelScript::new([ScriptStep::text("Hi.").usage(1000, 500)]).serve().await.unwrap();
    let model = model(&server);
    model.fetch_model_info().await;
    assert_eq!(model.context_window(), Some(128_000));
    assert!((ask(&model).await.0.unwrap().usage.cost - 0.002).abs() < 1e-9);
    let listed = list_models(model.endpoint()).await.unwrap();
    let prices = Some(Prices { prompt: 0.000_001, completion: 0.000_002 });
    assert_eq!(listed, [ModelInfo { id: "scripted".into(), context_window: Some(128_000), prices, created: 0 }]);
}

#[tokio::test]
async fn silence_is_not_waited_out() {
    let times = Timeouts { first_byte: Duration::from_millis(200), idle: Duration::from_millis(200), ..hasty() };
    let server = ModelScript::new([
        ScriptStep::text("Hi.").delay_ms(60_000),
        ScriptStep::text("").fault(StreamFault::StallAfter(2)),
        ScriptStep::text("A word and more").fault(StreamFault::StallAfter(3)),
    ])
    .serve()
    .await
    .unwrap();
    let model = OpenAi::new(Endpoint { timeouts: times, ..Endpoint::new(server.url(), "scripted") }).unwrap();
    let (answer, heard) = ask(&model).await;
    assert_eq!(heard, "↻↻A word and m");
    let why = format!("{} fell silent in the middle of its answer for 0.2 s", server.url());
    assert_eq!(answer, Err(ModelError::StreamBroken { why, said: "A word and m".into() }));
}

#[tokio::test]
async fn a_key_is_sent_and_never_shown() {
    let server = ModelScript::new([ScriptStep::text("Hi.")]).key("sk-very-secret").serve().await.unwrap();
    let with = |key: &str| Endpoint {
        key: Some(ApiKey::new(key, "OPENAI_API_KEY")),
        ..Endpoint::new(server.url(), "scripted")
    };
    let good = with("sk-very-secret");
    assert!(!format!("{good:?}").contains("secret"));
    assert_eq!(ask(&OpenAi::new(good).unwrap()).await.0.unwrap().text, "Hi.");

    let words = ask(&OpenAi::new(with("sk-other-secret")).unwrap()).await.0.unwrap_err().to_string();
    let wanted = "refuses the key from OPENAI_API_KEY (401): check it (Incorrect API key provided.)";
    assert!(words.ends_with(wanted) && !words.contains("secret"), "{words}");
}

#[tokio::test]
async fn a_key_does_not_travel_in_the_clear() {
    let endpoint = Endpoint { key: Some(ApiKey::new("k", "X")), ..Endpoint::new("http://models.example.com/v1", "m") };
    let words = OpenAi::new(endpoint).err().unwrap().to_string();
    assert_eq!(
        words,
        "the key would be sent in the clear to http://models.example.com/v1; use https, or an address of this network"
    );
}

#[tokio::test]
async fn where_nothing_listens_the_words_ask_whether_it_runs() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/v1");
    let endpoint = Endpoint { timeouts: hasty(), max_attempts: 2, ..Endpoint::new(&url, "m") };
    let words = ask(&OpenAi::new(endpoint).unwrap()).await.0.unwrap_err().to_string();
    assert_eq!(
        words,
        format!("nothing listens at {url}: is the server running, and is the port right? (tried 2 times)")
    );
}

#[tokio::test]
async fn a_model_is_found_at_an_address_without_a_name() {
    let server = ModelScript::default().serve().await.unwrap();
    let wanted = ModelConfig { base_url: Some(server.url()), ..ModelConfig::default() };
    let found = discover(&|_: &str| None, &wanted).await.unwrap();
    assert_eq!((found.endpoint.model.as_str(), found.endpoint.context_window), ("scripted", Some(128_000)));
}
