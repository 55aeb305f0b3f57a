//! Tests from the model's arguments to the reply.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use helve_contract::{Effects, Entry, Reply};
use helve_engine::{CallRequest, Engine, Redactor, Spill};
use serde_json::json;
use tokio::sync::Barrier;

use crate::house::{builder, call, dialect, engine, spec};

async fn said(engine: &Engine, name: &str, args: &str) -> String {
    engine.run(name, args, call()).await.text
}

#[tokio::test]
async fn a_mended_call_runs_and_says_so() {
    let reply = engine().run("Say", "```json\n{'text': 'hi', \"times\": \"2\",}\n```", call()).await;
    assert_eq!((reply.text.as_str(), reply.is_error), ("hi\nhi", false));
    assert_eq!(
        reply.repairs,
        [
            "mended the arguments: a code fence around the JSON",
            "mended the arguments: quotes that are not JSON's",
            "mended the arguments: a comma too many",
            r#"took "2" for 2 in "times""#,
        ]
    );
}

#[tokio::test]
async fn a_guess_is_good_enough_for_looking_only() {
    let engine = engine();
    assert_eq!(said(&engine, "Say", r#"{"text": "say "hi" now"}"#).await, r#"say "hi" now"#);
    assert_eq!(
        said(&engine, "Put", r#"{"file_path": "a", "content": "say "hi" now"}"#).await,
        "Put: the arguments are not valid JSON (a quote inside a string that was not escaped), and this tool changes \
         things, so nothing was run on a guess. They were understood as \
         {\"file_path\":\"a\",\"content\":\"say \\\"hi\\\" now\"}. Send them again as valid JSON."
    );
}

#[tokio::test]
async fn a_call_that_was_cut_off_never_runs() {
    for tool in ["Say", "Put"] {
        assert_eq!(
            said(&engine(), tool, r#"{"text": "half a sen"#).await,
            format!(
                "{tool}: the arguments were cut off (it ends in the middle of a string), so nothing was run. \
                 Send the whole call again; if it is long, in smaller parts."
            )
        );
    }
}

#[tokio::test]
async fn arguments_may_be_wrapped() {
    let engine = engine();
    for args in [
        json!({ "text": "hi" }),
        json!("{\"text\": \"hi\"}"),
        json!([{ "text": "hi" }]),
        json!({ "name": "Say", "arguments": { "text": "hi" } }),
        json!({ "arguments": "{\"text\": \"hi\"}" }),
        json!({ "Text": "hi", "times": null, "colour": "red" }),
    ] {
        assert_eq!(engine.run("Say", args.clone(), call()).await.text, "hi", "{args}");
    }
    assert_eq!(said(&engine, "Say", "\"{\\\"text\\\": \\\"hi\\\"}\"").await, "hi");
}

#[tokio::test]
async fn every_problem_is_told_at_once() {
    assert_eq!(
        said(&engine(), "Put", r#"{"content": {}, "fil_path": "x"}"#).await,
        "Put: missing required parameter \"file_path\" (a string); parameter \"content\" must be a string, not {}; \
         unknown parameter \"fil_path\"; did you mean \"file_path\"?"
    );
    assert_eq!(said(&engine(), "Say", "[1]").await, "Say: the arguments must be one JSON object, not [1]");
    assert_eq!(said(&engine(), "Say", "").await, "Say: missing required parameter \"text\" (a string)");
}

#[tokio::test]
async fn whatever_happens_a_reply_comes_back() {
    let engine = engine();
    let broken = "Say: internal error: the tool could not do its work, and the arguments are not the reason; try another way, or tell the user";
    let seen = [
        said(&engine, "Say", r#"{"text": "panic"}"#).await,
        said(&engine, "Say", r#"{"text": "break"}"#).await,
        said(&engine, "Say", r#"{"text": "fail"}"#).await,
        said(&engine, "Say", r#"{"text": "give up"}"#).await,
    ];
    assert_eq!(seen, [broken, broken, "Say: it did not work; try another word", "Cancelled"]);
    let reply = engine.run("Say", r#"{"text": "panic"}"#, call()).await;
    assert_eq!(reply.notes, ["internal error: the tool panicked: at the disco"]);
}

#[tokio::test]
async fn the_clock_runs() {
    let mut dialect = dialect();
    dialect.tools[0] = dialect.tools[0].clone().map_spec(|spec| spec.timeout = Duration::from_millis(3));
    let engine = Engine::builder(dialect).build().unwrap();
    assert_eq!(said(&engine, "Say", r#"{"text": "wait"}"#).await, "Say: timed out after 3 ms");
}

#[tokio::test]
async fn who_gave_up_before_is_not_served() {
    let call = call();
    call.cancel.cancel();
    assert_eq!(engine().run("Say", json!({ "text": "hi" }), call).await.text, "Cancelled");
}

#[tokio::test]
async fn what_does_not_fit_is_kept_in_a_file() {
    let folder = std::env::temp_dir().join(format!("helve-it-spill-{}", std::process::id()));
    let engine = builder().spill(Spill::new(folder.clone(), Duration::from_secs(60))).build().unwrap();
    let reply = engine.run("Say", json!({ "text": "password=hunter2", "times": 7 }), call()).await;
    let line = "password=[REDACTED]\n";
    assert_eq!(reply.text, format!("{}[{} of {} bytes]", line.repeat(5), line.len() * 5 - 1, line.len() * 7 - 1));
    let whole = fs::read_to_string(reply.spill_file.unwrap()).unwrap();
    assert_eq!(whole, line.repeat(7).trim_end());
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn json_stays_json_when_it_is_cut() {
    let reply = engine().run("Put", json!({ "file_path": "a", "content": "x".repeat(900) }), call()).await;
    let data: serde_json::Value = serde_json::from_str(&reply.text).unwrap();
    assert_eq!((Some(&data), &data["file_path"]), (reply.data.as_ref(), &json!("a")));
    assert!(data["content"].as_str().unwrap().ends_with(" bytes]"), "{data}");
}

#[tokio::test]
async fn secrets_do_not_leave() {
    let engine = builder().redactor(Redactor::with_secrets(vec!["swordfish".into()])).build().unwrap();
    assert_eq!(said(&engine, "Say", r#"{"text": "the word is swordfish"}"#).await, "the word is [REDACTED]");
}

#[tokio::test]
async fn a_turn_keeps_its_order() {
    let names = ["Say", "Say", "Run", "Nope", "Say"];
    let calls = names.iter().enumerate().map(|(at, name)| CallRequest {
        name: (*name).into(),
        args: json!({ "text": at.to_string(), "command": at.to_string() }).into(),
        call: call(),
    });
    let replies = engine().batch(calls.collect()).await;
    let texts: Vec<&str> = replies.iter().map(|reply| reply.text.as_str()).collect();
    assert_eq!(texts, ["0", "1", "2", "Tool not found: Nope. The tools are Say, Put, Run.", "4"]);
}

#[tokio::test]
async fn calls_that_only_look_overlap_and_others_never_do() {
    let schema = json!({ "type": "object", "properties": {} });
    // Nobody continues before all three have arrived.
    let meeting = Arc::new(Barrier::new(3));
    let look = Entry::dynamic(spec("Meet", Effects::READS, schema.clone()), move |_, _| {
        let meeting = meeting.clone();
        async move {
            meeting.wait().await;
            Ok(Reply::from("met"))
        }
        .boxed()
    });
    let running = Arc::new(AtomicUsize::new(0));
    let change = Entry::dynamic(spec("Change", Effects::WRITES, schema), move |_, _| {
        let running = running.clone();
        async move {
            let others = running.fetch_add(1, Ordering::SeqCst);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(Reply::from(others.to_string()))
        }
        .boxed()
    });
    let engine = builder().tool(look).tool(change).build().unwrap();
    let names = ["Meet", "Meet", "Meet", "Change", "Change", "Change"];
    let calls = names.map(|name| CallRequest { name: name.into(), args: json!({}).into(), call: call() });
    let replies = engine.batch(calls.into()).await;
    let texts: Vec<&str> = replies.iter().map(|reply| reply.text.as_str()).collect();
    assert_eq!(texts, ["met", "met", "met", "0", "0", "0"]);
}

#[test]
fn an_engine_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent(_: impl Future + Send) {}
    shared::<Engine>();
    let engine = engine();
    sent(engine.run("Say", "", call()));
    sent(engine.batch(Vec::new()));
}

#[tokio::test]
async fn what_was_wrong_is_not_said_back_whole() {
    let huge = format!("sk-{}", "a1".repeat(500_000));
    let reply = engine().run("Say", json!({ "text": { "key": huge }, "times": huge }), call()).await;
    assert!(reply.is_error && reply.text.len() < 1000, "{} bytes", reply.text.len());
    let key = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    let reply = engine().run("Say", json!({ "text": "x", "times": key }), call()).await;
    assert!(reply.is_error && !reply.text.contains(key), "{}", reply.text);
}
