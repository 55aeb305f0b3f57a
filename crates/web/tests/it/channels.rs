//! Channels against servers that take what they send.

use std::{fs, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use helve_contract::{
    Media,
    ports::{Attachment, ChannelAddress, Channels, OutgoingFile},
};
use helve_web::channels::{
    Attachments, ChannelRegistry, InboundMessage, InboundWebhook, Settings, StdoutUse, WebhookFormat, sign,
};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::{
    desk::call,
    loopback::{CERTIFICATE, Http, Mailer, Smtp},
};

fn outlets(channels: &Value) -> ChannelRegistry {
    let settings = Settings::read_all(channels).unwrap();
    ChannelRegistry::open(&settings, StdoutUse::Taken, |name| Some(format!("value of {name}"))).unwrap()
}

async fn send(outlets: &ChannelRegistry, to: &str, text: &str) -> String {
    match outlets.send(&call(), &ChannelAddress::parse(to).unwrap(), text).await {
        Ok(()) => "sent".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn picture() -> OutgoingFile {
    let media = Media { mime: "image/png".into(), bytes: vec![137, 80, 78, 71] };
    OutgoingFile { name: "out/a b.png".into(), kind: "photo".into(), media, caption: Some("See".into()) }
}

#[tokio::test]
async fn a_log_is_lines_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.ndjson");
    let outlets = outlets(&json!({"log": {"to": file, "allow": ["*"]}})).with_default_recipient("log:me").unwrap();
    assert_eq!(send(&outlets, "log:ann", "two\nlines").await, "sent");
    outlets.send_media(&call(), None, &picture()).await.unwrap();
    let lines: Vec<Value> =
        fs::read_to_string(file).unwrap().lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!((&lines[0]["to"], &lines[0]["content"]), (&json!("ann"), &json!("two\nlines")));
    assert_eq!(
        lines[1]["media"],
        json!({"name": "a b.png", "type": "photo", "mime_type": "image/png", "bytes": 4, "caption": "See"})
    );
}

#[tokio::test]
async fn only_what_is_configured_is_written_to() {
    let outlets = outlets(&json!({"signal": {"allow": ["+1555*"]}, "log": {"allow": []}, "mail": {
        "server": "127.0.0.1", "tls": "none", "from": "bot@example.org", "allow": ["*@example.org"]}}));
    for (to, told) in [
        ("signl:+15551234567", "unsupported channel: signl; did you mean signal? There are: signal, log, mail"),
        ("fax:123", "unsupported channel: fax; there are: signal, log, mail"),
        (
            "signal:+4930",
            "nothing was sent: +4930 may not be written to over signal. Allowed there: +1555*. The operator decides who is (channels.signal.allow)",
        ),
        (
            "log:x",
            "nothing was sent: x may not be written to over log. Allowed there: nobody. The operator decides who is (channels.log.allow)",
        ),
        (
            "mail:ann@example.org\r\nBcc: x@y.z",
            "nothing was sent: `ann@example.org\r\nBcc: x@y.z` is not a mail address; write it as in ann@example.org",
        ),
    ] {
        assert_eq!(send(&outlets, to, "hi").await, told);
    }
    assert_eq!(send(&outlets, "signal:+15551234567", " \n").await, "nothing was sent: the message is empty");
    assert!(
        outlets.send_media(&call(), None, &picture()).await.unwrap_err().to_string().contains("no channel to the user")
    );
    let settings = Settings::read_all(&json!({"log": {"to": "stdout", "allow": ["*"]}})).unwrap();
    assert_eq!(ChannelRegistry::open(&settings, StdoutUse::Taken, |_| None).unwrap().names(), [""; 0]);
}

#[tokio::test]
async fn a_channel_without_its_secret_leaves_the_others() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let settings = json!({
        "log": {"to": file.path(), "allow": ["*"]},
        "hook": {"kind": "webhook", "url": "https://hooks.example.org/in", "secret_env": "NO_SUCH", "allow": ["*"]},
        "mail": {"server": "mail.example.org", "password_env": "NO_SUCH", "user": "u", "from": "a@b.org", "allow": ["*"]},
        "odd": {"kind": "webhook", "url": "no address", "allow": ["*"]},
    });
    let outlets = ChannelRegistry::open(&Settings::read_all(&settings).unwrap(), StdoutUse::Taken, |_| None).unwrap();
    assert_eq!(outlets.names(), ["log"]);
    let mut left: Vec<_> = outlets.left_out().iter().map(|it| it.name.as_str()).collect();
    left.sort_unstable();
    assert_eq!(left, ["hook", "mail", "odd"]);
    // A home that is left out takes nothing away from the others.
    let outlets = outlets.with_default_recipient("hook:team").unwrap();
    assert_eq!(send(&outlets, "log:me", "still here").await, "sent");
    assert_eq!(
        send(&outlets, "hook:team", "hi").await,
        "nothing was sent: hook cannot be used here: the variable NO_SUCH should hold a secret, and is not set"
    );
}

#[tokio::test]
async fn a_webhook_is_signed_and_tried_again() {
    let server = Http::saying(vec![(503, "", String::new()), (429, "", String::new()), (202, "", "ok".into())]).await;
    let hook = json!({"hook": {"kind": "webhook", "url": format!("{}/in?x=1", server.base), "secret_env": "S", "allow": ["*"]}});
    assert_eq!(send(&outlets(&hook), "hook:team", "done").await, "sent");
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    // Every attempt has the same id, so that the receiver can tell them from another message.
    let id = asked[0].header("x-webhook-id").to_owned();
    assert!(id.strip_prefix("s-").is_some_and(helve_contract::ids::is_id), "{id}");
    for one in &asked {
        assert_eq!(one.line, "POST /in?x=1 HTTP/1.1");
        assert_eq!(one.header("x-webhook-signature"), sign(b"value of S", one.body.as_bytes()));
        assert_eq!(one.header("x-webhook-id"), id);
        assert_eq!(one.json(), json!({"channel": "hook", "to": "team", "content": "done", "session": "s"}));
    }
}

#[tokio::test]
async fn a_webhook_that_refuses_is_believed() {
    let server = Http::saying(vec![(400, "", "no such team".into())]).await;
    let hook = json!({"hook": {"kind": "webhook", "url": server.base, "allow": ["*"]}});
    assert_eq!(
        send(&outlets(&hook), "hook:x", "hi").await,
        "nothing was delivered: hook refused it (HTTP 400): no such team"
    );
    assert_eq!(server.asked().len(), 1);
    assert_eq!(server.asked()[0].header("x-webhook-signature"), "");

    let moved = Http::saying(vec![(307, "location: http://127.0.0.1:9/\r\n", String::new())]).await;
    let hook = json!({"hook": {"kind": "webhook", "url": moved.base, "allow": ["*"]}});
    assert_eq!(send(&outlets(&hook), "hook:x", "hi").await, "nothing was delivered: hook refused it (HTTP 307)");
    let busy = Http::saying(vec![(500, "", String::new())]).await;
    let hook = json!({"hook": {"kind": "webhook", "url": busy.base, "allow": ["*"]}});
    assert_eq!(
        send(&outlets(&hook), "hook:x", "hi").await,
        "nothing was delivered: hook did not take it in 3 tries (HTTP 500)"
    );
}

#[tokio::test]
async fn signal_takes_words_in_pieces_and_files() {
    let good = r#"{"jsonrpc":"2.0","result":{"timestamp":1,"results":[{"recipientAddress":{"number":"+15551234567"},"type":"SUCCESS"}]},"id":"1-0"}"#;
    let server = Http::json(good).await;
    let channel = json!({"signal": {"url": server.base, "account": "+1999", "allow": ["+15551234567", "group:abc="]}});
    let outlets = outlets(&channel).with_default_recipient("signal:group:abc=").unwrap();
    let long = format!("{}\n\n{}", "a".repeat(3_000), "b".repeat(3_000));
    assert_eq!(send(&outlets, "signal:+15551234567", &long).await, "sent");
    outlets.send_media(&call(), None, &picture()).await.unwrap();
    let asked: Vec<_> = server.asked().iter().map(|it| (it.line.clone(), it.json()["params"].clone())).collect();
    let line = "POST /api/v1/rpc HTTP/1.1".to_owned();
    assert_eq!(
        asked,
        [
            (line.clone(), json!({"account": "+1999", "recipient": ["+15551234567"], "message": "a".repeat(3_000)})),
            (line.clone(), json!({"account": "+1999", "recipient": ["+15551234567"], "message": "b".repeat(3_000)})),
            (
                line,
                json!({"account": "+1999", "groupId": "abc=", "message": "See",
                "attachments": [format!("data:image/png;filename=a_b.png;base64,{}", STANDARD.encode([137, 80, 78, 71]))]})
            ),
        ]
    );
    assert_eq!(server.asked()[0].json()["method"], "send");
    let large = OutgoingFile { media: Media { mime: "image/png".into(), bytes: vec![0; (8 << 20) + 1] }, ..picture() };
    let error = outlets.send_media(&call(), None, &large).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "a b.png was not sent: it has 8388609 bytes, and this channel takes at most 8388608; send a smaller one"
    );
}

