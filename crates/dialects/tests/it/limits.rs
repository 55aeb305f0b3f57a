//! Tests of truncation, notes and prefixes as a model sees them, in every dialect.

use helve_contract::Reply;
use helve_dialects::by_name;
use serde_json::Value;

use crate::desk::Desk;

fn count(text: &str, it: char) -> usize {
    text.chars().filter(|other| *other == it).count()
}

fn json(reply: &Reply) -> Value {
    serde_json::from_str(&reply.text).unwrap()
}

#[tokio::test]
async fn a_long_line_of_a_command_is_shown_as_far_as_the_limit_goes() {
    let mut desk = Desk::new();
    let reply = desk.call("solo", "exec", r#"{"command": "printf '%0150000d' 0"}"#).await;
    assert!(reply.text.starts_with("exit code: 0\n000"), "{}", &reply.text[..40]);
    assert!(count(&reply.text, '0') >= 100_000);
    assert!(reply.text.contains("\n[output truncated: 100000 of 150000 characters shown; the whole is in "));
    assert_eq!(desk.full_output(&reply), "0".repeat(150_000));

    let reply = desk.call("solo", "exec", r#"{"command": "yes ü | head -n 99000 | tr -d '\\n'"}"#).await;
    assert_eq!((count(&reply.text, 'ü'), reply.truncation), (99_000, None));

    // A megabyte exceeds the part of the beginning that is kept in memory.
    let reply = desk.call("solo", "exec", r#"{"command": "yes 😀 | head -n 300000 | tr -d '\\n'"}"#).await;
    assert_eq!(count(&reply.text, '😀'), 100_000);
}

#[tokio::test]
async fn the_output_of_a_process_is_cut_once_and_its_file_is_complete() {
    let mut desk = Desk::new();
    let reply = desk.call("solo", "exec", r#"{"command": "seq 1 40000", "background": true}"#).await;
    let id = reply.text.split("process id: ").nth(1).unwrap().lines().next().unwrap().to_owned();
    let ask = |action: &str| format!(r#"{{"action": "{action}", "process_id": "{id}"}}"#);
    while desk.call("solo", "process", &ask("status")).await.text.contains("running: true") {
        tokio::task::yield_now().await;
    }
    let reply = desk.call("solo", "process", &ask("poll")).await;
    assert!(reply.text.contains("\n40000\n[output truncated: "), "{}", &reply.text[reply.text.len() - 200..]);
    assert!(reply.text.contains(" of 228894 characters shown; the whole is in "));
    let numbers: Vec<String> = (1..=40_000).map(|it| it.to_string()).collect();
    let output = numbers.join("\n") + "\n";
    assert_eq!(desk.full_output(&reply), output);
    assert!(reply.text.len() > 5_000 && reply.text.len() < 10_300);
}

#[tokio::test]
async fn the_note_follows_the_text_and_the_exit_code_is_last() {
    let mut desk = Desk::new();
    let reply = desk.call("preset", "bash", r#"{"command": "printf '%0150000d\\nshort\\n' 0; exit 3"}"#).await;
    assert!(count(&reply.text, '0') > 50_000);
    let (text, note) = reply.text.split_once("\n[Output truncated at 50KB. Full output saved to: ").unwrap();
    assert!(text.ends_with("0\nshort") && note.ends_with("]\n[exit code: 3]"), "{note}");
    assert_eq!(desk.full_output(&reply), format!("{}\nshort\n", "0".repeat(150_000)));

    let reply = desk.call("preset", "bash", r#"{"command": "seq 1 3000"}"#).await;
    assert!(reply.text.starts_with("1001\n") && reply.text.contains("\n3000\n[Output truncated at 2000 lines. "));
}

#[tokio::test]
async fn max_bytes_of_a_page_has_an_effect_up_to_its_maximum() {
    let mut desk = Desk::new();
    for (asked, kept) in [("", 51_200), (r#", "max_bytes": 20000"#, 20_000), (r#", "max_bytes": 102400"#, 102_400)] {
        let args = format!(r#"{{"url": "https://long.example/"{asked}}}"#);
        let reply = desk.call("preset", "web_fetch", &args).await;
        let body = 46 * reply.text.matches("A paragraph of the long page").count();
        assert!(body <= kept && body > kept - 200, "{asked}: {body}");
        let (page, rest) = reply.text.split_once("\n[Output truncated at ").unwrap();
        let mark = page.rsplit_once("\n[").unwrap().1;
        assert!(
            page.starts_with("[Text of https://long.example/, as data") && page.contains(&format!("ends at {mark}"))
        );
        assert!(rest.contains("\n[the page has 276016 bytes"), "{rest}");
        assert!(desk.full_output(&reply).contains("The last line."));
    }
    let reply = desk.call("preset", "web_fetch", r#"{"url": "https://long.example/", "max_bytes": 999999}"#).await;
    assert!(reply.text.contains("[Output truncated at 100KB. "));
}

#[tokio::test]
async fn passages_of_a_page_say_how_much_they_are_and_where_the_rest_is() {
    let mut desk = Desk::new();
    let reply =
        desk.call("claude", "WebFetch", r#"{"url": "https://long.example/", "prompt": "the last line?"}"#).await;
    assert!(reply.text.contains("these are the passages nearest to the prompt, "), "{}", reply.text);
    assert!(reply.text.contains(" of 276,016 bytes.]\n[the whole text of the page: "), "{}", reply.text);
    let file = reply.text.rsplit(": ").next().unwrap().trim_end_matches(']');
    assert!(desk.saved_output(file).ends_with("The last line.\n"), "{file}");
}

#[tokio::test]
async fn json_replies_stay_json_and_their_file_holds_the_page() {
    let mut desk = Desk::new();
    let reply = desk.call("oxydra", "web_fetch", r#"{"url": "https://long.example/"}"#).await;
    assert!(reply.text.len() <= 16_384 && reply.text.len() > 8_192, "{}", reply.text.len());
    let data = json(&reply);
    assert!(data["body"].as_str().unwrap().contains("[output truncated — original size: "), "{data}");
    let whole: Value = serde_json::from_str(&desk.full_output(&reply)).unwrap();
    assert!(whole["body"].as_str().unwrap().ends_with("The last line.\n"));
}

#[tokio::test]
async fn a_short_line_before_a_long_one_does_not_hide_it() {
    let mut desk = Desk::new();
    let text = format!("/* licence */\n{}", "x".repeat(100_000));
    desk.put("min.js", &text);
    let reply = desk.call("oxydra", "file_read", r#"{"path": "/shared/min.js"}"#).await;
    assert!(count(&reply.text, 'x') > 8_192 && reply.text.len() < 16_384 + 200, "{}", reply.text.len());
    assert!(reply.text.contains("\n[output truncated — original size: 100,014 bytes]"));
    let reply = desk.call("oxydra", "shell_exec", r#"{"command": "cat min.js; exit 3"}"#).await;
    assert!(reply.text.starts_with("Tool execution failed: command exited with status 3: /* licence */\nxxx"));
    assert!(count(&reply.text, 'x') > 8_192);
    assert_eq!(desk.full_output(&reply), text);
    let reply = desk.call("solo", "grep", r#"{"pattern": "xx"}"#).await;
    assert!(reply.text.starts_with("min.js:2:xxx") && reply.text.contains("[... 99500 bytes]"), "{}", reply.text);
}

#[tokio::test]
async fn a_line_longer_than_a_page_can_be_read_to_its_end() {
    let mut desk = Desk::new();
    desk.put("one.txt", format!("{}END", "x".repeat(200_000)));
    for dialect in ["solo", "preset"] {
        let reply = desk.call(dialect, "read", r#"{"path": "one.txt"}"#).await;
        let note = "\n[line 1 in full, folded at 1000 characters: ";
        let file =
            reply.text.split(note).nth(1).unwrap_or_else(|| panic!("{dialect}")).trim_end().trim_end_matches(']');
        let name = std::path::Path::new(file).file_name().unwrap();
        let file = desk.root().parent().unwrap().join("spill").join(name);
        let offset = if dialect == "solo" { 200 } else { 201 };
        let args = serde_json::json!({ "path": file, "offset": offset, "limit": 5 }).to_string();
        let rest = desk.call(dialect, "read", &args).await;
        assert!(!rest.is_error && rest.text.contains("END"), "{dialect}: {}", rest.text);
    }
}

/// If whole lines fill less than half of a page, the beginning of the next line follows.
#[tokio::test]
async fn a_page_ends_inside_a_long_line_where_whole_lines_would_leave_it_empty() {
    let mut desk = Desk::new();
    desk.put("min.js", format!("/* licence */\n{}END\nlast\n", "é".repeat(100_000)));
    let half = format!("{}\n", "q".repeat(30_000));
    desk.put("half.txt", format!("{half}{half}{half}"));
    for (dialect, next) in [("solo", 2), ("preset", 3)] {
        let reply = desk.call(dialect, "read", r#"{"path": "min.js"}"#).await;
        assert!(reply.text.contains("/* licence */\n"));
        assert!((12_000..=25_600).contains(&count(&reply.text, 'é')), "{dialect}: {}", count(&reply.text, 'é'));
        assert!(reply.text.contains("… [cut: the line has 200003 bytes]\n"));
        assert!(reply.text.contains(&format!("[lines 1-2 of 3; go on with offset={next}]")), "{dialect}");
        assert!(reply.text.contains("[line 2 in full, folded at 1000 characters: "));
        let args = format!(r#"{{"path": "min.js", "offset": {next}}}"#);
        assert!(desk.call(dialect, "read", &args).await.text.contains("last"));
        let reply = desk.call(dialect, "read", r#"{"path": "half.txt"}"#).await;
        assert_eq!(count(&reply.text, 'q'), 30_000, "{dialect}");
    }
}

/// The note states the size of the command's output, even if the text shows its bytes in another form.
#[tokio::test]
async fn the_size_in_a_note_is_that_of_the_output_and_of_its_file() {
    let mut desk = Desk::new();
    desk.put("bin.dat", (0..=255_u8).cycle().take(400_000).collect::<Vec<_>>());
    let colours = r"for i in $(seq 20000); do printf '\033[31mred\033[0m\n'; done";
    for (command, size) in [("cat bin.dat", 400_000), (colours, 260_000)] {
        let command = serde_json::json!({ "command": command }).to_string();
        for (dialect, tool, note) in [
            ("claude", "Bash", format!("the beginning of {},000 bytes shown", size / 1000)),
            ("solo", "exec", format!("the beginning of {size} bytes shown")),
            ("oxydra", "shell_exec", format!("original size: {},000 bytes", size / 1000)),
            ("preset", "bash", "truncated at ".to_owned()),
        ] {
            let reply = desk.call(dialect, tool, &command).await;
            if reply.truncation.is_none() {
                assert!((dialect, size) == ("solo", 260_000), "100,000 characters hold the text without colours");
                continue;
            }
            assert!(reply.text.contains(&note), "{dialect}: {}", &reply.text[reply.text.len() - 300..]);
            assert_eq!(desk.full_bytes(&reply).len(), size, "{dialect}");
        }
    }
    let reply = desk.call("forge", "bash", r#"{"command": "cat bin.dat"}"#).await;
    let text = json(&reply)["stdout"].as_str().unwrap().to_owned();
    assert!(text.contains("[the end of 400000 bytes shown; the whole is in "), "{}", &text[..200]);
    assert_eq!(desk.full_bytes(&reply).len(), 400_000);
}

#[tokio::test]
async fn a_page_of_read_has_50_kb_by_default_and_at_most_512() {
    let mut desk = Desk::new();
    desk.put("lines.txt", "123456789\n".repeat(100_000));
    let mut lines = async |dialect: &str, args: &str| {
        let reply = desk.call(dialect, "read", args).await;
        reply.text.matches("123456789").count()
    };
    assert_eq!(lines("solo", r#"{"path": "lines.txt"}"#).await, 51_200 / 10);
    assert_eq!(lines("solo", r#"{"path": "lines.txt", "limit": 99999}"#).await, (512 << 10) / 10);
    assert_eq!(lines("preset", r#"{"path": "lines.txt"}"#).await, 2000);
    desk.put("wide.txt", format!("{}\n", "x".repeat(99)).repeat(1000));
    let reply = desk.call("preset", "read", r#"{"path": "wide.txt"}"#).await;
    assert_eq!(count(&reply.text, 'x') / 99, 512, "51,200 bytes of lines of 100");
}

/// Every dialect that searches text shows the matching part of a very long line.
#[tokio::test]
async fn a_match_far_inside_a_long_line_is_shown() {
    let mut desk = Desk::new();
    desk.put("min.js", format!("a\n{}NEEDLE{}\n", "x".repeat(300_000), "é".repeat(100_000)));
    for (dialect, tool, args) in [
        ("solo", "grep", r#"{"pattern": "NEEDLE"}"#),
        ("preset", "grep", r#"{"pattern": "NEEDLE"}"#),
        ("oxydra", "file_search", r#"{"path": "/shared", "query": "NEEDLE"}"#),
        ("claude", "Grep", r#"{"pattern": "NEEDLE", "output_mode": "content"}"#),
    ] {
        let reply = desk.call(dialect, tool, args).await;
        assert!(reply.text.contains("min.js:2:") && reply.text.contains("xNEEDLEé"), "{dialect}: {}", reply.text);
        assert!(reply.text.len() < 2_000 && reply.truncation.is_none(), "{dialect}: {}", reply.text.len());
    }
}

#[tokio::test]
async fn a_page_says_how_large_the_file_is() {
    let mut desk = Desk::new();
    desk.put("long.txt", "a line of some length\n".repeat(20_000));
    let reply = desk.call("preset", "read", r#"{"path": "long.txt"}"#).await;
    assert!(
        reply.text.ends_with("of 20000; go on with offset=2001]\n[the whole file has 429.7KB]"),
        "{}",
        &reply.text[40_000..]
    );
}

#[tokio::test]
async fn zero_is_no_limit() {
    let mut desk = Desk::new();
    desk.put("a.txt", "one\ntwo\nthree\n").put("MEMORY.md", "# Notes\n\nThe sea is blue.\n");
    let root = desk.root().display().to_string();
    for (dialect, tool, args) in [
        ("solo", "read", r#"{"path": "a.txt", "limit": 0, "offset": 0}"#.to_owned()),
        ("solo", "memory_get", r#"{"path": "MEMORY.md", "lines": 0}"#.to_owned()),
        ("preset", "read", r#"{"path": "a.txt", "limit": 0}"#.to_owned()),
        ("preset", "grep", r#"{"pattern": "two", "max_results": 0}"#.to_owned()),
        ("preset", "find", r#"{"pattern": "a.txt", "max_results": 0}"#.to_owned()),
        ("claude", "FileRead", format!(r#"{{"file_path": "{root}/a.txt", "limit": 0}}"#)),
        ("claude", "Grep", r#"{"pattern": "two", "head_limit": 0}"#.to_owned()),
        ("claude", "Bash", r#"{"command": "echo two", "timeout": 0}"#.to_owned()),
    ] {
        let reply = desk.call(dialect, tool, &args).await;
        let words = ["two", "a.txt", "blue"];
        assert!(!reply.is_error && words.iter().any(|it| reply.text.contains(it)), "{dialect} {tool}: {}", reply.text);
        assert!(!reply.text.contains("go on") && !reply.text.contains("nothing at"), "{}", reply.text);
        assert_eq!(reply.model_notes, [""; 0]);
    }
}

#[tokio::test]
async fn every_failure_has_the_prefix_of_its_dialect_once() {
    let mut desk = Desk::new();
    for (dialect, tool, args, starts) in [
        ("claude", "Bash", r#"{"command": "echo out; exit 3"}"#, "Error: Exit code 3\nout"),
        ("claude", "Bash", r#"{"command": " "}"#, "Error: the command is empty"),
        ("claude", "Nothing", "{}", "Error: unknown tool Nothing"),
        ("oxydra", "shell_exec", r#"{"command": "exit 3"}"#, "Tool execution failed: command exited with status 3"),
        ("oxydra", "file_read", "{}", "Tool execution failed: missing required field 'path' in arguments"),
        ("solo", "read", r#"{"path": "none"}"#, "none: no such file"),
        ("preset", "read", "{}", "validation error: missing required parameter \"path\""),
    ] {
        let reply = desk.call(dialect, tool, args).await;
        assert!(reply.is_error && reply.text.starts_with(starts), "{dialect} {tool}: {}", reply.text);
        assert_eq!(
            reply.text.matches("Error: ").count() + reply.text.matches("failed: ").count(),
            usize::from("co".contains(&dialect[..1]))
        );
    }
}

#[tokio::test]
async fn a_lost_parameter_is_reported_and_a_lossless_change_is_not() {
    let mut desk = Desk::new();
    desk.put("a.txt", "one\ntwo\n");
    let note = "ignored the unknown parameter \"encoding\"";
    let reply = desk.call("oxydra", "memory_save", r#"{"content": "The sea is blue.", "encoding": "utf8"}"#).await;
    assert_eq!(json(&reply)["notes"], serde_json::json!([note]), "{}", reply.text);
    assert_eq!(reply.model_notes, [""; 0]);
    let reply = desk.call("preset", "read", r#"{"path": "a.txt", "encoding": "utf8"}"#).await;
    assert_eq!((reply.text.as_str(), reply.model_notes), ("one\ntwo\n", vec![note.to_owned()]));
    let reply = desk.call("preset", "read", r#"{"filePath": "a.txt"}"#).await;
    assert_eq!(reply.model_notes, ["took \"filePath\" for \"path\""]);
    let reply = desk.call("preset", "read", r#"{"path": "a.txt", "limit": "1", "offset": null}"#).await;
    assert_eq!(reply.model_notes, [""; 0]);
    assert!(reply.notes.is_empty() && !reply.repairs.is_empty());
}

#[test]
fn every_range_is_one_of_a_number_that_the_tool_takes() {
    for dialect in helve_dialects::all() {
        for range in dialect.limits.ranges {
            let tool = dialect.tools.iter().find(|it| it.spec.name == range.tool).expect(range.tool);
            let field = &tool.spec.input_schema["properties"][range.parameter];
            let kind = field["type"].to_string();
            assert!(kind.contains("integer") || kind.contains("number"), "{} {} {field}", dialect.name, range.tool);
        }
    }
}

#[tokio::test]
async fn a_number_out_of_range_is_reported() {
    let mut desk = Desk::new();
    desk.put("a.txt", "one\n");
    let reply = desk.call("preset", "read", r#"{"path": "a.txt", "limit": 5000}"#).await;
    assert_eq!(reply.model_notes, ["limit was 5000; the most is 2000, which was used instead"]);
    let reply = desk.call("preset", "read", r#"{"path": "a.txt", "limit": 2000}"#).await;
    assert_eq!(reply.model_notes, [""; 0]);
    let reply = desk.call("solo", "exec", r#"{"command": "true", "timeout": 1}"#).await;
    assert_eq!(reply.model_notes, ["timeout was 1; the least is 10, which was used instead"]);
    // The schema has the same range, so that a model knows it.
    let reply = desk.call("oxydra", "memory_search", r#"{"query": "tabs", "top_k": 500}"#).await;
    assert_eq!((reply.text.as_str(), reply.is_error), ("[]", false));
    assert_eq!(reply.model_notes, ["top_k was 500; the most is 20, which was used instead"]);
    let reply = desk.call("oxydra", "memory_search", r#"{"query": "tabs", "top_k": -1}"#).await;
    assert!(reply.is_error && reply.text.contains("'top_k' must be at least"), "{}", reply.text);
}

/// The parameters that a reply advises to send: `offset=3`, `max_bytes can be`, `whole: true`.
fn advised(text: &str) -> Vec<String> {
    let notes = text.lines().filter(|line| line.starts_with('[') || line.starts_with('{'));
    let words: Vec<&str> = notes.flat_map(|line| line.split([' ', ',', ';', '[', ']', '"', '{', '}', '('])).collect();
    let is_name = |it: &&str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if let Some((name, _)) = word.split_once('=').filter(|(name, value)| is_name(name) && !value.is_empty()) {
            found.push(name.to_owned());
        }
        let next = words.get(at + 1).copied().unwrap_or_default();
        let is_advice = at > 0 && ["with", "send", "at", "use", "set"].contains(&words[at - 1]);
        let has_value =
            next.bytes().all(|it| it.is_ascii_digit()) && !next.is_empty() || ["true", "false"].contains(&next);
        if is_advice && has_value && !["least", "most"].contains(word) {
            found.push(word.trim_end_matches(':').to_owned());
        }
        if next == "can" && is_name(word) && word.contains('_') {
            found.push((*word).to_owned());
        }
    }
    found
}

#[test]
fn advice_is_recognised() {
    assert_eq!(advised("[lines 1-2 of 3; go on with offset=3]"), ["offset"]);
    assert_eq!(advised("[showing 2; go on at offset 2, or narrow it]"), ["offset"]);
    assert_eq!(advised("[only the article; send whole: true for more]"), ["whole"]);
    assert_eq!(advised("[the page has 9 bytes; max_bytes can be up to 102400]"), ["max_bytes"]);
    assert_eq!(advised("x=1\n[line 2 in full, folded at 1000 characters: /a]"), [""; 0]);
}

#[tokio::test]
async fn advice_names_only_parameters_that_the_tool_has() {
    let mut desk = Desk::new();
    desk.put("long.txt", "needle in a line\n".repeat(30_000)).put("MEMORY.md", "- a line of memory\n".repeat(9_000));
    for at in 0..300 {
        desk.put(&format!("many/needle-{at}.txt"), "needle\n");
    }
    let root = desk.root().display().to_string();
    let mut heard = 0;
    for (dialect, tool, args) in [
        ("solo", "read", r#"{"path": "long.txt"}"#.to_owned()),
        ("solo", "grep", r#"{"pattern": "needle"}"#.to_owned()),
        ("solo", "glob", r#"{"pattern": "**/*.txt"}"#.to_owned()),
        ("solo", "memory_get", r#"{"path": "MEMORY.md"}"#.to_owned()),
        ("solo", "memory_get", r#"{"path": "MEMORY.md", "lines": 2}"#.to_owned()),
        ("forge", "read", format!(r#"{{"path": "{root}/long.txt"}}"#)),
        ("preset", "read", r#"{"path": "long.txt"}"#.to_owned()),
        ("preset", "grep", r#"{"pattern": "needle"}"#.to_owned()),
        ("preset", "find", r#"{"pattern": "needle"}"#.to_owned()),
        ("preset", "web_fetch", r#"{"url": "https://long.example/"}"#.to_owned()),
        ("preset", "web_fetch", r#"{"url": "https://shop.example/"}"#.to_owned()),
        ("oxydra", "file_read", r#"{"path": "/shared/long.txt"}"#.to_owned()),
        ("oxydra", "file_search", r#"{"path": "/shared", "query": "needle"}"#.to_owned()),
        ("oxydra", "web_fetch", r#"{"url": "https://shop.example/"}"#.to_owned()),
        ("claude", "FileRead", format!(r#"{{"file_path": "{root}/long.txt"}}"#)),
        ("claude", "Grep", r#"{"pattern": "needle", "head_limit": 3, "output_mode": "content"}"#.to_owned()),
        ("claude", "Glob", r#"{"pattern": "**/*.txt"}"#.to_owned()),
        ("claude", "WebFetch", r#"{"url": "https://long.example/", "prompt": "What is it?"}"#.to_owned()),
    ] {
        let mut tools = by_name(dialect).unwrap().tools.into_iter();
        let Some(row) = tools.find(|row| row.spec.name == tool) else { panic!("{dialect} has no {tool}") };
        let reply = desk.call(dialect, tool, &args).await;
        assert!(!reply.is_error, "{dialect} {tool}: {}", reply.text);
        for name in advised(&reply.text) {
            heard += 1;
            assert!(row.spec.input_schema["properties"].get(&name).is_some(), "{dialect} {tool} advises `{name}`");
        }
    }
    assert!(heard >= 5, "{heard}");
}
