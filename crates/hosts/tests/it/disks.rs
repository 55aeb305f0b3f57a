//! Disks that are full or read-only: the old file stays, nothing is left behind, and the error says so.

use std::{fs, path::PathBuf, process::Command};

use helve_contract::{
    FileErrorKind,
    ports::{Expect, FileChange, Host as _},
};
use helve_hosts::LocalHost;

use crate::folder::{Folder, fault};

/// A small disk in memory, mounted as `root/disk`; gone when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Folder, options: &str) -> Option<Self> {
        let dir = folder.root().join("disk");
        fs::create_dir(&dir).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&dir).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(dir)),
            Ok(output) => {
                eprintln!("SKIPPED: no disk can be mounted: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                eprintln!("SKIPPED: no disk can be mounted: {error}");
                None
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = Command::new("umount").args(["-l"]).arg(&self.0).output();
    }
}

#[tokio::test]
async fn a_full_disk_keeps_the_old_file() {
    let folder = Folder::new();
    let Some(_disk) = Disk::mount(&folder, "size=64k") else { return };
    let host = LocalHost::new();
    folder.put("disk/a", "old");
    let huge = vec![b'x'; 100_000];
    let path = folder.to_write("disk/a");
    assert_eq!(fault(host.write(&path, &huge, Expect::Anything).await), FileErrorKind::DiskFull);
    assert_eq!(fault(host.write(&folder.to_write("disk/new/b"), &huge, Expect::Absent).await), FileErrorKind::DiskFull);
    let write = |path: &str, bytes: &[u8]| FileChange::Write {
        path: folder.to_write(path),
        bytes: bytes.to_vec(),
        expect: Expect::Anything,
        like: None,
    };
    let both = host.apply_changes(vec![write("disk/a", b"new"), write("disk/c", &huge)]).await;
    assert_eq!(fault(both), FileErrorKind::DiskFull);
    assert_eq!((folder.text("disk/a").as_str(), folder.names("disk")), ("old", vec!["a".to_owned()]));
    host.write(&path, b"still works", Expect::Anything).await.unwrap();
    assert_eq!(folder.text("disk/a"), "still works");
}

#[tokio::test]
async fn a_read_only_disk_is_told() {
    let folder = Folder::new();
    let Some(_disk) = Disk::mount(&folder, "size=64k,ro") else { return };
    let error = LocalHost::new().write(&folder.to_write("disk/a"), b"x", Expect::Anything).await.unwrap_err();
    assert_eq!(error.to_string(), "disk/a: the disk is read-only; write elsewhere");
    let error = LocalHost::new().write(&folder.to_write("disk/b/c"), b"x", Expect::Anything).await.unwrap_err();
    assert_eq!(error.to_string(), "disk/b/c: the disk is read-only; write elsewhere");
}
