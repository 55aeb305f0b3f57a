//! A slow disk: only the caller that needs it waits.

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
};

use helve_faults::{SKIPPED, SyscallFault, TestEnv, strace_available};
use serde_json::{Value, json};

#[test]
fn other_calls_go_on_while_one_waits_for_the_disk() {
    if !strace_available() {
        eprintln!("{SKIPPED}: STRACE IS NOT HERE OR MAY NOT TRACE");
        return;
    }
    let desk = TestEnv::new().unwrap();
    desk.write_file("work/b.txt", "here\n").unwrap();
    // Only the directory's sync, after the rename: the store syncs too, and what waits then is not the write.
    let about = vec![desk.path("work").display().to_string()];
    let inject = SyscallFault { calls: "fsync,fdatasync", what: "delay_enter=3000000".into(), at: 1, about };
    let mut child = desk
        .command(&inject.args(), &["mcp", "--dialect", "solo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut say = |message: Value| writeln!(input, "{message}").unwrap();
    let about = json!({ "name": "t", "version": "1" });
    say(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about } }));
    say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    lines.next().unwrap().unwrap();
    let call = |id: u64, name: &str, args: Value| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name, "arguments": args } });
    say(call(2, "write", json!({ "path": "a.txt", "content": "x" })));
    for id in 3..8 {
        say(call(id, "read", json!({ "path": "b.txt" })));
    }
    let order: Vec<u64> = lines
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
        .filter_map(|message| message["id"].as_u64())
        .take(6)
        .collect();
    drop(input);
    assert_eq!(order.last(), Some(&2), "the write waits for the disk, and nobody for the write: {order:?}");
    assert!(child.wait().unwrap().success());
}
