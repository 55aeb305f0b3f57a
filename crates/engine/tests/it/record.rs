//! Tests of the record of calls.

use std::{fs, sync::Arc};

use futures::FutureExt;
use helve_contract::{Call, events::EventRecord};
use helve_engine::EventLog;
use serde_json::{Value, json};

use crate::house::{Ear, builder, call};

/// Type, call and failure of each event.
fn outline(events: &[Value]) -> Vec<String> {
    events
        .iter()
        .map(|it| format!("{} {} {} {}", it["seq"], it["type"], it["data"]["toolCallId"], it["data"]["isError"]))
        .collect()
}

#[tokio::test]
async fn a_call_and_its_result_are_recorded_once_each() {
    let ear = Ear::default();
    let engine = builder().events(ear.events()).build().unwrap();
    for (at, (name, text)) in
        [("Say", "hi"), ("Say", "panic"), ("Say", "fail"), ("Nope", "x"), ("Say", "give up")].into_iter().enumerate()
    {
        engine.run(name, json!({ "text": text }), Call { id: at.to_string(), ..call() }).await;
    }
    assert_eq!(
        outline(&ear.heard()),
        [
            r#"1 "tool.call" "0" null"#,
            r#"2 "tool.result" "0" false"#,
            r#"3 "tool.call" "1" null"#,
            r#"4 "tool.result" "1" true"#,
            r#"5 "tool.call" "2" null"#,
            r#"6 "tool.result" "2" true"#,
            r#"7 "tool.call" "3" null"#,
            r#"8 "tool.result" "3" true"#,
            r#"9 "tool.call" "4" null"#,
            r#"10 "tool.result" "4" true"#,
        ]
    );
}

#[tokio::test]
async fn a_caller_who_walks_away_is_recorded_too() {
    let ear = Ear::default();
    let engine = builder().events(ear.events()).build().unwrap();
    let answer = engine.run("Say", json!({ "text": "wait" }), call()).now_or_never();
    assert_eq!(answer, None);
    assert_eq!(outline(&ear.heard()), [r#"1 "tool.call" "call-1" null"#, r#"2 "tool.result" "call-1" true"#]);
}

#[tokio::test]
async fn an_event_tells_all_but_secrets() {
    let ear = Ear::default();
    let engine = builder().events(ear.events().within("t-7", None)).build().unwrap();
    engine.run("put", "{'file_path': 'a', 'content': 'password=hunter2'}", call()).await;
    let heard = ear.heard();
    let args = json!({ "file_path": "a", "content": "password=[REDACTED]" });
    // The same id at the start and the end, whatever the caller's id is.
    let id = heard[0]["data"]["callId"].clone();
    assert!(helve_contract::ids::is_id(id.as_str().unwrap()), "{id}");
    let mended = json!(["`put` was taken for `Put`", "mended the arguments: quotes that are not JSON's"]);
    assert_eq!(
        heard[0]["data"],
        json!({
            "agentId": "main", "callId": id, "toolCallId": "call-1", "tool": "Put", "toolName": "Put", "taskId": "t-7",
            "args": args, "params": args, "notes": mended
        })
    );
    let mut result = heard[1]["data"].clone();
    assert!(result.as_object_mut().unwrap().remove("durationMs").unwrap().is_number());
    assert_eq!(
        result,
        json!({
            "agentId": "main", "callId": id, "toolCallId": "call-1", "tool": "Put", "toolName": "Put", "taskId": "t-7",
            "result": args, "isError": false, "exit": null, "wall": null, "notes": mended, "spill": null
        })
    );
}

#[tokio::test]
async fn a_record_that_fails_is_only_noted() {
    let engine =
        builder().events(EventLog::callback("r", Arc::new(|_: &EventRecord| panic!("no room")))).build().unwrap();
    let reply = engine.run("Say", json!({ "text": "hi" }), call()).await;
    assert_eq!((reply.text.as_str(), reply.is_error), ("hi", false));
    assert_eq!(reply.notes, ["the event could not be recorded: the listener panicked"]);
}

#[tokio::test]
async fn a_file_goes_on_where_it_stopped() {
    let path = std::env::temp_dir().join(format!("helve-it-events-{}.ndjson", std::process::id()));
    _ = fs::remove_file(&path);
    for _ in 0..2 {
        let engine = builder().events(EventLog::file(&path, "run-1").unwrap()).build().unwrap();
        engine.run("Say", json!({ "text": "hi" }), call()).await;
    }
    let text = fs::read_to_string(&path).unwrap();
    let seqs: Vec<Value> =
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].take()).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn a_call_that_only_looks_is_on_record_as_soon_as_it_waits() {
    let path = std::env::temp_dir().join(format!("helve-it-waits-{}.ndjson", std::process::id()));
    _ = fs::remove_file(&path);
    let engine = builder().events(EventLog::file(&path, "run-1").unwrap()).build().unwrap();
    let kinds = || {
        let text = fs::read_to_string(&path).unwrap();
        let kind = |line: &str| serde_json::from_str::<Value>(line).unwrap()["type"].take();
        text.lines().map(kind).collect::<Vec<_>>()
    };
    let mut waits = Box::pin(engine.run("Say", json!({ "text": "wait" }), call()));
    assert_eq!((&mut waits).now_or_never(), None);
    assert_eq!(kinds(), ["tool.call"]);
    drop(waits);
    assert_eq!(kinds(), ["tool.call", "tool.result"]);
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn many_calls_that_only_look_can_be_recorded_together() {
    let path = std::env::temp_dir().join(format!("helve-it-gather-{}.ndjson", std::process::id()));
    _ = fs::remove_file(&path);
    let engine = builder().events(EventLog::file(&path, "run-1").unwrap()).build().unwrap();
    let count = || fs::read_to_string(&path).unwrap().lines().count();
    let ask = async |name: &str, args: Value| _ = engine.run(name, args, call()).await;
    engine.events().gather(true);
    ask("Say", json!({ "text": "one" })).await;
    ask("Say", json!({ "text": "two" })).await;
    assert_eq!(count(), 0);
    ask("Put", json!({ "file_path": "a", "content": "b" })).await;
    assert_eq!(count(), 6, "what changes something is on record at once, after what came before");
    ask("Say", json!({ "text": "three" })).await;
    engine.events().settle().unwrap();
    assert_eq!(count(), 8);
    engine.events().gather(false);
    ask("Say", json!({ "text": "four" })).await;
    assert_eq!(count(), 10);
    let text = fs::read_to_string(&path).unwrap();
    let seqs: Vec<Value> =
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].take()).collect();
    assert_eq!(seqs, (1..=10).collect::<Vec<_>>());
    fs::remove_file(path).unwrap();
}
