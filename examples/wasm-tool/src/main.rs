//! A tool as a WebAssembly module: tells the longest lines of a file in the workspace.
//!
//! It reads one call from standard input and answers on standard output. It sees `/shared` and `/tmp` (and `/vault`,
//! where the session has one), because its profile is `FileReadOnly`, and it can change none of them.

use std::{fs, io, process::ExitCode};

use serde_json::{Value, json};

fn main() -> ExitCode {
    let (answer, code) = match answer() {
        Ok(text) => (json!({"ok": text}), ExitCode::SUCCESS),
        Err(text) => (json!({"err": text}), ExitCode::FAILURE),
    };
    println!("{answer}");
    code
}

fn answer() -> Result<String, String> {
    let call: Value = serde_json::from_reader(io::stdin()).map_err(|error| error.to_string())?;
    match call["op"].as_str() {
        Some("longest_lines") => longest_lines(&call["args"]),
        other => Err(format!("unknown operation {other:?}")),
    }
}

fn longest_lines(args: &Value) -> Result<String, String> {
    let path = args["path"].as_str().ok_or("no path was given")?;
    let count = args["count"].as_u64().unwrap_or(3) as usize;
    let text = fs::read_to_string(format!("/shared/{path}")).map_err(|error| format!("{path}: {error}"))?;
    let mut lines: Vec<_> = (1..).zip(text.lines()).map(|(number, line)| (line.chars().count(), number)).collect();
    lines.sort_by_key(|(length, number)| (std::cmp::Reverse(*length), *number));
    let told = lines.iter().take(count).map(|(length, number)| format!("line {number}: {length} characters"));
    Ok(told.collect::<Vec<_>>().join("\n"))
}
