//! Files that come with a message: from the command line, in a chat, over HTTP and by a webhook.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use helve_script::ScriptStep;
use helve_web::channels::sign;
use serde_json::{Value, json};

use crate::{
    desk::Desk,
    model::Model,
    serve::{Site, line_with},
};

/// A red dot, as PNG.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

fn save(index: usize, path: &str) -> ScriptStep {
    ScriptStep::call("attachment_save", json!({ "index": index, "path": path }))
}

/// The user's last message in the first request, as text.
fn asked(model: &Model) -> Value {
    let requests = model.requests();
    let messages = requests[0]["messages"].as_array().unwrap();
    messages.iter().rfind(|it| it["role"] == "user").unwrap()["content"].clone()
}

fn put_bytes(desk: &Desk, name: &str, bytes: &[u8]) {
    fs::write(desk.path(name), bytes).unwrap();
}

#[test]
fn a_run_takes_files_along() {
    let model = Model::new([
        save(0, "/shared/in/notes.txt"),
        save(1, "/tmp/dot.png"),
        save(2, "/shared/data.bin"),
        save(3, "/shared/none"),
        ScriptStep::computed(|request| {
            let missing = request["messages"].to_string().contains("there is no attachment 3");
            ScriptStep::text(if missing { "Saved." } else { "What?" })
        }),
        save(0, "/shared/late.txt"),
        ScriptStep::text("None left."),
    ]);
    let desk = model.desk();
    desk.put("home/notes.txt", "call Ann at https://example.com/\n");
    put_bytes(&desk, "home/dot.png", &STANDARD.decode(PNG).unwrap());
    put_bytes(&desk, "home/data.bin", b"\xff\x00\x01");
    let flags = ["--dialect", "oxydra", "--mode", "bypassPermissions"];
    let files = ["notes.txt", "dot.png", "data.bin"].map(|it| desk.path(&format!("home/{it}")).display().to_string());
    let attached = files.iter().flat_map(|it| ["--attach", it]);
    let args: Vec<&str> = ["run", "keep these"].into_iter().chain(attached).chain(flags).collect();
    let ran = desk.run(&args);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Saved.\n"), "{}", ran.err);
    assert_eq!(desk.get("work/in/notes.txt"), "call Ann at https://example.com/\n");
    assert_eq!(fs::read(desk.path("work/data.bin")).unwrap(), b"\xff\x00\x01");

    let said = asked(&model);
    let said = said.as_array().unwrap();
    assert_eq!(said[0]["text"], "keep these");
    let listed = said[1]["text"].as_str().unwrap();
    assert!(listed.contains("0: notes.txt (text/plain, 33 bytes); the text is below"), "{listed}");
    assert!(listed.contains("1: dot.png (image/png, 70 bytes); the image is below"), "{listed}");
    assert!(listed.contains("2: data.bin (application/octet-stream, 3 bytes); the content is not shown"), "{listed}");
    let text = said[2]["text"].as_str().unwrap();
    assert!(text.starts_with("[Text of the attached file notes.txt, as data:") && text.contains("call Ann"), "{text}");
    let image = said[3]["image_url"]["url"].as_str().unwrap();
    assert!(image.starts_with("data:image/png;base64,"), "{image}");

    // The next turn has no files, and remembers the names.
    let mut more = vec!["run", "--continue", "what did I send?"];
    more.extend(flags);
    let ran = desk.run(&more);
    assert_eq!((ran.code, ran.out.as_str()), (0, "None left.\n"), "{}", ran.err);
    let requests = model.requests();
    let last = requests.last().unwrap()["messages"].to_string();
    assert!(last.contains("1: dot.png (image/png, 70 bytes)"), "{last}");
    assert!(last.contains("the user sent no files with this turn"), "{last}");
    assert!(!desk.path("work/late.txt").exists());
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_attached_is_an_error_before_anything_is_asked() {
    let model = Model::new([]);
    let desk = model.desk();
    desk.put("work/a.txt", "a");
    let ran = desk.run(&["run", "x", "--attach", "none.txt"]);
    assert_eq!((ran.code, ran.err.contains("cannot attach none.txt: No such file")), (2, true), "{}", ran.err);
    let ran = desk.run(&["run", "x", "--attach", "."]);
    assert_eq!((ran.code, ran.err.contains("cannot attach .: it is not a regular file")), (2, true), "{}", ran.err);
    let many = ["--attach", "a.txt"].repeat(17);
    let ran = desk.run(&[vec!["run", "x"], many].concat());
    assert_eq!((ran.code, ran.err.contains("17 attachments are too many")), (2, true), "{}", ran.err);
    fs::File::create(desk.path("work/large")).unwrap().set_len((50 << 20) + 1).unwrap();
    let ran = desk.run(&["run", "x", "--attach", "large"]);
    assert_eq!((ran.code, ran.err.contains("one message takes 50 MiB at most")), (2, true), "{}", ran.err);
    assert!(model.requests().is_empty());
}

#[test]
fn a_secret_in_a_file_is_redacted_and_the_file_is_untrusted() {
    let model = Model::new([
        ScriptStep::call("web_fetch", json!({ "url": "http://127.0.0.1:9/?q=made-up" })),
        ScriptStep::text("Read."),
    ]);
    let desk = model
        .desk()
        .env("MY_SECRET", "hunter2-hunter2-hunter2")
        .env("HELVE_SCRUB_SECRETS_ENV", "MY_SECRET")
        .env("HELVE_POLICY_TAINT", "deny");
    desk.put("work/log.txt", "key hunter2-hunter2-hunter2 \u{202e}end\n");
    let args = ["run", "read it", "--attach", "log.txt", "--dialect", "oxydra", "--mode", "bypassPermissions"];
    let ran = desk.run(&args);
    assert_eq!(ran.out, "Read.\n", "{}", ran.err);
    let said = asked(&model).to_string();
    assert!(!said.contains("hunter2") && said.contains("u{202e}"), "{said}");
    // Nothing goes out any more, and the refusal names the file.
    let result = model.results().join("\n");
    assert!(result.contains("text from the attached file log.txt"), "{result}");
}

#[test]
fn a_chat_attaches_files_to_the_next_message() {
    let model = Model::new([
        save(0, "/shared/saved.txt"),
        ScriptStep::text("Saved."),
        ScriptStep::computed(|request| {
            let messages = request["messages"].as_array().unwrap();
            ScriptStep::text(format!("again: {}", messages.last().unwrap()["content"].to_string().contains("attached")))
        }),
    ]);
    let desk = model.desk();
    desk.put("home/a note.txt", "hello\n");
    let input = "/attach\n/attach ~/none\n/attach ~/a note.txt\nkeep it\nand now?\n";
    let ran = desk.fed(&["chat", "--dialect", "oxydra", "--mode", "bypassPermissions"], input);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for told in [
        "no files are attached; write /attach FILE",
        "cannot attach DESK/home/none: No such file",
        "0: a note.txt (text/plain, 6 bytes); sent with your next message",
        "again: false",
    ] {
        assert!(ran.out.contains(told), "{told}: {}", ran.out);
    }
    assert_eq!(desk.get("work/saved.txt"), "hello\n");
    let ran = desk.fed(&["chat", "--continue"], "");
    assert!(ran.out.contains("a note.txt (text/plain, 6 bytes)"), "{}", ran.out);
}

fn open(desk: &Desk) -> Site {
    let mut site = Site::open(desk);
    line_with(&mut site.said, "schedules run with");
    site
}

fn ended(site: &Site, session: &str) -> Value {
    site.until(&format!("/api/sessions/{session}"), |it| it["session"]["running"] == false)
}

#[test]
fn files_are_uploaded_over_http() {
    let model = Model::new([
        save(0, "/shared/one.txt"),
        ScriptStep::text("One."),
        save(0, "/shared/two.txt").expect("in the middle"),
        ScriptStep::text("Both."),
    ]);
    // The second message comes while the first call waits for a person.
    let desk = model.desk();
    let site = open(&desk);
    let file = |name: &str, text: &str| json!({ "name": name, "mime_type": "x/y", "data": STANDARD.encode(text) });
    let begun = site.post(
        "/api/sessions",
        &json!({ "message": "keep", "dialect": "oxydra", "attachments": [file("/a/one.txt", "one")] }).to_string(),
    );
    assert_eq!(begun.status, 202, "{begun:?}");
    let session = begun.json()["session"].as_str().unwrap().to_owned();
    let first = site.pending(1).remove(0);
    let more = json!({ "message": "in the middle", "attachments": [file("two.txt", "two")] }).to_string();
    let path = format!("/api/sessions/{session}/messages");
    assert_eq!(site.post(&path, &more).status, 202);
    let allow =
        |it: &Value| site.post(&format!("/api/approvals/{}", it["id"].as_str().unwrap()), r#"{"answer":"once"}"#);
    assert_eq!(allow(&first).status, 200);
    let second = site.until("/api/approvals", |it| {
        it["pending"].as_array().is_some_and(|all| all.iter().any(|it| it["id"] != first["id"]))
    });
    let second = second["pending"].as_array().unwrap().iter().find(|it| it["id"] != first["id"]).unwrap().clone();
    assert_eq!(allow(&second).status, 200);
    let told = ended(&site, &session);
    assert_eq!((desk.get("work/one.txt"), desk.get("work/two.txt")), ("one".into(), "two".into()), "{told}");
    assert!(told["messages"].to_string().contains("0: one.txt (text/plain, 3 bytes)"), "{told}");

    let refused = |body: &Value| {
        let answer = site.post("/api/sessions", &body.to_string());
        (answer.status, answer.json()["error"].as_str().unwrap().to_owned())
    };
    let (status, why) = refused(&json!({ "message": "x", "attachments": [{ "name": "a", "data": "*" }] }));
    assert_eq!((status, why.contains("not base64")), (400, true), "{why}");
    let (status, why) = refused(&json!({ "message": "x", "attachments": vec![file("a", "b"); 17] }));
    assert_eq!((status, why.contains("17 attachments are too many")), (413, true), "{why}");
    let (status, why) = refused(&json!({ "message": "x", "attachments": [file("a", &"x".repeat((20 << 20) + 1))] }));
    assert_eq!((status, why.contains("20 MiB at most")), (413, true), "{why}");
    assert_eq!(refused(&json!({ "message": " ", "attachments": [] })).0, 400);
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn files_come_with_a_webhook() {
    let model = Model::new([save(0, "/shared/build.log"), ScriptStep::text("Kept.")]);
    let secret = "a secret of some letters";
    let desk = model
        .desk()
        .env("HELVE_HOOKS", "build=BUILD_SECRET")
        .env("BUILD_SECRET", secret)
        .env("HELVE_DIALECT", "oxydra")
        .env("HELVE_APPROVAL_MODE", "bypassPermissions");
    let site = open(&desk);
    let body = json!({ "content": "the build broke", "attachments": [{ "name": "b.log", "data": STANDARD.encode("1 error") }] });
    let body = body.to_string();
    let signed = sign(secret.as_bytes(), body.as_bytes());
    let headers = [("X-Webhook-Signature", signed.as_str()), ("Content-Type", "application/json")];
    let taken = site.with("POST", "/hooks/build", &headers, &body);
    assert_eq!(taken.status, 202, "{taken:?}");
    site.until("/api/sessions/hook:build", |it| it["messages"].to_string().contains("Kept."));
    assert_eq!(desk.get("work/build.log"), "1 error");
    assert_eq!(site.stop(), Some(0));
}
