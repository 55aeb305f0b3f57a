//! The contract of every host about files, as tests that need only the host.
//!
//! `stories!(host, workspace)` runs all of them: a new kind of host needs one line.

use std::path::{Path, PathBuf};

use helve_contract::{
    Access, Error, FileErrorKind, SafePath, Workspace,
    ports::{
        Expect, FileChange, FileKind, FindQuery, GrepOutputMode, GrepQuery, Host, IgnoreOptions, ListOptions,
        MatchLineKind, SortOrder, Span,
    },
};

use crate::folder::fault;

/// One test a story. The first expression makes a host, the second something with a `workspace()`.
macro_rules! stories {
    ($host:expr, $ground:expr) => {
        $crate::suite::stories! { $host, $ground,
            writes_and_reads_back reads_a_part_and_knows_the_whole says_what_is_missing_and_what_is_near
            creates_the_folders_above tells_files_from_folders replaces_only_what_was_expected
            changes_all_or_nothing moves_in_one_step removes_files_and_folders keeps_the_root
            lists_by_name glances_at_the_first_of_many finds_by_name finds_by_path greps_lines_with_their_surroundings
            greps_counts_and_files limits_what_it_keeps says_why_nothing_was_found refuses_a_pattern_that_explodes
            keeps_every_byte handles_an_empty_file
        }
    };
    ($host:expr, $ground:expr, $($story:ident)*) => {
        $(#[tokio::test]
        async fn $story() {
            let ground = $ground;
            $crate::suite::$story(&$host, &ground.workspace()).await;
        })*
    };
}
pub(crate) use stories;

fn to_read(workspace: &Workspace, path: &str) -> SafePath {
    workspace.check(Path::new(path), Access::Read, None).unwrap()
}

fn to_write(workspace: &Workspace, path: &str) -> SafePath {
    workspace.check(Path::new(path), Access::Write, None).unwrap()
}

async fn put(host: &dyn Host, workspace: &Workspace, path: &str, text: &str) {
    host.write(&to_write(workspace, path), text.as_bytes(), Expect::Anything).await.unwrap();
}

async fn text(host: &dyn Host, workspace: &Workspace, path: &str) -> String {
    let chunk = host.read(&to_read(workspace, path), Span::first(1 << 20)).await.unwrap();
    String::from_utf8(chunk.bytes).unwrap()
}

fn content(text: &str) -> Expect {
    Expect::bytes(text.as_bytes())
}

pub(crate) async fn writes_and_reads_back(host: &dyn Host, workspace: &Workspace) {
    let path = to_write(workspace, "a.txt");
    assert!(host.write(&path, b"one", Expect::Anything).await.unwrap().created);
    assert!(!host.write(&path, b"two", Expect::Anything).await.unwrap().created);
    assert_eq!(text(host, workspace, "a.txt").await, "two");
}

pub(crate) async fn reads_a_part_and_knows_the_whole(host: &dyn Host, workspace: &Workspace) {
    put(host, workspace, "a.txt", "0123456789").await;
    let path = to_read(workspace, "a.txt");
    let part = host.read(&path, Span { start: 3, len: 4 }).await.unwrap();
    assert_eq!((part.bytes.as_slice(), part.size), (&b"3456"[..], 10));
    let tail = host.read(&path, Span { start: 8, len: 100 }).await.unwrap();
    assert_eq!((tail.bytes.as_slice(), tail.size, tail.stamp), (&b"89"[..], 10, part.stamp));
    let beyond = host.read(&path, Span { start: 50, len: 5 }).await.unwrap();
    assert_eq!((beyond.bytes.as_slice(), beyond.size), (&b""[..], 10));
    put(host, workspace, "a.txt", "9876543210").await;
    assert_ne!(host.read(&path, Span::first(1)).await.unwrap().stamp, part.stamp);
}

pub(crate) async fn says_what_is_missing_and_what_is_near(host: &dyn Host, workspace: &Workspace) {
    put(host, workspace, "src/config.rs", "").await;
    let missing = fault(host.read(&to_read(workspace, "src/confg.rs"), Span::first(1)).await);
    assert_eq!(missing, FileErrorKind::Missing { near: vec!["src/config.rs".into()] });
    let missing = fault(host.stat(&to_read(workspace, "nothing/at/all")).await);
    assert_eq!(missing, FileErrorKind::Missing { near: vec![] });
}

