//! The table of threats is whole and names tests that exist; and what every dialect's tools do about some of its rows.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, path::Path};

use helve_dialects::all;
use serde_json::{Value, json};

use crate::desk::Desk;

/// The rows that the table must have.
const ROWS: [(&str, std::ops::RangeInclusive<u32>); 6] =
    [("A", 1..=27), ("B", 1..=16), ("D", 1..=21), ("E", 1..=15), ("F", 1..=16), ("R", 16..=25)];

/// Reads `file::function` out of a cell.
fn named(cell: &str) -> Vec<(&str, &str)> {
    cell.split('`').skip(1).step_by(2).filter_map(|text| text.rsplit_once("::")).collect()
}

#[test]
fn every_row_names_a_test_that_exists_or_a_reason() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(top.join("docs/threats.md")).unwrap();
    let mut seen = Vec::new();
    for line in page.lines() {
        let cells: Vec<_> = line.split(" | ").map(|it| it.trim_matches(['|', ' '])).collect();
        let [row, _, _, proof] = cells[..] else { continue };
        if row == "row" || row.starts_with('-') {
            continue;
        }
        seen.push(row.to_owned());
        let tests = named(proof);
        let reason = ["cannot run here:", "open:", "nothing to attack:"].iter().any(|it| proof.contains(it));
        assert!(reason || !tests.is_empty(), "{row} has neither a test nor a reason");
        for (file, function) in tests {
            let text = fs::read_to_string(top.join("crates").join(file)).unwrap_or_else(|it| panic!("{file}: {it}"));
            let there = text.contains(&format!("fn {function}(")) && text.contains("test]");
            assert!(there, "{row}: {file} has no test {function}");
        }
    }
    let wanted: Vec<_> =
        ROWS.into_iter().flat_map(|(letter, numbers)| numbers.map(move |it| format!("{letter}{it}"))).collect();
    assert_eq!(seen, wanted);
}

/// A dialect, its tool that writes a file, and the name of the path.
const WRITERS: [(&str, &str, &str); 5] = [
    ("solo", "write", "path"),
    ("forge", "write", "path"),
    ("preset", "write", "path"),
    ("oxydra", "file_write", "path"),
    ("claude", "FileWrite", "file_path"),
];

/// A dialect, its tool that reads a file, and the name of the path.
const READERS: [(&str, &str, &str); 5] = [
    ("solo", "read", "path"),
    ("forge", "read", "path"),
    ("preset", "read", "path"),
    ("oxydra", "file_read", "path"),
    ("claude", "FileRead", "file_path"),
];

/// A path in the workspace, as a dialect's model writes it.
fn spelt(dialect: &str, name: &str) -> String {
    match dialect {
        "oxydra" => format!("/shared/{name}"),
        "forge" | "claude" => format!("/w/{name}"),
        _ => name.to_owned(),
    }
}

#[tokio::test]
async fn what_would_run_commands_cannot_be_made_by_any_writer() {
    for (dialect, tool, field) in WRITERS {
        let mut desk = Desk::new();
        for name in [
            ".mcp.json",
            ".MCP.json",
            ".cursor/MCP.json",
            ".helve/x",
            "helve.toml",
            ".bashrc",
            ".ssh/authorized_keys",
            ".git/config",
            ".git/hooks/pre-commit",
            "deep/.git/hooks/pre-commit",
            ".vscode/tasks.json",
            ".idea/workspace.xml",
            ".ripgreprc",
        ] {
            let args = json!({ field: spelt(dialect, name), "content": "evil" });
            let reply = desk.call(dialect, tool, &args.to_string()).await;
            assert!(reply.is_error && reply.text.contains("is protected"), "{dialect} {name}: {}", reply.text);
        }
        assert_eq!(fs::read_dir(desk.root()).unwrap().count(), 0, "{dialect}");
    }
}

#[tokio::test]
async fn the_windows_of_proc_and_dev_are_shut_for_every_reader() {
    for (dialect, tool, field) in READERS {
        let mut desk = Desk::new();
        let root = desk.root();
        for (name, target) in [("root", "/proc/self/root"), ("env", "/proc/self/environ"), ("zero", "/dev/zero")] {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        }
        let links = ["root/etc/passwd", "env", "zero"].map(|name| spelt(dialect, name));
        let direct = ["/proc/self/root/etc/passwd", "/proc/self/environ", "/proc/1/environ", "/dev/fd/0", "/dev/tty"];
        for path in direct.iter().map(|it| (*it).to_owned()).chain(links) {
            let reply = desk.call(dialect, tool, &json!({ field: path }).to_string()).await;
            assert!(reply.is_error && reply.text.contains("outside the workspace"), "{dialect} {path}: {}", reply.text);
        }
    }
}

