//! What an edit does to a file, and what it says when it does nothing.

use serde_json::json;

use super::*;
use crate::testing::{FakeFile, FakeHost, assert_text, call, call_on, run};

fn edit(old: &str, new: &str) -> EditTool {
    EditTool {
        path: "f".into(),
        old: old.into(),
        new: new.into(),
        all: false,
        tolerance: Tolerance::Exact,
        create: false,
    }
}

fn tolerant(old: &str, new: &str) -> EditTool {
    EditTool { tolerance: Tolerance::Tolerant, ..edit(old, new) }
}

/// The bytes of a file after an edit, or why there was none; then the file must be as it was.
async fn after(file: &[u8], edit: EditTool) -> Result<Vec<u8>, String> {
    let memory = FakeHost::of("f", file);
    match run(&memory, edit).await {
        Ok(_) => Ok(memory.bytes("f")),
        Err(error) => {
            assert_eq!(memory.bytes("f"), file, "an edit that fails changes nothing");
            Err(error.to_string())
        }
    }
}

async fn text_after(file: &str, edit: EditTool) -> String {
    match after(file.as_bytes(), edit).await {
        Ok(bytes) => String::from_utf8(bytes).unwrap(),
        Err(error) => panic!("{error}"),
    }
}

async fn refusal(file: &str, edit: EditTool) -> String {
    after(file.as_bytes(), edit).await.expect_err("this edit must be refused")
}

#[tokio::test]
async fn replaces_a_text_and_shows_the_diff() {
    let args = json!({"path": "a.rs", "old": "b()", "new": "c()"}).to_string();
    let (reply, files) = call::<EditTool>(&[("a.rs", "fn a() {\n    b()\n}\n")], &args).await;
    assert_text(
        &reply,
        "replaced 1 place in a.rs\n--- a/a.rs\n+++ b/a.rs\n@@ -1,3 +1,3 @@\n fn a() {\n-    b()\n+    c()\n }\n",
    );
    assert_eq!(files["a.rs"], b"fn a() {\n    c()\n}\n");
}

#[tokio::test]
async fn windows_1252_survives_an_edit_of_another_line() {
    let file = b"caf\xe9 \x80 5\nna\xefve\nlast line\n";
    assert_eq!(after(file, edit("last line", "final line")).await.unwrap(), b"caf\xe9 \x80 5\nna\xefve\nfinal line\n");
    assert_eq!(after(file, edit("café € 5", "thé € 6")).await.unwrap(), b"th\xe9 \x80 6\nna\xefve\nlast line\n");
    assert_eq!(
        after(file, edit("last", "日")).await.unwrap_err(),
        "f was not changed: it is written in Windows-1252 (Latin-1), which has no `日` (U+65E5); use other characters, or \
         convert the file first"
    );
}

#[tokio::test]
async fn crlf_is_matched_by_lf_and_kept() {
    assert_eq!(text_after("a\r\nb\r\nc\r\n", edit("a\nb", "x\ny\nz")).await, "x\r\ny\r\nz\r\nc\r\n");
    assert_eq!(text_after("a\r\nb\r\nc\r\n", edit("b", "x\ny")).await, "a\r\nx\r\ny\r\nc\r\n");
    assert_eq!(text_after("a\r\nb\r\n", edit("a\r\n", "A\r\n")).await, "A\r\nb\r\n");
    assert_eq!(text_after("a\r\nb\r\n", edit("\nb\n", "\nB\n")).await, "a\r\nB\r\n");
    assert_eq!(text_after("a\nb\n", edit("a\r\nb", "x\r\ny")).await, "x\ny\n");
    assert_eq!(text_after("a\rb\rc", edit("a\nb", "x\ny")).await, "x\ry\rc");
}

#[tokio::test]
async fn mixed_line_ends_stay_where_they_are() {
    assert_eq!(text_after("a\r\nb\nc\r\nd\n", edit("a\nb\nc", "a\nB\nc")).await, "a\r\nB\nc\r\nd\n");
    assert_eq!(text_after("a\r\nb\nc\r\nd\n", edit("b\nc", "b\nnew\nc")).await, "a\r\nb\nnew\nc\r\nd\n");
}

#[tokio::test]
async fn the_byte_order_mark_stays() {
    assert_eq!(text_after("\u{feff}one\ntwo\n", edit("one\n", "1\n")).await, "\u{feff}1\ntwo\n");
    assert_eq!(text_after("\u{feff}one\n", edit("\u{feff}one", "\u{feff}1")).await, "\u{feff}1\n");
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
    assert_eq!(
        after(&utf16("\u{feff}eins\r\nzwei 😀\r\n"), edit("eins\nzwei", "日本\nzwei")).await.unwrap(),
        utf16("\u{feff}日本\r\nzwei 😀\r\n")
    );
    assert_eq!(after(&utf16("eins\nzwei\n"), edit("zwei", "2")).await.unwrap(), utf16("eins\n2\n"));
}