pub(crate) async fn creates_the_folders_above(host: &dyn Host, workspace: &Workspace) {
    put(host, workspace, "a/b/c/d.txt", "deep").await;
    assert_eq!(text(host, workspace, "a/b/c/d.txt").await, "deep");
    // A write that cannot be done leaves no directories behind.
    let refused = host.write(&to_write(workspace, "x/y/z.txt"), b"", content("was there")).await;
    assert_eq!(fault(refused), FileErrorKind::Changed);
    assert_eq!(fault(host.stat(&to_read(workspace, "x")).await), FileErrorKind::Missing { near: vec![] });
}

pub(crate) async fn tells_files_from_folders(host: &dyn Host, workspace: &Workspace) {
    put(host, workspace, "folder/file", "text").await;
    let (folder, file) = (to_write(workspace, "folder"), to_write(workspace, "folder/file"));
    assert_eq!(host.stat(&folder).await.unwrap().kind, FileKind::Folder);
    let stat = host.stat(&file).await.unwrap();
    assert_eq!((stat.kind, stat.size), (FileKind::File, 4));
    assert_eq!(fault(host.read(&folder, Span::first(1)).await), FileErrorKind::IsFolder);
    assert_eq!(fault(host.write(&folder, b"", Expect::Anything).await), FileErrorKind::IsFolder);
    assert_eq!(fault(host.list(&file).await), FileErrorKind::NotFolder);
    assert_eq!(
        fault(host.write(&to_write(workspace, "folder/file/x"), b"", Expect::Anything).await),
        FileErrorKind::NotFolder
    );
}

pub(crate) async fn replaces_only_what_was_expected(host: &dyn Host, workspace: &Workspace) {
    let path = to_write(workspace, "a.txt");
    assert_eq!(fault(host.write(&path, b"x", content("old")).await), FileErrorKind::Changed);
    host.write(&path, b"old", Expect::Absent).await.unwrap();
    assert_eq!(fault(host.write(&path, b"x", Expect::Absent).await), FileErrorKind::Exists);
    assert_eq!(fault(host.write(&path, b"x", content("older")).await), FileErrorKind::Changed);
    host.write(&path, b"new", content("old")).await.unwrap();
    assert_eq!(text(host, workspace, "a.txt").await, "new");
}

pub(crate) async fn changes_all_or_nothing(host: &dyn Host, workspace: &Workspace) {
    put(host, workspace, "a", "a1").await;
    put(host, workspace, "b", "b1").await;
    put(host, workspace, "c", "c1").await;
    let write = |path: &str, bytes: &str, expect| FileChange::Write {
        path: to_write(workspace, path),
        bytes: bytes.into(),
        expect,
        like: None,
    };
    let remove = |path: &str, expect| FileChange::Remove { path: to_write(workspace, path), expect };
    let wrong = vec![
        write("a", "a2", content("a1")),
        write("new/d", "d2", Expect::Absent),
        remove("c", content("c1")),
        write("b", "b2", content("not this")),
    ];
    assert_eq!(fault(host.apply_changes(wrong).await), FileErrorKind::Changed);
    assert_eq!([text(host, workspace, "a").await, text(host, workspace, "b").await], ["a1", "b1"]);
    let names: Vec<_> = host.list(&to_read(workspace, ".")).await.unwrap().into_iter().map(|item| item.name).collect();
    assert_eq!(names, ["a", "b", "c"]);

    let right = vec![
        write("a", "a2", content("a1")),
        write("new/d", "d2", Expect::Absent),
        remove("c", content("c1")),
        write("b", "b2", content("b1")),
    ];
    host.apply_changes(right).await.unwrap();
    assert_eq!([text(host, workspace, "a").await, text(host, workspace, "b").await], ["a2", "b2"]);
    let names: Vec<_> = host.list(&to_read(workspace, ".")).await.unwrap().into_iter().map(|item| item.name).collect();
    assert_eq!(names, ["a", "b", "new"]);

    let twice = vec![write("a", "1", Expect::Anything), write("./a", "2", Expect::Anything)];
    let error = host.apply_changes(twice).await.unwrap_err().to_string();
    assert_eq!(error, "a is changed twice; join the two changes into one");
}

