//! The journal of the integrity check: records running commands, so that after a kill the next start does the check.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{DirBuilderExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{
    git_refs::Refs,
    items::{Item, Items},
};

/// An unreadable journal is still being written, unless it is older than this.
const OLD_JOURNAL: Duration = Duration::from_secs(60);

/// A file that records running commands and the state before them. Its writer holds a lock on it.
pub(super) struct Journal {
    path: PathBuf,
    _lock: File,
}

#[derive(Serialize, Deserialize)]
struct JournalContent {
    root: Vec<u8>,
    items: Vec<(Vec<u8>, Item)>,
    refs: Vec<(Vec<u8>, Refs)>,
}

impl Journal {
    /// Records that commands run on this root, with the state before them.
    pub(super) fn write(
        quarantine: &Path,
        root: &Path,
        before: &Items,
        refs: &BTreeMap<PathBuf, Refs>,
    ) -> Option<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let content = JournalContent {
            root: bytes(root),
            items: before.iter().map(|(path, item)| (bytes(path), item.clone())).collect(),
            refs: refs.iter().map(|(path, refs)| (bytes(path), refs.clone())).collect(),
        };
        let content = postcard::to_allocvec(&content).ok()?;
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = quarantine.join("running").join(format!("{}-{number}", std::process::id()));
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path);
        let mut lock = match open() {
            Err(_) => {
                DirBuilder::new().recursive(true).mode(0o700).create(path.parent()?).ok()?;
                open().ok()?
            }
            Ok(file) => file,
        };
        flock(&lock, FlockOperation::LockExclusive).ok()?;
        lock.write_all(&content).ok()?;
        Some(Self { path, _lock: lock })
    }

    /// The records of killed processes for this root, latest first.
    pub(super) fn abandoned(quarantine: &Path, root: &Path) -> Vec<(Items, BTreeMap<PathBuf, Refs>)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(quarantine.join("running")).into_iter().flatten().flatten() {
            let Ok(mut file) = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(entry.path()) else {
                continue;
            };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let mut bytes = Vec::new();
            let written = file.metadata().and_then(|about| about.modified());
            let (Ok(_), Ok(written)) = (file.read_to_end(&mut bytes), written) else { continue };
            let Ok(content) = postcard::from_bytes::<JournalContent>(&bytes) else {
                if written.elapsed().is_ok_and(|age| age > OLD_JOURNAL) {
                    _ = fs::remove_file(entry.path());
                }
                continue;
            };
            if content.root != root.as_os_str().as_bytes() {
                continue;
            }
            let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
            let items = content.items.into_iter().map(|(at, item)| (path(at), item)).collect();
            let refs = content.refs.into_iter().map(|(at, refs)| (path(at), refs)).collect();
            _ = fs::remove_file(entry.path());
            found.push((written, (items, refs)));
        }
        found.sort_by_key(|(written, _)| std::cmp::Reverse(*written));
        found.into_iter().map(|(_, record)| record).collect()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
    }
}
