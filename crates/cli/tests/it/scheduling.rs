//! Schedules that run: by hand, by `helve schedule drive`, and in an open session.

use std::{
    io::{BufRead, BufReader, Write as _},
    process::{Child, Stdio},
    sync::Arc,
};

use helve_contract::{
    jiff::{SignedDuration, Timestamp},
    ports::{Schedule, ScheduleFilter, Schedules},
};
use helve_script::ScriptStep;
use helve_store::SqliteStore;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    desk::{Desk, Ran},
    model::Model,
};

fn called(ran: &Ran) -> Vec<Value> {
    let all = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|it| it["type"] == "called").collect()
}

/// The only schedule there is.
fn schedule(desk: &Desk) -> Value {
    let list = desk.run(&["schedule", "list", "--json"]).json();
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    list[0].clone()
}

fn id(desk: &Desk) -> String {
    schedule(desk)["schedule_id"].as_str().unwrap().to_owned()
}

/// Makes every schedule due since a moment ago.
fn make_due(desk: &Desk) {
    let store: Arc<dyn Schedules> = Arc::new(SqliteStore::lazy(desk.path("home/.local/state/helve/helve.db")));
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let which = ScheduleFilter { limit: 10, ..ScheduleFilter::default() };
        for old in store.schedules(&which).await.unwrap().0 {
            let due = Timestamp::now() - SignedDuration::from_secs(1);
            let new = Schedule { next: Some(due), updated: Timestamp::now(), ..old.clone() };
            assert!(store.update_schedule(&new, old.updated).await.unwrap());
        }
    });
}

/// A program that is stopped at the end.
struct Driver(Child);