pub(crate) async fn moves_in_one_step(host: &dyn Host, workspace: &Workspace) {
    put(host, workspace, "old.txt", "text").await;
    host.apply_changes(vec![
        FileChange::Write {
            path: to_write(workspace, "there/new.txt"),
            bytes: b"text, changed".to_vec(),
            expect: Expect::Absent,
            like: Some(to_read(workspace, "old.txt")),
        },
        FileChange::Remove { path: to_write(workspace, "old.txt"), expect: content("text") },
    ])
    .await
    .unwrap();
    assert_eq!(text(host, workspace, "there/new.txt").await, "text, changed");
    assert!(matches!(fault(host.stat(&to_read(workspace, "old.txt")).await), FileErrorKind::Missing { .. }));
}

pub(crate) async fn removes_files_and_folders(host: &dyn Host, workspace: &Workspace) {
    put(host, workspace, "a/b/c", "").await;
    put(host, workspace, "a/d", "").await;
    assert_eq!(host.remove(&to_write(workspace, "a/d")).await.unwrap(), FileKind::File);
    assert_eq!(host.remove(&to_write(workspace, "a")).await.unwrap(), FileKind::Folder);
    assert!(host.list(&to_read(workspace, ".")).await.unwrap().is_empty());
    assert_eq!(fault(host.remove(&to_write(workspace, "a")).await), FileErrorKind::Missing { near: vec![] });
}

pub(crate) async fn keeps_the_root(host: &dyn Host, workspace: &Workspace) {
    put(host, workspace, "a", "").await;
    assert!(matches!(host.remove(&to_write(workspace, ".")).await, Err(Error::Denied(_))));
    assert_eq!(fault(host.write(&to_write(workspace, "."), b"", Expect::Anything).await), FileErrorKind::IsFolder);
    assert_eq!(host.list(&to_read(workspace, ".")).await.unwrap().len(), 1);
}

pub(crate) async fn lists_by_name(host: &dyn Host, workspace: &Workspace) {
    for (path, text) in [("b.txt", "bb"), ("a/x", ""), ("C.txt", "c"), (".hidden", ""), ("b", "")] {
        put(host, workspace, path, text).await;
    }
    let items = host.list(&to_read(workspace, ".")).await.unwrap();
    let seen: Vec<_> = items.iter().map(|item| (item.name.as_str(), item.kind)).collect();
    let wanted = [
        (".hidden", FileKind::File),
        ("C.txt", FileKind::File),
        ("a", FileKind::Folder),
        ("b", FileKind::File),
        ("b.txt", FileKind::File),
    ];
    assert_eq!(seen, wanted);
    assert_eq!((items[4].size, items[4].modified.is_some()), (2, true));
}

pub(crate) async fn glances_at_the_first_of_many(host: &dyn Host, workspace: &Workspace) {
    for path in ["f", "b/x", ".b", "d", "a", ".a", "e", "c"] {
        put(host, workspace, path, "12345").await;
    }
    for closely in [false, true] {
        let glance = ListOptions { include_hidden: false, limit: 3, with_metadata: closely };
        let seen = host.list_with(&to_read(workspace, "."), glance).await.unwrap();
        let kinds: Vec<_> = seen.entries.iter().map(|item| (item.name.as_str(), item.kind)).collect();
        assert_eq!(kinds, [("a", FileKind::File), ("b", FileKind::Folder), ("c", FileKind::File)]);
        assert_eq!((seen.omitted, seen.hidden), (3, 2));
        assert!(!closely || (seen.entries[0].size == 5 && seen.entries[0].modified.is_some()));
        let all = host
            .list_with(&to_read(workspace, "."), ListOptions { include_hidden: true, limit: 8, with_metadata: closely })
            .await
            .unwrap();
        assert_eq!((all.entries.len(), all.entries[0].name.as_str(), all.omitted, all.hidden), (8, ".a", 0, 0));
    }
}

fn find(pattern: Option<&str>) -> FindQuery {
    FindQuery {
        pattern: pattern.map(Into::into),
        whole_path: false,
        kind: Some(FileKind::File),
        noise: IgnoreOptions { ignored: false, hidden: false },
        order: SortOrder::Path,
        limit: 100,
    }
}

async fn found(host: &dyn Host, workspace: &Workspace, find: FindQuery) -> Vec<String> {
    let found = host.find(&to_read(workspace, "."), &find).await.unwrap();
    found.files.iter().map(|file| file.path.display().to_string()).collect()
}

