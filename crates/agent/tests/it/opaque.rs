//! Opaque provider parts: they survive storage, resuming, compaction and a change of model, and go to nobody else.

use std::{sync::Arc, time::Duration};

use helve_agent::{
    Agent, TurnStopReason,
    model::{Endpoint, OpenAi},
};
use helve_contract::{
    jiff::Timestamp,
    ports::{FinishReason, Message, MessagePart, MessageRole, SessionRecord, Sessions, TokenUsage},
};
use helve_script::{ModelScript, ScriptStep};
use helve_store::SqliteStore;
use serde_json::{Value, json};

use crate::bench::{Bench, agent, hasty};

fn text(text: &str) -> MessagePart {
    MessagePart::Text { text: text.into() }
}

fn opaque(api: &str, model: &str, data: Value) -> MessagePart {
    MessagePart::Opaque { api: api.into(), model: model.into(), data }
}

fn details(at: usize) -> Value {
    json!([{ "type": "reasoning.encrypted", "id": format!("r{at}"), "data": format!("sealed {at}"), "index": 0 }])
}

/// An answer with the items of three providers around its text and its call.
fn answer(at: usize, long: &str) -> Vec<MessagePart> {
    vec![
        opaque("anthropic", "claude-x", json!({ "type": "thinking", "thinking": "", "signature": format!("s{at}") })),
        opaque("chat", "scripted", json!({ "reasoning_details": details(at) })),
        opaque("responses", "gpt-x", json!({ "type": "reasoning", "encrypted_content": format!("e{at}") })),
        text(&format!("Answer {at} {long}")),
        opaque("chat", "scripted", json!({ "extra_content": { "google": { "thought_signature": format!("t{at}") } } })),
        MessagePart::ToolCall { id: format!("c{at}"), name: "Look".into(), input: "{}".into(), finished: true },
        MessagePart::Finish { reason: FinishReason::ToolUse },
    ]
}

fn message(role: MessageRole, parts: Vec<MessagePart>) -> Message {
    Message { seq: 0, role, parts, created: Timestamp::UNIX_EPOCH }
}

/// Questions, answers and results, as another process left them.
async fn kept_before(store: &SqliteStore, workspace: &str, rounds: usize, long: &str) -> Vec<Vec<MessagePart>> {
    let lease = store.claim_session("story", "before", Duration::from_secs(60)).await.unwrap();
    let record = SessionRecord {
        id: "story".into(),
        label: None,
        parent: None,
        user: "user".into(),
        agent: "main".into(),
        title: "Opaque".into(),
        dialect: "claude".into(),
        model: "scripted".into(),
        workspace: workspace.into(),
        messages: 0,
        spent: TokenUsage::default(),
        view_from: None,
        created: Timestamp::UNIX_EPOCH,
        updated: Timestamp::UNIX_EPOCH,
    };
    store.create_session(&lease, &record).await.unwrap();
    let mut all = Vec::new();
    for at in 0..rounds {
        let result = MessagePart::ToolResult {
            tool_call_id: format!("c{at}"),
            name: "Look".into(),
            content: "seen".into(),
            is_error: false,
        };
        all.push(message(MessageRole::User, vec![text(&format!("Question {at} {long}"))]));
        all.push(message(MessageRole::Assistant, answer(at, long)));
        all.push(message(MessageRole::Tool, vec![result]));
        all.push(message(
            MessageRole::Assistant,
            vec![text("So it is."), MessagePart::Finish { reason: FinishReason::EndTurn }],
        ));
    }
    store.append_messages(&lease, &all, TokenUsage::default()).await.unwrap();
    store.release_session(&lease).await.unwrap();
    all.into_iter().map(|it| it.parts).collect()
}

fn model(bench: &Bench, name: &str, window: Option<u64>) -> Arc<OpenAi> {
    let endpoint = Endpoint { timeouts: hasty(), context_window: window, ..Endpoint::new(bench.server.url(), name) };
    Arc::new(OpenAi::new(endpoint).unwrap())
}

/// An agent of a process that knows nothing but the store.
fn resumed(bench: &Bench, name: &str, window: Option<u64>) -> Agent {
    let (mut agent, _) = agent(bench.folder.path(), &bench.server.url());
    agent.model = model(bench, name, window);
    agent.system_prompt = "S".into();
    agent
}

