//! Turns that go as they should: tools, corrections, circles, budgets, people who reach in.

use std::time::Duration;

use helve_agent::{Budget, TurnStopReason};
use helve_contract::ports::{MessagePart, Sessions};
use helve_script::{ModelScript, ScriptStep, ScriptedCall, StreamSplit};
use serde_json::json;

use crate::bench::Bench;

fn look(what: &str) -> ScriptedCall {
    ScriptedCall::new("Look", json!({ "what": what }))
}

#[tokio::test]
async fn a_turn_with_tools_is_kept_whole() {
    let bench = Bench::new(ModelScript::new([
        ScriptStep::computed(|request| {
            let tools = request["tools"].as_array().unwrap();
            ScriptStep::call("Look", json!({ "what": "a" })).with_text(format!("I have {} tools.", tools.len()))
        }),
        ScriptStep::text("It is there.").with_reasoning("So it is."),
    ]))
    .await;
    let outcome = bench.agent.send_text("Is there an a?").await.unwrap();
    assert_eq!(
        (outcome.text.as_str(), outcome.stop_reason, outcome.turns, outcome.tool_calls),
        ("It is there.", TurnStopReason::Completed, 2, 1)
    );
    assert_eq!(
        bench.kept().await,
        [
            "user: Is there an a?",
            "model: I have 7 tools.",
            "model calls Look {\"what\":\"a\"}",
            "model ends: tool_use",
            "tool: saw a",
            "model thinks: So it is.",
            "model: It is there.",
            "model ends: end_turn",
        ]
    );
    let record = bench.store.get_session("story").await.unwrap().unwrap();
    assert_eq!(
        (record.title.as_str(), record.model.as_str(), record.dialect.as_str(), record.spent.prompt_tokens),
        ("Is there an a?", "scripted", "claude", 20)
    );
    bench.all_was_well();
}

/// An answer with signed reasoning, and with a call that the provider signed.
fn signed(what: &str) -> ScriptStep {
    let piece = |fields: serde_json::Value| json!({ "reasoning_details": [fields] });
    let call =
        ScriptedCall { extra: json!({ "google": { "thought_signature": format!("sig-{what}") } }), ..look(what) };
    ScriptStep::calls([call])
        .with_reasoning("Let me look.")
        .delta(piece(json!({ "type": "reasoning.text", "index": 0, "text": "Let me " })))
        .delta(piece(json!({ "type": "reasoning.text", "index": 0, "text": "look.", "signature": what })))
        .delta(piece(json!({ "type": "reasoning.encrypted", "index": 1, "data": "c2VjcmV0" })))
}

/// The first assistant message of a request.
fn first_answer(request: &serde_json::Value) -> serde_json::Value {
    request["messages"].as_array().unwrap().iter().find(|it| it["role"] == "assistant").cloned().unwrap()
}

