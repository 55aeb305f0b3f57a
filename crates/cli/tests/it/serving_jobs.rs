//! Posts to webhooks as jobs of `helve serve`: kept over a kill, worked once, and visible when they fail.

use std::time::{Duration, Instant};

use helve_script::{ModelScript, ScriptStep, StreamFault};
use helve_web::channels::sign;
use serde_json::{Value, json};

use crate::{
    desk::Desk,
    model::Model,
    serve::{Answer, Site, line_with},
};

const SECRET: &str = "0123456789abcdef";
const SESSION: &str = "/api/sessions/hook:build";

fn hooked(model: &Model) -> Desk {
    model.desk().env("HELVE_HOOKS", "build=BUILD_SECRET").env("BUILD_SECRET", SECRET)
}

/// A server that has found its model.
fn open(desk: &Desk) -> Site {
    let mut site = Site::open(desk);
    line_with(&mut site.said, "schedules run with");
    site
}

fn post(site: &Site, text: &str, headers: &[(&str, &str)]) -> Answer {
    let signed = sign(SECRET.as_bytes(), text.as_bytes());
    let headers: Vec<_> =
        [("X-Webhook-Signature", signed.as_str())].into_iter().chain(headers.iter().copied()).collect();
    site.with("POST", "/hooks/build", &headers, text)
}

/// Posts a text that must be taken. The id of its job.
fn accepted(site: &Site, text: &str) -> String {
    let answer = post(site, text, &[]);
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.json()["job"].as_str().unwrap().to_owned()
}

fn done(site: &Site, many: u64) -> Value {
    site.until("/api/jobs?state=done&most=500", |it| it["total"].as_u64().unwrap() >= many)
}

fn job(site: &Site, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let find = |all: &Value| all["jobs"].as_array().unwrap().iter().find(|it| it["id"] == id).cloned();
    find(&site.until("/api/jobs?most=500", |all| find(all).is_some_and(|it| wanted(&it)))).unwrap()
}

/// The texts of the messages that the hook's session has from its sender.
fn texts(site: &Site) -> Vec<String> {
    let session = site.until(&format!("{SESSION}?most=500"), |_| true);
    let messages = session["messages"].as_array().unwrap().iter().filter(|it| it["role"] == "user");
    messages
        .filter_map(|it| it["parts"][0]["text"].as_str()?.strip_prefix("[webhook:build] ").map(str::to_owned))
        .collect()
}

