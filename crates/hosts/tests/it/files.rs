//! The local host's files: links, special files, names and modes.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::Path,
};

use helve_contract::{
    Access, Error, FileErrorKind, PathRules, PathStyle, Root, Workspace,
    ports::{
        Expect, FileChange, FileKind, FindQuery, GrepOutputMode, GrepQuery, Host as _, IgnoreOptions, NetworkAccess,
        ProcessSpec, SkipReason, Skipped, SortOrder, Span, Streams,
    },
};
use helve_hosts::LocalHost;

use crate::{
    folder::{Folder, fault, now},
    hidden::run_as_nobody_in,
};

mod contract {
    use helve_hosts::LocalHost;

    use crate::folder::Folder;

    crate::suite::stories!(LocalHost::new(), Folder::new());
}

async fn read(folder: &Folder, path: &str) -> Result<String, Error> {
    let chunk = LocalHost::new().read(&folder.path(path), Span::first(1000)).await?;
    Ok(String::from_utf8_lossy(&chunk.bytes).into_owned())
}

async fn write(folder: &Folder, path: &str, text: &str) -> Result<(), Error> {
    LocalHost::new().write(&folder.to_write(path), text.as_bytes(), Expect::Anything).await.map(|_| ())
}

#[tokio::test]
async fn a_link_out_is_not_followed() {
    let folder = Folder::new();
    folder.link("file", folder.outside().join("secret"));
    folder.link("relative", "../outside/secret");
    folder.link("dir", folder.outside());
    folder.link("up", "..");
    folder.link("twice", "dir/secret");
    for path in ["file", "relative", "dir/secret", "up/outside/secret", "twice"] {
        assert_eq!(fault(read(&folder, path).await), FileErrorKind::Outside, "{path}");
        assert_eq!(fault(write(&folder, path, "pwned").await), FileErrorKind::Outside, "{path}");
    }
    for path in ["dir/new", "dir/new/deep", "up/outside/new"] {
        assert_eq!(fault(write(&folder, path, "pwned").await), FileErrorKind::Outside, "{path}");
        assert_eq!(fault(LocalHost::new().remove(&folder.to_write(path)).await), FileErrorKind::Outside, "{path}");
    }
    assert_eq!(fault(LocalHost::new().list(&folder.path("dir")).await), FileErrorKind::Outside);
    assert_eq!(fs::read_dir(folder.outside()).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(folder.outside().join("secret")).unwrap(), "top secret\n");
}

#[tokio::test]
async fn a_link_inside_is_followed_and_kept() {
    let folder = Folder::new();
    folder.put("real/file.txt", "old");
    folder.link("link", "real/file.txt");
    folder.link("absolute", folder.root().join("real/file.txt"));
    folder.link("dir", folder.root().join("real"));
    folder.link("real/back", "../dir/file.txt");
    for path in ["link", "absolute", "dir/file.txt", "real/back", "dir/back"] {
        write(&folder, path, path).await.unwrap();
        assert_eq!(folder.text("real/file.txt"), path);
        assert_eq!(read(&folder, path).await.unwrap(), path);
    }
    assert!(fs::symlink_metadata(folder.root().join("link")).unwrap().is_symlink());
    assert_eq!(folder.names("real"), ["back", "file.txt"]);
}

#[tokio::test]
async fn a_link_to_nothing_creates_its_target() {
    let folder = Folder::new();
    folder.link("link", "made/by/link.txt");
    write(&folder, "link", "text").await.unwrap();
    assert_eq!(folder.text("made/by/link.txt"), "text");
    assert!(fs::symlink_metadata(folder.root().join("link")).unwrap().is_symlink());
}

#[tokio::test]
async fn links_in_a_circle_are_told() {
    let folder = Folder::new();
    folder.link("a", "b");
    folder.link("b", "a");
    assert_eq!(fault(read(&folder, "a").await), FileErrorKind::LinkLoop);
    assert_eq!(fault(write(&folder, "a", "").await), FileErrorKind::LinkLoop);
    assert_eq!(LocalHost::new().remove(&folder.to_write("a")).await.unwrap(), FileKind::Link);
}

