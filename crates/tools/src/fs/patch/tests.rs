//! Patches and what they leave behind.

use proptest::prelude::*;
use similar::TextDiff;

use super::{apply, parse};
use crate::{
    fs::ApplyPatchTool,
    testing::{FakeFile, FakeHost, call_on},
};

/// The reply to a patch, and every file after it.
async fn patched(files: &[(&str, &str)], patch: &str) -> (String, Vec<(String, String)>) {
    let memory = FakeHost::with(files);
    let reply = call_on::<ApplyPatchTool>(&memory, &serde_json::json!({ "patch": patch }).to_string()).await;
    let files = memory.files().into_iter().map(|(name, bytes)| (name, String::from_utf8(bytes).unwrap()));
    (if reply.is_error { format!("error: {}", reply.text) } else { reply.text }, files.collect())
}

/// One file through hunks of the envelope; the file afterwards, or the error.
async fn updated(text: &str, hunks: &str) -> String {
    let patch = format!("*** Begin Patch\n*** Update File: f\n{hunks}\n*** End Patch");
    match patched(&[("f", text)], &patch).await {
        (reply, _) if reply.starts_with("error: ") => reply,
        (_, files) => files[0].1.clone(),
    }
}

fn named(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn adds_changes_moves_and_deletes_in_one_go() {
    let before = [("delete.txt", "gone\n"), ("modify.txt", "line1\nline2\n"), ("old/name.txt", "from\n")];
    let patch = "\
*** Begin Patch
*** Add File: nested/new.txt
+created
*** Delete File: delete.txt
*** Update File: modify.txt
@@
-line2
+changed
*** Update File: old/name.txt
*** Move to: renamed/dir/name.txt
@@
-from
+new
*** End Patch
";
    let (reply, after) = patched(&before, patch).await;
    assert_eq!(reply, "A nested/new.txt\nD delete.txt\nM modify.txt\nR old/name.txt -> renamed/dir/name.txt");
    assert_eq!(
        after,
        named(&[
            ("modify.txt", "line1\nchanged\n"),
            ("nested/new.txt", "created\n"),
            ("renamed/dir/name.txt", "new\n"),
        ])
    );
}

#[tokio::test]
async fn one_part_that_does_not_fit_stops_all() {
    let files = [("a.txt", "one\n"), ("b.txt", "alpha\nbeta\ngamma\n")];
    let patch = "\
*** Begin Patch
*** Add File: c.txt
+new
*** Update File: b.txt
@@
 alpha
-betta
+BETA
*** End Patch";
    let (reply, after) = patched(&files, patch).await;
    assert_eq!(
        reply,
        "error: b.txt: hunk 1 (line 5 of the patch): its lines are not in the file. From line 1 on the file says:\n\
         alpha\nbeta\nFirst difference, at line 2: the patch has `betta`, the file `beta`\nNothing was changed."
    );
    assert_eq!(after, named(&files));
}

#[tokio::test]
async fn refuses_what_is_no_whole_patch() {
    let files = [("foo.txt", "x\n"), ("dir/in.txt", "x\n")];
    for (patch, why) in [
        (
            "hello",
            "this is no patch: it starts neither with `*** Begin Patch` nor with the `---` and `+++` lines of a unified diff",
        ),
        ("*** Begin Patch\n*** End Patch", "the patch changes no file"),
        (
            "*** Begin Patch\n*** Delete File: foo.txt",
            "the patch does not end with `*** End Patch`; it may have been cut off. Nothing was changed",
        ),
        ("*** Begin Patch\n*** Update File: foo.txt\n*** End Patch", "Update file hunk for path 'foo.txt' is empty"),
        (
            "*** Begin Patch\n*** Frobnicate File: foo\n*** End Patch",
            "line 2 of the patch: `*** Frobnicate File: foo` is no header; use `*** Add File: path`, `*** Delete File: path` or `*** Update File: path`",
        ),
        (
            "*** Begin Patch\n*** Delete File: fooo.txt\n*** End Patch",
            "fooo.txt: no such file or folder. Did you mean foo.txt?",
        ),
        ("*** Begin Patch\n*** Delete File: dir\n*** End Patch", "dir: this is a folder, not a file; list it instead"),
        ("*** Begin Patch\n*** Add File: ../x\n+x\n*** End Patch", "outside the workspace"),
        (
            "*** Begin Patch\n*** Add File: new\nx\n*** End Patch",
            "line 3 of the patch: each line of a new file starts with `+`, but this is `x`",
        ),
    ] {
        let (reply, after) = patched(&files, patch).await;
        assert!(reply.starts_with("error: ") && reply.contains(why), "{reply}");
        assert_eq!(after, {
            let mut all = named(&files);
            all.sort();
            all
        });
    }
}

#[tokio::test]
async fn takes_the_wrappings_that_models_add() {
    let core = "*** Begin Patch \n  *** Update File: f\n@@\n-one\n+two\n *** End Patch";
    for (before, after) in [
        ("", ""),
        ("<<'EOF'\n", "\nEOF\n"),
        ("apply_patch <<\"EOF\"\n", "\nEOF"),
        ("bash -lc 'apply_patch <<EOF\n", "\nEOF\n'"),
        ("```\n", "\n```\n"),
        ("\n\n", "\n\n"),
    ] {
        let patch = format!("{before}{core}{after}");
        for patch in [patch.replace('\n', "\r\n"), patch] {
            let (reply, after) = patched(&[("f", "one\n")], &patch).await;
            assert_eq!((reply.as_str(), after), ("M f", named(&[("f", "two\n")])), "{patch:?}");
        }
    }
}

#[tokio::test]
async fn hunks_find_their_place() {
    let code = "class A:\n    def f():\n        pass\nclass B:\n    def f():\n        pass\n";
    for (text, hunks, want) in [
        ("l1\nl2\nl3\nl4\n", "@@\n-l2\n+c2\n@@\n-l4\n+c4", "l1\nc2\nl3\nc4\n"),
        ("l1\nl2\n", "-l2\n+c2", "l1\nc2\n"),
        (
            code,
            "@@ class B:\n     def f():\n-        pass\n+        go()",
            "class A:\n    def f():\n        pass\nclass B:\n    def f():\n        go()\n",
        ),
        (
            code,
            "@@ class B:\n@@     def f():\n-        pass\n+        go()",
            "class A:\n    def f():\n        pass\nclass B:\n    def f():\n        go()\n",
        ),
        (
            code,
            "@@ class B: @@\n-        pass\n+        go()",
            "class A:\n    def f():\n        pass\nclass B:\n    def f():\n        go()\n",
        ),
        (
            code,
            "@@ class B:\n class B:\n+    x = 1",
            "class A:\n    def f():\n        pass\nclass B:\n    x = 1\n    def f():\n        pass\n",
        ),
        (
            code,
            "@@ -6,1 +6,1 @@\n-        pass\n+        go()",
            "class A:\n    def f():\n        pass\nclass B:\n    def f():\n        go()\n",
        ),
        ("a\nx\na\nx\n", "@@\n-x\n+y\n*** End of File", "a\nx\na\ny\n"),
        ("x\nx\n", "@@\n-x\n+y\n@@\n-x\n+y", "y\ny\n"),
        ("a\nb\n", "@@\n+c\n+d", "a\nb\nc\nd\n"),
        ("a\nb\n", "@@\n+c\n@@\n-a\n+x", "x\nb\nc\n"),
        ("a\nb", "@@\n+c\n@@\n-b\n+x", "a\nx\nc\n"),
        ("a\nb", "@@\n+c\n@@\n+d", "a\nb\nc\nd\n"),
        ("a\n\n", "@@\n+c", "a\n\nc\n"),
        ("a\nb\n", "@@ a\n+c", "a\nc\nb\n"),
        ("a\n\nb\n", "@@\n a\n\n-b\n+c", "a\n\nc\n"),
        ("a\nb\n", "@@\n a\n-b\n+c\n\n", "a\nc\n"),
        ("a\nb\nc\n", "@@\n a\n-b\n c", "a\nc\n"),
        ("a  \nb\n", "@@\n a\n-b\n+c", "a  \nc\n"),
        (
            "say \u{201c}hi\u{201d} \u{2014} now\n",
            "@@\n-say \"hi\" - now\n+say \"hi\" - later",
            "say \u{201c}hi\u{201d} \u{2014} later\n",
        ),
        ("if x:\n    a()\n    b()\n", "@@\n-a()\n+c()\n b()", "if x:\n    c()\n    b()\n"),
    ] {
        assert_eq!(updated(text, hunks).await, want, "{hunks}");
    }
}

#[tokio::test]
async fn says_why_a_hunk_has_no_place() {
    for (text, hunks, why) in [
        (
            "x = 1\ny\nx = 1\n",
            "@@\n-x = 1\n+x = 2",
            "f: hunk 1 (line 3 of the patch): it fits in 2 places, at lines 1, 3; add lines around it, or the line above after @@, to say which",
        ),
        (
            "fn main() {\n}\n",
            "@@ fn mian() {\n+x",
            "the line `fn mian() {` after @@ is not in the file; the nearest is line 1: `fn main() {`",
        ),
        (
            "a\nb\n",
            "@@\n-a\n+x\n*** End of File",
            "its lines are in the file, but not at the end, where it says `*** End of File`",
        ),
        (
            "if x:\n    a()\n\tb()\n",
            "@@\n-a()\n-b()\n+c()",
            "it fits at line 2 only without its indentation, and the indentation differs from line to line.",
        ),
        (
            "alpha\n",
            "@@\n-0123456789\n+x",
            "its lines are not in the file, nor anything like them; read the file again",
        ),
    ] {
        let reply = updated(text, hunks).await;
        assert!(
            reply.starts_with("error: ") && reply.contains(why) && reply.ends_with("Nothing was changed."),
            "{reply}"
        );
    }
}

#[tokio::test]
async fn says_how_a_hunk_was_made_to_fit() {
    let patch = "*** Begin Patch\n*** Update File: f\n@@\n-a()\n+b()\n*** End Patch";
    let (reply, _) = patched(&[("f", "x\n  a()\n")], patch).await;
    assert_eq!(
        reply,
        "M f\nnote: f: hunk 1 fits at line 2 without regard to indentation and blanks at the ends of lines"
    );
}

#[tokio::test]
async fn line_ends_stay_as_they_are() {
    for (text, hunks, want) in [
        ("one\r\ntwo\r\nthree\r\n", "@@\n-one\n+ONE\n two\n+between\n three", "ONE\r\ntwo\r\nbetween\r\nthree\r\n"),
        ("one\r\ntwo\rthree\nfour\r\n", "@@\n one\n two\n-three\n+THREE\n four", "one\r\ntwo\rTHREE\r\nfour\r\n"),
        ("a\nb\r\nc\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\n"),
        ("a\nb", "@@\n-a\n+A", "A\nb"),
        ("a\nb", "@@\n-b\n+B", "a\nB\n"),
        ("a\nb", "@@\n b\n+c", "a\nb\nc\n"),
        ("a\nb", "@@\n-b", "a\n"),
        ("a\r\nb", "@@\n b\n+c", "a\r\nb\r\nc\r\n"),
        ("spin|\r/\r-\nb\n", "@@\n-b\n+c", "spin|\r/\r-\nc\n"),
    ] {
        assert_eq!(updated(text, hunks).await, want, "{text:?}");
    }
}

#[tokio::test]
async fn encodings_stay_as_they_are() {
    let utf16 = |text: &str| -> Vec<u8> {
        [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
    };
    let hunk = "*** Begin Patch\n*** Update File: f\n@@\n-naïve\n+naïf\n*** End Patch";
    let args = serde_json::json!({ "patch": hunk }).to_string();
    for (before, after) in [
        (b"caf\xe9\na\xefve no\nna\xefve\n".to_vec(), b"caf\xe9\na\xefve no\nna\xeff\n".to_vec()),
        ("\u{feff}naïve\n".into(), "\u{feff}naïf\n".into()),
        (utf16("x\r\nnaïve\r\n"), utf16("x\r\nnaïf\r\n")),
    ] {
        let memory = FakeHost::of("f", before);
        assert_eq!(call_on::<ApplyPatchTool>(&memory, &args).await.text, "M f");
        assert_eq!(memory.bytes("f"), after);
    }
    let memory = FakeHost::of("f", b"caf\xe9 cr\xe8me\nna\xefve\n".to_vec());
    let arrow = args.replace("naïf", "→");
    let reply = call_on::<ApplyPatchTool>(&memory, &arrow).await;
    assert!(reply.text.contains("which has no `→`"), "{}", reply.text);
    let memory = FakeHost::of("f", b"\x7fELF\0\0".to_vec());
    assert_eq!(
        call_on::<ApplyPatchTool>(&memory, &args).await.text,
        "f: binary file (ELF program or library), not text"
    );
}

#[tokio::test]
async fn one_file_may_come_up_many_times() {
    let two = "*** Update File: f\n@@\n-a\n+b\n*** Update File: f\n@@\n-b\n+c\n";
    let again = "*** Delete File: f\n*** Add File: f\n+new\n";
    let itself = "*** Update File: f\n*** Move to: ./f\n@@\n-a\n+b\n";
    let onto = "*** Update File: f\n*** Move to: g\n@@\n-a\n+b\n";
    let over = "*** Add File: f\n+new\n";
    for (body, reply, after) in [
        (two, "M f\nM f", vec![("f", "c\n"), ("g", "g\n")]),
        (again, "D f\nA f", vec![("f", "new\n"), ("g", "g\n")]),
        (itself, "M f", vec![("f", "b\n"), ("g", "g\n")]),
        (onto, "R f -> g (replaced)", vec![("g", "b\n")]),
        (over, "A f (replaced)", vec![("f", "new\n"), ("g", "g\n")]),
    ] {
        let seen = patched(&[("f", "a\n"), ("g", "g\n")], &format!("*** Begin Patch\n{body}*** End Patch")).await;
        assert_eq!(seen, (reply.to_owned(), named(&after)), "{body}");
    }
    let gone = "*** Begin Patch\n*** Delete File: f\n*** Update File: f\n@@\n-a\n+b\n*** End Patch";
    assert_eq!(patched(&[("f", "a\n")], gone).await.0, "error: f: an earlier part of the patch took it away");
}

#[tokio::test]
async fn unified_diffs_are_patches_too() {
    let files = [("a.txt", "1\n2\n3\n"), ("b.txt", "x\n"), ("old.txt", "same\n")];
    let patch = "\
Here is the change:
diff --git a/a.txt b/a.txt
index 111..222 100644
--- a/a.txt
+++ b/a.txt
@@ -1,3 +1,3 @@
 1
-2
+two
 3
diff --git a/new.txt b/new.txt
new file mode 100644
--- /dev/null
+++ b/new.txt
@@ -0,0 +1,2 @@
+n
+m
\\ No newline at end of file
diff --git a/b.txt b/b.txt
deleted file mode 100644
--- a/b.txt
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/old.txt b/moved.txt
similarity index 100%
rename from old.txt
rename to moved.txt
";
    let (reply, after) = patched(&files, patch).await;
    assert_eq!(reply, "M a.txt\nA new.txt\nD b.txt\nR old.txt -> moved.txt");
    assert_eq!(after, named(&[("a.txt", "1\ntwo\n3\n"), ("moved.txt", "same\n"), ("new.txt", "n\nm")]));
}

#[tokio::test]
async fn unified_diffs_keep_their_word() {
    let exists = "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n";
    let more = "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n";
    let wrong_counts = "--- f\n+++ f\n@@ -1,9 +1,9 @@\n a\n-b\n+c\n\n";
    for (patch, reply, file) in [
        (exists, "error: f: exists already", "a\nb\n"),
        (more, "error: f: the patch deletes the file but not all of its lines; nothing was changed", "a\nb\n"),
        (wrong_counts, "M f", "a\nc\n"),
    ] {
        let (said, after) = patched(&[("f", "a\nb\n")], patch).await;
        assert_eq!((said.as_str(), after), (reply, named(&[("f", file)])), "{patch}");
    }
}

#[tokio::test]
async fn a_file_that_changed_meanwhile_is_left_alone() {
    let memory = FakeHost::with(&[("f", "a\n")]);
    memory.inject_write("f", "other\n");
    let args =
        serde_json::json!({ "patch": "*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n*** End Patch" }).to_string();
    let reply = call_on::<ApplyPatchTool>(&memory, &args).await;
    assert_eq!(reply.text, "f: the file changed since it was read; read it again and repeat the change");
    assert_eq!(memory.bytes("f"), b"other\n");
}

#[tokio::test]
async fn a_file_too_large_to_read_can_only_go() {
    let memory = FakeHost::default();
    memory.put("huge", FakeFile::Repeated(b"x\n".to_vec(), 1 << 34));
    let args =
        |body: &str| serde_json::json!({ "patch": format!("*** Begin Patch\n{body}\n*** End Patch") }).to_string();
    let reply = call_on::<ApplyPatchTool>(&memory, &args("*** Update File: huge\n@@\n-x\n+y")).await;
    assert_eq!(reply.text, "huge: 17179869184 bytes is more than the 67108864 that are handled here");
    assert_eq!(call_on::<ApplyPatchTool>(&memory, &args("*** Delete File: huge")).await.text, "D huge");
}

fn text() -> impl Strategy<Value = String> {
    let line =
        prop_oneof![Just(""), Just("a"), Just("b"), Just("  b"), Just("-- x"), Just("+++ y"), Just("@@ z"), Just("é")];
    let end = prop_oneof![3 => Just("\n"), 1 => Just("")];
    (prop::collection::vec(line, 0..14), end)
        .prop_map(|(lines, end)| if lines.is_empty() { String::new() } else { lines.join("\n") + end })
}

proptest! {
    #[test]
    fn a_diff_of_two_texts_makes_the_second(old in text(), new in text(), context in 0_usize..4) {
        prop_assume!(old != new);
        let diff = TextDiff::from_lines(&*old, &*new);
        let patch = diff.unified_diff().context_radius(context).header("a/f", "b/f").to_string();
        let ops = parse(&patch).unwrap();
        let after = apply("f", old.as_bytes(), ops[0].hunks()).unwrap();
        prop_assert_eq!(String::from_utf8(after.bytes).unwrap(), new, "{}", patch);
    }

    #[test]
    fn nothing_makes_it_panic(noise in "(\\*\\*\\* (Begin Patch|End Patch|Update File: f|Add File: f|Move to: g|End of File)\n|@@ ?[ab]?\n|[ +\\-\\\\][ab]?\n|@@ -[0-9],[0-9] \\+1 @@\n|--- a/f\n|\\+\\+\\+ b/f\n|diff --git a/f b/f\n|\n|é\r){0,12}", old in text()) {
        for text in [noise.clone(), format!("*** Begin Patch\n*** Update File: f\n{noise}*** End Patch"), format!("--- a/f\n+++ b/f\n{noise}")] {
            if let Ok(ops) = parse(&text) {
                for op in ops {
                    _ = apply("f", old.as_bytes(), op.hunks());
                }
            }
        }
    }
}
