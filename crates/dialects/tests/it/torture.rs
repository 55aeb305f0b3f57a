//! Edits that damage files elsewhere, in every dialect that edits: right, or refused with the file intact.

use std::{fs, os::unix::fs::PermissionsExt};

use helve_contract::Reply;

use crate::desk::Desk;

/// A dialect, its edit tool, and the names of path, old and new text.
type Editor = (&'static str, &'static str, [&'static str; 3]);

const EDITORS: [Editor; 5] = [
    ("solo", "edit", ["path", "old_text", "new_text"]),
    ("forge", "edit", ["path", "oldStr", "newStr"]),
    ("preset", "edit", ["path", "old_text", "new_text"]),
    ("oxydra", "file_edit", ["path", "old_text", "new_text"]),
    ("claude", "FileEdit", ["file_path", "old_string", "new_string"]),
];

async fn edit(desk: &mut Desk, editor: Editor, name: &str, old: &str, new: &str) -> Reply {
    let (dialect, tool, fields) = editor;
    let path = match dialect {
        "oxydra" => format!("/shared/{name}"),
        "forge" | "claude" => format!("/w/{name}"),
        _ => name.to_owned(),
    };
    let args = serde_json::json!({ fields[0]: path, fields[1]: old, fields[2]: new });
    desk.call(dialect, tool, &args.to_string()).await
}

/// Every dialect makes this edit and leaves exactly these bytes.
async fn leaves(before: &[u8], old: &str, new: &str, after: &[u8]) {
    for editor in EDITORS {
        let mut desk = Desk::new();
        desk.put("f.txt", before);
        let reply = edit(&mut desk, editor, "f.txt", old, new).await;
        assert!(!reply.is_error, "{}: {}", editor.0, reply.text);
        assert_eq!(desk.get("f.txt"), after, "{}: {}", editor.0, String::from_utf8_lossy(&desk.get("f.txt")));
    }
}

/// Every dialect refuses this edit, leaves the file alone, and says each of these.
async fn refuses(before: &[u8], old: &str, new: &str, says: &[&str]) {
    for editor in EDITORS {
        let mut desk = Desk::new();
        desk.put("f.txt", before);
        let reply = edit(&mut desk, editor, "f.txt", old, new).await;
        assert!(reply.is_error, "{}: {}", editor.0, reply.text);
        assert_eq!(desk.get("f.txt"), before, "{}", editor.0);
        let text = reply.text.replace("\\n", "\n").replace("\\\"", "\"").replace("\\t", "\t");
        for part in says {
            assert!(text.contains(part), "{} does not say {part:?}: {text}", editor.0);
        }
    }
}

#[tokio::test]
async fn windows_1252_keeps_its_bytes() {
    leaves(
        b"caf\xe9 \x93quoted\x94\r\nchange me\r\nna\xefve\r\n",
        "change me",
        "changed",
        b"caf\xe9 \x93quoted\x94\r\nchanged\r\nna\xefve\r\n",
    )
    .await;
}

#[tokio::test]
async fn windows_1252_takes_its_own_letters() {
    leaves(b"caf\xe9 here\nna\xefve text\n", "naïve", "café", b"caf\xe9 here\ncaf\xe9 text\n").await;
}

#[tokio::test]
async fn crlf_stays_crlf_over_two_lines() {
    leaves(b"one\r\ntwo\r\nthree\r\n", "one\ntwo", "1\n2\n2b", b"1\r\n2\r\n2b\r\nthree\r\n").await;
}

#[tokio::test]
async fn mixed_endings_stay_mixed() {
    leaves(b"a\r\nb\nc\r\nd\n", "b", "B", b"a\r\nB\nc\r\nd\n").await;
}

#[tokio::test]
async fn a_bom_stays() {
    leaves(
        b"\xef\xbb\xbfusing System;\nclass A {}\n",
        "using System;",
        "using Other;",
        b"\xef\xbb\xbfusing Other;\nclass A {}\n",
    )
    .await;
}

#[tokio::test]
async fn utf_16_stays_utf_16() {
    let wide =
        |text: &str| [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect::<Vec<_>>();
    leaves(&wide("one\r\ntwo é\r\n"), "two", "2", &wide("one\r\n2 é\r\n")).await;
}

#[tokio::test]
async fn no_final_newline_stays_so() {
    leaves(b"one\ntwo", "two", "2", b"one\n2").await;
}

#[tokio::test]
async fn too_shallow_is_refused_with_the_real_text() {
    refuses(
        b"class A:\n    def f(self):\n        return 1\n",
        "def f(self):\n    return 1",
        "def f(self):\n    return 2",
        &["    def f(self):\n        return 1"],
    )
    .await;
}

#[tokio::test]
async fn curly_quotes_are_refused_with_the_real_text() {
    refuses("say “hello” now\n".as_bytes(), "say \"hello\" now", "say bye", &["say “hello” now"]).await;
}

#[tokio::test]
async fn two_matches_are_counted_with_their_lines() {
    refuses(b"x = 1\ny = 2\nx = 1\n", "x = 1", "x = 3", &["2", "1", "3"]).await;
}

#[tokio::test]
async fn a_typo_shows_the_nearest_lines() {
    refuses(
        b"fn area(width: u32, height: u32) -> u32 {\n    width * height\n}\n",
        "fn area(widht: u32, height: u32) -> u32 {",
        "fn area() {",
        &["fn area(width: u32, height: u32) -> u32 {"],
    )
    .await;
}

#[tokio::test]
async fn a_link_stays_a_link_and_a_mode_stays() {
    for editor in EDITORS {
        let mut desk = Desk::new();
        desk.put("real.sh", "#!/bin/sh\necho one\n");
        let real = desk.root().join("real.sh");
        fs::set_permissions(&real, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("real.sh", desk.root().join("link.sh")).unwrap();
        let reply = edit(&mut desk, editor, "link.sh", "one", "two").await;
        assert!(!reply.is_error, "{}: {}", editor.0, reply.text);
        assert_eq!(fs::read_link(desk.root().join("link.sh")).unwrap().to_str(), Some("real.sh"));
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o7777, 0o755);
        assert_eq!(desk.get("real.sh"), b"#!/bin/sh\necho two\n");
    }
}

#[tokio::test]
async fn a_letter_that_the_encoding_lacks_is_refused() {
    refuses(b"caf\xe9 one\nna\xefve\n", "one", "→", &["→"]).await;
}

#[tokio::test]
async fn a_long_file_says_where_to_go_on() {
    let mut desk = Desk::new();
    let lines: Vec<String> = (1..=200_000).map(|number| number.to_string()).collect();
    desk.put("long.txt", lines.join("\n") + "\n").put("wide.txt", "x".repeat(100_000) + "\nsecond\n");
    let root = desk.root().display().to_string();
    for (dialect, tool, args, end) in [
        ("solo", "read", r#"{"path": "long.txt", "limit": 150000}"#, "; go on with offset=89"),
        ("preset", "read", r#"{"path": "long.txt"}"#, "2000\n[lines 1-2000 of 200000; go on with offset=2001]"),
        ("preset", "read", r#"{"path": "wide.txt"}"#, "[lines 1-1 of 2; go on with offset=2]"),
        ("oxydra", "file_read", r#"{"path": "/shared/wide.txt"}"#, "[full output: /shared/wide.txt]"),
        ("forge", "read", r#"{"path": "ROOT/long.txt"}"#, r#""truncated":"go on with range ["#),
        ("claude", "Read", r#"{"file_path": "ROOT/long.txt", "limit": 190000}"#, "; go on with offset="),
    ] {
        let reply = desk.call(dialect, tool, &args.replace("ROOT", &root)).await;
        let tail: String = reply.text.chars().skip(reply.text.chars().count().saturating_sub(200)).collect();
        assert!(tail.contains(end), "{dialect}: {tail}");
        assert!(!reply.text.contains("saved to") && !reply.text.contains("the whole is in"), "{dialect}: {tail}");
    }
}
