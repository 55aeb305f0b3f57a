//! Planned runs with `helve serve`: from a plan to a merged branch, over HTTP.

use serde_json::json;

use crate::{
    desk::Desk,
    forging::{git, repository, story, well_ended},
    model::Model,
    serve::{Site, line_with},
};

#[test]
fn a_plan_is_executed_and_watched() {
    let model = Model::of(story(false));
    let desk = model.desk();
    repository(&desk);
    // The plan is taken in and not executed: its base is no branch.
    let taken = desk.run(&["forge", "run", "../plan", "--base", "nowhere"]);
    assert_ne!(taken.code, 0, "{}", taken.out);
    let mut site = Site::open(&desk);
    line_with(&mut site.said, "schedules run with");
    let runs = site.get("/api/forge").json();
    assert_eq!((&runs["runs"][0]["id"], &runs["runs"][0]["tasks"]["total"]), (&json!("story"), &json!(10)), "{runs}");
    assert_eq!(site.post("/api/forge/other/run", "").status, 404);
    assert_eq!(site.post("/api/forge/story/run", r#"{"parallel":0}"#).status, 400);

    let asks = json!({ "ask_about_changes": true }).to_string();
    let begun = site.post("/api/forge/story/run", &asks);
    assert_eq!((begun.status, &begun.json()["run"]), (202, &json!("story")), "{begun:?}");
    assert_eq!(site.post("/api/forge/story/run", &asks).status, 409);
    // The first refinery asks for a change of the plan, and a person decides.
    let waits = site.until("/api/forge/story", |it| it["state"] == "paused" && it["here"] == false);
    let request = &waits["requests"][0];
    assert_eq!((&request["id"], &request["status"]), (&json!("cr-001"), &json!("pending")), "{waits}");
    assert_eq!(request["summary"], "A ninth part");
    assert_eq!(site.post("/api/forge/story/requests/cr-9", r#"{"answer":"approve"}"#).status, 404);
    let decided = site.post("/api/forge/story/requests/cr-001", r#"{"answer":"approve"}"#);
    assert_eq!((decided.status, &decided.json()["status"]), (200, &json!("approved")), "{decided:?}");
    assert_eq!(site.post("/api/forge/story/requests/cr-001", r#"{"answer":"reject"}"#).status, 409);

    assert_eq!(site.post("/api/forge/story/run", &asks).status, 202);
    let done = site.until("/api/forge/story", |it| it["state"] == "completed" && it["here"] == false);
    assert_eq!(done["counts"], json!({ "total": 11, "merged": 11, "running": 0, "failed": 0 }));
    let task = done["tasks"].as_array().unwrap().iter().find(|it| it["id"] == "r1").unwrap();
    assert_eq!(
        (&task["kind"], &task["state"], &task["deps"]),
        (&json!("refinery"), &json!("MERGED"), &json!(["t1", "t2", "t3", "t4"]))
    );
    assert_eq!(task["title"], "Part r1");
    let told = done["walkthroughs"].as_array().unwrap().iter().find(|it| it["task"] == "t1").unwrap();
    assert_eq!((&told["summary"], &told["confidence"]), (&json!("Did what was asked."), &json!(0.9)));
    assert_eq!(told["risks"], json!(["parts/t1.txt may be missing"]));
    assert_eq!(site.stop(), Some(0));
    well_ended(&desk);
}

#[test]
fn a_run_can_be_cancelled_and_needs_a_model() {
    let desk = Desk::new().env("HELVE_MODEL_BASE_URL", "http://127.0.0.1:1/v1");
    let site = Site::open(&desk);
    assert_eq!(site.get("/api/forge").json(), json!({ "runs": [] }));
    assert_eq!(site.stop(), Some(0));
    assert!(!desk.path("work/.forge").exists());

    repository(&desk);
    _ = desk.run(&["forge", "run", "../plan", "--base", "nowhere"]);
    let mut site = Site::open(&desk);
    line_with(&mut site.said, "no model");
    let refused = site.post("/api/forge/story/run", "");
    assert!([503, 404].contains(&refused.status), "{refused:?}");
    assert_eq!(site.get("/api/forge/..%2f").status, 404);
    assert_eq!(site.post("/api/forge/none/cancel", "").status, 404);
    assert_eq!(git(&desk, &["status", "--porcelain"]), "");
    assert_eq!(site.stop(), Some(0));
}