#[tokio::test]
async fn signal_says_why_not() {
    for (answer, told) in [
        (
            r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"User +1999 is not registered."},"id":"1"}"#,
            "nothing was delivered: signal-cli says: User +1999 is not registered.",
        ),
        (
            r#"{"jsonrpc":"2.0","result":{"results":[{"type":"UNREGISTERED_FAILURE"}]},"id":"1"}"#,
            "nothing was delivered: +1555 is not a user of Signal",
        ),
        ("<html>", "nothing was delivered: signal-cli did not answer in JSON"),
    ] {
        let server = Http::json(answer).await;
        let channel = json!({"signal": {"url": server.base, "allow": ["*"]}});
        assert_eq!(send(&outlets(&channel), "signal:dm:+1555", "hi").await.replace("dm:", ""), told);
    }
}

async fn mail(kind: Mailer, tls: &str) -> (String, Vec<String>) {
    let server = Smtp::new(kind).await;
    let channel = json!({"mail": {
        "server": "localhost", "port": server.port, "tls": tls, "user": "bot", "password_env": "P",
        "from": "Helve <bot@example.org>", "ca_file": CERTIFICATE, "allow": ["*@example.org"],
    }});
    let told = send(&outlets(&channel), "mail:ann@example.org", "Hello\n.\nRCPT TO:<evil@evil.net>\n").await;
    (told, server.said())
}

