//! The rest of `helve serve`: tasks, schedules, memory and policy.

use serde_json::json;

use crate::{desk::Desk, serve::Site};

#[test]
fn a_task_is_listed_read_and_stopped() {
    let desk = Desk::new();
    let site = Site::open(&desk);
    assert_eq!(site.get("/api/tasks").json(), json!({ "tasks": [] }));
    let args = json!({ "command": "echo begun; exec sleep 1000", "run_in_background": true });
    let called = site.post("/api/call", &json!({ "tool": "Bash", "args": args }).to_string());
    assert_eq!(called.json()["is_error"], false, "{called:?}");
    let task = site.get("/api/tasks").json()["tasks"][0].clone();
    assert_eq!(
        (&task["kind"], &task["state"], &task["dialect"], &task["exit"]),
        (&json!("command"), &json!("running"), &json!("claude"), &json!(null))
    );
    assert!(task["command"].as_str().unwrap().contains("sleep 1000") && task["started"].is_string(), "{task}");
    let path = format!("/api/tasks/{}", task["id"].as_str().unwrap());
    let read = site.until(&path, |it| it["text"] == "begun\n");
    assert_eq!((&read["state"], &read["next"]), (&json!("running"), &json!(6)));
    assert_eq!(site.get(&format!("{path}?after=6")).json()["text"], "");
    let stopped = site.post(&format!("{path}/stop"), "").json();
    assert_eq!((&stopped["task"]["state"], &stopped["task"]["started"]), (&json!("stopped"), &json!(null)));
    assert_eq!(site.get("/api/tasks/none").status, 404);
    assert_eq!(site.post("/api/tasks/none/stop", "").status, 404);
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn the_user_writes_notes_of_his_own() {
    let desk = Desk::new();
    let site = Site::open(&desk);
    let kept = site.post("/api/memory", r#"{"text":"The gate code is 4711.","tags":["Home "," home"]}"#);
    assert_eq!(kept.status, 201, "{kept:?}");
    let id = kept.json()["id"].as_str().unwrap().to_owned();
    let note = site.get("/api/memory").json()["found"][0].clone();
    assert_eq!(
        (&note["source"]["note"], &note["tags"], &note["origin"], &note["held"]),
        (&json!(id), &json!(["home"]), &json!("user"), &json!(false))
    );
    let bearer = site.bearer();
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let path = format!("/api/memory/{id}");
    let changed = site.with("PUT", &path, &headers, r#"{"text":"The gate code is 4712."}"#);
    assert_eq!((changed.status, &changed.json()["tags"]), (200, &json!(["home"])), "{changed:?}");
    let found = site.get("/api/memory?q=gate+code").json();
    assert_eq!(found["found"][0]["text"], "The gate code is 4712.");
    // Nothing holds it back.
    assert_eq!(site.post(&format!("{path}/release"), "").status, 404);
    assert_eq!(site.with("DELETE", &path, &headers, "").status, 200);
    for (method, path) in [("DELETE", path.as_str()), ("PUT", &path), ("POST", &format!("{path}/release"))] {
        assert_eq!(site.with(method, path, &headers, r#"{"text":"x"}"#).status, 404, "{method}");
    }
    for wrong in ["{}", r#"{"text":" "}"#, r#"{"text":"x","tags":"y"}"#, r#"{"text":"x","more":1}"#] {
        assert_eq!(site.post("/api/memory", wrong).status, 400, "{wrong}");
    }
    assert_eq!(site.get("/api/memory").json()["total"], 0);
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn a_schedule_is_paused_resumed_and_deleted() {
    let desk = Desk::new().env("HELVE_MODEL_BASE_URL", "http://127.0.0.1:1/v1");
    let site = Site::open(&desk);
    let args = json!({ "goal": "water the ferns", "cadence_type": "interval", "cadence_value": "3600" });
    let made = json!({ "dialect": "oxydra", "tool": "schedule_create", "args": args });
    let made = site.post("/api/call", &made.to_string()).json();
    assert_eq!(made["is_error"], false, "{made}");
    let id = site.get("/api/schedules").json()["schedules"][0]["schedule_id"].as_str().unwrap().to_owned();
    let path = format!("/api/schedules/{id}");
    let paused = site.post(&path, r#"{"action":"pause"}"#).json();
    assert_eq!((&paused["schedule"]["status"], &paused["schedule"]["next_run_at"]), (&json!("paused"), &json!(null)));
    let resumed = site.post(&path, r#"{"action":"resume"}"#).json();
    assert_eq!(resumed["schedule"]["status"], "active");
    assert!(resumed["schedule"]["next_run_at"].is_string(), "{resumed}");
    let refused = site.post(&path, r#"{"action":"run"}"#);
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("no_model")));
    let runs = site.get(&format!("{path}/runs")).json();
    assert_eq!((&runs["runs"], &runs["schedule"]["schedule_id"]), (&json!([]), &json!(id)));
    assert_eq!(site.post(&path, r#"{"action":"fly"}"#).status, 400);
    assert_eq!(site.post(&path, r#"{"action":"delete"}"#).json(), json!({ "schedule": null }));
    assert_eq!(site.post(&path, r#"{"action":"pause"}"#).status, 404);
    assert_eq!(site.get(&format!("{path}/runs")).status, 404);
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn the_policy_tells_what_holds_and_what_was_refused() {
    let desk = Desk::new().env("HELVE_APPROVAL_DENY", "Bash(rm:*)").env("HELVE_SANDBOX_NETWORK", "off");
    let site = Site::open(&desk);
    let policy = site.get("/api/policy").json();
    assert_eq!(policy["dialects"]["claude"], json!({ "mode": "default", "configured": false }));
    assert_eq!(policy["dialects"]["solo"]["mode"], "open");
    let rule = &policy["rules"][0];
    assert_eq!((&rule["verdict"], &rule["rule"]), (&json!("deny"), &json!("Bash(rm:*)")));
    assert!(rule["from"].as_str().unwrap().contains("HELVE_APPROVAL_DENY"), "{rule}");
    assert_eq!((&policy["sandbox"]["network"], &policy["denied"]), (&json!("off"), &json!([])));
    assert!(policy["protected"].as_array().unwrap().contains(&json!(".git/hooks")));

    let called = json!({ "tool": "Bash", "args": { "command": "rm -rf x" } });
    assert_eq!(site.post("/api/call", &called.to_string()).json()["is_error"], true);
    let denied = site.get("/api/policy").json()["denied"][0].clone();
    assert_eq!((&denied["tool"], &denied["dialect"]), (&json!("Bash"), &json!("claude")));
    assert!(denied["summary"].as_str().unwrap().contains("rm -rf x"), "{denied}");
    assert!(denied["why"].as_str().unwrap().contains("Bash(rm:*)"), "{denied}");
    // A call that only failed was not refused.
    let failed = json!({ "tool": "Bash", "args": { "command": "false" } });
    site.post("/api/call", &failed.to_string());
    assert_eq!(site.get("/api/policy").json()["denied"].as_array().unwrap().len(), 1);
    assert_eq!(site.stop(), Some(0));
}
