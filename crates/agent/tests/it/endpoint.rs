//! The client alone: what it sends, what it takes, how long it waits.

use std::{sync::Mutex, time::Duration};

use helve_agent::model::{
    Answer, Ask, Endpoint, Key, Listed, Model, ModelError, OpenAi, Piece, Prices, Times, Use, Wanted, find, list,
};
use helve_contract::{
    CancellationToken,
    jiff::Timestamp,
    ports::{Message, Part, Speaker},
};
use helve_script::{Fault, Script, Server, Step};
use serde_json::json;

use crate::bench::hasty;

async fn ask(model: &OpenAi) -> (Result<Answer, ModelError>, String) {
    let parts = vec![Part::Text { text: "Hello".into() }];
    let message = Message { seq: 1, role: Speaker::User, parts, created: Timestamp::UNIX_EPOCH };
    let heard = Mutex::new(String::new());
    let ear = |piece: Piece<'_>| match piece {
        Piece::Text(text) | Piece::Reasoning(text) => heard.lock().unwrap().push_str(text),
        Piece::Retry(..) => heard.lock().unwrap().push('↻'),
    };
    let ask =
        Ask { system: "S", messages: &[message], tools: &[], max_tokens: Some(99), cancel: CancellationToken::new() };
    let answer = model.answer(&ask, &ear).await;
    (answer, heard.into_inner().unwrap())
}

fn model(server: &Server) -> OpenAi {
    OpenAi::new(Endpoint { times: hasty(), ..Endpoint::new(server.url(), "scripted") }).unwrap()
}

#[tokio::test]
async fn a_request_is_what_everybody_takes() {
    let server = Script::new([Step::text("Hi.")]).serve().await.unwrap();
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
    let server = Script::new([Step::text("Hi.").times(2)]).refuses("stream_options").serve().await.unwrap();
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
    let server = Script::new([Step::status(200, body.to_string())]).serve().await.unwrap();
    let answer = ask(&model(&server)).await.0.unwrap();
    let calls = [Use { id: "a".into(), name: "Read".into(), input: "{}".into(), opaque: None }];
    assert_eq!((answer.calls.as_slice(), answer.reasoning.as_str(), answer.spent.cost), (&calls[..], "Hm.", 0.5));
}

#[tokio::test]
async fn usage_is_counted_about_where_nobody_says() {
    let server = Script::new([Step::text("x".repeat(400)).no_usage()]).serve().await.unwrap();
    let answer = ask(&model(&server)).await.0.unwrap();
    assert_eq!(answer.spent.completion_tokens, 100);
    assert!(answer.spent.prompt_tokens > 20);
}

#[tokio::test]
async fn window_and_prices_are_learned_from_the_list() {
    let server = Script::new([Step::text("Hi.").usage(1000, 500)]).serve().await.unwrap();
    let model = model(&server);
    model.learn().await;
    assert_eq!(model.window(), Some(128_000));
    assert!((ask(&model).await.0.unwrap().spent.cost - 0.002).abs() < 1e-9);
    let listed = list(model.endpoint()).await.unwrap();
    let prices = Some(Prices { prompt: 0.000_001, completion: 0.000_002 });
    assert_eq!(listed, [Listed { id: "scripted".into(), window: Some(128_000), prices, created: 0 }]);
}

#[tokio::test]
async fn silence_is_not_waited_out() {
    let times = Times { first_byte: Duration::from_millis(200), idle: Duration::from_millis(200), ..hasty() };
    let server = Script::new([
        Step::text("Hi.").wait(60_000),
        Step::text("").fault(Fault::StallAfter(2)),
        Step::text("A word and more").fault(Fault::StallAfter(3)),
    ])
    .serve()
    .await
    .unwrap();
    let model = OpenAi::new(Endpoint { times, ..Endpoint::new(server.url(), "scripted") }).unwrap();
    let (answer, heard) = ask(&model).await;
    assert_eq!(heard, "↻↻A word and m");
    let why = format!("{} fell silent in the middle of its answer for 0.2 s", server.url());
    assert_eq!(answer, Err(ModelError::Broken { why, said: "A word and m".into() }));
}

#[tokio::test]
async fn a_key_is_sent_and_never_shown() {
    let server = Script::new([Step::text("Hi.")]).key("sk-very-secret").serve().await.unwrap();
    let with =
        |key: &str| Endpoint { key: Some(Key::new(key, "OPENAI_API_KEY")), ..Endpoint::new(server.url(), "scripted") };
    let good = with("sk-very-secret");
    assert!(!format!("{good:?}").contains("secret"));
    assert_eq!(ask(&OpenAi::new(good).unwrap()).await.0.unwrap().text, "Hi.");

    let words = ask(&OpenAi::new(with("sk-other-secret")).unwrap()).await.0.unwrap_err().to_string();
    let wanted = "refuses the key from OPENAI_API_KEY (401): check it (Incorrect API key provided.)";
    assert!(words.ends_with(wanted) && !words.contains("secret"), "{words}");
}

#[tokio::test]
async fn a_key_does_not_travel_in_the_clear() {
    let endpoint = Endpoint { key: Some(Key::new("k", "X")), ..Endpoint::new("http://models.example.com/v1", "m") };
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
    let endpoint = Endpoint { times: hasty(), tries: 2, ..Endpoint::new(&url, "m") };
    let words = ask(&OpenAi::new(endpoint).unwrap()).await.0.unwrap_err().to_string();
    assert_eq!(
        words,
        format!("nothing listens at {url}: is the server running, and is the port right? (tried 2 times)")
    );
}

#[tokio::test]
async fn a_model_is_found_at_an_address_without_a_name() {
    let server = Script::default().serve().await.unwrap();
    let wanted = Wanted { base_url: Some(server.url()), ..Wanted::default() };
    let found = find(&|_: &str| None, &wanted).await.unwrap();
    assert_eq!((found.endpoint.model.as_str(), found.endpoint.window), ("scripted", Some(128_000)));
}
