//! The file that holds all of a task's raw output, once there is more than a little.

use std::{
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio::{fs, io::AsyncWriteExt};

/// Up to here a task's output is in memory only.
pub(super) const SMALL: u64 = 16 << 10;
/// The most that a file takes.
const MOST: u64 = 1 << 30;
/// How long files are kept.
const KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A private file, begun late.
pub(super) struct Spill {
    path: PathBuf,
    file: Option<fs::File>,
    written: u64,
    /// Bytes that were not written because the file was full or the disk refused.
    left_out: u64,
}

impl Spill {
    /// Begins a file in a private folder.
    pub(super) async fn begin(folder: &Path, id: &str) -> io::Result<Self> {
        let path = folder.join(format!("task-{id}.log"));
        let file = fs::OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path).await?;
        Ok(Self { path, file: Some(file), written: 0, left_out: 0 })
    }

    pub(super) fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Adds a piece, as long as there is room. A full disk ends the file, not the task.
    pub(super) async fn add(&mut self, piece: &[u8]) {
        let room = MOST.saturating_sub(self.written).min(piece.len() as u64) as usize;
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

    /// Says in the file what is not in it, and adds the end that memory has.
    pub(super) async fn end(mut self, tail: impl FnOnce() -> Vec<u8>) {
        let Some(mut file) = self.file.take() else { return };
        if self.left_out > 0 {
            let tail = tail();
            let tail = &tail[tail.len().saturating_sub(self.left_out as usize)..];
            let missing = self.left_out - tail.len() as u64;
            _ = file.write_all(format!("\n[{missing} bytes were not kept here]\n").as_bytes()).await;
            _ = file.write_all(tail).await;
        }
        _ = file.flush().await;
    }
}

/// Makes the folder, for its owner only, and removes files that have expired.
pub(super) fn prepare(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    let expired = |path: &Path| {
        let about = std::fs::symlink_metadata(path).ok()?;
        let age = SystemTime::now().duration_since(about.modified().ok()?).ok()?;
        Some(about.is_file() && age > KEEP)
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