#[tokio::test]
async fn a_link_does_not_open_what_is_protected() {
    let folder = Folder::with_rule(".git/config", Access::Write);
    folder.put(".git/config", "[core]");
    folder.link("innocent", ".git/config");
    folder.link("g", ".git");
    assert_eq!(read(&folder, "innocent").await.unwrap(), "[core]");
    for path in ["innocent", "g/config"] {
        let error = write(&folder, path, "[evil]").await.unwrap_err();
        assert_eq!(error.to_string(), ".git/config: is protected");
    }
    let error = LocalHost::new().remove(&folder.to_write("g/config")).await.unwrap_err();
    assert_eq!(error.to_string(), ".git/config: is protected");
    assert_eq!(folder.text(".git/config"), "[core]");
}

#[tokio::test]
async fn a_link_does_not_open_what_may_not_be_read() {
    let folder = Folder::with_rule("*.pem", Access::Read);
    folder.put("key.pem", "private key");
    folder.put("dir/other.pem", "private key");
    folder.put("plain.txt", "private key");
    folder.link("innocent", "key.pem");
    assert_eq!(read(&folder, "innocent").await.unwrap_err().to_string(), "key.pem: is protected");
    let matches = LocalHost::new().grep(&folder.path("."), &grep("private")).await.unwrap();
    let files: Vec<_> = matches.files.iter().map(|file| file.path.as_path()).collect();
    assert_eq!((files, matches.total_files), (vec![Path::new("plain.txt")], 1));
    let found = LocalHost::new().find(&folder.path("."), &find("**/*")).await.unwrap();
    let names: Vec<_> = found.files.iter().map(|file| file.path.as_path()).collect();
    assert_eq!(names, [Path::new("dir"), Path::new("innocent"), Path::new("plain.txt")]);
}

#[tokio::test]
async fn a_folder_with_something_protected_in_it_stays_whole() {
    let folder = Folder::with_rule("**/keep.txt", Access::Write);
    folder.put("a/b/keep.txt", "");
    folder.put("a/first", "");
    let error = LocalHost::new().remove(&folder.to_write("a")).await.unwrap_err();
    assert_eq!(error.to_string(), "a/b/keep.txt: is protected");
    assert_eq!(folder.names("a"), ["b", "first"]);
}

#[tokio::test]
async fn removing_a_folder_does_not_follow_links() {
    let folder = Folder::new();
    folder.put("a/b/c", "");
    folder.link("a/out", folder.outside());
    folder.link("a/b/up", "../..");
    assert_eq!(LocalHost::new().remove(&folder.to_write("a")).await.unwrap(), FileKind::Folder);
    assert!(folder.names(".").is_empty());
    assert!(folder.outside().join("secret").exists());
}

#[tokio::test]
async fn removing_a_link_leaves_its_target() {
    let folder = Folder::new();
    folder.put("target", "");
    folder.link("link", "target");
    assert_eq!(LocalHost::new().remove(&folder.to_write("link")).await.unwrap(), FileKind::Link);
    assert_eq!(folder.names("."), ["target"]);
}

#[tokio::test]
async fn pipes_devices_and_sockets_are_refused_at_once() {
    let folder = Folder::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.root().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folder.root().join("socket")).unwrap();
    for path in ["fifo", "socket"] {
        assert_eq!(fault(read(&folder, path).await), FileErrorKind::NotRegular, "{path}");
        assert_eq!(fault(write(&folder, path, "x").await), FileErrorKind::NotRegular, "{path}");
        let grep = LocalHost::new().grep(&folder.path(path), &grep("x")).await;
        assert_eq!(fault(grep), FileErrorKind::NotRegular, "{path}");
        assert_eq!(LocalHost::new().stat(&folder.path(path)).await.unwrap().kind, FileKind::Other);
    }
    assert_eq!(LocalHost::new().grep(&folder.path("."), &grep("x")).await.unwrap().total, 0);

    let devices = Workspace::new([Root::readable("/dev")], PathRules::default(), PathStyle::Relative);
    for path in ["zero", "null"] {
        let path = devices.check(Path::new(path), Access::Read, None).unwrap();
        assert_eq!(fault(LocalHost::new().read(&path, Span::first(10)).await), FileErrorKind::NotRegular);
    }
}