#[test]
fn a_delivery_that_is_sent_again_is_one_job() {
    let model = Model::new([ScriptStep::text("Seen."), ScriptStep::text("Seen, too.")]);
    let desk = hooked(&model);
    let site = open(&desk);
    let github = [("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")];
    let first = post(&site, "the build broke", &github);
    let job = first.json()["job"].clone();
    assert_eq!((first.status, first.json()), (202, json!({ "status": "accepted", "job": job, "duplicate": false })));
    let again = json!({ "status": "accepted", "job": job, "duplicate": true });
    assert_eq!(post(&site, "the build broke", &github).json(), again);
    done(&site, 1);
    assert_eq!(post(&site, "the build broke", &github).json(), again);
    assert_eq!(site.stop(), Some(0));

    let site = open(&desk);
    assert_eq!(post(&site, "the build broke", &github).json(), again, "also after a restart");
    // Another id, and no id, are other posts.
    let other = post(&site, "the build broke", &[("Idempotency-Key", "other")]);
    assert_eq!(other.json()["duplicate"], false);
    done(&site, 2);
    assert_eq!(texts(&site), ["the build broke", "the build broke"]);
    assert_eq!(model.requests().len(), 2);
    assert_eq!(post(&site, "x", &[("Idempotency-Key", &"k".repeat(129))]).status, 400);
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn a_post_is_worked_after_a_kill_without_being_said_twice() {
    let model = Model::new([
        ScriptStep::text("Let me think").fault(StreamFault::StallAfter(1)),
        ScriptStep::text("The first is done."),
        ScriptStep::text("The second is done."),
    ]);
    let desk = hooked(&model);
    let site = open(&desk);
    let first = accepted(&site, "the first");
    site.until(SESSION, |it| it["messages"].to_string().contains("the first"));
    let second = accepted(&site, "the second");
    job(&site, &first, |it| it["state"] == "running");
    job(&site, &second, |it| it["state"] == "queued");
    // Nothing is said or saved before the end.
    drop(site);

    let site = open(&desk);
    done(&site, 2);
    assert_eq!(texts(&site), ["the first", "the second"]);
    let told = site.get(SESSION).body;
    assert!(told.contains("The first is done.") && told.contains("The second is done."), "{told}");
    assert_eq!(job(&site, &first, |_| true)["attempt"], 2);
    assert_eq!(job(&site, &second, |_| true)["attempt"], 1);
    assert_eq!(model.violations(), [""; 0]);
    assert_eq!(site.stop(), Some(0));
}

/// Kills at many moments: whatever was answered with 202 is worked, and stands in the session once.
#[test]
fn no_accepted_post_is_lost_however_often_the_server_is_killed() {
    let kills: u64 = std::env::var("HELVE_KILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(6);
    let model =
        Model::of(ModelScript::new([ScriptStep::computed(|_| ScriptStep::text("ok").delay_ms(10)).repeat(100_000)]));
    let desk = hooked(&model);
    let (mut sent, mut taken) = (0, Vec::new());
    let send = |site: &Site, sent: &mut u64, taken: &mut Vec<String>| {
        let text = format!("post {sent}.");
        *sent += 1;
        // The sender tries again where it heard nothing, and sometimes also where it did.
        let id = format!("delivery {text}");
        for _ in 0..=(*sent % 2) {
            if post(site, &text, &[("Idempotency-Key", &id)]).status == 202 && !taken.contains(&text) {
                taken.push(text.clone());
            }
        }
    };
    for kill in 0..kills {
        let site = open(&desk);
        // Every round gets a little farther, so that no post is there at every kill.
        done(&site, taken.len() as u64);
        for _ in 0..2 + kill % 4 {
            send(&site, &mut sent, &mut taken);
        }
        let moment = Instant::now() + Duration::from_micros(kill * 7919 % 60_000);
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        drop(site);
    }
    let site = open(&desk);
    done(&site, taken.len() as u64);
    let mut found = texts(&site);
    found.sort();
    taken.sort();
    assert_eq!(found, taken);
    assert_eq!(model.violations(), [""; 0]);
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn a_post_that_fails_is_tried_again() {
    let model = Model::new([ScriptStep::status(400, r#"{"error":{"message":"bad day"}}"#), ScriptStep::text("Now.")]);
    let desk = hooked(&model);
    let site = open(&desk);
    let id = accepted(&site, "the build broke");
    let failed = job(&site, &id, |it| it["error"].is_string());
    assert!(failed["error"].as_str().unwrap().contains("bad day"), "{failed}");
    let ended = job(&site, &id, |it| it["state"] == "done");
    assert_eq!((&ended["attempt"], &ended["error"]), (&json!(2), &json!(null)));
    assert_eq!(texts(&site), ["the build broke"]);
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn a_dead_post_is_listed_and_retried() {
    let look = || ScriptStep::call("Glob", json!({ "pattern": "*" }));
    let model = Model::new([look(), look(), ScriptStep::text("Done now.")]);
    let desk = hooked(&model).env("HELVE_SCHEDULE_MAX_TURNS", "1");
    let site = open(&desk);
    let id = accepted(&site, "look around");
    // The budget of one answer is used up; another attempt would end in the same way.
    let dead = job(&site, &id, |it| it["state"] == "dead");
    assert!(dead["error"].as_str().unwrap().contains("as often as it may"), "{dead}");
    assert_eq!((&dead["kind"], &dead["payload"], &dead["attempt"]), (&json!("webhook/1"), &json!(null), &json!(1)));
    assert_eq!(site.get("/api/jobs?state=dead").json()["total"], 1);
    let listed = desk.run(&["jobs", "list", "--state", "dead"]);
    assert!(listed.out.contains(&id) && listed.out.contains("as often as it may"), "{}", listed.out);
    let shown = desk.run(&["jobs", "show", &id]);
    assert!(shown.out.contains("look around") && shown.out.contains("attempt 1 of 5"), "{}", shown.out);
    // From the command line, and over HTTP.
    let retried = desk.run(&["jobs", "retry", &id]);
    assert_eq!(retried.code, 0, "{}", retried.err);
    job(&site, &id, |it| it["state"] == "dead" && it["epoch"] == 2);
    let retried = site.post(&format!("/api/jobs/{id}/retry"), "");
    assert_eq!((retried.status, &retried.json()["job"]["state"]), (200, &json!("queued")), "{retried:?}");
    job(&site, &id, |it| it["state"] == "done");
    assert_eq!(texts(&site), ["look around"]);
    let refused = site.post(&format!("/api/jobs/{id}/retry"), "");
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("conflict")));
    assert_eq!(site.post(&format!("/api/jobs/{id}/cancel"), "").status, 409);
    let refused = desk.run(&["jobs", "cancel", &id]);
    assert_eq!((refused.code, refused.err.contains("has ended: it is done")), (1, true), "{}", refused.err);
    assert_eq!(desk.run(&["jobs", "retry", &id]).code, 1);
    assert!(desk.run(&["jobs", "show", "nothing"]).err.contains("there is no job nothing"));
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn posts_wait_up_to_a_limit_and_can_be_cancelled() {
    let model =
        Model::new([ScriptStep::text("Let me think").fault(StreamFault::StallAfter(1)), ScriptStep::text("Next.")]);
    let desk = hooked(&model);
    let site = open(&desk);
    let running = accepted(&site, "the first");
    job(&site, &running, |it| it["state"] == "running");
    let waiting: Vec<_> = (0..64).map(|n| accepted(&site, &format!("waiting {n}"))).collect();
    let refused = post(&site, "one more", &[]);
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("unavailable")));
    assert_eq!(refused.json()["error"], "too many messages wait (64 of 64); try again later");
    for id in &waiting[1..] {
        let cancelled = site.post(&format!("/api/jobs/{id}/cancel"), "").json();
        assert_eq!(cancelled["job"]["state"], "cancelled", "{cancelled}");
    }
    // The running one hears of it, and the next one has its turn.
    let asked = site.post(&format!("/api/jobs/{running}/cancel"), "").json();
    assert_eq!((&asked["job"]["state"], &asked["job"]["is_cancel_requested"]), (&json!("running"), &json!(true)));
    job(&site, &running, |it| it["state"] == "cancelled");
    job(&site, &waiting[0], |it| it["state"] == "done");
    assert_eq!(texts(&site), ["the first", "waiting 0"]);
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn jobs_of_other_users_and_workspaces_are_left_alone() {
    let model = Model::new([ScriptStep::text("Mine.")]);
    // Another user's server, in another workspace of the same store, takes a post and is killed in the middle of it.
    let theirs = Model::new([ScriptStep::text("Let me think").fault(StreamFault::StallAfter(1))]);
    let other = hooked(&theirs).env("HELVE_USER", "bob");
    std::fs::create_dir(other.path("elsewhere")).unwrap();
    let mut command = other.command(&["serve", "--http", "127.0.0.1:0"]);
    command.current_dir(other.path("elsewhere"));
    let mut site = Site::start(command);
    line_with(&mut site.said, "schedules run with");
    let id = accepted(&site, "for bob");
    job(&site, &id, |it| it["state"] == "running");
    drop(site);

    let mine = model.at(other).env("HELVE_USER", "ann");
    let site = open(&mine);
    let own = accepted(&site, "for ann");
    job(&site, &own, |it| it["state"] == "done");
    let all = site.get("/api/jobs").json();
    assert_eq!((&all["total"], &all["jobs"][0]["id"]), (&json!(1), &json!(own)));
    for action in ["retry", "cancel"] {
        let answer = site.post(&format!("/api/jobs/{id}/{action}"), "");
        let missing = site.post(&format!("/api/jobs/none/{action}"), "");
        assert_eq!((answer.status, &answer.body), (404, &missing.body));
        assert_eq!(mine.run(&["jobs", action, &id]).code, 1);
        let unknown = site.with("POST", &format!("/api/jobs/{id}/{action}"), &[], "");
        assert_eq!(unknown.status, 401);
    }
    assert_eq!(site.with("GET", "/api/jobs", &[], "").status, 401);
    let bobs = mine.run(&["jobs", "list", "--user", "bob"]);
    assert!(bobs.out.contains(&id) && bobs.out.contains("running") && !bobs.out.contains(&own), "{}", bobs.out);
    assert_eq!(site.stop(), Some(0));
}