async fn stored(bench: &Bench) -> Vec<Vec<MessagePart>> {
    bench.store.messages("story", None, 1000).await.unwrap().into_iter().map(|it| it.parts).collect()
}

/// The assistant's messages with calls in the last request.
fn sent(bench: &Bench) -> Vec<Value> {
    let request = bench.server.requests().pop().unwrap();
    let messages = request["messages"].as_array().unwrap().clone();
    messages.into_iter().filter(|it| it["tool_calls"].is_array()).collect()
}

fn assert_sent_whole(message: &Value, at: usize) {
    assert_eq!(message["reasoning_details"], details(at), "{message}");
    let signature = json!({ "google": { "thought_signature": format!("t{at}") } });
    assert_eq!(message["tool_calls"][0]["extra_content"], signature, "{message}");
    assert!(message["content"].as_str().unwrap().starts_with(&format!("Answer {at} ")), "{message}");
}

#[tokio::test]
async fn opaque_parts_survive_storage_resuming_and_a_change_of_model() {
    let bench = Bench::new(ModelScript::new((0..3).map(|at| ScriptStep::text(format!("Reply {at}."))))).await;
    let before = kept_before(&bench.store, &bench.root().display().to_string(), 2, "short").await;
    assert_eq!(stored(&bench).await, before);

    assert_eq!(
        resumed(&bench, "scripted", None).send_text("Go on.").await.unwrap().stop_reason,
        TurnStopReason::Completed
    );
    let calls = sent(&bench);
    assert_eq!(calls.len(), 2);
    for (at, message) in calls.iter().enumerate() {
        assert_sent_whole(message, at);
    }
    let request = bench.server.requests().pop().unwrap().to_string();
    assert!(!request.contains("signature\":\"s0") && !request.contains("encrypted_content"), "{request}");

    // Another model gets none of them, and they stay.
    assert_eq!(
        resumed(&bench, "another", None).send_text("And you?").await.unwrap().stop_reason,
        TurnStopReason::Completed
    );
    let request = bench.server.requests().pop().unwrap().to_string();
    for word in ["reasoning_details", "thought_signature", "sealed", "signature\":\"s0", "encrypted_content"] {
        assert!(!request.contains(word), "{word} in {request}");
    }
    assert_eq!(stored(&bench).await[..before.len()], before);

    // The first one gets them again.
    assert_eq!(
        resumed(&bench, "scripted", None).send_text("Back again.").await.unwrap().stop_reason,
        TurnStopReason::Completed
    );
    for (at, message) in sent(&bench).iter().enumerate() {
        assert_sent_whole(message, at);
    }
    bench.all_was_well();
}

#[tokio::test]
async fn compaction_keeps_opaque_parts_with_the_messages_that_stay() {
    let script = ModelScript::default()
        .branch("You sum up the first part", [ScriptStep::text("They looked.").no_usage().repeat(20)]);
    let bench = Bench::new(script).await;
    let before = kept_before(&bench.store, &bench.root().display().to_string(), 8, &"why ".repeat(250)).await;
    bench.server.push(ScriptStep::text("Well.").no_usage());
    bench.server.push(ScriptStep::text("Yes.").no_usage());
    assert_eq!(
        resumed(&bench, "scripted", Some(4_000)).send_text("Go on.").await.unwrap().stop_reason,
        TurnStopReason::Completed
    );
    let calls = sent(&bench);
    assert!((1..8).contains(&calls.len()), "{} stay", calls.len());
    let first = 8 - calls.len();
    for (at, message) in calls.iter().enumerate() {
        assert_sent_whole(message, first + at);
    }
    // What was summed up goes from the view with its parts, and nothing goes from the store.
    let request = bench.server.requests().pop().unwrap().to_string();
    assert!(request.contains("They looked.") && !request.contains("sealed 0"), "{request}");
    let after = stored(&bench).await;
    let kept: Vec<_> = after.iter().filter(|it| before.contains(it)).cloned().collect();
    assert_eq!(kept, before);

    // The same view after the next start.
    assert_eq!(
        resumed(&bench, "scripted", Some(4_000)).send_text("Still?").await.unwrap().stop_reason,
        TurnStopReason::Completed
    );
    let calls = sent(&bench);
    let first = 8 - calls.len();
    assert!(!calls.is_empty());
    for (at, message) in calls.iter().enumerate() {
        assert_sent_whole(message, first + at);
    }
}