#[tokio::test]
async fn the_magic_links_of_proc_lead_nowhere() {
    let root = format!("/proc/{}", std::process::id());
    let process = Workspace::new([Root::readable(root)], PathRules::default(), PathStyle::Relative);
    for path in ["root/etc/passwd", "cwd/Cargo.toml", "exe"] {
        let path = process.check(Path::new(path), Access::Read, None).unwrap();
        assert_eq!(fault(LocalHost::new().read(&path, Span::first(10)).await), FileErrorKind::Outside);
    }
    // A file there says that it is empty, and is not.
    let status = process.check(Path::new("status"), Access::Read, None).unwrap();
    let chunk = LocalHost::new().read(&status, Span::first(5)).await.unwrap();
    assert_eq!(chunk.bytes, b"Name:");
    assert!(LocalHost::new().read(&status, Span::first(100_000)).await.unwrap().bytes.len() > 200);
}

#[tokio::test]
async fn the_other_name_of_a_file_keeps_the_old_text() {
    let folder = Folder::new();
    fs::hard_link(folder.outside().join("secret"), folder.root().join("x")).unwrap();
    write(&folder, "x", "mine").await.unwrap();
    assert_eq!(folder.text("x"), "mine");
    assert_eq!(fs::read_to_string(folder.outside().join("secret")).unwrap(), "top secret\n");
}

#[tokio::test]
async fn mode_and_attributes_stay() {
    let folder = Folder::new();
    folder.put("run.sh", "#!/bin/sh\n");
    let path = folder.root().join("run.sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    // A disk without attributes of the user has none to lose.
    let marked = rustix::fs::setxattr(&path, "user.helve", b"kept", rustix::fs::XattrFlags::empty()).is_ok();
    let before = fs::metadata(&path).unwrap();
    write(&folder, "run.sh", "#!/bin/bash\n").await.unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino());
    if marked {
        let mut value = [0; 10];
        let len = rustix::fs::getxattr(&path, "user.helve", &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"kept");
    }
}

#[tokio::test]
async fn a_move_takes_the_mode_along() {
    let folder = Folder::new();
    folder.put("a.sh", "x");
    fs::set_permissions(folder.root().join("a.sh"), fs::Permissions::from_mode(0o700)).unwrap();
    let to = FileChange::Write {
        path: folder.to_write("b.sh"),
        bytes: b"x".to_vec(),
        expect: Expect::Absent,
        like: Some(folder.path("a.sh")),
    };
    let from = FileChange::Remove { path: folder.to_write("a.sh"), expect: Expect::Anything };
    LocalHost::new().apply_changes(vec![to, from]).await.unwrap();
    assert_eq!(folder.names("."), ["b.sh"]);
    assert_eq!(fs::metadata(folder.root().join("b.sh")).unwrap().mode() & 0o7777, 0o700);
}