#[tokio::test]
async fn other_encodings_survive() {
    let sjis = |text: &str| encoding_rs::SHIFT_JIS.encode(text).0.into_owned();
    let text = "これは日本語の表です。\nソース\\表示\n終わり\n";
    assert_eq!(
        after(&sjis(text), edit("終わり", "始まり表")).await.unwrap(),
        sjis(&text.replace("終わり", "始まり表"))
    );
    let cyrillic = |text: &str| encoding_rs::WINDOWS_1251.encode(text).0.into_owned();
    let text = "Привет, мир!\nЭто простой текст.\n";
    assert_eq!(after(&cyrillic(text), edit("мир", "дом")).await.unwrap(), cyrillic(&text.replace("мир", "дом")));
}

#[tokio::test]
async fn bytes_that_cannot_be_read_are_not_touched() {
    let file = b"na\xc3\xafve caf\xc3\xa9 \xe9\xff x\nend\n";
    assert_eq!(after(file, edit("end", "END")).await.unwrap(), b"na\xc3\xafve caf\xc3\xa9 \xe9\xff x\nEND\n");
    assert_eq!(
        after(file, edit("café \u{fffd}\u{fffd} x", "cafe \u{fffd}\u{fffd} x")).await.unwrap(),
        b"na\xc3\xafve cafe \xe9\xff x\nend\n"
    );
    assert_eq!(
        after(file, edit("café \u{fffd}\u{fffd} x", "\u{fffd} x!")).await.unwrap_err(),
        "f was not changed: \u{fffd} in the new text stands for bytes that cannot be shown; leave the places around it out \
         of the change"
    );
}

#[tokio::test]
async fn several_matches_are_counted_and_placed() {
    let file = "x = 1\ny\nx = 1\nz\nx = 1\n";
    assert_eq!(
        refusal(file, edit("x = 1", "x = 2")).await,
        "f was not changed: the text to replace is there 3 times, at lines 1, 3, 5; send more of the lines around it, so \
         that only one place fits"
    );
    assert_eq!(text_after(file, EditTool { all: true, ..edit("x = 1", "x = 2") }).await, "x = 2\ny\nx = 2\nz\nx = 2\n");
    assert_eq!(text_after("aaaaa", EditTool { all: true, ..edit("aa", "b") }).await, "bba");
    assert!(refusal("aaa", edit("aa", "b")).await.contains("more than once, at line 1;"));
    let many = refusal(&"q\n".repeat(30), edit("q", "p")).await;
    assert!(many.contains("30 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …;"), "{many}");
}

#[tokio::test]
async fn a_near_miss_shows_what_is_there() {
    let file = "def add(a, b):\n    total = a + b\n    return total\n\ndef sub(a, b):\n    return a - b\n";
    for (old, want) in [
        (
            "    totl = a + b\n    return total",
            "the nearest is lines 2-3, different in line 2. This is what the file has, to be sent as it stands:\n    total = \
             a + b\n    return total\n",
        ),
        (
            "total = a + b\nreturn total",
            "the nearest is lines 2-3, different in indentation. This is what the file has, to be sent as it stands:\n    \
             total = a + b\n    return total\n",
        ),
        (
            "\ttotal = a + b\n",
            "the nearest is line 2, different in indentation (blanks in the file, tabs in the text). This is what the file \
             has, to be sent as it stands:\n    total = a + b\n",
        ),
        (
            "    Total = a + b",
            "the nearest is line 2, different in upper and lower case. This is what the file has, to be sent as it stands:\n    \
             total = a + b\n",
        ),
        (
            "    total=a+b",
            "the nearest is line 2, different in blanks and line breaks. This is what the file has, to be sent as it \
             stands:\n    total = a + b\n",
        ),
        ("import numpy as np", "nothing in the file looks like it; read the file again"),
    ] {
        assert_eq!(
            refusal(file, edit(old, "x")).await,
            format!("f was not changed: the text to replace was not found; {want}"),
            "{old}"
        );
    }
}

#[tokio::test]
async fn common_slips_are_named() {
    let file = "say(\"one\")\nsay(\"two\")\n";
    for (old, want) in [
        (
            "say(\\\"one\\\")",
            "it has escapes such as `\\n` or `\\\"` where the file has the real characters; send those",
        ),
        (
            "say(\"one\")\\nsay(\"two\")",
            "it has escapes such as `\\n` or `\\\"` where the file has the real characters; send those",
        ),
        (
            "     1\tsay(\"one\")\n     2\tsay(\"two\")",
            "it has the line numbers of a listing, which are not in the file; leave them out",
        ),
        ("say(\"two\")\n\n", "it is there without the line break at its end; leave that out"),
    ] {
        let error = refusal(file, edit(old, "x")).await;
        assert!(error.starts_with(&format!("f was not changed: the text to replace was not found; {want}")), "{error}");
    }
    let error = refusal("let x = 2;\n", edit("let x = 1;", "let x = 2;")).await;
    assert!(error.contains("the new text is there already, at line 1: perhaps the change was made before"), "{error}");
}

