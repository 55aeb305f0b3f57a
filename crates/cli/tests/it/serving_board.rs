//! The board of `helve serve`: calls that wait for a person at the page.

use std::{
    io::{BufReader, Write},
    path::Path,
    thread,
};

use helve_script::ScriptStep;
use serde_json::{Value, json};

use crate::{
    desk::Desk,
    model::Model,
    serve::{Answer, Site, line_with},
};

fn write(file: &str) -> String {
    let args = json!({ "path": format!("/shared/{file}"), "content": "x" });
    json!({ "dialect": "oxydra", "tool": "file_write", "args": args, "ask": true }).to_string()
}

/// Makes calls that are asked, and answers each question in turn.
fn answered(site: &Site, files: &[&str], answers: &[Value]) -> Vec<Value> {
    let mut replies = Vec::new();
    let mut answers = answers.iter();
    for file in files {
        let reply = thread::scope(|scope| {
            let called = scope.spawn(|| site.post("/api/call", &write(file)));
            if let Some(answer) = answers.next() {
                let asked = site.pending(1).remove(0);
                let id = asked["id"].as_str().unwrap();
                let said = site.post(&format!("/api/approvals/{id}"), &answer.to_string());
                assert_eq!((said.status, &said.json()["answer"]), (200, &answer["answer"]), "{said:?}");
            }
            called.join().unwrap()
        });
        assert_eq!(reply.status, 200, "{reply:?}");
        replies.push(reply.json());
    }
    replies
}