#[tokio::test]
async fn a_patch_obeys_the_same_rules_and_all_or_nothing() {
    let mut desk = Desk::new();
    desk.put("a.txt", "one\ntwo\none\ntwo\n").put("b.txt", "b\n");
    let good = "*** Add File: good.txt\n+good\n*** Update File: b.txt\n@@\n-b\n+changed\n";
    for bad in [
        "*** Add File: /etc/PWN\n+x\n",
        "*** Add File: ../PWN\n+x\n",
        "*** Add File: .git/hooks/pre-commit\n+x\n",
        "*** Update File: b.txt\n*** Move to: ../PWN\n@@\n-b\n+c\n",
        "*** Delete File: ../spill\n",
        "*** Delete File: a.txt\n*** Update File: a.txt\n@@\n-one\n+x\n",
        "*** Update File: missing.txt\n@@\n-x\n+y\n",
    ] {
        let patch = format!("*** Begin Patch\n{good}{bad}*** End Patch\n");
        let reply = desk.call("solo", "apply_patch", &json!({ "patch": patch }).to_string()).await;
        assert!(reply.is_error, "{bad}: {}", reply.text);
        let mut names: Vec<_> = fs::read_dir(desk.root()).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!((names, desk.get("b.txt")), (vec!["a.txt".into(), "b.txt".into()], b"b\n".to_vec()), "{bad}");
    }
    // A patch that is too large is told so before anything is read.
    let lines = "+0123456789abcde\n".repeat(650_000);
    let patch = format!("*** Begin Patch\n*** Add File: big.txt\n{lines}*** End Patch\n");
    let reply = desk.call("solo", "apply_patch", &json!({ "patch": patch }).to_string()).await;
    assert!(reply.is_error && reply.text.contains("at most 10000000 are taken at once"), "{}", reply.text);
    assert!(desk.get("big.txt").is_empty());
}

#[tokio::test]
async fn a_notebook_of_any_kind_is_shown_in_bounds_or_left_alone() {
    let mut desk = Desk::new();
    let flood = "x".repeat(20 << 20);
    let cell = json!({ "cell_type": "code", "execution_count": 1, "id": "a", "metadata": {}, "source": "1",
        "outputs": [{ "output_type": "stream", "name": "stdout", "text": flood }] });
    let book = json!({ "cells": [cell], "metadata": { "own": 1 }, "nbformat": 4, "nbformat_minor": 5 });
    desk.put("big.ipynb", book.to_string());
    let reply = desk.call("claude", "FileRead", r#"{"file_path":"/w/big.ipynb"}"#).await;
    assert!(reply.text.len() < 2 << 20, "{} bytes", reply.text.len());

    let bytes = b"{\"cells\": [], \"metadata\": {\"a\": \"\xff\xfe\"}, \"nbformat\": 4}";
    desk.put("bytes.ipynb", bytes);
    let args = r#"{"notebook_path":"/w/bytes.ipynb","edit_mode":"insert","cell_type":"code","new_source":"x"}"#;
    let reply = desk.call("claude", "NotebookEdit", args).await;
    assert!(reply.is_error, "{}", reply.text);
    assert_eq!(desk.get("bytes.ipynb"), bytes);
}

#[tokio::test]
async fn names_in_lists_obey_nobody() {
    let mut desk = Desk::new();
    let root = desk.root();
    for name in [&b"a\nb"[..], b"\x1b[2Jx", b"-rf", b"\xff\xfe"] {
        fs::write(root.join(OsStr::from_bytes(name)), "needle\n").unwrap();
    }
    let calls = [
        ("preset", "ls", "{}"),
        ("preset", "find", r#"{"pattern":"*"}"#),
        ("preset", "grep", r#"{"pattern":"needle"}"#),
        ("solo", "glob", r#"{"pattern":"*"}"#),
        ("solo", "grep", r#"{"pattern":"needle"}"#),
        ("oxydra", "file_list", r#"{"path":"/shared"}"#),
        ("claude", "Glob", r#"{"pattern":"*"}"#),
        ("claude", "Grep", r#"{"pattern":"needle"}"#),
    ];
    for (dialect, tool, args) in calls {
        let reply = desk.call(dialect, tool, args).await;
        let text = &reply.text;
        assert!(!reply.is_error && text.contains("-rf"), "{dialect} {tool}: {text}");
        assert!(!text.chars().any(|it| it.is_control() && it != '\n' && it != '\t'), "{dialect} {tool}: {text:?}");
        assert!(!text.lines().any(|line| line.trim() == "b" || line.starts_with("b:")), "{dialect} {tool}: {text:?}");
    }
}

/// Every name of a parameter, however deep.
fn parameters(schema: &Value, into: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get("properties") {
                into.extend(properties.keys().cloned());
            }
            map.values().for_each(|it| parameters(it, into));
        }
        Value::Array(list) => list.iter().for_each(|it| parameters(it, into)),
        _ => {}
    }
}

#[test]
fn no_tool_lets_the_model_open_its_own_walls() {
    let words = [
        "sandbox",
        "danger",
        "unsafe",
        "network",
        "approv",
        "permission",
        "privileg",
        "elevat",
        "bypass",
        "trust",
        "root",
    ];
    let mut seen = 0;
    for dialect in all() {
        for tool in &dialect.tools {
            let mut names = Vec::new();
            parameters(&tool.spec.schema, &mut names);
            seen += names.len();
            for name in names {
                let plain = name.to_lowercase();
                assert!(
                    !words.iter().any(|word| plain.contains(word)),
                    "{}.{} has {name}",
                    dialect.name,
                    tool.spec.name
                );
            }
        }
    }
    assert!(seen > 200, "{seen} parameters were looked at");
}