#[tokio::test]
async fn mail_goes_out_over_tls() {
    let login = format!("AUTH PLAIN {}", STANDARD.encode("\0bot\0value of P"));
    let rest = [
        login.as_str(),
        "MAIL FROM:<bot@example.org>",
        "RCPT TO:<ann@example.org>",
        "DATA",
        "From: Helve <bot@example.org>",
        "To: ann@example.org",
        "Subject: Hello",
    ];
    let (told, said) = mail(Mailer::Starttls, "starttls").await;
    assert_eq!(told, "sent");
    assert!(said[0].starts_with("EHLO [") && said[3].starts_with("EHLO ["), "{said:?}");
    assert_eq!(
        (&said[1..3], &said[4..11]),
        (&["STARTTLS".to_owned(), "(TLS)".to_owned()][..], &rest.map(str::to_owned)[..])
    );
    assert!(said.contains(&STANDARD.encode("Hello\n.\nRCPT TO:<evil@evil.net>\n")));
    assert_eq!(said.last().unwrap(), "QUIT");

    let (told, said) = mail(Mailer::Implicit, "implicit").await;
    assert_eq!((told.as_str(), &said[1..8]), ("sent", &rest.map(str::to_owned)[..]));
}

#[tokio::test]
async fn mail_is_never_sent_in_the_clear_by_mistake() {
    let (told, said) = mail(Mailer::Plain, "starttls").await;
    assert_eq!(told, "nothing was sent: the mail server localhost does not offer TLS; nothing was sent in the clear");
    assert_eq!(said.len(), 1);
    let (told, _) = mail(Mailer::Pushy, "starttls").await;
    assert_eq!(
        told,
        "nothing was sent: the mail server localhost said more than it should before TLS; nothing was sent in the clear"
    );
    let settings = json!({"mail": {"server": "mail.example.org", "tls": "none", "user": "u", "password_env": "P", "from": "a@b.org", "allow": ["*"]}});
    let opened = ChannelRegistry::open(&Settings::read_all(&settings).unwrap(), StdoutUse::Free, |_| Some("p".into()));
    let why = opened.unwrap().left_out()[0].why.clone();
    assert_eq!(why, "a password is not sent in the clear; set tls to starttls or implicit");
}

