//! `helve mcp`: a client's first words over standard input and output.

use serde_json::{Value, json};

use crate::{
    desk::Desk,
    mcp_client::{hello, script},
};

fn answers(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_client_lists_and_calls() {
    let desk = Desk::new();
    desk.put("work/a.txt", "through the protocol\n");
    let file = desk.path("work/a.txt");
    let [first, second] = hello();
    let call = json!({ "name": "Read", "arguments": { "file_path": file } });
    let input = script(&[
        first,
        second,
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
        json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call }),
    ]);
    let ran = desk.fed(&["mcp", "--tools", "Read,Gr*"], &input);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let said = answers(&ran.out);
    let of = |id: u64| said.iter().find(|it| it["id"] == id).unwrap_or_else(|| panic!("{id}: {}", ran.out));
    assert!(of(1)["result"]["instructions"].as_str().unwrap().contains("DESK/work"));
    let names: Vec<_> = of(2)["result"]["tools"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, [json!("FileRead"), json!("Grep")]);
    let text = of(3)["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("through the protocol"), "{text}");
}

#[test]
fn a_model_has_no_consent_of_its_own() {
    let desk = Desk::new();
    let file = desk.path("work/new.txt");
    let call = json!({ "name": "Write", "arguments": { "file_path": file, "content": "x" } });
    let [first, second] = hello();
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call });
    let input = script(&[first, second, call]);
    let ran = desk.fed(&["mcp", "--set", "approval.mode=dontAsk"], &input);
    let said = answers(&ran.out);
    let reply = &said.iter().find(|it| it["id"] == 2).unwrap()["result"];
    assert_eq!(reply["isError"], true, "{reply}");
    assert!(!file.exists());

    let ran = desk.fed(&["mcp", "--set", "approval.mode=acceptEdits"], &input);
    assert!(file.exists(), "{}", ran.out);
}

#[test]
fn the_record_cannot_share_the_protocols_pipe() {
    let ran = Desk::new().fed(&["mcp", "--set", "events=stdout"], "");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("--set events=file"), "{}", ran.err);
}