pub(crate) async fn finds_by_name(host: &dyn Host, workspace: &Workspace) {
    for path in ["main.rs", "src/lib.rs", "src/deep/main.rs", "doc.md", ".secret.rs"] {
        put(host, workspace, path, "text").await;
    }
    assert_eq!(found(host, workspace, find(Some("*.rs"))).await, ["main.rs", "src/deep/main.rs", "src/lib.rs"]);
    assert_eq!(found(host, workspace, find(Some("main"))).await, ["main.rs", "src/deep/main.rs"]);
    let folders = FindQuery { kind: Some(FileKind::Folder), ..find(None) };
    assert_eq!(found(host, workspace, folders).await, ["src", "src/deep"]);
    let all = host.find(&to_read(workspace, "."), &FindQuery { limit: 2, ..find(None) }).await.unwrap();
    assert_eq!((all.files.len(), all.total, all.partial), (2, 4, false));
    let hidden = host.find(&to_read(workspace, "."), &find(Some(".secret*"))).await.unwrap();
    assert_eq!((hidden.total, hidden.passed_over), (0, 1));
}

pub(crate) async fn finds_by_path(host: &dyn Host, workspace: &Workspace) {
    for path in ["main.rs", "src/lib.rs", "src/deep/main.rs", "tests/a.rs"] {
        put(host, workspace, path, "text").await;
    }
    let by_path = |pattern| FindQuery { whole_path: true, ..find(Some(pattern)) };
    assert_eq!(found(host, workspace, by_path("*.rs")).await, ["main.rs"]);
    assert_eq!(found(host, workspace, by_path("src/**/*.rs")).await, ["src/deep/main.rs", "src/lib.rs"]);
    assert_eq!(found(host, workspace, by_path("**/*.rs")).await.len(), 4);
    assert_eq!(found(host, workspace, by_path("{src,tests}/*.rs")).await, ["src/lib.rs", "tests/a.rs"]);
    let below = host.find(&to_read(workspace, "src"), &by_path("*.rs")).await.unwrap();
    assert_eq!((below.files[0].path.as_path(), below.files[0].size), (Path::new("src/lib.rs"), 4));
}

fn grep(pattern: &str) -> GrepQuery {
    GrepQuery {
        pattern: pattern.into(),
        literal: false,
        ignore_case: false,
        multiline: false,
        globs: vec![],
        file_type: None,
        noise: IgnoreOptions { ignored: false, hidden: false },
        context: (0, 0),
        output: GrepOutputMode::Lines,
        only_matching: false,
        limit: None,
        offset: 0,
        max_bytes: 1 << 20,
    }
}

pub(crate) async fn greps_lines_with_their_surroundings(host: &dyn Host, workspace: &Workspace) {
    put(host, workspace, "a.txt", "1\n2 hit\n3\n4\n5\n6 hit\n").await;
    let matches = host.grep(&to_read(workspace, "."), &GrepQuery { context: (1, 1), ..grep("hit") }).await.unwrap();
    let lines: Vec<_> = matches.files[0]
        .hits
        .iter()
        .map(|hit| (hit.kind, hit.line, String::from_utf8_lossy(&hit.text).into_owned()))
        .collect();
    let line = |kind, number, text: &str| (kind, number, text.to_owned());
    let wanted = [
        line(MatchLineKind::Context, 1, "1"),
        line(MatchLineKind::Match, 2, "2 hit"),
        line(MatchLineKind::Context, 3, "3"),
        line(MatchLineKind::Gap, 0, ""),
        line(MatchLineKind::Context, 5, "5"),
        line(MatchLineKind::Match, 6, "6 hit"),
    ];
    assert_eq!(lines, wanted);
    assert_eq!((matches.total, matches.total_files), (2, 1));
}

pub(crate) async fn greps_counts_and_files(host: &dyn Host, workspace: &Workspace) {
    put(host, workspace, "a.rs", "hit\nmiss\nHIT hit\n").await;
    put(host, workspace, "b/c.md", "hit\n").await;
    let seen = |matches: helve_contract::ports::GrepResult| -> Vec<(PathBuf, u64)> {
        matches.files.into_iter().map(|file| (file.path, file.count)).collect()
    };
    let counts = host
        .grep(&to_read(workspace, "."), &GrepQuery { output: GrepOutputMode::Counts, ..grep("hit") })
        .await
        .unwrap();
    assert_eq!(seen(counts), [("a.rs".into(), 2), ("b/c.md".into(), 1)]);
    let files = GrepQuery { output: GrepOutputMode::Files, globs: vec!["*.md".into()], ..grep("hit") };
    assert_eq!(seen(host.grep(&to_read(workspace, "."), &files).await.unwrap()), [("b/c.md".into(), 1)]);
    let rust = GrepQuery { output: GrepOutputMode::Files, file_type: Some("rust".into()), ..grep("hit") };
    assert_eq!(seen(host.grep(&to_read(workspace, "."), &rust).await.unwrap()), [("a.rs".into(), 1)]);
    let error =
        host.grep(&to_read(workspace, "."), &GrepQuery { file_type: Some("rusty".into()), ..rust }).await.unwrap_err();
    assert_eq!(error.to_string(), "unrecognized file type: rusty; did you mean rust?");
}