#[tokio::test]
async fn a_miss_in_a_very_long_line_says_how_far_it_fits() {
    let file = format!("{}function alpha(){{return 1}}{}", "x;".repeat(50_000), "y;".repeat(50_000));
    let error = refusal(&file, edit("function alpha(){return 2}", "z")).await;
    assert!(
        error.contains("its first 24 characters are there, at line 1, but then the file goes on with:\n1}y;y;"),
        "{}",
        &error[..error.len().min(500)]
    );
}

#[tokio::test]
async fn tolerance_finds_what_differs_in_blanks() {
    let memory = FakeHost::of("f", "def f():\n    a()  \n    b()\n");
    let edited = run(&memory, tolerant("    a()\n    b()", "    c()\n    b()")).await.unwrap();
    assert_eq!(edited.summary(), "replaced 1 place in f (matched without regard to blanks at the ends of lines)");
    assert_eq!(memory.bytes("f"), b"def f():\n    c()\n    b()\n");
}

#[tokio::test]
async fn tolerance_indents_the_new_text_as_the_file_is() {
    let file = "class A:\n    def f(self):\n        return 1\n";
    let want = "class A:\n    def f(self):\n        if x:\n            return 2\n        return 1\n";
    assert_eq!(
        text_after(
            file,
            tolerant("def f(self):\n    return 1\n", "def f(self):\n    if x:\n        return 2\n    return 1\n")
        )
        .await,
        want
    );
    // Too deep, and with tabs.
    assert_eq!(text_after("a\n  b\n", tolerant("    a\n      b", "    A\n      b")).await, "A\n  b\n");
    assert_eq!(text_after("if x:\n\ta\n", tolerant("if x:\n    a", "if x:\n    b")).await, "if x:\n\tb\n");
    // Exact, it is an error with the real text.
    let error = refusal(file, edit("def f(self):\n    return 1\n", "")).await;
    assert!(error.ends_with("to be sent as it stands:\n    def f(self):\n        return 1\n"), "{error}");
}

#[tokio::test]
async fn tolerance_keeps_the_quotes_of_the_file() {
    let file = "He said “hello” – it’s fine.\nBye.\n";
    let memory = FakeHost::of("f", file);
    let edited =
        run(&memory, tolerant("said \"hello\" - it's fine", "said \"good day\" - it's \"well\"")).await.unwrap();
    assert_eq!(
        edited.summary(),
        "replaced 1 place in f (matched without regard to the style of quotes and dashes; the file's own were kept)"
    );
    assert_eq!(String::from_utf8(memory.bytes("f")).unwrap(), "He said “good day” – it’s “well”.\nBye.\n");
    let error = refusal(file, edit("said \"hello\" - it's fine", "x")).await;
    assert!(error.contains("He said “hello” – it’s fine."), "{error}");
}

#[tokio::test]
async fn an_edit_without_a_text_to_replace_creates_only_where_nothing_is() {
    let create = |new: &str| EditTool { create: true, ..edit("", new) };
    let memory = FakeHost::default();
    let edited = run(&memory, create("one\n")).await.unwrap();
    assert_eq!((edited.created, edited.summary().as_str()), (true, "created f"));
    assert_eq!(edited.unified(), "--- /dev/null\n+++ b/f\n@@ -0,0 +1,1 @@\n+one\n");
    assert_eq!(text_after("", create("one\n")).await, "one\n");
    assert!(refusal("x", create("one\n")).await.starts_with("f exists and is not empty"));
    assert!(refusal("x", edit("", "one\n")).await.starts_with("f was not changed: the text to replace is empty"));
    assert_eq!(refusal("x", edit("x", "x")).await, "f was not changed: the new text is the same as the old one");
}

#[tokio::test]
async fn what_cannot_be_edited_is_told() {
    let memory = FakeHost::with(&[("src/main.rs", "x")]);
    memory.put("bin", FakeFile::Bytes(b"\x7fELF\0\0".to_vec()));
    memory.put("huge", FakeFile::Repeated(b"x".to_vec(), 10 << 30));
    memory.put("pipe", FakeFile::Fifo);
    for (path, want) in [
        ("src/mian.rs", "src/mian.rs: no such file or folder. Did you mean src/main.rs?"),
        ("src", "src: this is a folder, not a file; list it instead"),
        ("bin", "bin: binary file (ELF program or library, 6B), not text"),
        ("huge", "huge: 10737418240 bytes is more than the 67108864 that are handled here"),
        ("pipe", "pipe: not a regular file (a pipe, device or socket); it was not opened"),
        ("../x", "../x is outside the workspace; paths must be beneath /w"),
    ] {
        let args = json!({"path": path, "old": "x", "new": "y"}).to_string();
        assert_text(&call_on::<EditTool>(&memory, &args).await, want);
    }
}

