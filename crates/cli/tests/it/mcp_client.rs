//! An MCP client over standard input, for tests: the greeting and plain request-reply exchanges.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
};

use serde_json::{Value, json};

use crate::desk::Desk;

/// The parameters of `initialize`.
pub(crate) fn greeting() -> Value {
    let client = json!({ "name": "test", "version": "1" });
    json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client })
}

/// The first two messages of a client; the request has the id 1.
pub(crate) fn hello() -> [Value; 2] {
    [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting() }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
    ]
}

/// Messages as standard input has them, a line each.
pub(crate) fn script(messages: &[Value]) -> String {
    messages.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n") + "\n"
}

/// Greets `helve mcp`, makes these requests one after the other, and returns the results: that of the greeting first.
pub(crate) fn exchange(desk: &Desk, args: &[&str], requests: &[(&str, Value)]) -> Vec<Value> {
    let mut command = desk.command(&[&["mcp"], args].concat());
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = server.stdin.take().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let first = ("initialize", greeting());
    let results = std::iter::once(&first).chain(requests).enumerate().map(|(id, (method, params))| {
        writeln!(input, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).unwrap();
        let replies = lines.by_ref().map(|it| serde_json::from_str::<Value>(&it).unwrap());
        let reply = replies.into_iter().find(|it| it["id"] == id && it["method"].is_null());
        let reply = reply.unwrap_or_else(|| panic!("no reply to {method}"));
        if id == 0 {
            writeln!(input, "{}", json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).unwrap();
        }
        reply["result"].clone()
    });
    let results = results.collect();
    drop(input);
    server.wait().unwrap();
    results
}

/// The results of calls of tools over `helve mcp`, in order.
pub(crate) fn call_tools(desk: &Desk, args: &[&str], calls: &[(&str, Value)]) -> Vec<Value> {
    let requests: Vec<_> =
        calls.iter().map(|(name, args)| ("tools/call", json!({ "name": name, "arguments": args }))).collect();
    exchange(desk, args, &requests).split_off(1)
}

/// The text of a tool's result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

/// The names that `tools/list` of `helve mcp` has.
pub(crate) fn list_tools(desk: &Desk, args: &[&str]) -> Vec<String> {
    let list = exchange(desk, args, &[("tools/list", json!({}))]).remove(1);
    list["tools"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}
