//! Everything an endpoint can do wrong: each ends in clear words and a valid history, and no tool runs twice.

use helve_agent::TurnStopReason;
use helve_script::{ModelScript, ScriptStep, ScriptedCall, StreamFault};
use serde_json::json;

use crate::bench::Bench;

fn count(what: &str) -> ScriptStep {
    ScriptStep::calls([ScriptedCall::new("Count", json!({ "what": what }))])
}

/// The words in which a turn ends.
async fn ends(bench: &Bench) -> String {
    let outcome = bench.agent.send_text("Go.").await.unwrap();
    let here = bench.server.url();
    match outcome.stop_reason {
        TurnStopReason::ModelFailed(words) => words.replace(&here, "URL"),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn a_refusal_says_the_next_step() {
    let page = "<!DOCTYPE html><html><body>Welcome</body></html>";
    let cases = [
        (
            ScriptStep::status(401, r#"{"error":{"message":"Incorrect API key provided."}}"#),
            "URL wants a key (401) and none is set: set one in the environment or the settings (Incorrect API key provided.)",
        ),
        (
            ScriptStep::status(404, r#"{"error":{"message":"The model `scripted` does not exist"}}"#),
            "there is no model `scripted` at URL (404): URL/models lists those there are (The model `scripted` does not exist)",
        ),
        (
            ScriptStep::status(200, page).header("content-type", "text/html"),
            "URL answered with a web page and not with JSON; the base URL should be the one that ends in /v1, as in https://api.openai.com/v1",
        ),
        (
            ScriptStep::status(200, page).header("content-type", "text/event-stream"),
            "the connection to URL broke in the middle of the answer (tried 5 times)",
        ),
        (ScriptStep::status(400, r#"{"error":{"message":"bad"}}"#), "URL refused the request (400): bad"),
        (ScriptStep::status(500, "oh"), "URL failed (500): oh (tried 5 times)"),
        (
            ScriptStep::status(429, r#"{"error":{"message":"slow down"}}"#).header("retry-after", "0"),
            "URL has too many requests (429), and asks to wait 0 s: slow down (tried 5 times)",
        ),
        (
            ScriptStep::status(429, r#"{"error":{"message":"slow down"}}"#).header("retry-after", "3600"),
            "URL has too many requests (429), and asks to wait 3600 s: slow down",
        ),
    ];
    for (step, words) in cases {
        let bench = Bench::new(ModelScript::new([step.repeat(5)])).await;
        assert_eq!(ends(&bench).await, words);
        assert_eq!(bench.kept().await, ["user: Go."]);
    }
}

#[tokio::test]
async fn what_passes_is_tried_again() {
    let bench = Bench::new(ModelScript::new([
        ScriptStep::status(500, "{}"),
        ScriptStep::status(529, "{}"),
        ScriptStep::status(429, "{}").header("retry-after", "0"),
        count("a"),
        ScriptStep::text("Done."),
    ]))
    .await;
    assert_eq!(ends(&bench).await, "Completed");
    assert_eq!(bench.counted(), "a\n");
    assert_eq!(bench.heard().iter().filter(|it| it.starts_with("retrying")).count(), 3);
    bench.all_was_well();
}

#[tokio::test]
async fn a_stream_that_breaks_in_an_argument_runs_nothing() {
    for fault in
        [StreamFault::CutInArgument, StreamFault::EndAfter(4), StreamFault::GarbageAfter(4), StreamFault::ErrorAfter(4)]
    {
        let bench =
            Bench::new(ModelScript::new([count("a").fault(fault), count("b"), ScriptStep::text("Done.")])).await;
        assert_eq!(ends(&bench).await, "Completed", "{fault:?}");
        assert_eq!(bench.counted(), "b\n", "{fault:?}");
        bench.all_was_well();
    }
}

#[tokio::test]
async fn a_stream_that_never_holds_ends_in_words() {
    let bench = Bench::new(ModelScript::new([count("a").fault(StreamFault::CutInArgument).repeat(5)])).await;
    assert_eq!(ends(&bench).await, "the connection to URL broke in the middle of the answer (tried 5 times)");
    assert_eq!((bench.counted().as_str(), bench.kept().await.len()), ("", 1));
}

#[tokio::test]
async fn what_was_said_before_the_break_stays_and_the_model_goes_on() {
    let broken = count("a").with_text("Let me count them all.").fault(StreamFault::CutInArgument);
    let bench =
        Bench::new(ModelScript::new([broken, ScriptStep::text("Done.").expect("the connection broke here")])).await;
    assert_eq!(ends(&bench).await, "Completed");
    assert_eq!(bench.counted(), "");
    bench.all_was_well();
}

#[tokio::test]
async fn an_answer_cut_by_its_length_goes_on_and_its_last_call_does_not_run() {
    let cut = ScriptStep { finish: Some("length".into()), ..ScriptStep::call("Count", json!("{\"what\": \"a")) };
    let bench = Bench::new(ModelScript::new([cut, count("b"), ScriptStep::text("Done.")])).await;
    assert_eq!(ends(&bench).await, "Completed");
    assert_eq!(bench.counted(), "b\n");
    assert!(bench.server.requests()[1].to_string().contains("The call of Count was not complete and did not run."));
    bench.all_was_well();
}

#[tokio::test]
async fn an_empty_answer_is_asked_for_once_more() {
    let bench = Bench::new(ModelScript::new([ScriptStep::text(""), ScriptStep::text("Done.")])).await;
    assert_eq!(ends(&bench).await, "Completed");
    bench.all_was_well();
}

#[tokio::test]
async fn the_same_ids_in_every_answer_become_different_ones() {
    let call = |what: &str| ScriptStep::calls([ScriptedCall::new("Count", json!({ "what": what })).id("call_0")]);
    let bench = Bench::new(ModelScript::new([call("a"), call("b"), ScriptStep::text("Done.")])).await;
    assert_eq!(ends(&bench).await, "Completed");
    assert_eq!(bench.counted(), "a\nb\n");
    bench.all_was_well();
}
