//! One process at a time in a session: who is turned away, who writes nothing more, and how others reach it.

use std::sync::Arc;

use helve_contract::{
    Error, Result,
    jiff::{SignedDuration, Timestamp},
    ports::{Clock, InboxItem, MessageRole, SESSION_LEASE, Sessions},
};
use helve_script::{ModelScript, ScriptStep};
use helve_store::SqliteStore;
use serde_json::json;

use crate::bench::Bench;

/// A clock that is an hour ahead.
struct Ahead;

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        Timestamp::now() + SignedDuration::from_hours(1)
    }
}

/// Does something with the store from another thread, as another process would, and waits for it.
fn elsewhere<T: Send + 'static, F: Future<Output = Result<T>>>(
    store: &SqliteStore,
    work: impl FnOnce(SqliteStore) -> F + Send + 'static,
) -> T {
    let store = store.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work(store)).unwrap()
    });
    thread.join().unwrap()
}

#[tokio::test]
async fn a_session_in_use_is_not_written_to() {
    let bench = Bench::new(ModelScript::new([ScriptStep::text("Here I am.")])).await;
    let lease = bench.store.claim_session("story", "somebody", SESSION_LEASE).await.unwrap();
    let error = bench.agent.send_text("Hello?").await.unwrap_err();
    let Error::SessionHeld(holder) = &error else { panic!("{error}") };
    assert_eq!((holder.session.as_str(), holder.pid), ("story", std::process::id()));
    let text = error.to_string();
    let start = format!("session story is in use by process {} on {} since ", holder.pid, holder.host);
    assert!(text.starts_with(&start) && text.ends_with("stop that process, then retry"), "{text}");
    assert_eq!(bench.store.get_session("story").await.unwrap(), None);
    bench.store.release_session(&lease).await.unwrap();
    assert_eq!(bench.agent.send_text("Hello?").await.unwrap().text, "Here I am.");
    assert_eq!(bench.store.session_holder("story").await.unwrap(), None, "free again after the turn");
    bench.all_was_well();
}

#[tokio::test]
async fn a_message_from_outside_is_read_at_the_next_step() {
    let bench = Bench::new(ModelScript::default()).await;
    let store = bench.store.clone();
    bench.server.push(ScriptStep::computed(move |_| {
        // The turn holds the session, and the message waits until the call has its result.
        elsewhere(&store, |store| async move {
            assert!(store.session_holder("story").await?.is_some());
            store.post("story", &InboxItem::text(MessageRole::User, "Be quick.")).await
        });
        ScriptStep::call("Look", json!({ "what": "a" }))
    }));
    bench.server.push(ScriptStep::computed(|request| {
        let last = request["messages"].as_array().unwrap().last().unwrap().to_string();
        assert!(last.contains("Be quick."), "{last}");
        ScriptStep::text("Done.")
    }));
    bench.agent.send_text("Look at a.").await.unwrap();
    assert_eq!(
        bench.kept().await,
        [
            "user: Look at a.",
            "model calls Look {\"what\":\"a\"}",
            "model ends: tool_use",
            "tool: saw a",
            "user: Be quick.",
            "model: Done.",
            "model ends: end_turn",
        ]
    );
    // What is left between two turns starts the next one.
    bench.store.post("story", &InboxItem::text(MessageRole::User, "And now?")).await.unwrap();
    bench.server.push(ScriptStep::text("Nothing more."));
    assert_eq!(bench.agent.continue_turn().await.unwrap().text, "Nothing more.");
    bench.all_was_well();
}

#[tokio::test]
async fn a_turn_whose_session_was_taken_over_writes_nothing_more() {
    let bench = Bench::new(ModelScript::default()).await;
    let store = bench.store.clone();
    bench.server.push(ScriptStep::computed(move |_| {
        // For the other process the lease has long ended: this one was stopped.
        elsewhere(&store, |store| async move {
            let later = store.with_clock(Arc::new(Ahead));
            later.claim_session("story", "somebody", SESSION_LEASE).await
        });
        ScriptStep::call("Count", json!({ "what": "a" }))
    }));
    let error = bench.agent.send_text("Count.").await.unwrap_err();
    assert!(matches!(&error, Error::LeaseLost(key) if key == "story"), "{error}");
    assert_eq!(bench.kept().await, ["user: Count."]);
    assert_eq!(bench.counted(), "", "a call that is not on record does not run");
    bench.all_was_well();
}

#[tokio::test]
async fn a_message_is_left_while_another_process_works() {
    let bench = Bench::new(ModelScript::new([ScriptStep::text("Hello."), ScriptStep::text("I read it.")])).await;
    bench.agent.send_text("Hi.").await.unwrap();
    let lease = bench.store.claim_session("story", "somebody", SESSION_LEASE).await.unwrap();
    bench.agent.leave(&InboxItem::text(MessageRole::User, "Read this.")).await.unwrap();
    assert_eq!(bench.kept().await.len(), 3, "only the holder moves it in");
    bench.store.release_session(&lease).await.unwrap();
    bench.agent.leave(&InboxItem::text(MessageRole::System, "A note.")).await.unwrap();
    assert_eq!(bench.kept().await[3..], ["user: Read this.", "note: A note."]);
    bench.agent.continue_turn().await.unwrap();
    bench.all_was_well();
}
