//! No access leads outside, however fast a directory is replaced by a link during it.
//!
//! `HELVE_RACE=50000` sets the number of tries.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use helve_contract::ports::{
    Expect, FileChange, FindQuery, GrepOutputMode, GrepQuery, Host as _, IgnoreOptions, SortOrder, Span,
};
use helve_hosts::LocalHost;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::folder::{Folder, now};

#[test]
fn nothing_escapes() {
    let tries = std::env::var("HELVE_RACE").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let folder = Folder::in_memory();
    folder.put("dir/victim", "inside\n");
    fs::write(folder.outside().join("victim"), "OUTSIDE\n").unwrap();
    fs::create_dir(folder.outside().join("sub")).unwrap();
    folder.link("link", folder.outside());
    let before = everything(&folder.outside());

    let (done, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let (dir, link) = (folder.root().join("dir"), folder.root().join("link"));
    let swapper = || {
        while !done.load(Ordering::Relaxed) {
            renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            swaps.fetch_add(1, Ordering::Relaxed);
        }
    };
    let (mut worked, mut refused) = (0_u64, 0_u64);
    std::thread::scope(|scope| {
        scope.spawn(swapper);
        let host = LocalHost::new();
        for at in 0..tries {
            if now(attempt(&host, &folder, at)) {
                worked += 1;
            } else {
                refused += 1;
            }
        }
        done.store(true, Ordering::Relaxed);
    });

    assert_eq!(everything(&folder.outside()), before);
    let swaps = swaps.into_inner();
    eprintln!("{tries} tries against {swaps} swaps: {worked} worked inside, {refused} were refused, 0 escaped");
    assert!(swaps > 0);
}

/// One try; whether it did its work (inside).
async fn attempt(host: &LocalHost, folder: &Folder, at: u64) -> bool {
    match at % 8 {
        0 => match host.read(&folder.path("dir/victim"), Span::first(100)).await {
            Ok(chunk) => {
                assert_eq!(String::from_utf8_lossy(&chunk.bytes), "inside\n");
                true
            }
            Err(_) => false,
        },
        1 => host.write(&folder.to_write("dir/victim"), b"inside\n", Expect::Anything).await.is_ok(),
        2 => {
            host.write(&folder.to_write(&format!("dir/new{}/deep/file", at % 60)), b"x", Expect::Anything).await.is_ok()
        }
        3 => host.remove(&folder.to_write(&format!("dir/new{}", (at + 59) % 60))).await.is_ok(),
        4 => {
            let write =
                |path| FileChange::Write { path, bytes: b"inside\n".to_vec(), expect: Expect::Anything, like: None };
            host.apply_changes(vec![write(folder.to_write("dir/victim")), write(folder.to_write("dir/other"))])
                .await
                .is_ok()
        }
        5 => {
            let matches = host.grep(&folder.path("dir"), &grep("OUTSIDE|secret")).await;
            assert!(matches.as_ref().is_ok_and(|matches| matches.total == 0) || matches.is_err());
            matches.is_ok()
        }
        6 => match host.find(&folder.path("dir"), &find()).await {
            Ok(found) => {
                assert!(found.files.iter().all(|file| !file.path.ends_with("secret")), "{found:?}");
                true
            }
            Err(_) => false,
        },
        _ => match host.list(&folder.path("dir")).await {
            Ok(items) => {
                assert!(items.iter().all(|item| item.name != "secret"));
                true
            }
            Err(_) => false,
        },
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
        noise: IgnoreOptions { ignored: true, hidden: true },
        context: (0, 0),
        output: GrepOutputMode::Lines,
        only_matching: false,
        limit: None,
        offset: 0,
        max_bytes: 1 << 20,
    }
}

fn find() -> FindQuery {
    FindQuery {
        pattern: None,
        whole_path: false,
        kind: None,
        noise: IgnoreOptions { ignored: true, hidden: true },
        order: SortOrder::Path,
        limit: 1000,
    }
}

/// Every path outside and what is in it.
fn everything(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut seen = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            seen.extend(everything(&path));
            seen.insert(path.display().to_string(), Vec::new());
        } else {
            seen.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    seen
}
