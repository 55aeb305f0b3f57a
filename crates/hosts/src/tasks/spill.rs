//! The spill file with the complete raw output of a task.

use std::{
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio::{fs, io::AsyncWriteExt};

/// Up to here a task's output is in memory only.
pub(super) const SPILL_THRESHOLD: u64 = 16 << 10;
/// The most that a file takes.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// How long files are kept.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A private file, begun late.
pub(super) struct TaskSpill {
    path: PathBuf,
    file: Option<fs::File>,
    written: u64,
    /// Bytes that were not written because the file was full or the disk refused.
    left_out: u64,
}

impl TaskSpill {
    /// Begins a file in a private directory.
    pub(super) async fn begin(folder: &Path, id: &str) -> io::Result<Self> {
        let path = folder.join(format!("task-{id}.log"));
        let file = fs::OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path).await?;
        Ok(Self { path, file: Some(file), written: 0, left_out: 0 })
    }

    pub(super) fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Appends a chunk while there is room. A full disk ends the file, not the task.
    pub(super) async fn add(&mut self, piece: &[u8]) {
        let room = MAX_FILE_BYTES.saturating_sub(self.written).min(piece.len() as u64) as usize;
        let taken = match &mut self.file {
            Some(file) if self.left_out == 0 => match file.write_all(&piece[..room]).await {
                Ok(()) => room,
                Err(_) => 0,
            },
            _ => 0,
        };
        self.written += taken as u64;
        self.left_out += (piece.len() - taken) as u64;
    }

    /// Records in the file what is missing and appends the tail from memory. On a full disk it truncates the file to
    /// make room. Returns false if that fails too; then there is no file.
    pub(super) async fn end(mut self, tail: impl FnOnce() -> Vec<u8>) -> bool {
        let Some(file) = self.file.take() else { return false };
        let told = self.write_footer(file, tail()).await;
        if !told {
            _ = fs::remove_file(&self.path).await;
        }
        told
    }

    async fn write_footer(&self, mut file: fs::File, tail: Vec<u8>) -> bool {
        let all = self.written + self.left_out;
        // A write that failed behind our back is known only now.
        _ = file.flush().await;
        let Ok(mut kept) = file.metadata().await.map(|it| it.len()) else { return false };
        if kept == all {
            return true;
        }
        for room in [0, 8 << 10, 64 << 10] {
            let cut = kept.saturating_sub(room);
            if room > 0 && file.set_len(cut).await.is_err() {
                return false;
            }
            kept = cut;
            let tail = &tail[tail.len().saturating_sub((all - kept) as usize)..];
            let tail = if room == 0 { tail } else { &tail[tail.len().saturating_sub(4 << 10)..] };
            let missing = all - kept - tail.len() as u64;
            let note = format!("\n[{missing} bytes were not kept here]\n").into_bytes();
            if file.write_all(&[&note, tail].concat()).await.is_ok() && file.flush().await.is_ok() {
                return true;
            }
        }
        false
    }
}

/// Makes the directory, for its owner only, and removes files that have expired.
pub(super) fn prepare(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    let expired = |path: &Path| {
        let about = std::fs::symlink_metadata(path).ok()?;
        let age = SystemTime::now().duration_since(about.modified().ok()?).ok()?;
        Some(about.is_file() && age > RETENTION)
    };
    for entry in std::fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        let ours = name.to_str().is_some_and(|name| name.starts_with("task-"));
        if ours && expired(&entry.path()) == Some(true) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
