//! Sessions with `helve serve`: begun over HTTP, steered, stopped, and watched.

use std::io::{BufReader, Write};

use helve_script::{ModelScript, ScriptStep, StreamFault};
use serde_json::{Value, json};

use crate::{
    desk::Desk,
    model::Model,
    serve::{Site, line_with},
};

fn open(desk: &Desk) -> Site {
    let mut site = Site::open(desk);
    line_with(&mut site.said, "schedules run with");
    site
}

fn begin(site: &Site, body: &Value) -> String {
    let begun = site.post("/api/sessions", &body.to_string());
    assert_eq!(begun.status, 202, "{begun:?}");
    begun.json()["session"].as_str().unwrap().to_owned()
}

/// The session, once its turn is over.
fn ended(site: &Site, session: &str) -> Value {
    site.until(&format!("/api/sessions/{session}"), |it| it["session"]["running"] == false)
}

#[test]
fn a_conversation_goes_on_over_http() {
    let model = Model::new([
        ScriptStep::call("read", json!({ "path": "a.txt" })).with_text("I look."),
        ScriptStep::text("It says hello."),
        ScriptStep::text("Goodbye."),
    ]);
    let desk = model.desk();
    desk.put("work/a.txt", "hello\n");
    let site = open(&desk);
    let mut stream = site.connect();
    stream.write_all(site.request("GET", "/events", &[("Authorization", &site.bearer())], "").as_bytes()).unwrap();
    let mut events = BufReader::new(stream);
    line_with(&mut events, "keepalive");

    let session = begin(&site, &json!({ "message": "what is in a.txt?", "dialect": "solo" }));
    let mut heard = |mark: &str| -> Value { serde_json::from_str(&line_with(&mut events, mark)).unwrap() };
    assert_eq!(heard("session.started")["data"], json!({ "session": session, "parent": null }));
    let said = heard("session.message");
    assert_eq!(said["data"], json!({ "session": session, "seq": 1, "role": "user", "text": "what is in a.txt?" }));
    assert_eq!(heard("tool.call")["data"]["tool"], "read");
    assert_eq!(heard("session.ended")["data"], json!({ "session": session, "outcome": "done", "why": null }));

    let told = ended(&site, &session);
    let one = &told["session"];
    assert_eq!(
        (&one["title"], &one["dialect"], &one["messages"]),
        (&json!("what is in a.txt?"), &json!("solo"), &json!(4))
    );
    assert!(one["tokens"]["input"].as_u64().unwrap() > 0 && one["cost"].is_null(), "{one}");
    let usage = told["usage"].as_array().unwrap();
    assert_eq!(usage.len(), 2);
    let sum: u64 = usage.iter().map(|it| it["input"].as_u64().unwrap()).sum();
    assert_eq!(one["tokens"]["input"], sum);

    let more = site.post(&format!("/api/sessions/{session}/messages"), r#"{"message":"thank you"}"#);
    assert_eq!((more.status, &more.json()["session"]), (202, &json!(session)));
    let told = ended(&site, &session);
    assert!(told["messages"].to_string().contains("Goodbye."), "{told}");
    assert_eq!(site.get("/api/sessions").json()["sessions"][0]["id"], json!(session));
    assert_eq!(model.violations(), Vec::<String>::new());
    assert_eq!(site.stop(), Some(0));

    // Another process takes it up from the store.
    let again = open(&desk);
    let more = again.post(&format!("/api/sessions/{session}/messages"), r#"{"message":"are you there?"}"#);
    assert_eq!(more.status, 202, "{more:?}");
    assert_eq!(again.stop(), Some(0));
}

#[test]
fn a_word_in_the_middle_is_heard_next() {
    // The call waits for a person, so that the turn is in the middle of something.
    let model = Model::new([
        ScriptStep::call("file_write", json!({ "path": "/shared/a.txt", "content": "x" })),
        ScriptStep::computed(|request| {
            ScriptStep::text(format!("heard: {}", request["messages"].to_string().contains("in blue")))
        }),
    ]);
    let desk = model.desk();
    let site = open(&desk);
    let session = begin(&site, &json!({ "message": "paint", "dialect": "oxydra" }));
    let asked = site.pending(1).remove(0);
    assert_eq!(asked["session"], json!(session));
    assert_eq!(site.get(&format!("/api/sessions/{session}")).json()["session"]["running"], true);
    let more = site.post(&format!("/api/sessions/{session}/messages"), r#"{"message":"in blue"}"#);
    assert_eq!(more.status, 202);
    let path = format!("/api/approvals/{}", asked["id"].as_str().unwrap());
    assert_eq!(site.post(&path, r#"{"answer":"once"}"#).status, 200);
    let told = ended(&site, &session);
    assert!(told["messages"].to_string().contains("heard: true"), "{told}");
    assert_eq!(desk.get("work/a.txt"), "x");
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn a_turn_can_be_stopped() {
    let model = Model::new([ScriptStep::text("Let me think about that").fault(StreamFault::StallAfter(1))]);
    let desk = model.desk();
    let site = open(&desk);
    let session = begin(&site, &json!({ "message": "think" }));
    let path = format!("/api/sessions/{session}/stop");
    let stopped = site.post(&path, "");
    assert_eq!((stopped.status, stopped.json()), (200, json!({ "session": session, "stopped": true })));
    ended(&site, &session);
    let idle = site.post(&path, "");
    assert_eq!((idle.status, &idle.json()["stopped"]), (200, &json!(false)));
    assert_eq!(site.post("/api/sessions/none/stop", "").status, 404);
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn agents_are_children_of_their_conversation() {
    let script = ModelScript::new([
        ScriptStep::call(
            "Task",
            json!({ "description": "count", "prompt": "Count to three.", "subagent_type": "general-purpose" }),
        ),
        ScriptStep::text("It counted."),
    ])
    .branch("Count to three.", [ScriptStep::text("One, two, three.")]);
    let model = Model::of(script);
    let desk = model.desk().env("HELVE_APPROVAL_MODE", "bypassPermissions");
    let site = open(&desk);
    let session = begin(&site, &json!({ "message": "let somebody count" }));
    let told = ended(&site, &session);
    let child = &told["children"][0];
    assert_eq!((&child["parent"], &child["title"]), (&json!(session), &json!("count")), "{told}");
    let id = child["id"].as_str().unwrap();
    assert_eq!(site.get(&format!("/api/sessions?parent={session}")).json()["sessions"][0]["id"], json!(id));
    let refused = site.post(&format!("/api/sessions/{id}/messages"), r#"{"message":"go on"}"#);
    assert_eq!(refused.status, 409, "{refused:?}");
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn a_conversation_needs_a_model_words_and_its_own_folder() {
    let desk = Desk::new().env("HELVE_MODEL_BASE_URL", "http://127.0.0.1:1/v1");
    let mut site = Site::open(&desk);
    line_with(&mut site.said, "no model");
    let refused = site.post("/api/sessions", r#"{"message":"hello"}"#);
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("no_model")));
    assert_eq!(site.post("/api/sessions/none/messages", r#"{"message":"hello"}"#).status, 404);
    for wrong in
        ["{}", r#"{"message":""}"#, r#"{"message":" "}"#, r#"{"message":"x","dialect":"y"}"#, r#"{"message":1}"#]
    {
        assert_eq!(site.post("/api/sessions", wrong).status, 400, "{wrong}");
    }
    assert_eq!(site.stop(), Some(0));

    let model = Model::new([ScriptStep::text("Hello.")]);
    let desk = model.desk();
    let site = open(&desk);
    let session = begin(&site, &json!({ "message": "hello" }));
    ended(&site, &session);
    assert_eq!(site.stop(), Some(0));
    std::fs::create_dir(desk.path("work/inside")).unwrap();
    let desk = desk.env("HELVE_WORKSPACE", "inside");
    let elsewhere = open(&desk);
    let refused = elsewhere.post(&format!("/api/sessions/{session}/messages"), r#"{"message":"go on"}"#);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("conflict")));
    assert_eq!(elsewhere.stop(), Some(0));
}
