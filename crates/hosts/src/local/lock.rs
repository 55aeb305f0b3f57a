//! Directory locks: one writer per directory, in this process and across Helve processes.

use std::{
    collections::HashSet,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use helve_contract::{FileErrorKind, Result};
use rustix::{
    fd::OwnedFd,
    fs::{FlockOperation, flock, fstat},
    io::Errno,
};

use super::fault::FsError;

const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A directory that is open for changes.
pub(super) struct DirHandle {
    pub(super) fd: OwnedFd,
    /// Device and inode.
    pub(super) key: (u64, u64),
}

/// The directories that this process writes in. `flock` alone would be correct, but its waiters would have to poll.
static LOCKED_DIRS: Mutex<Option<HashSet<(u64, u64)>>> = Mutex::new(None);
static UNLOCKED: Condvar = Condvar::new();

/// The lock of a directory, released when dropped.
pub(super) struct DirLockGuard<'a>(&'a DirHandle);

impl DirHandle {
    pub(super) fn new(fd: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&fd)?;
        Ok(Self { key: (stat.st_dev, stat.st_ino), fd })
    }

    /// Locks the directory if the lock is free and the file system supports locks.
    pub(super) fn try_lock(&self) -> Option<DirLockGuard<'_>> {
        let mut busy = LOCKED_DIRS.lock().unwrap_or_else(PoisonError::into_inner);
        if !busy.get_or_insert_default().insert(self.key) {
            return None;
        }
        drop(busy);
        let held = DirLockGuard(self);
        flock(&self.fd, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(held)
    }

    /// Waits for the lock.
    pub(super) fn lock(&self) -> Result<DirLockGuard<'_>, FsError> {
        let until = Instant::now() + LOCK_TIMEOUT;
        let mut busy = LOCKED_DIRS.lock().unwrap_or_else(PoisonError::into_inner);
        while !busy.get_or_insert_default().insert(self.key) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(lock_timeout_error());
            }
            busy = UNLOCKED.wait_timeout(busy, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(busy);
        let held = DirLockGuard(self);
        let mut pause = Duration::from_micros(200);
        loop {
            match flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if Instant::now() >= until => return Err(lock_timeout_error()),
                Err(Errno::WOULDBLOCK) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
                Err(Errno::INTR) => {}
                // A file system without locks: the writers of this process still exclude each other.
                Ok(()) | Err(_) => return Ok(held),
            }
        }
    }
}

impl Drop for DirLockGuard<'_> {
    fn drop(&mut self) {
        _ = flock(&self.0.fd, FlockOperation::Unlock);
        let mut busy = LOCKED_DIRS.lock().unwrap_or_else(PoisonError::into_inner);
        busy.get_or_insert_default().remove(&self.0.key);
        UNLOCKED.notify_all();
    }
}

fn lock_timeout_error() -> FsError {
    let text =
        format!("another writer has held its folder for {} s; nothing was changed, try again", LOCK_TIMEOUT.as_secs());
    FileErrorKind::Other(text).into()
}
