//! Invalid input of clients.

use serde_json::json;

use crate::client::Client;

#[test]
fn says_what_is_wrong_and_goes_on() {
    let mut client = Client::speaking("2025-11-25");
    let deep = format!(r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{}"#, "[".repeat(200_000));
    for (sent, code) in [
        ("{nonsense}", -32700),
        ("\"words\"", -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":4}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":4,"method":5}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":4,"method":"no/such"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":4,"method":"completion/complete"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":4,"method":"tools/call"}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":["echo"]}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":7}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":4,"method":"logging/setLevel","params":{"level":"loud"}}"#, -32602),
        (&deep, -32700),
    ] {
        client.write(sent.as_bytes());
        client.write(b"\n");
        let said = client.next();
        assert_eq!(said["error"]["code"], code, "{sent:.80}: {said}");
    }
    assert_eq!(client.call("echo", json!({ "text": "fine" }))["result"]["isError"], false);
}

#[test]
fn an_error_repeats_little_of_what_it_was_given() {
    let mut client = Client::speaking("2025-11-25");
    let long = "x".repeat(1 << 20);
    for arguments in [
        json!({ "text": { "inner": long } }),
        json!({ "text": [long] }),
        json!({ long.as_str(): 1 }),
        json!({ "texd": long }),
    ] {
        let said = client.call("echo", arguments);
        assert_eq!(said["result"]["isError"], true);
        let length = said.to_string().len();
        assert!(length < 4096, "{length} bytes: {said:.300}");
    }
    let said = client.call(&long, json!({})).to_string();
    assert!(said.len() < 4096, "{} bytes: {said:.300}", said.len());
    assert_eq!(client.call("echo", json!({ "text": "fine" }))["result"]["isError"], false);
}

#[test]
fn refuses_what_is_not_utf_8() {
    let mut client = Client::speaking("2025-11-25");
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}\n");
    assert_eq!(
        client.next(),
        json!({
            "jsonrpc": "2.0", "id": null,
            "error": { "code": -32700, "message": "not JSON: the message is not UTF-8" },
        })
    );
}

#[test]
fn passes_over_a_line_without_end() {
    let mut client = Client::speaking("2025-11-25");
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..65 {
        client.write(&piece);
    }
    client.write(b"\n");
    assert_eq!(client.next()["error"], json!({ "code": -32600, "message": "the message is longer than 64 MiB" }));
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
}

#[test]
fn ignores_notices_and_answers_that_nobody_waits_for() {
    let mut client = Client::speaking("2025-11-25");
    for sent in [
        json!({ "jsonrpc": "2.0", "method": "notifications/anything", "params": { "x": 1 } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": [] } }),
        json!({ "jsonrpc": "2.0", "id": "helve-99", "result": {} }),
        json!({ "jsonrpc": "2.0", "id": 5, "result": null }),
        json!({ "jsonrpc": "2.0", "id": 5, "error": { "code": 1, "message": "no" } }),
    ] {
        client.send(&sent);
    }
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
}
