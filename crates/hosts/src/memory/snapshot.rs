//! Keeping the files: all of them as bytes, and back.

use std::path::PathBuf;

use bashkit::{VfsEntry, VfsEntryKind, VfsSnapshot};
use helve_contract::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{HOME, Memory, TOTAL};

/// What a snapshot begins with: its name and version.
const MAGIC: &[u8; 8] = b"helvemm1";
/// The most bytes of a snapshot: all files, and room for their names.
const LARGEST: usize = TOTAL as usize + (64 << 20);

/// One file, folder or link.
#[derive(Serialize, Deserialize)]
struct Kept {
    path: String,
    mode: u32,
    what: What,
}

#[derive(Serialize, Deserialize)]
enum What {
    File(Vec<u8>),
    Folder,
    Link(String),
    Pipe,
}

impl Memory {
    /// All files, as bytes that [`restore`](Self::restore) takes. The same files give the same bytes. Of a workspace that
    /// shows here only what was changed is kept.
    pub fn snapshot(&self) -> Result<Vec<u8>> {
        let all = self.files.vfs_snapshot().ok_or_else(|| Error::failed("these files cannot be kept"))?;
        let mut kept: Vec<Kept> = all.entries().iter().filter_map(keep).collect();
        kept.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let mut bytes = MAGIC.to_vec();
        let body = postcard::to_allocvec(&kept).map_err(|error| Error::Internal(anyhow::Error::new(error)))?;
        bytes.extend(body);
        Ok(bytes)
    }

    /// Puts back what was kept. When that cannot be done, everything stays as it is.
    pub async fn restore(&self, bytes: &[u8]) -> Result<()> {
        let broken = |why: &str| Error::failed(format!("these files in memory cannot be put back: {why}"));
        if bytes.len() > LARGEST {
            return Err(broken("they are too large"));
        }
        let body = bytes.strip_prefix(MAGIC).ok_or_else(|| broken("this is no snapshot of this version"))?;
        let kept: Vec<Kept> = postcard::from_bytes(body).map_err(|error| broken(&error.to_string()))?;
        let entries: Vec<VfsEntry> = kept.into_iter().map(put_back).collect();
        if entries.iter().any(|it| !it.path.is_absolute() || bashkit::normalize_path(&it.path) != it.path) {
            return Err(broken("a path is not absolute and clean"));
        }
        let _held = self.writing.lock().await;
        self.files.vfs_restore(&VfsSnapshot::from_entries(entries)).map_err(|error| broken(&error.to_string()))?;
        // Scripts start there, whatever was kept.
        self.files.mkdir(HOME.as_ref(), true).await.map_err(|error| broken(&error.to_string()))
    }
}

fn keep(entry: &VfsEntry) -> Option<Kept> {
    let what = match &entry.kind {
        VfsEntryKind::File { content } => What::File(content.clone()),
        VfsEntryKind::Directory => What::Folder,
        VfsEntryKind::Symlink { target } => What::Link(target.to_str()?.to_owned()),
        VfsEntryKind::Fifo => What::Pipe,
    };
    Some(Kept { path: entry.path.to_str()?.to_owned(), mode: entry.mode, what })
}

fn put_back(kept: Kept) -> VfsEntry {
    let kind = match kept.what {
        What::File(content) => VfsEntryKind::File { content },
        What::Folder => VfsEntryKind::Directory,
        What::Link(target) => VfsEntryKind::Symlink { target: target.into() },
        What::Pipe => VfsEntryKind::Fifo,
    };
    VfsEntry { path: PathBuf::from(kept.path), kind, mode: kept.mode }
}