#[tokio::test]
async fn mail_that_is_refused_says_why() {
    let server = Smtp::new(Mailer::Refusing).await;
    let channel = json!({"mail": {"server": "127.0.0.1", "port": server.port, "tls": "none", "from": "bot@example.org", "allow": ["*"]}});
    let told = send(&outlets(&channel), "mail:ann@example.org", "hi").await;
    assert_eq!(
        told,
        "nothing was sent: the mail server 127.0.0.1 refused the recipient: 550 5.1.1 nobody of that name"
    );
}

#[tokio::test]
async fn attachments_belong_to_one_turn_of_one_session() {
    let attachments = Attachments::default();
    let outlets = Arc::new(ChannelRegistry::default().with_attachments(attachments.clone()));
    let file = Attachment::new("a.txt", b"x".to_vec());
    attachments.set("s", vec![file.clone()]);
    attachments.set("other", vec![]);
    assert_eq!(outlets.attachment(&call(), 0).await.unwrap(), Some(file.media));
    assert_eq!(outlets.attachment(&call(), 1).await.unwrap(), None);
    attachments.set("s", vec![]);
    assert_eq!(outlets.attachment(&call(), 0).await.unwrap(), None);
}

async fn post(
    method: &str,
    path: &str,
    signature: Option<&str>,
    body: &str,
    room: bool,
) -> (u16, Option<InboundMessage>) {
    post_with(method, path, signature, &[], body, room).await
}

