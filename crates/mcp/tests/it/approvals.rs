//! The client's user is asked before a destructive call.

use std::{sync::Arc, time::Duration};

use helve_engine::{Gate, Mode};
use helve_mcp::{ElicitApprover, McpServerConfig};
use serde_json::{Value, json};

use crate::client::Client;

fn careful() -> Client {
    let approver = Arc::new(ElicitApprover::new());
    let gate = Gate::new(Mode::Default).approver(approver.clone());
    Client::of(Some(gate), McpServerConfig { elicit: Some(approver), ..McpServerConfig::default() })
}

fn decide(client: &mut Client, answer: &Value) -> Value {
    let asked = client.call("wipe_out", json!({}));
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    assert_eq!(asked["params"]["requestedSchema"]["required"], json!(["decision"]));
    client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": answer }));
    client.next()["result"].clone()
}

#[test]
fn a_yes_runs_the_call_and_a_no_reaches_the_model() {
    let mut client = careful();
    client.hello("2025-11-25", &json!({ "elicitation": {} }));
    let yes = decide(&mut client, &json!({ "action": "accept", "content": { "decision": "once" } }));
    assert_eq!(yes, json!({ "content": [{ "type": "text", "text": "gone" }], "isError": false }));
    let no = decide(&mut client, &json!({ "action": "decline" }));
    assert_eq!(no["isError"], true);
    assert!(no["content"][0]["text"].as_str().unwrap().contains("the user said no"), "{no}");
}

#[test]
fn nobody_is_asked_where_the_client_cannot() {
    let mut client = careful();
    client.hello("2025-11-25", &json!({}));
    let said = client.call("wipe_out", json!({}));
    assert_eq!(said["result"]["isError"], true, "{said}");
}

#[test]
fn a_cancelled_call_takes_its_question_back() {
    let mut client = careful();
    client.hello("2025-11-25", &json!({ "elicitation": { "form": {} } }));
    let asked = client.call("wipe_out", json!({}));
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }));
    // Either the question is taken back or the call was dropped with it; the call itself is not answered.
    client.send(&json!({ "jsonrpc": "2.0", "id": "last", "method": "ping" }));
    let said = std::iter::from_fn(|| Some(client.next())).find(|it| it["id"] == "last" || it["id"] == 1).unwrap();
    assert_eq!((said["id"].clone(), asked["method"].as_str()), (json!("last"), Some("elicitation/create")));
}

/// One setting says how long an approval waits: the gate's. A question that nobody waits for is taken back.
#[test]
fn an_approval_waits_as_long_as_the_gate_does() {
    let approver = Arc::new(ElicitApprover::new());
    let gate = Gate::new(Mode::Default).approver(approver.clone()).approval_timeout(Duration::from_secs(1));
    let mut client = Client::of(Some(gate), McpServerConfig { elicit: Some(approver), ..McpServerConfig::default() });
    client.hello("2025-11-25", &json!({ "elicitation": {} }));
    let asked = client.call("wipe_out", json!({}));
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let said = [client.next(), client.next()];
    let taken_back = said.iter().find(|it| it["method"] == "notifications/cancelled").unwrap();
    assert_eq!(taken_back["params"]["requestId"], asked["id"]);
    let denied = said.iter().find(|it| it["result"].is_object()).unwrap();
    let text = denied["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("the user did not answer within 1 s"), "{text}");
}
