//! Files as resources.

use helve_mcp::McpServerConfig;
use serde_json::json;

use crate::client::Client;

#[test]
fn lists_and_reads_the_files_at_the_top_and_of_memory() {
    let mut client = Client::speaking("2025-11-25");
    assert_eq!(
        client.ask("resources/list", json!({}))["result"],
        json!({ "resources": [
            { "uri": "file:///desk/a%20b.txt", "name": "a b.txt", "size": 6 },
            { "uri": "file:///desk/p.png", "name": "p.png", "size": 6 },
            { "uri": "file:///desk/memory/note.md", "name": "memory/note.md", "size": 5 },
        ] })
    );
    let read = ["file:///desk/a%20b.txt", "file:///desk/p.png", "file:///desk/memory/note.md"]
        .map(|uri| client.ask("resources/read", json!({ "uri": uri }))["result"].clone());
    assert_eq!(
        read,
        [
            json!({ "contents": [{ "uri": "file:///desk/a%20b.txt", "mimeType": "text/plain", "text": "hello\n" }] }),
            json!({ "contents": [{ "uri": "file:///desk/p.png", "blob": "iVBORwD/" }] }),
            json!({ "contents": [{ "uri": "file:///desk/memory/note.md", "mimeType": "text/plain", "text": "note\n" }] }),
        ]
    );
    assert_eq!(
        client.ask("resources/templates/list", json!({}))["result"]["resourceTemplates"][0]["uriTemplate"],
        "file:///{+path}"
    );
    assert_eq!(client.ask("prompts/list", json!({}))["result"], json!({ "prompts": [] }));
}

#[test]
fn stays_in_the_workspace() {
    let mut client = Client::speaking("2025-11-25");
    for uri in [
        "file:///etc/passwd",
        "file:///desk/../etc/passwd",
        "file:///desk/%2e%2e/etc/passwd",
        "file:///desk/missing",
        "file://elsewhere/desk/p.png",
        "https://example.org/",
    ] {
        let said = client.ask("resources/read", json!({ "uri": uri }));
        assert_eq!(
            (&said["error"]["code"], &said["error"]["data"]),
            (&json!(-32002), &json!({ "uri": uri })),
            "{said}"
        );
    }
}

#[test]
fn may_be_turned_off() {
    let mut client = Client::of(None, McpServerConfig { without_resources: true, ..McpServerConfig::default() });
    let said = client.hello("2025-11-25", &json!({}));
    assert_eq!(said["capabilities"], json!({ "tools": { "listChanged": true }, "logging": {} }));
    assert_eq!(client.ask("resources/list", json!({}))["error"]["code"], -32601);
}
