//! Snapshots: serialises all files to bytes and restores them.

use std::path::PathBuf;

use bashkit::{VfsEntry, VfsEntryKind, VfsSnapshot};
use helve_contract::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{HOME_DIR, MAX_TOTAL_BYTES, MemoryHost};

/// The magic bytes: name and version.
const MAGIC: &[u8; 8] = b"helvemm1";
/// The maximum size of a snapshot: all files and their names.
const MAX_SNAPSHOT_BYTES: usize = MAX_TOTAL_BYTES as usize + (64 << 20);

/// One file, directory or link.
#[derive(Serialize, Deserialize)]
struct SnapshotEntry {
    path: String,
    mode: u32,
    what: SnapshotKind,
}

#[derive(Serialize, Deserialize)]
enum SnapshotKind {
    File(Vec<u8>),
    Folder,
    Link(String),
    Pipe,
}

impl MemoryHost {
    /// Serialises all files for [`restore`](Self::restore). The same files give the same bytes. Of an underlying
    /// workspace it contains only the changes.
    pub fn snapshot(&self) -> Result<Vec<u8>> {
        let all = self.files.vfs_snapshot().ok_or_else(|| Error::failed("these files cannot be kept"))?;
        let mut kept: Vec<SnapshotEntry> = all.entries().iter().filter_map(to_snapshot).collect();
        kept.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let mut bytes = MAGIC.to_vec();
        let body = postcard::to_allocvec(&kept).map_err(|error| Error::Internal(anyhow::Error::new(error)))?;
        bytes.extend(body);
        Ok(bytes)
    }

    /// Restores a snapshot. On an error nothing changes.
    pub async fn restore(&self, bytes: &[u8]) -> Result<()> {
        let broken = |why: &str| Error::failed(format!("these files in memory cannot be put back: {why}"));
        if bytes.len() > MAX_SNAPSHOT_BYTES {
            return Err(broken("they are too large"));
        }
        let body = bytes.strip_prefix(MAGIC).ok_or_else(|| broken("this is no snapshot of this version"))?;
        let kept: Vec<SnapshotEntry> = postcard::from_bytes(body).map_err(|error| broken(&error.to_string()))?;
        let entries: Vec<VfsEntry> = kept.into_iter().map(from_snapshot).collect();
        if entries.iter().any(|it| !it.path.is_absolute() || bashkit::normalize_path(&it.path) != it.path) {
            return Err(broken("a path is not absolute and clean"));
        }
        let _held = self.write_lock.lock().await;
        self.files.vfs_restore(&VfsSnapshot::from_entries(entries)).map_err(|error| broken(&error.to_string()))?;
        // Scripts start there, so it must exist.
        self.files.mkdir(HOME_DIR.as_ref(), true).await.map_err(|error| broken(&error.to_string()))
    }
}

fn to_snapshot(entry: &VfsEntry) -> Option<SnapshotEntry> {
    let what = match &entry.kind {
        VfsEntryKind::File { content } => SnapshotKind::File(content.clone()),
        VfsEntryKind::Directory => SnapshotKind::Folder,
        VfsEntryKind::Symlink { target } => SnapshotKind::Link(target.to_str()?.to_owned()),
        VfsEntryKind::Fifo => SnapshotKind::Pipe,
    };
    Some(SnapshotEntry { path: entry.path.to_str()?.to_owned(), mode: entry.mode, what })
}

fn from_snapshot(kept: SnapshotEntry) -> VfsEntry {
    let kind = match kept.what {
        SnapshotKind::File(content) => VfsEntryKind::File { content },
        SnapshotKind::Folder => VfsEntryKind::Directory,
        SnapshotKind::Link(target) => VfsEntryKind::Symlink { target: target.into() },
        SnapshotKind::Pipe => VfsEntryKind::Fifo,
    };
    VfsEntry { path: PathBuf::from(kept.path), kind, mode: kept.mode }
}