impl Driver {
    /// `helve schedule drive`, and it went on until a run ended.
    fn until_a_run_ended(desk: &Desk) -> Vec<String> {
        let mut command = desk.command(&["schedule", "drive"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut driver = Self(child);
        let mut heard = Vec::new();
        for line in BufReader::new(driver.0.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            if line.contains(" ended ") {
                _ = kill_process(Pid::from_child(&driver.0), Signal::INT);
            }
            heard.push(line);
        }
        assert!(driver.0.wait().unwrap().success(), "{heard:?}");
        heard
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn a_job_of_solo_speaks_to_the_conversation_that_made_it() {
    let add = json!({ "action": "add", "schedule": "0 9 * * *", "prompt": "look at the mail" });
    let model = Model::new([
        ScriptStep::call("cron", add),
        ScriptStep::text("Planned."),
        ScriptStep::text("No mail.").expect("look at the mail"),
        ScriptStep::text("Still none.").expect("No mail."),
    ]);
    let desk = model.desk();
    let ran = desk.run(&["run", "every morning", "--json", "--dialect", "solo", "--mode", "bypassPermissions"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let id = id(&desk);
    let ran = desk.run(&["schedule", "run", &id[..8]]);
    assert_eq!(ran.all(), (0, "No mail.\n", ""));
    make_due(&desk);
    let heard = Driver::until_a_run_ended(&desk);
    assert!(heard.iter().any(|it| it.contains("success")), "{heard:?}");

    let list = desk.run(&["sessions", "list", "--children", "--json"]).json();
    assert_eq!(list["total"], 1, "{list}");
    let talk = desk.run(&["sessions", "export", list["sessions"][0]["id"].as_str().unwrap()]).json();
    let said: Vec<(String, String)> = talk["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| Some((it["role"].as_str()?.to_owned(), it["parts"][0]["text"].as_str()?.to_owned())))
        .collect();
    let prompt = format!("[cron:{id}] look at the mail");
    let wanted =
        [("user", prompt.as_str()), ("assistant", "No mail."), ("user", &prompt), ("assistant", "Still none.")];
    let last: Vec<_> = said.iter().rev().take(4).rev().map(|(who, words)| (who.as_str(), words.as_str())).collect();
    assert_eq!(last, wanted);
    let tools = model.requests()[2]["tools"].to_string();
    assert!(tools.contains("\"cron\""), "a job can end itself");
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn a_task_of_oxydra_runs_alone_and_tells_its_owner() {
    let create = json!({
        "goal": "Look at the price of tea.", "cadence_type": "cron", "cadence_value": "0 9 * * *",
        "name": "tea", "notification": "conditional",
    });
    let model = Model::new([
        ScriptStep::call("schedule_create", create),
        ScriptStep::text("Planned."),
        ScriptStep::text("[NOTIFY] Tea is cheap.").expect("begin your final answer with [NOTIFY]"),
        ScriptStep::text("Nothing new."),
        ScriptStep::computed(|request| {
            let text = request["messages"].to_string();
            let at = text.find("scheduled for: ").map_or("", |at| &text[at + 15..]);
            ScriptStep::call("schedule_runs", json!({ "schedule_id": at.split('"').next() }))
        }),
        ScriptStep::computed(|request| {
            let messages = request["messages"].as_array().unwrap();
            let runs: Value = serde_json::from_str(messages.last().unwrap()["content"].as_str().unwrap()).unwrap();
            let first = runs["runs"].as_array().and_then(|it| it.last()).cloned().unwrap_or_default();
            ScriptStep::call("schedule_run_output", json!({ "run_id": first["run_id"] }))
        }),
        ScriptStep::text("It was cheap.").expect("Tea is cheap."),
    ]);
    let desk = Desk::new();
    let channels = json!({ "note": { "kind": "log", "to": desk.path("home/notes.log"), "allow": ["me"] } });
    let desk = model.at(desk).env("HELVE_CHANNELS", &channels.to_string()).env("HELVE_SCHEDULE_CHANNEL", "note:me");
    let ask = |words: &str| desk.run(&["run", words, "--json", "--dialect", "oxydra", "--mode", "bypassPermissions"]);
    let ran = ask("watch tea");
    assert_eq!(called(&ran)[0]["is_error"], false, "{}", ran.out);
    make_due(&desk);
    Driver::until_a_run_ended(&desk);
    let log = desk.get("home/notes.log");
    assert!(log.contains("Tea is cheap.") && !log.contains("[NOTIFY]"), "{log}");

    let id = id(&desk);
    let ran = desk.run(&["schedule", "run", &id]);
    assert_eq!(ran.all(), (0, "Nothing new.\n", ""));
    assert_eq!(desk.get("home/notes.log"), log, "what is not worth it is not told");
    let alone = &model.requests()[3];
    assert!(!alone.to_string().contains("Tea is cheap."), "every run begins anew");

    let ran = ask(&format!("scheduled for: {id}"));
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    assert!(called(&ran)[1]["text"].as_str().unwrap().contains("Tea is cheap."), "{}", ran.out);
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn a_result_comes_back_to_its_conversation_and_refused_work_is_no_success() {
    let create = json!({ "goal": "Write a.txt.", "cadence_type": "cron", "cadence_value": "0 9 * * *", "name": "a" });
    let write = || ScriptStep::call("file_write", json!({ "path": "/shared/a.txt", "content": "x" }));
    let model = Model::new([
        ScriptStep::call("schedule_create", create),
        ScriptStep::text("Planned.").expect("helve schedule drive"),
        write(),
        ScriptStep::text("It was refused.").expect("nobody to ask"),
        write(),
        ScriptStep::text("It is written."),
        ScriptStep::text("I know.").expect("It is written."),
    ]);
    let desk = model.desk();
    let ran = desk.run(&["run", "plan", "--json", "--dialect", "oxydra", "--set", "approval.allow=schedule_create"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let id = id(&desk);
    let ran = desk.run(&["schedule", "run", &id]);
    assert_eq!(ran.code, 5, "{} {}", ran.out, ran.err);
    assert!(ran.out.contains("1 call was refused") && ran.out.contains("`schedule.mode`"), "{}", ran.out);
    let shown = desk.run(&["schedule", "show", &id, "--json"]).json();
    assert_eq!((&shown["last_run_status"], &shown["runs"][0]["status"]), (&json!("refused"), &json!("refused")));

    let ran = desk.run(&["schedule", "run", &id, "--set", "schedule.mode=acceptEdits"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    assert_eq!(desk.get("work/a.txt"), "x");
    let ran = desk.run(&["run", "--continue", "what came of it?", "--dialect", "oxydra"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "I know.\n"), "{}", ran.err);
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn users_have_schedules_and_conversations_of_their_own() {
    let create = json!({ "goal": "Do it.", "cadence_type": "cron", "cadence_value": "0 9 * * *" });
    let model = Model::new([
        ScriptStep::call("schedule_create", create),
        ScriptStep::text("Planned."),
        ScriptStep::call("memory_save", json!({ "content": "Ann likes tea." })),
        ScriptStep::text("Kept."),
        ScriptStep::call("memory_search", json!({ "query": "tea" })),
        ScriptStep::text("Nothing.").expect("[]"),
    ]);
    let desk = model.desk();
    let run = |user: &str, words: &str| {
        desk.run(&["run", words, "--dialect", "oxydra", "--mode", "bypassPermissions", "--user", user])
    };
    assert_eq!(run("ann", "plan").code, 0);
    assert_eq!(run("ann", "remember").code, 0);
    assert_eq!(run("bob", "what does Ann like?").code, 0);
    let count = |user: &str, what: &str| desk.run(&[what, "list", "--json", "--user", user]).json();
    assert_eq!(count("ann", "schedule").as_array().map(Vec::len), Some(1));
    assert_eq!(count("bob", "schedule").as_array().map(Vec::len), Some(0));
    assert_eq!((&count("ann", "sessions")["total"], &count("bob", "sessions")["total"]), (&json!(2), &json!(1)));
    assert_eq!(count("ann", "memory").as_array().map(Vec::len), Some(1));
    assert_eq!(count("bob", "memory").as_array().map(Vec::len), Some(0));

    // An id of another user is answered like one that does not exist.
    let id = count("ann", "schedule")[0]["schedule_id"].as_str().unwrap().to_owned();
    let session = count("ann", "sessions")["sessions"][0]["id"].as_str().unwrap().to_owned();
    for args in [
        &["schedule", "run", &id][..],
        &["schedule", "show", &id],
        &["schedule", "pause", &id, "--user", "bob"],
        &["schedule", "delete", &id[..6], "--user", "bob"],
        &["sessions", "show", &session],
        &["sessions", "delete", &session, "--user", "bob"],
        &["run", "go on", "--session", &session],
    ] {
        let ran = desk.run(args);
        assert!(ran.code != 0 && ran.err.contains("there is no "), "{args:?}: {} {}", ran.out, ran.err);
    }
    assert_eq!(desk.run(&["schedule", "show", &id, "--user", "ann"]).code, 0);
    assert_eq!(desk.run(&["sessions", "show", &session, "--user", "ann"]).code, 0);
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn names_of_users_are_checked_everywhere() {
    let desk = Desk::new();
    for user in ["", "../x", "a/b", " ", "a b", ".hidden"] {
        for args in [
            &["schedule", "list"][..],
            &["sessions", "list"],
            &["memory", "list"],
            &["call", "Read", "{}"],
            &["tools"],
            &["mcp"],
        ] {
            let ran = desk.run(&[args, &["--user", user]].concat());
            assert!(ran.code == 2 && ran.err.contains("a user name"), "{args:?} {user:?}: {} {}", ran.out, ran.err);
        }
        let ran = desk.run(&["sessions", "list", "--set", &format!("user={user}")]);
        assert!(ran.code == 2 && ran.err.contains("a user name"), "{user:?}: {} {}", ran.out, ran.err);
    }
    assert_eq!(desk.run(&["sessions", "list", "--user", "ann@example.org"]).code, 0);
}

#[test]
fn what_fails_five_times_is_disabled() {
    let create = json!({ "goal": "Do it.", "cadence_type": "interval", "cadence_value": "3600", "name": "it" });
    let model = Model::new([
        ScriptStep::call("schedule_create", create),
        ScriptStep::text("Planned."),
        ScriptStep::status(401, r#"{"error":{"message":"bad key"}}"#).repeat(5),
        ScriptStep::text("Done at last."),
    ]);
    let desk = Desk::new();
    let channels = json!({ "note": { "kind": "log", "to": desk.path("home/notes.log"), "allow": ["me"] } });
    let desk = model.at(desk).env("HELVE_CHANNELS", &channels.to_string()).env("HELVE_SCHEDULE_CHANNEL", "note:me");
    desk.run(&["run", "plan it", "--dialect", "oxydra", "--mode", "bypassPermissions"]);
    let id = id(&desk);
    for failures in 1..=5 {
        assert_eq!(schedule(&desk)["status"], "active");
        let ran = desk.run(&["schedule", "run", &id]);
        assert_eq!(ran.code, 1, "{}", ran.out);
        assert_eq!(schedule(&desk)["consecutive_failures"], failures);
    }
    assert_eq!(schedule(&desk)["status"], "disabled");
    let log = desk.get("home/notes.log");
    assert!(log.contains("has failed 3 times in a row") && log.contains("was disabled after 5 failures"), "{log}");

    assert_eq!(desk.run(&["schedule", "resume", &id]).code, 0);
    assert_eq!(desk.run(&["schedule", "run", &id]).out, "Done at last.\n");
    assert_eq!(schedule(&desk)["consecutive_failures"], 0);
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn an_open_chat_hears_its_jobs() {
    let add = json!({ "action": "add", "schedule": "0 9 * * *", "prompt": "look at the mail" });
    let model = Model::new([
        ScriptStep::call("cron", add),
        ScriptStep::text("Planned."),
        ScriptStep::text("No mail today.").expect("look at the mail"),
        ScriptStep::text("You are welcome.").expect("No mail today."),
    ]);
    let desk = model.desk();
    let mut command = desk.command(&["chat", "--dialect", "solo", "--mode", "bypassPermissions"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut chat = Driver(child);
    let mut words = chat.0.stdin.take().unwrap();
    let mut lines = BufReader::new(chat.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    words.write_all(b"every morning\n").unwrap();
    assert!(lines.any(|it| it.contains("Planned.")));
    make_due(&desk);
    assert!(lines.any(|it| it.contains("No mail today.")), "it comes by itself");
    words.write_all(b"thanks\n").unwrap();
    assert!(lines.any(|it| it.contains("You are welcome.")));
    drop(words);
    assert!(chat.0.wait().unwrap().success());
    let show = desk.run(&["schedule", "show", &id(&desk), "--json"]).json();
    assert_eq!(
        (&show["runs"][0]["status"], &show["runs"][0]["summary"]),
        (&json!("success"), &json!("No mail today."))
    );
    assert_eq!(model.violations(), Vec::<String>::new());
}
