//! Tools, listed and called.

use serde_json::{Value, json};

use crate::client::Client;

#[test]
fn lists_tools_with_what_they_may_do() {
    let mut client = Client::speaking("2025-11-25");
    let listed = client.ask("tools/list", json!({ "cursor": "anything" }));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["echo", "shaped", "draw", "count", "wait", "wipe_out"]);
    let text = json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] });
    assert_eq!(
        tools[1],
        json!({
            "name": "shaped", "title": "Shaped", "description": "Says it back as data.",
            "inputSchema": text, "outputSchema": text,
            "annotations": {
                "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false,
            },
        })
    );
    assert_eq!(tools[0].get("outputSchema"), None);
    assert_eq!(tools[5]["title"], "Wipe Out");
    assert_eq!(tools[5]["annotations"]["destructiveHint"], true);
}

#[test]
fn answers_with_words_data_and_pictures() {
    let mut client = Client::speaking("2025-11-25");
    let answers = [
        client.call("echo", json!({ "text": "a \"b\"\n" })),
        client.call("shaped", json!({ "text": "x" })),
        client.call("draw", json!({})),
        client.call("echo", json!({})),
    ]
    .map(|it| it["result"].clone());
    assert_eq!(answers[0], json!({ "content": [{ "type": "text", "text": "a \"b\"\n" }], "isError": false }));
    assert_eq!(
        answers[1],
        json!({
            "content": [{ "type": "text", "text": r#"{"text":"x"}"# }],
            "structuredContent": { "text": "x" }, "isError": false,
        })
    );
    let picture = json!({ "type": "image", "data": "AQID", "mimeType": "image/png" });
    assert_eq!(answers[2], json!({ "content": [picture], "isError": false }));
    assert_eq!(answers[3]["isError"], true);
}

#[test]
fn names_the_nearest_tool() {
    let said = Client::speaking("2025-11-25").call("Ecko", json!({}));
    assert_eq!(said["error"], json!({ "code": -32602, "message": "Unknown tool: Ecko. Did you mean `echo`?" }));
}

#[test]
fn takes_a_name_in_another_spelling() {
    let said = Client::speaking("2025-11-25").call("functions.ECHO", json!({ "text": "x" }));
    assert_eq!(said["result"]["isError"], false, "{said}");
}

#[test]
fn tells_of_progress_and_then_answers() {
    let mut client = Client::speaking("2025-11-25");
    let first = client.ask("tools/call", json!({ "name": "count", "_meta": { "progressToken": "t" } }));
    let step = |n: u64, word: &str| {
        json!({
            "jsonrpc": "2.0", "method": "notifications/progress",
            "params": { "progressToken": "t", "progress": n, "message": word },
        })
    };
    let said = [first, client.next(), client.next(), client.next()];
    let done = json!({
        "jsonrpc": "2.0", "id": 1,
        "result": { "content": [{ "type": "text", "text": "counted" }], "isError": false },
    });
    assert_eq!(said, [step(1, "one"), step(2, "two"), step(3, "three"), done]);
}

#[test]
fn goes_on_beside_a_slow_call_and_is_silent_about_a_cancelled_one() {
    let mut client = Client::speaking("2025-11-25");
    let slow = |id: Value| {
        json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "wait", "_meta": { "progressToken": id } },
        })
    };
    client.send(&slow("slow".into()));
    assert_eq!(client.next()["params"]["message"], "waiting");
    client.send(&slow("slow".into()));
    assert_eq!(
        client.next(),
        json!({
            "jsonrpc": "2.0", "id": "slow",
            "error": { "code": -32600, "message": "a request with this id is still running" },
        })
    );
    assert_eq!(client.call("echo", json!({ "text": "meanwhile" }))["result"]["content"][0]["text"], "meanwhile");

    let cancel =
        |id: Value| json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    client.send(&cancel("slow".into()));
    client.send(&cancel("never heard of".into()));
    // The id is free again, and what comes next is the answer to the next question.
    client.send(&slow("slow".into()));
    assert_eq!(client.next()["params"]["message"], "waiting");
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
}

#[test]
fn more_calls_than_run_at_once_wait_for_their_turn() {
    let mut client = Client::speaking("2025-11-25");
    for id in 100..164 {
        client.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "wait" } }));
    }
    let echo = json!({ "name": "echo", "arguments": { "text": "at last" } });
    client.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": echo }));
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 100 } }));
    assert_eq!(client.next()["result"]["content"][0]["text"], "at last");
}

#[test]
fn a_client_that_only_writes_blocks_nobody() {
    let mut client = Client::speaking("2025-11-25");
    // Far more than two pipes hold, in both directions.
    let text = "x".repeat(10_000);
    for id in 0..100 {
        let params = json!({ "name": "echo", "arguments": { "text": text } });
        client.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
    }
    for id in 0..100 {
        let said = client.next();
        assert_eq!((&said["id"], &said["result"]["content"][0]["text"]), (&json!(id), &json!(text)));
    }
}

#[test]
fn ends_when_the_client_leaves_whatever_runs() {
    let mut client = Client::speaking("2025-11-25");
    client.send(&json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "wait" } }));
    client.write(br#"{"jsonrpc":"2.0","id":8,"method":"pi"#);
    let last = client.leave();
    let codes: Vec<_> = last.iter().map(|it| &it["error"]["code"]).collect();
    assert_eq!(codes, [-32700]);
}

#[test]
fn answers_a_script_that_was_piped_in() {
    let mut client = Client::speaking("2025-11-25");
    client.send(&json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": { "name": "count" } }));
    let last = client.leave();
    assert_eq!(last[0]["result"]["content"][0]["text"], "counted");
}
