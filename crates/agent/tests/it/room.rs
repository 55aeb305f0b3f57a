//! When the window fills: results shrink, older messages are summed up, and nothing goes without a mark.

use helve_agent::{TurnStopReason, model::Endpoint, model::OpenAi};
use helve_contract::ports::Sessions;
use helve_script::{ModelScript, ScriptStep, ScriptedCall};
use serde_json::json;
use std::sync::Arc;

use crate::bench::{Bench, hasty};

fn long() -> ScriptStep {
    ScriptStep::calls([ScriptedCall::new("Look", json!({ "what": "long" }))]).no_usage()
}

async fn small(script: ModelScript, window: u64) -> Bench {
    let mut bench = Bench::new(script).await;
    let endpoint =
        Endpoint { timeouts: hasty(), context_window: Some(window), ..Endpoint::new(bench.server.url(), "scripted") };
    bench.agent.model = Arc::new(OpenAi::new(endpoint).unwrap());
    bench.agent.system_prompt = "S".into();
    bench
}

#[tokio::test]
async fn old_results_shrink_first() {
    let steps =
        (0..9).map(|at| ScriptStep::calls([ScriptedCall::new("Look", json!({ "what": "long", "n": at }))]).no_usage());
    let script = ModelScript::new(steps.chain([ScriptStep::text("Done.").no_usage()]));
    let bench = small(script, 14_000).await;
    assert_eq!(bench.agent.send_text("Look nine times.").await.unwrap().stop_reason, TurnStopReason::Completed);
    assert!(bench.heard().contains(&"compacted".to_owned()));
    let last = bench.server.requests().last().unwrap().to_string();
    assert!(last.contains("characters were left out here to save room; call again if you need them"));
    assert!(last.contains("Look nine times."));
    // The store keeps all of it.
    assert_eq!(bench.kept().await.iter().filter(|it| it.starts_with("tool: long") && it.len() > 6_000).count(), 9);
    bench.all_was_well();
}

#[tokio::test]
async fn older_messages_are_summed_up_and_the_conversation_goes_on() {
    let bench = small(
        ModelScript::default().branch(
            "You sum up the first part",
            [ScriptStep::text("The user likes short answers.").no_usage().repeat(20)],
        ),
        4_000,
    )
    .await;
    for at in 0..8 {
        bench.server.push(ScriptStep::text(format!("{at} {}", "answer ".repeat(250))).no_usage());
    }
    for at in 0..8 {
        let outcome = bench.agent.send_text(&format!("Question {at} {}", "why ".repeat(200))).await.unwrap();
        assert_eq!(outcome.stop_reason, TurnStopReason::Completed);
    }
    let last = bench.server.requests().last().unwrap()["messages"][1]["content"].to_string();
    assert!(last.contains("[Summary of messages 1 to"), "{last}");
    assert!(last.contains("The user likes short answers."), "{last}");
    let record = bench.store.get_session("story").await.unwrap().unwrap();
    assert!(record.view_from.is_some());
    assert_eq!(bench.kept().await.iter().filter(|it| it.starts_with("user: Question")).count(), 8);
    assert_eq!(bench.server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn an_endpoint_that_says_too_long_gets_less() {
    let mut bench = Bench::new(
        ModelScript::new([long(), long(), long(), ScriptStep::text("Done.").no_usage()])
            .branch("You sum up the first part", [ScriptStep::text("They looked.").repeat(3)])
            .window(14_000),
    )
    .await;
    bench.agent.system_prompt = "S".into();
    assert_eq!(bench.agent.send_text("Look.").await.unwrap().stop_reason, TurnStopReason::Completed);
    assert_eq!(bench.server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn what_can_not_be_made_shorter_ends_in_words() {
    let mut bench = Bench::new(ModelScript::new([]).window(3_000)).await;
    bench.agent.system_prompt = "S".into();
    let outcome = bench.agent.send_text(&"word ".repeat(1_000)).await.unwrap();
    let wanted = "the conversation does not fit into the model's window: This model's maximum context length is exceeded.. \
                  Begin a new conversation, or say less at once.";
    assert_eq!(outcome.stop_reason, TurnStopReason::ModelFailed(wanted.into()));
}