#[test]
fn a_call_waits_for_a_person() {
    let desk = Desk::new();
    let site = Site::open(&desk);
    let mut stream = site.connect();
    stream.write_all(site.request("GET", "/events", &[("Authorization", &site.bearer())], "").as_bytes()).unwrap();
    let mut events = BufReader::new(stream);
    line_with(&mut events, "keepalive");

    let reply = thread::scope(|scope| {
        let called = scope.spawn(|| site.post("/api/call", &write("a.txt")));
        let asked = site.pending(1).remove(0);
        assert_eq!(
            (&asked["kind"], &asked["dialect"], &asked["tool"], &asked["agent"]),
            (&json!("approval"), &json!("oxydra"), &json!("file_write"), &json!("main"))
        );
        assert!(asked["summary"].as_str().unwrap().contains("a.txt"), "{asked}");
        assert_eq!(asked["diff"], "+x");
        assert!(asked["grant"].as_str().is_some_and(|it| !it.is_empty()), "{asked}");
        let told: Value = serde_json::from_str(&line_with(&mut events, "approval.asked")).unwrap();
        assert_eq!((&told["data"], &told["dialect"]), (&asked, &json!("oxydra")));
        assert!(!desk.path("work/a.txt").exists());

        let path = format!("/api/approvals/{}", asked["id"].as_str().unwrap());
        for wrong in ["", "{}", r#"{"answer":"yes"}"#, r#"{"answers":[["x"]]}"#, r#"{"answer":"once","x":1}"#] {
            assert_eq!(site.post(&path, wrong).status, 400, "{wrong}");
        }
        assert_eq!(site.post("/api/approvals/other", r#"{"answer":"once"}"#).status, 404);
        let said = site.post(&path, r#"{"answer":"once"}"#);
        assert_eq!((said.status, &said.json()["answer"]), (200, &json!("once")));
        let again = site.post(&path, r#"{"answer":"deny"}"#);
        assert_eq!((again.status, &again.json()["code"]), (409, &json!("conflict")));
        let told: Value = serde_json::from_str(&line_with(&mut events, "approval.decided")).unwrap();
        assert_eq!((&told["data"]["id"], &told["data"]["answer"]), (&asked["id"], &json!("once")));
        called.join().unwrap()
    });
    assert_eq!((reply.status, &reply.json()["is_error"]), (200, &json!(false)), "{reply:?}");
    assert_eq!(desk.get("work/a.txt"), "x");
    let decided = &site.get("/api/approvals").json()["decided"];
    assert_eq!((decided.as_array().unwrap().len(), &decided[0]["answer"]), (1, &json!("once")));
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn once_is_once_and_a_session_is_a_session() {
    let desk = Desk::new();
    let site = Site::open(&desk);
    let once = json!({ "answer": "once" });
    let session = json!({ "answer": "session" });
    // Once asks again; after a yes for the session nothing like it is asked.
    let replies = answered(&site, &["a.txt", "a.txt", "a.txt"], &[once, session]);
    assert!(replies.iter().all(|it| it["is_error"] == false), "{replies:?}");
    assert_eq!(site.get("/api/approvals").json()["decided"].as_array().unwrap().len(), 2);
    // Without `ask` the call is its maker's consent, as before.
    let plain =
        json!({ "dialect": "oxydra", "tool": "file_write", "args": { "path": "/shared/b.txt", "content": "y" } });
    assert_eq!(site.post("/api/call", &plain.to_string()).json()["is_error"], false);
    assert_eq!(desk.get("work/b.txt"), "y");
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn a_no_reaches_the_model_with_its_reason() {
    let desk = Desk::new();
    let site = Site::open(&desk);
    let no = json!({ "answer": "deny", "reason": "not on a Friday" });
    let replies = answered(&site, &["a.txt"], &[no]);
    assert_eq!(replies[0]["is_error"], true);
    assert!(replies[0]["text"].as_str().unwrap().contains("not on a Friday"), "{replies:?}");
    assert!(!desk.path("work/a.txt").exists());
    let decided = site.get("/api/approvals").json()["decided"][0].clone();
    assert_eq!((&decided["answer"], &decided["reason"]), (&json!("deny"), &json!("not on a Friday")));
    let denied = site.get("/api/policy").json()["denied"][0].clone();
    assert_eq!((&denied["tool"], &denied["dialect"]), (&json!("file_write"), &json!("oxydra")));
    assert!(denied["why"].as_str().unwrap().contains("not on a Friday"), "{denied}");
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn silence_is_a_no() {
    let desk = Desk::new().env("HELVE_APPROVAL_PATIENCE_SECS", "1");
    let site = Site::open(&desk);
    let reply = site.post("/api/call", &write("a.txt")).json();
    assert_eq!(reply["is_error"], true);
    assert!(reply["text"].as_str().unwrap().contains("did not answer within 1 s"), "{reply}");
    let board = site.get("/api/approvals").json();
    assert_eq!((&board["pending"], &board["decided"][0]["answer"]), (&json!([]), &json!("timeout")));
    let path = format!("/api/approvals/{}", board["decided"][0]["id"].as_str().unwrap());
    assert_eq!(site.post(&path, r#"{"answer":"once"}"#).status, 409);
    assert!(!desk.path("work/a.txt").exists());
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn whoever_leaves_takes_the_question_along() {
    let desk = Desk::new();
    let site = Site::open(&desk);
    let body = write("a.txt");
    let bearer = site.bearer();
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let mut stream = site.connect();
    stream.write_all(site.request("POST", "/api/call", &headers, &body).as_bytes()).unwrap();
    site.pending(1);
    drop(stream);
    site.pending(0);
    assert_eq!(site.get("/api/approvals").json()["decided"][0]["answer"], "gone");
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn the_end_says_no_to_what_waits() {
    let desk = Desk::new();
    let site = Site::open(&desk);
    let mut stream = site.connect();
    let bearer = site.bearer();
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    stream.write_all(site.request("POST", "/api/call", &headers, &write("a.txt")).as_bytes()).unwrap();
    site.pending(1);
    let reading = thread::spawn(move || {
        let mut text = String::new();
        _ = std::io::Read::read_to_string(&mut stream, &mut text);
        text
    });
    assert_eq!(site.stop(), Some(0));
    let text = reading.join().unwrap();
    assert!(text.contains("the server is about to end"), "{text}");
    assert!(!desk.path("work/a.txt").exists());
}

/// A call by an MCP client.
fn called(site: &Site, file: &Path) -> Answer {
    let args = json!({ "file_path": file, "content": "x" });
    let [_, answer] = site.mcp("tools/call", &json!({ "name": "Write", "arguments": args }));
    answer
}

#[test]
fn a_client_that_cannot_ask_asks_at_the_page() {
    let desk = Desk::new().env("HELVE_APPROVAL_MODE", "default");
    let site = Site::open(&desk);
    let file = desk.path("work/a.txt");
    let reply = thread::scope(|scope| {
        let called = scope.spawn(|| called(&site, &file));
        let asked = site.pending(1).remove(0);
        assert_eq!((&asked["dialect"], &asked["kind"]), (&json!("claude"), &json!("approval")));
        let path = format!("/api/approvals/{}", asked["id"].as_str().unwrap());
        assert_eq!(site.post(&path, r#"{"answer":"once"}"#).status, 200);
        called.join().unwrap()
    });
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(file.exists(), "{reply:?}");
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn a_question_of_a_tool_is_answered_at_the_page() {
    let question = json!({
        "question": "Which colour?", "header": "Colour", "multiSelect": false,
        "options": [{ "label": "red", "description": "warm" }, { "label": "blue", "description": "cold" }],
    });
    let model = Model::new([
        ScriptStep::call("AskUserQuestion", json!({ "questions": [question] })),
        ScriptStep::text("Blue it is."),
    ]);
    let desk = model.desk();
    let mut site = Site::open(&desk);
    line_with(&mut site.said, "schedules run with");
    let begun = site.post("/api/sessions", r#"{"message":"paint it"}"#);
    assert_eq!(begun.status, 202, "{begun:?}");
    let session = begun.json()["session"].as_str().unwrap().to_owned();
    let asked = site.pending(1).remove(0);
    assert_eq!((&asked["kind"], &asked["session"]), (&json!("question"), &json!(session)));
    assert_eq!(asked["questions"][0]["options"][1], json!({ "label": "blue", "description": "cold" }));
    let path = format!("/api/approvals/{}", asked["id"].as_str().unwrap());
    assert_eq!(site.post(&path, r#"{"answer":"once"}"#).status, 400);
    assert_eq!(site.post(&path, r#"{"answers":[["red"],["blue"]]}"#).status, 400);
    let said = site.post(&path, r#"{"answers":[["blue"]]}"#);
    assert_eq!((said.status, &said.json()["answer"]), (200, &json!("answered")));
    let told = site.until(&format!("/api/sessions/{session}"), |it| it["session"]["running"] == false);
    assert!(told["messages"].to_string().contains("Blue it is."), "{told}");
    assert!(model.results()[0].contains("blue"), "{:?}", model.results());
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn a_schedule_waits_only_where_somebody_looks() {
    let write =
        |file: &str| ScriptStep::call("file_write", json!({ "path": format!("/shared/{file}"), "content": "x" }));
    let model = Model::new([write("a.txt"), ScriptStep::text("Left."), write("b.txt"), ScriptStep::text("Written.")]);
    let desk = model.desk();
    let mut site = Site::open(&desk);
    line_with(&mut site.said, "schedules run with");
    let args = json!({ "goal": "write it down", "cadence_type": "interval", "cadence_value": "3600" });
    let made = json!({ "dialect": "oxydra", "tool": "schedule_create", "args": args });
    assert_eq!(site.post("/api/call", &made.to_string()).json()["is_error"], false);
    let id = site.get("/api/schedules").json()["schedules"][0]["schedule_id"].as_str().unwrap().to_owned();
    let path = format!("/api/schedules/{id}");
    let run = || assert_eq!(site.post(&path, r#"{"action":"run"}"#).status, 200);
    let ended = |count: usize| {
        site.until(&format!("{path}/runs"), |it| {
            let runs = it["runs"].as_array().unwrap();
            runs.len() == count && runs.iter().all(|it| !it["finished"].is_null())
        })
    };

    run();
    ended(1);
    assert!(model.results()[0].contains("nobody has looked at the page"), "{:?}", model.results());
    assert!(!desk.path("work/a.txt").exists());

    assert_eq!(site.get("/api/approvals").json()["decided"], json!([]));
    run();
    let asked = site.pending(1).remove(0);
    let answer = format!("/api/approvals/{}", asked["id"].as_str().unwrap());
    assert_eq!(site.post(&answer, r#"{"answer":"once"}"#).status, 200);
    ended(2);
    assert_eq!(desk.get("work/b.txt"), "x");
    assert_eq!(site.stop(), Some(0));
}
