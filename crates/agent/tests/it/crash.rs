//! A process that is killed at any moment loses no message that was kept, and the session goes on.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use helve_agent::{Agent, AgentEvent, TurnStopReason};
use helve_contract::ports::Sessions;
use helve_script::{ModelScript, ScriptStep, ScriptedCall};
use serde_json::{Value, json};

use crate::bench::{agent, shown};

/// The answer to a request: counts on until ten were counted, whatever happened before.
fn next(request: &Value) -> ScriptStep {
    let messages = request["messages"].as_array().unwrap();
    let calls: usize = messages.iter().filter_map(|it| it["tool_calls"].as_array()).map(Vec::len).sum();
    if calls >= 10 {
        return ScriptStep::text("Ten.");
    }
    let count = |at: usize| ScriptedCall::new("Count", json!({ "what": format!("{at}") }));
    let look = |at: usize| ScriptedCall::new("Look", json!({ "what": format!("{at}") }));
    ScriptStep::calls([count(calls), look(calls + 1), look(calls + 2)]).with_text(format!("From {calls}."))
}

/// The process that is killed: it works on the session in a directory, and says each event aloud.
#[tokio::test]
#[ignore = "only as a child of the story below"]
async fn child() {
    let Ok(folder) = std::env::var("HELVE_STORY") else { return };
    let url = std::env::var("HELVE_STORY_URL").unwrap();
    let (agent, _) = agent(folder.as_ref(), &url);
    let agent = Agent { listener: Arc::new(|event: &AgentEvent| eprintln!("@{event:?}")), ..agent };
    agent.send_text("Count to ten.").await.unwrap();
}

#[tokio::test]
async fn a_kill_at_any_point_loses_nothing_that_was_kept() {
    let kills: u64 = std::env::var("HELVE_KILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(20);
    for seed in 0..kills {
        one(seed).await;
    }
}

async fn one(seed: u64) {
    let folder = tempfile::Builder::new().prefix("crash").tempdir().unwrap();
    std::fs::create_dir(folder.path().join("w")).unwrap();
    let requests = Arc::new(AtomicU64::new(0));
    let seen = requests.clone();
    let script = ModelScript::new([ScriptStep::computed(move |request| {
        seen.fetch_add(1, Ordering::SeqCst);
        next(request)
    })
    .repeat(1_000)]);
    let server = script.serve().await.unwrap();
    let url = server.url();
    let path = folder.path().to_owned();
    tokio::task::spawn_blocking(move || run_and_kill(&path, &url, seed)).await.unwrap();

    let (agent, store) = agent(folder.path(), &server.url());
    let before = store.messages("story", None, 1_000).await.unwrap();
    let counted = |folder: &std::path::Path| std::fs::read_to_string(folder.join("w/count.txt")).unwrap_or_default();
    // What the model was told had been kept: no request has a message that the store has not.
    let asked = server.requests();
    if let Some(last) = asked.last() {
        let answers = |it: &Value| it["role"] == "assistant";
        let told = last["messages"].as_array().unwrap().iter().filter(|it| answers(it)).count();
        let kept = before.iter().flat_map(shown).filter(|it| it.starts_with("model: From")).count();
        assert!(kept >= told, "seed {seed}: {told} answers were told and {kept} are kept");
    }
    let outcome = if before.is_empty() { agent.send_text("Count to ten.").await } else { agent.continue_turn().await };
    let outcome = outcome.unwrap();
    assert_eq!(outcome.stop_reason, TurnStopReason::Completed, "seed {seed}");
    assert_eq!(server.violations(), Vec::<String>::new(), "seed {seed}");

    let after = store.messages("story", None, 1_000).await.unwrap();
    assert_eq!(after[..before.len()], before[..], "seed {seed}");
    let text = counted(folder.path());
    let mut once: Vec<&str> = text.lines().collect();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), text.lines().count(), "seed {seed}: a tool ran twice: {text}");
}

/// Kills the child after so many of its events, and a little later.
fn run_and_kill(folder: &std::path::Path, url: &str, seed: u64) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--ignored", "--nocapture"])
        .env("HELVE_STORY", folder)
        .env("HELVE_STORY_URL", url)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let chance = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let events = (chance >> 33) % 60;
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    for _ in 0..events {
        if lines.next().is_none() {
            break;
        }
    }
    // The moment of the kill is a matter of chance, and that is what is tried.
    std::thread::sleep(Duration::from_micros((chance >> 20) % 4_000));
    _ = child.kill();
    _ = child.wait();
}
