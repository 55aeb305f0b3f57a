//! The table of threats is whole and names tests that exist; and what every dialect's tools do about some of its rows.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, path::Path};

use helve_dialects::all;
use serde_json::{Value, json};

use crate::desk::Desk;

/// The rows that the table must have, in its order.
const ROWS: [(&str, std::ops::RangeInclusive<u32>); 14] = [
    ("A", 1..=31),
    ("B", 1..=17),
    ("C", 1..=15),
    ("D", 1..=26),
    ("E", 1..=21),
    ("F", 1..=16),
    ("G", 1..=24),
    ("H", 1..=9),
    ("I", 1..=10),
    ("J", 1..=6),
    ("K", 1..=4),
    ("L", 1..=4),
    ("M", 1..=13),
    ("R", 1..=40),
];

/// What shows that a row holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    Test,
    Lint,
    Reason,
    Open,
}

impl Proof {
    /// What a row has: of two, the weaker one counts.
    fn of(cell: &str) -> Option<Self> {
        let reason = ["cannot run here:", "nothing to attack:"].iter().any(|it| cell.contains(it));
        if cell.contains("open:") {
            Some(Self::Open)
        } else if reason {
            Some(Self::Reason)
        } else if cell.contains("lint:") {
            Some(Self::Lint)
        } else {
            (!named(cell).is_empty()).then_some(Self::Test)
        }
    }
}

/// Reads `file::function` out of a cell.
fn named(cell: &str) -> Vec<(&str, &str)> {
    cell.split('`').skip(1).step_by(2).filter_map(|text| text.rsplit_once("::")).collect()
}

/// The table's rows: name, what is done, and the cell with the proof.
fn rows(page: &str) -> Vec<[&str; 3]> {
    let cells = page.lines().map(|line| line.split(" | ").map(|it| it.trim_matches(['|', ' '])).collect::<Vec<_>>());
    let rows =
        cells.filter_map(|cells| if let [row, _, done, proof] = cells[..] { Some([row, done, proof]) } else { None });
    rows.filter(|[row, ..]| *row != "row" && !row.starts_with('-')).collect()
}

#[test]
fn every_row_names_a_test_that_exists_or_a_reason() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(top.join("docs/threats.md")).unwrap();
    let mut wrong = Vec::new();
    let mut seen = Vec::new();
    for [row, _, proof] in rows(&page) {
        seen.push(row.to_owned());
        if Proof::of(proof).is_none() {
            wrong.push(format!("{row} has neither a test nor a reason"));
        }
        for (file, function) in named(proof) {
            let text = fs::read_to_string(top.join("crates").join(file)).unwrap_or_default();
            // A test of a suite has a type parameter: what is tried by it.
            let is_defined = ["(", "<"].iter().any(|next| text.contains(&format!("fn {function}{next}")));
            let there = is_defined && (text.contains("test]") || text.contains("proptest!"));
            if !there {
                wrong.push(format!("{row}: {file} has no test {function}"));
            }
        }
    }
    let wanted: Vec<_> =
        ROWS.into_iter().flat_map(|(letter, numbers)| numbers.map(move |it| format!("{letter}{it}"))).collect();
    wrong.extend(wanted.iter().filter(|row| !seen.contains(row)).map(|row| format!("{row} is missing")));
    wrong.extend(seen.iter().filter(|row| !wanted.contains(row)).map(|row| format!("{row} is not known")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(seen.len(), wanted.len(), "a row stands there twice");
}

#[test]
fn the_page_counts_its_rows() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/threats.md");
    let page = fs::read_to_string(&file).unwrap();
    let (marks, rows) = (["<!-- counts -->\n", "<!-- /counts -->"], rows(&page));
    let count = |wanted: Proof| rows.iter().filter(|[.., proof]| Proof::of(proof) == Some(wanted)).count();
    let partly = rows.iter().filter(|[_, done, _]| done.contains("is open")).count();
    let tests: std::collections::BTreeSet<_> = rows.iter().flat_map(|[.., proof]| named(proof)).collect();
    let counts = format!(
        "{} rows: {} are shown by tests ({} of them, {partly} rows only in part), {} by a lint, {} have a reason instead, \
         {} are open.\n",
        rows.len(),
        count(Proof::Test),
        tests.len(),
        count(Proof::Lint),
        count(Proof::Reason),
        count(Proof::Open),
    );
    let (before, rest) = page.split_once(marks[0]).unwrap();
    let (now, after) = rest.split_once(marks[1]).unwrap();
    if std::env::var("UPDATE").is_ok_and(|it| it == "1") {
        fs::write(&file, [before, marks[0], &counts, marks[1], after].concat()).unwrap();
    } else {
        assert_eq!(now, counts, "(run with UPDATE=1 to accept)");
    }
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
            ".g\u{200c}it/config",
            ".git\u{200b}/config",
            ".git\u{ad}/hooks/x",
            ".ｇit/config",
            "GIT~1/hooks/x",
            ".git::$INDEX_ALLOCATION/config",
            ".mcp\u{2060}.json",
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
            parameters(&tool.spec.input_schema, &mut names);
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
