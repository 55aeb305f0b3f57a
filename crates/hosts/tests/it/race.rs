//! Nothing leads outside, however fast somebody exchanges a folder with a link while the host works in it.
//!
//! `HELVE_RACE=50000` sets the number of tries.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use helve_contract::ports::{Change, Expect, Host as _, Span};
use helve_hosts::Local;
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
        let host = Local::new();
        for at in 0..tries {
            match now(attempt(&host, &folder, at)) {
                true => worked += 1,
                false => refused += 1,
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
async fn attempt(host: &Local, folder: &Folder, at: u64) -> bool {
    match at % 6 {
        0 => match host.read(&folder.path("dir/victim"), Span::first(100)).await {
            Ok(chunk) => {
                assert_eq!(String::from_utf8_lossy(&chunk.bytes), "inside\n");
                true
            }
            Err(_) => false,
        },
        1 => host.write(&folder.to_write("dir/victim"), b"inside\n", Expect::Anything).await.is_ok(),
        2 => host.write(&folder.to_write(&format!("dir/new{}/deep/file", at % 60)), b"x", Expect::Anything).await.is_ok(),
        3 => host.remove(&folder.to_write(&format!("dir/new{}", (at + 59) % 60))).await.is_ok(),
        4 => {
            let write = |path| Change::Write { path, bytes: b"inside\n".to_vec(), expect: Expect::Anything, like: None };
            host.change(vec![write(folder.to_write("dir/victim")), write(folder.to_write("dir/other"))]).await.is_ok()
        }
        _ => match host.list(&folder.path("dir")).await {
            Ok(items) => {
                assert!(items.iter().all(|item| item.name != "secret"));
                true
            }
            Err(_) => false,
        },
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