pub(crate) async fn limits_what_it_keeps(host: &dyn Host, workspace: &Workspace) {
    for name in ["a", "b", "c"] {
        put(host, workspace, name, "hit 1\nhit 2\nhit 3\n").await;
    }
    let page = GrepQuery { limit: Some(4), offset: 2, ..grep("hit") };
    let matches = host.grep(&to_read(workspace, "."), &page).await.unwrap();
    let kept: Vec<_> = matches
        .files
        .iter()
        .flat_map(|file| file.hits.iter().map(move |hit| format!("{}:{}", file.path.display(), hit.line)))
        .collect();
    assert_eq!(kept, ["a:3", "b:1", "b:2", "b:3"]);
    assert_eq!((matches.total, matches.total_files), (9, 3));
    let files = GrepQuery { limit: Some(1), offset: 1, output: GrepOutputMode::Files, ..grep("hit") };
    let matches = host.grep(&to_read(workspace, "."), &files).await.unwrap();
    assert_eq!((matches.files.len(), matches.files[0].path.as_path(), matches.total), (1, Path::new("b"), 3));
    let small = GrepQuery { max_bytes: 12, ..grep("hit") };
    let matches = host.grep(&to_read(workspace, "."), &small).await.unwrap();
    assert_eq!((matches.files.len(), matches.files[0].hits.len(), matches.total), (1, 2, 9));
}

pub(crate) async fn says_why_nothing_was_found(host: &dyn Host, workspace: &Workspace) {
    for (path, text) in [
        (".ignore", "out/\n"),
        ("out/x.txt", "needle\nneedle\n"),
        (".env", "needle\n"),
        ("a.txt", "NEEDLE\n"),
        ("b.bin", "\0needle\n"),
    ] {
        put(host, workspace, path, text).await;
    }
    let absence = host.grep(&to_read(workspace, "."), &grep("needle")).await.unwrap().absence;
    assert_eq!((absence.ignored, absence.hidden), ((2, 1), (1, 1)));
    assert_eq!((absence.binary, absence.other_case, absence.searched), (1, 1, 2));
}

pub(crate) async fn refuses_a_pattern_that_explodes(host: &dyn Host, workspace: &Workspace) {
    put(host, workspace, "a.txt", &"a".repeat(5000)).await;
    let path = to_read(workspace, ".");
    let error = host.grep(&path, &grep("(?:x{1000}){1000}")).await.unwrap_err().to_string();
    assert!(error.contains("too large when expanded"), "{error}");
    let error = host.grep(&path, &grep("(unclosed")).await.unwrap_err().to_string();
    assert!(error.contains("unclosed group") && error.contains("escape"), "{error}");
    let error = host.grep(&path, &grep(r"a\nb")).await.unwrap_err().to_string();
    assert!(error.contains("spans lines"), "{error}");
    // One that would explode elsewhere is answered at once.
    assert_eq!(host.grep(&path, &grep("(a+)+$")).await.unwrap().total, 1);
}

pub(crate) async fn keeps_every_byte(host: &dyn Host, workspace: &Workspace) {
    let bytes: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    let path = to_write(workspace, "all.bin");
    host.write(&path, &bytes, Expect::Anything).await.unwrap();
    let chunk = host.read(&path, Span::first(u64::MAX)).await.unwrap();
    assert!(chunk.bytes == bytes && chunk.size == bytes.len() as u64);
}

pub(crate) async fn handles_an_empty_file(host: &dyn Host, workspace: &Workspace) {
    put(host, workspace, "empty", "").await;
    let chunk = host.read(&to_read(workspace, "empty"), Span::first(100)).await.unwrap();
    assert_eq!((chunk.bytes.len(), chunk.size), (0, 0));
    let nothing = host.read(&to_read(workspace, "empty"), Span { start: 0, len: 0 }).await.unwrap();
    assert_eq!(nothing.bytes.len(), 0);
}