#[tokio::test]
async fn items_of_the_provider_go_back_unchanged_and_only_to_their_model() {
    let bench =
        Bench::new(ModelScript::new([signed("a"), ScriptStep::text("There."), ScriptStep::text("Still there.")])).await;
    bench.agent.send_text("Is there an a?").await.unwrap();
    let expected = json!([
        { "type": "reasoning.text", "index": 0, "text": "Let me look.", "signature": "a" },
        { "type": "reasoning.encrypted", "index": 1, "data": "c2VjcmV0" },
    ]);
    let sent = first_answer(&bench.server.requests()[1]);
    assert_eq!(sent["reasoning_details"], expected);
    assert_eq!(sent["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "sig-a");

    // Another process with the same store and model sends the same bytes again.
    let (again, _) = crate::bench::agent(bench.folder.path(), &bench.server.url());
    again.send_text("And now?").await.unwrap();
    assert_eq!(first_answer(&bench.server.requests()[2]), sent);

    // Another model gets the text only; the items stay in the store for the first one.
    let (mut other, _) = crate::bench::agent(bench.folder.path(), &bench.server.url());
    let mut endpoint = helve_agent::model::Endpoint::new(bench.server.url(), "another");
    endpoint.timeouts = crate::bench::hasty();
    other.model = std::sync::Arc::new(helve_agent::model::OpenAi::new(endpoint).unwrap());
    bench.server.push(ScriptStep::text("Here too."));
    other.send_text("And for you?").await.unwrap();
    let moved = first_answer(&bench.server.requests()[3]);
    assert_eq!((moved.get("reasoning_details"), moved["tool_calls"][0].get("extra_content")), (None, None));
    let (back, _) = crate::bench::agent(bench.folder.path(), &bench.server.url());
    bench.server.push(ScriptStep::text("As before."));
    back.send_text("And again?").await.unwrap();
    assert_eq!(first_answer(&bench.server.requests()[4]), sent);
    bench.all_was_well();
}

#[tokio::test]
async fn a_file_is_read_and_edited() {
    let bench = Bench::new(ModelScript::default()).await;
    bench.put("a.txt", "one\ntwo\n");
    let path = bench.path("a.txt");
    bench.server.push(ScriptStep::call("Read", json!({ "file_path": path })));
    bench
        .server
        .push(ScriptStep::call("Edit", json!({ "file_path": path, "old_string": "two", "new_string": "three" })));
    bench.server.push(ScriptStep::text("Changed."));
    assert_eq!(bench.agent.send_text("Make it three.").await.unwrap().stop_reason, TurnStopReason::Completed);
    assert_eq!(std::fs::read_to_string(bench.root().join("a.txt")).unwrap(), "one\nthree\n");
    bench.all_was_well();
}

#[tokio::test]
async fn any_cut_of_the_stream_runs_the_same_calls() {
    let splits = [
        StreamSplit { args: 40, interleaved: true, ..StreamSplit::default() },
        StreamSplit { names: true, ids: helve_script::CallIdPlacement::Missing, ..StreamSplit::default() },
        StreamSplit {
            no_index: true,
            ids: helve_script::CallIdPlacement::Every,
            twice: true,
            ..StreamSplit::default()
        },
        StreamSplit { bytes: 1, crlf: true, ..StreamSplit::default() },
    ];
    for split in splits {
        let calls = ["a", "b", "c"].map(|it| ScriptedCall::new("Count", json!({ "what": it })));
        let bench =
            Bench::new(ModelScript::new([ScriptStep::calls(calls).split(split.clone()), ScriptStep::text("Done.")]))
                .await;
        bench.agent.send_text("Count.").await.unwrap();
        assert_eq!(bench.counted(), "a\nb\nc\n", "{split:?}");
        bench.all_was_well();
    }
}

#[tokio::test]
async fn calls_that_only_look_run_side_by_side_and_answer_in_order() {
    let calls = ["a", "b", "fail", "c"].map(look);
    let bench = Bench::new(ModelScript::new([
        ScriptStep::calls(calls),
        ScriptStep::text("Done.").expect("Error: there is nothing"),
    ]))
    .await;
    bench.agent.send_text("Look.").await.unwrap();
    let results: Vec<String> = bench.kept().await.into_iter().filter(|it| it.starts_with("tool")).collect();
    assert_eq!(
        results,
        ["tool: saw a", "tool: saw b", "tool failed: Error: there is nothing of this name", "tool: saw c"]
    );
    bench.all_was_well();
}

#[tokio::test]
async fn a_bad_call_is_told_and_the_model_mends_it() {
    let bench = Bench::new(ModelScript::new([
        ScriptStep::call("Loook at this!", json!({})),
        ScriptStep::call("Look", json!({ "wat": 1 })),
        ScriptStep::call("Look", json!("{\"what\": ")),
        ScriptStep::call("Look", json!("{'what': 'b',}")),
        ScriptStep::text("Found."),
    ]))
    .await;
    let outcome = bench.agent.send_text("Look.").await.unwrap();
    assert_eq!((outcome.stop_reason, outcome.tool_calls), (TurnStopReason::Completed, 4));
    let failed = bench.kept().await.into_iter().filter(|it| it.starts_with("tool failed")).count();
    assert_eq!(failed, 3);
    assert!(bench.kept().await.contains(&"tool: saw b".to_owned()));
    bench.all_was_well();
}

#[tokio::test]
async fn arguments_that_never_become_valid_end_the_turn() {
    let bench = Bench::new(ModelScript::new([ScriptStep::call("Look", json!("{{{")).repeat(20)])).await;
    let outcome = bench.agent.send_text("Look.").await.unwrap();
    let words = "`Look` was called 3 times with the same arguments and failed in the same way each time";
    assert_eq!((outcome.stop_reason, outcome.turns), (TurnStopReason::LoopDetected(words.into()), 3));
    assert_eq!(bench.server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn the_same_call_again_and_again_is_warned_and_ended() {
    let bench = Bench::new(ModelScript::new([ScriptStep::call("Look", json!({ "what": "a" })).repeat(20)])).await;
    let outcome = bench.agent.send_text("Look.").await.unwrap();
    assert_eq!(
        (outcome.stop_reason, outcome.turns),
        (
            TurnStopReason::LoopDetected(
                "`Look` was called 6 times with the same arguments and the same result".into()
            ),
            6
        )
    );
    let warned = bench.kept().await.iter().filter(|it| it.contains("Calling again will not change it")).count();
    assert_eq!(warned, 3);
}

#[tokio::test]
async fn two_hundred_calls_in_one_answer_do_not_all_run() {
    let calls = (0..200).map(|at| ScriptedCall::new("Count", json!({ "what": at.to_string() })));
    let bench = Bench::new(ModelScript::new([ScriptStep::calls(calls), ScriptStep::text("Enough.")])).await;
    let outcome = bench.agent.send_text("Count.").await.unwrap();
    assert_eq!((outcome.stop_reason, outcome.tool_calls), (TurnStopReason::Completed, 64));
    assert_eq!(bench.counted().lines().count(), 64);
    let refused = bench.kept().await.iter().filter(|it| it.contains("at most 64 calls of one answer")).count();
    assert_eq!(refused, 136);
    bench.all_was_well();
}

#[tokio::test]
async fn two_megabytes_of_a_result_are_cut() {
    let bench = Bench::new(ModelScript::new([ScriptStep::calls([look("big")]), ScriptStep::text("Big.")])).await;
    bench.agent.send_text("Look.").await.unwrap();
    let sent = bench.server.requests()[1].to_string().len();
    assert!(sent < 130_000, "{sent} bytes were sent");
    bench.all_was_well();
}

#[tokio::test]
async fn budgets_end_a_turn_in_words() {
    let steps = || {
        ModelScript::new((0..9).map(|at| ScriptStep::call("Look", json!({ "what": at.to_string() })).usage(100, 50)))
    };
    let ends = async |budget: Budget| {
        let mut bench = Bench::new(steps()).await;
        bench.agent.budget = budget;
        let outcome = bench.agent.send_text("Look.").await.unwrap();
        assert_eq!(bench.server.violations(), Vec::<String>::new());
        match outcome.stop_reason {
            TurnStopReason::BudgetExhausted(words) => words,
            other => format!("{other:?}"),
        }
    };
    assert_eq!(
        ends(Budget { max_turns: Some(2), ..Budget::default() }).await,
        "the model has answered 2 times, which is as often as it may in one turn"
    );
    assert_eq!(
        ends(Budget { max_tokens: Some(300), ..Budget::default() }).await,
        "300 tokens are used, and 300 may be"
    );
}

#[tokio::test]
async fn time_that_is_over_ends_a_turn_with_a_valid_history() {
    let mut bench = Bench::new(ModelScript::new([ScriptStep::calls([look("wait")])])).await;
    bench.agent.budget.max_time = Some(Duration::from_millis(300));
    let outcome = bench.agent.send_text("Wait.").await.unwrap();
    assert_eq!(
        outcome.stop_reason,
        TurnStopReason::BudgetExhausted("the 0.3 s that the turn may take are over".into())
    );
    bench.agent.budget.max_time = None;
    bench.server.push(ScriptStep::text("Yes."));
    assert_eq!(bench.agent.send_text("Still there?").await.unwrap().text, "Yes.");
    bench.all_was_well();
}

#[tokio::test]
async fn who_steers_is_heard_before_the_calls_that_have_not_begun() {
    let mut bench = Bench::new(ModelScript::new([
        ScriptStep::calls(["a", "b"].map(|it| ScriptedCall::new("Count", json!({ "what": it })))),
        ScriptStep::text("I stop.").expect("No, stop"),
    ]))
    .await;
    let handle = bench.agent.handle.clone();
    let before = bench.agent.listener.clone();
    bench.agent.listener = std::sync::Arc::new(move |event| {
        before(event);
        if matches!(event, helve_agent::AgentEvent::ToolCallFinished { .. }) {
            handle.steer("No, stop.");
        }
    });
    bench.agent.send_text("Count.").await.unwrap();
    assert_eq!(bench.counted(), "a\n");
    let kept = bench.kept().await;
    assert!(kept.contains(&"tool failed: Error: Skipped due to user interrupt.".to_owned()), "{kept:#?}");
    assert_eq!(bench.server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn what_follows_waits_for_the_end_of_the_turn() {
    let bench =
        Bench::new(ModelScript::new([ScriptStep::text("One."), ScriptStep::text("Two.").expect("And then?")])).await;
    bench.agent.handle.follow_up("And then?");
    let outcome = bench.agent.send_text("First.").await.unwrap();
    assert_eq!((outcome.text.as_str(), outcome.turns), ("Two.", 2));
    bench.all_was_well();
}

#[tokio::test]
async fn a_cancelled_turn_leaves_a_valid_history() {
    let mut bench = Bench::new(ModelScript::new([ScriptStep::calls([
        look("a"),
        look("wait"),
        ScriptedCall::new("Count", json!({ "what": "never" })),
    ])]))
    .await;
    let handle = bench.agent.handle.clone();
    let before = bench.agent.listener.clone();
    bench.agent.listener = std::sync::Arc::new(move |event| {
        before(event);
        if matches!(event, helve_agent::AgentEvent::Progress { text, .. } if text == "looking at wait") {
            handle.cancel();
        }
    });
    assert_eq!(bench.agent.send_text("Look.").await.unwrap().stop_reason, TurnStopReason::Cancelled);
    assert_eq!(bench.counted(), "");
    bench.server.push(ScriptStep::text("Good."));
    assert_eq!(bench.agent.send_text("Go on.").await.unwrap().stop_reason, TurnStopReason::Completed);
    assert_eq!(
        bench.kept().await[5..8],
        ["tool: saw a", "tool failed: Error: cancelled", "tool failed: Error: cancelled"]
    );
    bench.all_was_well();
}

#[tokio::test]
async fn words_said_before_a_cancel_stay_with_a_mark() {
    let stalled =
        ScriptStep::text("I was about to say something long.").fault(helve_script::StreamFault::StallAfter(3));
    let mut bench = Bench::new(ModelScript::new([stalled])).await;
    let handle = bench.agent.handle.clone();
    let before = bench.agent.listener.clone();
    bench.agent.listener = std::sync::Arc::new(move |event| {
        before(event);
        if matches!(event, helve_agent::AgentEvent::Text(_)) {
            handle.cancel();
        }
    });
    let outcome = bench.agent.send_text("Speak.").await.unwrap();
    assert_eq!((outcome.stop_reason, outcome.text.as_str()), (TurnStopReason::Cancelled, "I was about "));
    assert_eq!(bench.kept().await, ["user: Speak.", "model: I was about \n[stopped here]", "model ends: canceled"]);
}

#[tokio::test]
async fn pictures_of_the_user_travel_as_parts() {
    let bench = Bench::new(ModelScript::new([ScriptStep::text("A dot.").expect("data:image/png;base64,AAAA")])).await;
    let picture = MessagePart::Binary { path: "dot.png".into(), mime_type: "image/png".into(), data: "AAAA".into() };
    bench.agent.run_turn(vec![MessagePart::Text { text: "What is it?".into() }, picture]).await.unwrap();
    bench.all_was_well();
}