#[tokio::test]
async fn a_read_only_file_is_not_replaced() {
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: root may write everything");
        return;
    }
    let folder = Folder::new();
    folder.put("locked", "old");
    fs::set_permissions(folder.root().join("locked"), fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(fault(write(&folder, "locked", "new").await), FileErrorKind::NoPermission);
    fs::set_permissions(folder.root().join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(fault(read(&folder, "locked").await), FileErrorKind::NoPermission);
    folder.put("dark/file", "");
    fs::set_permissions(folder.root().join("dark"), fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(fault(LocalHost::new().list(&folder.path("dark")).await), FileErrorKind::NoPermission);
    assert_eq!(fault(LocalHost::new().grep(&folder.path("dark"), &grep("x")).await), FileErrorKind::NoPermission);
    assert_eq!(fault(LocalHost::new().find(&folder.path("dark"), &find("*")).await), FileErrorKind::NoPermission);
    assert_eq!(fault(write(&folder, "dark/new", "").await), FileErrorKind::NoPermission);
    fs::set_permissions(folder.root().join("dark"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn names_that_hide_something_are_spelt_out() {
    let folder = Folder::new();
    for name in [&b"a\nb"[..], b"\x1b[2Jx", b"-rf", b"\xff\xfe", "a\u{202e}b".as_bytes()] {
        fs::write(folder.root().join(std::ffi::OsStr::from_bytes(name)), "x").unwrap();
    }
    let items = LocalHost::new().list(&folder.path(".")).await.unwrap();
    let names: Vec<_> = items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["\\x1b[2Jx", "-rf", "a\\x0ab", "a\\u{202e}b", "\\xff\\xfe"]);
}

#[tokio::test]
async fn a_listing_shows_where_links_point() {
    let folder = Folder::new();
    folder.link("out", "../outside");
    let items = LocalHost::new().list(&folder.path(".")).await.unwrap();
    assert_eq!((items[0].kind, items[0].target.as_deref()), (FileKind::Link, Some("../outside")));
}

#[tokio::test]
async fn a_folder_with_a_hundred_thousand_entries_is_listed() {
    let folder = Folder::in_memory();
    for at in 0..100_000 {
        fs::File::create(folder.root().join(format!("{at:06}"))).unwrap();
    }
    let items = LocalHost::new().list(&folder.path(".")).await.unwrap();
    assert_eq!((items.len(), items[99_999].name.as_str()), (100_000, "099999"));
    let found = LocalHost::new().find(&folder.path("."), &FindQuery { limit: 2, ..find("*9") }).await.unwrap();
    assert_eq!((found.total, found.files[1].path.as_path()), (10_000, Path::new("000019")));
}

#[tokio::test]
async fn many_stars_and_links_in_circles_come_to_an_end() {
    let folder = Folder::in_memory();
    for at in 0..81 {
        let path = format!("{}/{}/{}/{}/f", at % 3, at / 3 % 3, at / 9 % 3, at / 27);
        folder.put(&path, "needle\n");
    }
    for path in ["0/loop", "0/1/loop", "0/1/2/loop"] {
        folder.link(path, folder.root());
    }
    let files = FindQuery { kind: Some(FileKind::File), limit: 10, ..find("**/**/**/**/**/f") };
    let found = LocalHost::new().find(&folder.path("."), &files).await.unwrap();
    assert_eq!((found.total, found.files.len(), found.partial), (81, 10, false));
    assert_eq!(LocalHost::new().grep(&folder.path("."), &grep("needle")).await.unwrap().total, 81);
}

#[tokio::test]
async fn folders_in_folders_without_end_are_no_trap() {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let folder = Folder::in_memory();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = openat(CWD, folder.root(), flags, Mode::empty()).unwrap();
    for _ in 0..3000 {
        mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = openat(&at, "d", flags, Mode::empty()).unwrap();
    }
    folder.put("d/d/needle", "needle\n");
    let host = LocalHost::new();
    let found = host.find(&folder.path("."), &find("**/needle")).await.unwrap();
    assert_eq!(found.total, 1);
    assert_eq!(host.grep(&folder.path("."), &grep("needle")).await.unwrap().total, 1);
    assert_eq!(host.list(&folder.path("d/d")).await.unwrap().len(), 2);
    // Far fewer files may be open than there are directories, on most machines.
    let removed = host.remove(&folder.to_write("d")).await;
    // What cannot be removed here must not stay in memory.
    _ = std::process::Command::new("rm").args(["-rf", "d"]).current_dir(folder.root()).status();
    assert_eq!(removed.unwrap(), FileKind::Folder);
    assert_eq!(folder.names("."), [""; 0]);
}

#[tokio::test]
async fn a_name_that_is_too_long_is_told() {
    let folder = Folder::new();
    let error = write(&folder, &"x".repeat(300), "").await.unwrap_err().to_string();
    assert!(error.ends_with("the name is too long for this disk (most take 255 bytes); use a shorter one"), "{error}");
    assert!(folder.names(".").is_empty());
}

#[tokio::test]
async fn a_huge_file_is_read_where_it_is_asked_for() {
    let folder = Folder::new();
    folder.put("sparse", "");
    let file = fs::OpenOptions::new().write(true).open(folder.root().join("sparse")).unwrap();
    file.set_len(10 << 30).unwrap();
    let chunk =
        LocalHost::new().read(&folder.path("sparse"), Span { start: (10 << 30) - 3, len: u64::MAX }).await.unwrap();
    assert_eq!((chunk.bytes.as_slice(), chunk.size), (&[0, 0, 0][..], 10 << 30));
    assert_eq!(LocalHost::new().grep(&folder.path("."), &grep("x")).await.unwrap().total, 0);
}

#[tokio::test]
async fn a_root_that_was_made_anew_is_found() {
    let folder = Folder::new();
    let host = LocalHost::new();
    folder.put("a", "old");
    host.read(&folder.path("a"), Span::first(10)).await.unwrap();
    fs::remove_dir_all(folder.root()).unwrap();
    folder.put("a", "new");
    assert_eq!(host.read(&folder.path("a"), Span::first(10)).await.unwrap().bytes, b"new");
}

#[tokio::test]
async fn a_root_that_became_a_link_is_refused() {
    let folder = Folder::new();
    fs::remove_dir(folder.root()).unwrap();
    std::os::unix::fs::symlink(folder.outside(), folder.root()).unwrap();
    assert_eq!(fault(read(&folder, "secret").await), FileErrorKind::LinkLoop);
}

#[tokio::test]
async fn what_a_killed_process_left_is_swept_away() {
    let folder = Folder::new();
    folder.put(".helve-0123456789abcdef.tmp", "left");
    folder.put(".helve-fedcba9876543210.tmp", "in use");
    let used = fs::File::open(folder.root().join(".helve-fedcba9876543210.tmp")).unwrap();
    used.lock().unwrap();
    write(&folder, "a", "x").await.unwrap();
    // What somebody holds stays, and is not listed.
    assert_eq!(folder.names("."), [".helve-fedcba9876543210.tmp", "a"]);
    let items = LocalHost::new().list(&folder.path(".")).await.unwrap();
    assert_eq!(items.len(), 1);
}

#[tokio::test]
async fn finds_the_newest_first() {
    let folder = Folder::new();
    for (name, second) in [("old", 100), ("new", 300), ("middle", 200)] {
        folder.put(name, "");
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
        fs::File::options().write(true).open(folder.root().join(name)).unwrap().set_modified(time).unwrap();
    }
    let newest = FindQuery { order: SortOrder::Newest, limit: 2, ..find("*") };
    let found = LocalHost::new().find(&folder.path("."), &newest).await.unwrap();
    let names: Vec<_> = found.files.iter().map(|file| file.path.as_path()).collect();
    assert_eq!((names, found.total), (vec![Path::new("new"), Path::new("middle")], 3));
}

#[tokio::test]
async fn finds_from_a_folder_reached_by_a_link() {
    let folder = Folder::new();
    folder.put("real/sub/a.rs", "needle\n");
    folder.link("link", "real");
    folder.link("out", folder.outside());
    let found = LocalHost::new().find(&folder.path("link"), &find("**/*.rs")).await.unwrap();
    assert_eq!(found.files[0].path, Path::new("real/sub/a.rs"));
    let matches = LocalHost::new().grep(&folder.path("link/sub"), &grep("needle")).await.unwrap();
    assert_eq!(matches.files[0].path, Path::new("real/sub/a.rs"));
    assert_eq!(fault(LocalHost::new().find(&folder.path("out"), &find("*")).await), FileErrorKind::Outside);
    assert_eq!(fault(LocalHost::new().grep(&folder.path("out"), &grep("secret")).await), FileErrorKind::Outside);
    assert_eq!(LocalHost::new().grep(&folder.path("."), &grep("secret")).await.unwrap().total, 0);
}

#[tokio::test]
async fn a_search_without_time_says_that_it_is_partial() {
    let folder = Folder::new();
    folder.put("a", "needle\n");
    let host = LocalHost::new().with_search_timeout(std::time::Duration::ZERO);
    assert!(host.grep(&folder.path("."), &grep("needle")).await.unwrap().partial);
    assert!(host.find(&folder.path("."), &find("*")).await.unwrap().partial);
}

#[tokio::test]
async fn a_match_in_a_very_long_line_comes_with_its_surroundings() {
    let folder = Folder::new();
    let line = format!("{}NEEDLE{}\n", "é".repeat(150_000), "x".repeat(1_000_000));
    fs::write(folder.root().join("min.js"), format!("short\n{line}NEEDLE\n")).unwrap();
    for (multiline, only_matching) in [(false, false), (true, false)] {
        let wanted = GrepQuery { multiline, only_matching, ..grep("NEEDLE") };
        let found = LocalHost::new().grep(&folder.path("."), &wanted).await.unwrap();
        let hits = &found.files[0].hits;
        assert_eq!((found.total, hits.len()), (2, 2));
        let hit = &hits[0];
        assert!(hit.text[hit.at..].starts_with(b"NEEDLE") && hit.text.len() < 8192, "{}", hit.text.len());
        assert!(std::str::from_utf8(&hit.text).is_ok(), "cut between letters");
        assert_eq!(hit.left_out.0 + hit.text.len() + hit.left_out.1, line.len() - 1);
        assert_eq!((hits[1].text.as_slice(), hits[1].left_out), (b"NEEDLE".as_slice(), (0, 0)));
    }
    let whole =
        LocalHost::new().grep(&folder.path("."), &GrepQuery { only_matching: true, ..grep("x+") }).await.unwrap();
    let hit = &whole.files[0].hits[0];
    assert_eq!((hit.at, hit.left_out.0, hit.text.len() + hit.left_out.1), (0, 0, 1_000_000));
}

#[tokio::test]
async fn a_search_says_what_it_left_out() {
    let folder = Folder::new();
    let host = LocalHost::new();
    fs::write(folder.root().join("a.txt"), "NEEDLE\n").unwrap();
    fs::write(folder.root().join("plain.bin"), b"\0\x01nothing").unwrap();
    let found = host.grep(&folder.path("."), &grep("NEEDLE")).await.unwrap();
    assert_eq!((found.total_files, found.skipped), (1, Skipped::default()), "nothing that matters");

    fs::write(folder.root().join("b.bin"), b"\0\0\0NEEDLE").unwrap();
    let mut long = vec![b'y'; 70 << 20];
    long.extend(b"NEEDLE\n");
    fs::write(folder.root().join("long.txt"), &long).unwrap();
    fs::File::create(folder.root().join("big.bin")).unwrap().set_len(9 << 20).unwrap();
    let expected = vec![
        ("b.bin".into(), SkipReason::BinaryMatch),
        ("big.bin".into(), SkipReason::LargeBinary(8 << 20)),
        ("long.txt".into(), SkipReason::LongLine(64 << 20)),
    ];
    let found = host.grep(&folder.path("."), &grep("NEEDLE")).await.unwrap();
    assert_eq!((found.total_files, found.skipped.total, found.skipped.first), (1, 3, expected));
    let one = host.grep(&folder.path("long.txt"), &grep("NEEDLE")).await.unwrap();
    assert_eq!(one.skipped.first, [("long.txt".into(), SkipReason::LongLine(64 << 20))]);
}

/// Runs as an ordinary user, with a file of another owner that everybody may write.
#[tokio::test]
#[ignore = "a part of `another_owner_is_kept_or_reported`"]
async fn as_nobody() {
    let dir = std::env::var("HOME").unwrap();
    let workspace = Workspace::new([Root::writable(&dir)], PathRules::default(), PathStyle::Absolute);
    let at = |name: &str| workspace.resolve_in_root(Path::new(&dir), name, Access::Write).unwrap();
    fs::create_dir(Path::new(&dir).join("sub")).unwrap();
    let own = LocalHost::new().write(&at("sub/own"), b"1", Expect::Anything).await.unwrap();
    assert!(own.created && own.remarks.is_empty());
    let again = LocalHost::new().write(&at("sub/own"), b"2", Expect::Anything).await.unwrap();
    assert_eq!(again.remarks, [""; 0]);
    let foreign = LocalHost::new().write(&at("foreign"), b"new", Expect::Anything).await.unwrap();
    let told = foreign.remarks.join("\n");
    assert!(told.contains("its owner is now user 65534 and was user 0"), "{told}");
    assert_eq!(fs::metadata(Path::new(&dir).join("foreign")).unwrap().mode() & 0o777, 0o666);
    let change =
        FileChange::Write { path: at("foreign2"), bytes: b"new".to_vec(), expect: Expect::Anything, like: None };
    let told = LocalHost::new().apply_changes(vec![change]).await.unwrap().join("\n");
    assert!(told.contains("foreign2 was replaced by a new file") && told.contains("was user 0"), "{told}");
}

#[tokio::test]
async fn another_owner_is_kept_or_reported() {
    if !rustix::process::geteuid().is_root() {
        println!("only root can make a file of another owner");
        return;
    }
    let folder = Folder::new();
    let file = folder.root().join("f");
    fs::write(&file, "1").unwrap();
    std::os::unix::fs::chown(&file, Some(65534), Some(65534)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let written = LocalHost::new().write(&folder.to_write("f"), b"2", Expect::Anything).await.unwrap();
    assert_eq!(written.remarks, [""; 0], "root keeps the owner");
    let about = fs::metadata(&file).unwrap();
    assert_eq!((about.uid(), about.gid(), about.mode() & 0o777), (65534, 65534, 0o640));
    run_as_nobody_in("files::as_nobody", |home| {
        for name in ["foreign", "foreign2"] {
            fs::write(home.join(name), "old").unwrap();
            fs::set_permissions(home.join(name), fs::Permissions::from_mode(0o666)).unwrap();
        }
    });
}

#[tokio::test]
async fn commands_are_off_unless_somebody_starts_them() {
    let folder = Folder::new();
    let command = ProcessSpec {
        script: Some("true".into()),
        argv: vec![],
        cwd: folder.path("."),
        roots: vec![folder.path(".")],
        env: vec![],
        stdin: helve_contract::ports::StdinSource::Closed,
        network: NetworkAccess::Off,
        terminal: None,
        report_cwd: false,
        streams: Streams::Separate,
    };
    let Err(error) = LocalHost::new().spawn(&command).await else { panic!("it started") };
    assert_eq!(error.to_string(), "commands are turned off on this host; use the file tools instead");
}

#[test]
fn works_without_a_runtime() {
    let folder = Folder::new();
    let written = now(write(&folder, "a", "text"));
    assert!(written.is_ok() && folder.text("a") == "text");
}

fn find(pattern: &str) -> FindQuery {
    FindQuery {
        pattern: Some(pattern.into()),
        whole_path: true,
        kind: None,
        noise: IgnoreOptions { ignored: false, hidden: false },
        order: SortOrder::Path,
        limit: 100,
    }
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
