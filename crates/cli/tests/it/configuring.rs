//! The tool `Config`: settings are read and set in the same way by every surface.

use helve_script::Step;
use serde_json::{Value, json};

use crate::{
    desk::Desk,
    model::Model,
    serve::{Site, line_with},
};

/// What each surface is asked, and a part of the answer.
const ASKED: [(&str, &str); 8] = [
    (r#"{"setting":"model"}"#, "model = \\\"scripted\\\""),
    (r#"{"setting":"model.name"}"#, "model.name = \\\"scripted\\\""),
    (r#"{"setting":"theme"}"#, "theme = \\\"auto\\\""),
    (r#"{"setting":"sandbox.network"}"#, "sandbox.network = \\\"off\\\""),
    (r#"{"setting":"theme","value":"dark"}"#, "theme = \\\"dark\\\" (before: \\\"auto\\\")"),
    (r#"{"setting":"chat.reasoning","value":"true"}"#, "chat.reasoning = true (before: false)"),
    (r#"{"setting":"secrets.canaries"}"#, "there is no setting `secrets.canaries` that can be seen here"),
    (r#"{"setting":"sandbox.level","value":"none"}"#, "start helve with `--set sandbox.level=VALUE`"),
];

fn assert_answers(surface: &str, number: usize, answer: &str) {
    let (asked, wanted) = ASKED[number];
    assert!(answer.contains(wanted), "{surface}: {asked}: {answer}");
}

fn desk() -> Desk {
    Desk::new().env("HELVE_MODEL_NAME", "scripted").env("HELVE_DIALECT", "claude")
}

#[test]
fn a_call_by_hand_reads_and_sets() {
    let desk = desk();
    for (number, (asked, _)) in ASKED.iter().enumerate() {
        assert_answers("call", number, &desk.run(&["call", "Config", asked, "--json"]).out);
    }
    let lines: Vec<_> = ASKED.iter().map(|(asked, _)| format!("{{\"tool\":\"Config\",\"args\":{asked}}}\n")).collect();
    let lines = lines.concat();
    let ran = desk.fed(&["batch"], &lines);
    for (number, line) in ran.out.lines().enumerate() {
        assert_answers("batch", number, line);
    }
}

#[test]
fn a_client_of_mcp_reads_and_sets() {
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let mut lines = json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello }).to_string();
    lines.push('\n');
    for (number, (asked, _)) in ASKED.iter().enumerate() {
        let args: Value = serde_json::from_str(asked).unwrap();
        let params = json!({ "name": "Config", "arguments": args });
        let line = json!({ "jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params });
        lines.push_str(&format!("{line}\n"));
    }
    let ran = desk().fed(&["mcp"], &lines);
    for number in 0..ASKED.len() {
        let answer = ran
            .out
            .lines()
            .find(|it| it.contains(&format!("\"id\":{number},")) || it.contains(&format!("\"id\":{number}}}")));
        assert_answers("mcp", number, answer.unwrap_or(&ran.out));
    }
}

fn calls() -> Vec<Step> {
    let calls = ASKED.iter().map(|(asked, _)| Step::call("Config", serde_json::from_str::<Value>(asked).unwrap()));
    calls.chain([Step::text("Done.")]).collect()
}

#[test]
fn a_model_reads_and_sets_in_a_run_and_a_chat() {
    for args in [&["run", "look"][..], &["chat"]] {
        let model = Model::new(calls());
        let desk = model.desk();
        let args = [args, &["--mode", "bypassPermissions", "--dialect", "claude"]].concat();
        let ran = desk.fed(&args, "look\n");
        assert_eq!(ran.code, 0, "{}", ran.err);
        for (number, answer) in model.results().iter().enumerate() {
            assert_answers(args[0], number, &Value::from(answer.as_str()).to_string());
        }
        assert_eq!(model.results().len(), ASKED.len());
    }
}

#[test]
fn a_session_of_the_server_has_its_own_settings() {
    let mut steps = calls();
    steps.truncate(ASKED.len());
    steps.push(Step::call("Config", json!({ "setting": "model", "value": "another" })));
    steps.extend([Step::text("Changed."), Step::text("By another."), Step::text("By the first.")]);
    let model = Model::new(steps);
    let desk = model.desk().env("HELVE_APPROVAL_MODE", "bypassPermissions").env("HELVE_THEME", "light");
    let mut site = Site::open(&desk);
    line_with(&mut site.said, "schedules run with");
    for (number, (asked, _)) in ASKED.iter().enumerate().filter(|(number, _)| ![2, 4].contains(number)) {
        let body = format!("{{\"dialect\":\"claude\",\"tool\":\"Config\",\"args\":{asked}}}");
        assert_answers("/api/call", number, &site.post("/api/call", &body).body);
    }
    let page = site.get("/").body;
    assert!(page.contains("data-usual-theme=\"light\""), "{page}");

    let say = |path: &str, words: &str| {
        let told = site.post(path, &json!({ "message": words }).to_string());
        assert_eq!(told.status, 202, "{told:?}");
        let session = told.json()["session"].as_str().unwrap().to_owned();
        site.until(&format!("/api/sessions/{session}"), |it| it["session"]["running"] == false);
        session
    };
    let session = say("/api/sessions", "change it");
    say(&format!("/api/sessions/{session}/messages"), "who are you?");
    say("/api/sessions", "and who are you?");
    let models: Vec<_> = model.requests().iter().rev().take(2).map(|it| it["model"].clone()).collect();
    assert_eq!(models, [json!("scripted"), json!("another")], "only that conversation has another model");
    assert_eq!(site.stop(), Some(0));
}
