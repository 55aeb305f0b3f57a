//! The tool `Config`: settings are read and set in the same way by every surface.

use helve_script::ScriptStep;
use serde_json::{Value, json};

use crate::{
    desk::Desk,
    mcp_client::{call_tools, text},
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
    let calls: Vec<_> =
        ASKED.iter().map(|(asked, _)| ("Config", serde_json::from_str::<Value>(asked).unwrap())).collect();
    for (number, result) in call_tools(&desk(), &[], &calls).iter().enumerate() {
        assert_answers("mcp", number, &result.to_string());
    }
}

fn set_model(name: &str) -> Value {
    json!({ "setting": "model", "value": name })
}

#[test]
fn a_model_that_is_set_answers_the_next_request() {
    for args in [&["run", "look"][..], &["chat"]] {
        let order = json!({ "description": "look", "prompt": "Look.", "subagent_type": "Explore" });
        let model = Model::new([
            ScriptStep::call("Config", set_model("another")),
            ScriptStep::call("Agent", order),
            ScriptStep::text("The agent looked."),
            ScriptStep::text("Done."),
        ]);
        let ran = model.desk().fed(&[args, &["--dialect", "claude"]].concat(), "look\n");
        assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
        let asked: Vec<_> = model.requests().iter().map(|it| it["model"].clone()).collect();
        assert_eq!(asked, ["scripted", "another", "another", "another"], "{}", args[0]);
    }
}

#[test]
fn a_model_that_is_set_over_mcp_works_for_its_agents() {
    let model = Model::new([ScriptStep::text("The agent looked.")]);
    let order = json!({ "description": "look", "prompt": "Look.", "subagent_type": "Explore" });
    let calls = [("Config", set_model("another")), ("Config", json!({ "setting": "model" })), ("Agent", order)];
    let results = call_tools(&model.desk(), &["--dialect", "claude"], &calls);
    assert!(text(&results[1]).contains("model = \"another\""), "{}", results[1]);
    assert!(text(&results[2]).contains("The agent looked."), "{}", results[2]);
    assert_eq!(model.requests()[0]["model"], "another");
}

#[test]
fn a_model_that_nothing_would_use_is_refused() {
    let calls = [("Config", set_model("another")), ("Config", json!({ "setting": "model.small", "value": "tiny" }))];
    let desk = Desk::new();
    for result in call_tools(&desk, &["--dialect", "claude"], &calls) {
        assert_eq!(result["isError"], true, "{result}");
        assert!(text(&result).contains("no model is configured here"), "{result}");
    }
    let ran = Model::new([]).desk().run(&["call", "Config", &set_model("another").to_string(), "--dialect", "claude"]);
    assert!(ran.code == 1 && ran.out.contains("ends after one call"), "{} {}", ran.out, ran.err);
}

fn calls() -> Vec<ScriptStep> {
    let calls =
        ASKED.iter().map(|(asked, _)| ScriptStep::call("Config", serde_json::from_str::<Value>(asked).unwrap()));
    calls.chain([ScriptStep::text("Done.")]).collect()
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
    steps.push(ScriptStep::call("Config", json!({ "setting": "model", "value": "another" })));
    steps.extend([ScriptStep::text("Changed."), ScriptStep::text("By another."), ScriptStep::text("By the first.")]);
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