async fn post_with(
    method: &str,
    path: &str,
    signature: Option<&str>,
    headers: &[(&str, &str)],
    body: &str,
    room: bool,
) -> (u16, Option<InboundMessage>) {
    let hooks = [
        InboundWebhook {
            id: "build".into(),
            path: "/hooks/build".into(),
            format: WebhookFormat::Text,
            secret: Some("s".into()),
        },
        InboundWebhook { id: "open".into(), path: "/hooks/open".into(), format: WebhookFormat::Json, secret: None },
    ];
    let mut request = hyper::Request::builder().method(method).uri(path);
    if let Some(signature) = signature {
        request = request.header("X-Webhook-Signature", signature);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if body.starts_with('{') {
        request = request.header("Content-Type", "application/json");
    }
    let request = request.body(Full::new(Bytes::from(body.to_owned())).boxed()).unwrap();
    let mut taken = None;
    let answer = InboundWebhook::handle(&hooks, request, |it| {
        taken = Some(it);
        std::future::ready(if room { Ok(()) } else { Err("too many".to_owned()) })
    })
    .await;
    (answer.status().as_u16(), taken.filter(|_| room))
}

#[tokio::test]
async fn what_comes_in_becomes_a_message_if_its_signature_is_right() {
    let right = sign(b"s", b" done: 3 tests \n");
    let taken = |hook: &str, text: &str| {
        Some(InboundMessage { hook: hook.into(), text: text.into(), attachments: Vec::new(), delivery: None })
    };
    let seen = post("POST", "/hooks/build", Some(&right), " done: 3 tests \n", true).await;
    assert_eq!(seen, (202, taken("build", "[webhook:build] done: 3 tests")));
    let seen = post("POST", "/hooks/open", None, "{\"a\": [1, \"\\n\"]}", true).await;
    assert_eq!(seen, (202, taken("open", r#"[webhook:open] {"a":[1,"\n"]}"#)));
    assert_eq!(post("POST", "/hooks/build", None, "x", true).await, (401, None));
    assert_eq!(post("POST", "/hooks/build", Some(&right), "x", true).await, (401, None));
    assert_eq!(post("POST", "/hooks/open", None, "not json", true).await, (400, None));
    assert_eq!(post("POST", "/hooks/open", None, "1", false).await, (503, None));
    assert_eq!(post("GET", "/hooks/build", None, "", true).await, (405, None));
    assert_eq!(post("POST", "/elsewhere", None, "", true).await, (404, None));
    assert_eq!(post("GET", "/health", None, "", true).await, (200, None));
    assert_eq!(post("POST", "/hooks/open", None, &"x".repeat((1 << 20) + 1), true).await, (413, None));
}

#[tokio::test]
async fn a_delivery_has_the_id_that_its_sender_gives() {
    let delivery = async |headers: &[(&str, &str)]| {
        let (status, taken) = post_with("POST", "/hooks/open", None, headers, "1", true).await;
        (status, taken.and_then(|it| it.delivery))
    };
    let id = |text: &str| (202, Some(text.to_owned()));
    assert_eq!(delivery(&[("X-GitHub-Delivery", "72d3162e-cc78")]).await, id("72d3162e-cc78"));
    assert_eq!(delivery(&[("Idempotency-Key", " \"a b\" ")]).await, id("\"a b\""));
    assert_eq!(delivery(&[("webhook-id", "msg_1")]).await, id("msg_1"));
    assert_eq!(delivery(&[("webhook-id", "msg_1"), ("idempotency-key", "k")]).await, id("k"));
    assert_eq!(delivery(&[("Idempotency-Key", " "), ("webhook-id", "m")]).await, id("m"));
    assert_eq!(delivery(&[("X-Request-Id", "r"), ("Idempotency-Key", "")]).await, (202, None));
    assert_eq!(delivery(&[("Idempotency-Key", &"x".repeat(128))]).await, id(&"x".repeat(128)));
    assert_eq!(delivery(&[("Idempotency-Key", &"x".repeat(129))]).await, (400, None));
}

#[tokio::test]
async fn files_come_in_with_a_webhook() {
    let file = |name: &str, bytes: &[u8]| json!({ "name": name, "data": STANDARD.encode(bytes) });
    let body = |files: &[Value]| json!({ "content": " see the log ", "attachments": files }).to_string();
    let sent = body(&[file("../build.log", b"3 tests failed"), file("shot.png", b"\x89PNG\r\n\x1a\n")]);
    let (status, taken) = post("POST", "/hooks/build", Some(&sign(b"s", sent.as_bytes())), &sent, true).await;
    let taken = taken.unwrap();
    assert_eq!((status, taken.text.as_str()), (202, "[webhook:build] see the log"));
    let names: Vec<_> = taken.attachments.iter().map(Attachment::describe).collect();
    assert_eq!(names, ["build.log (text/plain, 14 bytes)", "shot.png (image/png, 8 bytes)"]);

    // Other programs mean something else by this word: the message stays as it is.
    let other = r#"{"attachments":[{"title":"Build","text":"failed"}]}"#;
    let (_, taken) = post("POST", "/hooks/open", None, other, true).await;
    assert_eq!(taken.map(|it| (it.text, it.attachments)), Some((format!("[webhook:open] {other}"), Vec::new())));

    let broken = json!({ "attachments": [{ "name": "a", "data": "***" }] }).to_string();
    assert_eq!(post("POST", "/hooks/open", None, &broken, true).await, (400, None));
    let many = body(&vec![file("a", b"x"); 17]);
    assert_eq!(post("POST", "/hooks/open", None, &many, true).await, (413, None));
    let large = body(&[file("a", &vec![0; (5 << 20) + 1])]);
    assert_eq!(post("POST", "/hooks/open", None, &large, true).await, (413, None));
    let alone = json!({ "attachments": [file("a.txt", b"x")] }).to_string();
    let (status, taken) = post("POST", "/hooks/open", None, &alone, true).await;
    assert_eq!((status, taken.unwrap().text), (202, "[webhook:open]".to_owned()));
}
