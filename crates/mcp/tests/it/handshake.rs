//! Revisions and handshakes.

use serde_json::{Value, json};

use crate::client::Client;

#[test]
fn agrees_on_what_the_client_speaks_or_on_our_newest() {
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let said = Client::silent().hello(asked, &json!({}));
        assert_eq!(said["protocolVersion"], agreed);
        let ours = json!({ "tools": { "listChanged": true }, "logging": {}, "resources": {} });
        assert_eq!(said["capabilities"], ours);
        assert_eq!(said["serverInfo"]["name"], "helve");
    }
}

#[test]
fn wants_a_handshake_but_answers_a_ping() {
    let mut client = Client::silent();
    let ping = client.ask("ping", json!({}));
    assert_eq!(ping, json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
    let early = client.ask("tools/list", json!({}));
    assert_eq!(
        early["error"],
        json!({ "code": -32600, "message": "not initialized: send an initialize request first" })
    );
    client.hello("2025-06-18", &json!({}));
    assert!(client.ask("tools/list", json!({}))["result"]["tools"].is_array());
}

/// What each request of the newest revision says about itself.
fn meta() -> Value {
    json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} })
}

#[test]
fn needs_no_handshake_in_the_newest_revision() {
    let mut client = Client::silent();
    let us = json!({ "io.modelcontextprotocol/serverInfo": {
        "name": "helve", "title": "Helve", "version": env!("CARGO_PKG_VERSION"),
    } });
    assert_eq!(
        client.ask("server/discover", json!({ "_meta": meta() }))["result"],
        json!({
            "supportedVersions": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
            "capabilities": { "tools": { "listChanged": true }, "logging": {}, "resources": {} },
            "ttlMs": 3_600_000, "cacheScope": "private", "resultType": "complete", "_meta": us,
        })
    );
    assert_eq!(
        client.ask("tools/call", json!({ "name": "echo", "arguments": { "text": "hi" }, "_meta": meta() }))["result"],
        json!({
            "content": [{ "type": "text", "text": "hi" }], "isError": false, "resultType": "complete", "_meta": us,
        })
    );
    let listed = client.ask("tools/list", json!({ "_meta": meta() }));
    assert_eq!(listed["result"]["resultType"], "complete");
    assert_eq!(client.ask("ping", json!({ "_meta": meta() }))["error"]["code"], -32601);
}

#[test]
fn refuses_versions_of_the_future_and_requests_without_capabilities() {
    let mut client = Client::silent();
    let mut other = meta();
    other["io.modelcontextprotocol/protocolVersion"] = "2099-01-01".into();
    assert_eq!(
        client.ask("tools/list", json!({ "_meta": other }))["error"],
        json!({
            "code": -32022, "message": "Unsupported protocol version",
            "data": {
                "supported": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
                "requested": "2099-01-01",
            },
        })
    );
    let bare = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } });
    assert_eq!(client.ask("tools/list", bare)["error"]["code"], -32602);
    assert_eq!(client.ask("server/discover", json!({}))["error"]["code"], -32602);
}

#[test]
fn acknowledges_who_listens() {
    let mut client = Client::silent();
    let ack = client.ask(
        "subscriptions/listen",
        json!({ "_meta": meta(), "notifications": { "promptsListChanged": true, "toolsListChanged": true } }),
    );
    assert_eq!(
        ack,
        json!({
            "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": {
                "_meta": { "io.modelcontextprotocol/subscriptionId": 1 },
                "notifications": { "toolsListChanged": true },
            },
        })
    );
    let last = client.leave();
    assert_eq!(last[0]["id"], 1);
    assert_eq!(last[0]["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
}

#[test]
fn takes_batches_where_the_revision_has_them() {
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/initialized" },
        { "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "echo", "arguments": { "text": "x" } } },
        { "jsonrpc": "2.0", "id": 3, "method": "no/such" },
    ]);
    let mut old = Client::speaking("2025-03-26");
    old.send(&batch);
    assert_eq!(
        old.next(),
        json!([
            { "jsonrpc": "2.0", "id": 1, "result": {} },
            { "jsonrpc": "2.0", "id": 2, "result": { "content": [{ "type": "text", "text": "x" }], "isError": false } },
            { "jsonrpc": "2.0", "id": 3, "error": { "code": -32601, "message": "Method not found: no/such" } },
        ])
    );
    old.send(&json!([]));
    assert_eq!(old.next()["error"]["code"], -32600);

    let mut new = Client::speaking("2025-06-18");
    new.send(&batch);
    assert_eq!(
        new.next(),
        json!({
            "jsonrpc": "2.0", "id": null,
            "error": { "code": -32600, "message": "one message at a time: this revision has no batches" },
        })
    );
}