#[tokio::test]
async fn a_link_is_edited_through() {
    let memory = FakeHost::with(&[("real", "one\n")]);
    memory.put("f", FakeFile::Link("real".into()));
    run(&memory, edit("one", "two")).await.unwrap();
    assert_eq!(memory.bytes("real"), b"two\n");
}

#[tokio::test]
async fn a_change_elsewhere_in_the_file_is_kept_and_one_in_the_text_stops_the_edit() {
    let memory = FakeHost::of("f", "one\ntwo\n");
    memory.inject_write("f", "ONE\ntwo\n");
    run(&memory, edit("two", "2")).await.unwrap();
    assert_eq!(memory.bytes("f"), b"ONE\n2\n");

    let memory = FakeHost::of("f", "one\ntwo\n");
    memory.inject_write("f", "one\nTWO!\n");
    let error = run(&memory, edit("two", "2")).await.unwrap_err().to_string();
    assert!(error.starts_with("f was not changed: the text to replace was not found"), "{error}");
    assert_eq!(memory.bytes("f"), b"one\nTWO!\n");

    let memory = FakeHost::of("f", "one\ntwo\n");
    for change in 1..8 {
        memory.inject_write("f", format!("{change}\ntwo\n"));
    }
    run(&memory, edit("two", "2")).await.unwrap();
    assert_eq!(memory.bytes("f"), b"7\n2\n");

    let memory = FakeHost::of("f", "one\ntwo\n");
    for change in 1..9 {
        memory.inject_write("f", format!("{change}\ntwo\n"));
    }
    let error = run(&memory, edit("two", "2")).await.unwrap_err().to_string();
    assert_eq!(error, "f: the file changed since it was read; read it again and repeat the change");
}

#[tokio::test]
async fn a_miss_in_a_large_file_is_found_soon() {
    let line = |number: usize| format!("    let value_{number} = compute({number}, \"some text\");\n");
    let file: String = (0..40_000).map(line).collect();
    let error = refusal(&file, edit("    let value_31337 = compute(31337, \"sone text\");", "x")).await;
    assert!(error.contains("the nearest is line 31338, different in line 31338."), "{error}");
}

#[tokio::test]
async fn no_file_in_any_encoding_loses_a_byte() {
    let texts = [
        ("windows-1252", "Größe: schön, naïve café – “zitiert” 5 €"),
        ("windows-1252", "señor, ¿qué tal? ¡mañana! © 2024"),
        ("iso-8859-15", "œuvre à 5 €, Ÿ"),
        ("macintosh", "résumé of the façade"),
        ("windows-1250", "Zażółć gęślą jaźń, příliš žluťoučký kůň"),
        ("iso-8859-2", "Zażółć gęślą jaźń, árvíztűrő tükörfúrógép"),
        ("windows-1254", "Şişli'de ığdır, çiğ köfte"),
        ("windows-1251", "Съешь ещё этих мягких французских булок"),
        ("koi8-r", "Съешь ещё этих мягких французских булок"),
        ("ibm866", "Съешь ещё этих мягких французских булок"),
        ("windows-1253", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία"),
        ("windows-1255", "דג סקרן שט בים מאוכזב"),
        ("windows-1256", "نص حكيم له سر قاطع"),
        ("windows-874", "เป็นมนุษย์สุดประเสริฐ"),
        ("shift_jis", "いろはにほへと表ソ能 ちりぬるを"),
        ("euc-jp", "いろはにほへと ちりぬるを 表示"),
        ("gbk", "天地玄黄，宇宙洪荒。日月盈昃"),
        ("gb18030", "天地玄黄，宇宙洪荒。㐀"),
        ("big5", "天地玄黃，宇宙洪荒。功能許蓋"),
        ("euc-kr", "키스의 고유조건은 입술끼리 만나야"),
    ];
    for (label, words) in texts {
        let encoding = encoding_rs::Encoding::for_label(label.as_bytes()).unwrap();
        for end in ["\n", "\r\n", "\r"] {
            let text = |value: &str| ["# one", words, value, words, "last"].join(end) + end;
            let (before, now) = (text("value = 1;"), text("value = 2;"));
            let ((file, _, lossy), (want, ..)) = (encoding.encode(&before), encoding.encode(&now));
            assert!(!lossy, "{label} has all of the text");
            let made = after(&file, edit("value = 1;", "value = 2;")).await;
            assert_eq!(made.as_deref(), Ok(&*want), "{label} with {end:?}");
        }
    }
}
