//! One writer in a folder at a time, in this process and among all of ours.

use std::{
    collections::HashSet,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use helve_contract::{FileFault, Result};
use rustix::{
    fd::OwnedFd,
    fs::{FlockOperation, flock, fstat},
    io::Errno,
};

use super::fault::Trouble;

/// How long a writer waits for another.
const PATIENCE: Duration = Duration::from_secs(10);

/// A folder that is held open for changes.
pub(super) struct Folder {
    /// Its handle.
    pub(super) fd: OwnedFd,
    /// Which it is: device and inode.
    pub(super) key: (u64, u64),
}

/// The folders that this process is writing in. `flock` alone would do, but its waiters would have to poll.
static BUSY: Mutex<Option<HashSet<(u64, u64)>>> = Mutex::new(None);
static FREED: Condvar = Condvar::new();

/// The right to change a folder, until dropped.
pub(super) struct Held<'a>(&'a Folder);

impl Folder {
    pub(super) fn new(fd: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&fd)?;
        Ok(Self { key: (stat.st_dev, stat.st_ino), fd })
    }

    /// The right to change it, if nobody has it now and the disk knows locks.
    pub(super) fn try_lock(&self) -> Option<Held<'_>> {
        let mut busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
        if !busy.get_or_insert_default().insert(self.key) {
            return None;
        }
        drop(busy);
        let held = Held(self);
        flock(&self.fd, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(held)
    }

    /// Waits for the right to change it.
    pub(super) fn lock(&self) -> Result<Held<'_>, Trouble> {
        let until = Instant::now() + PATIENCE;
        let mut busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
        while !busy.get_or_insert_default().insert(self.key) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(waited());
            }
            busy = FREED.wait_timeout(busy, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(busy);
        let held = Held(self);
        let mut pause = Duration::from_micros(200);
        loop {
            match flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if Instant::now() >= until => return Err(waited()),
                Err(Errno::WOULDBLOCK) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
                Err(Errno::INTR) => {}
                // A disk without locks: this process is still of one mind.
                Ok(()) | Err(_) => return Ok(held),
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        _ = flock(&self.0.fd, FlockOperation::Unlock);
        let mut busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
        busy.get_or_insert_default().remove(&self.0.key);
        FREED.notify_all();
    }
}

fn waited() -> Trouble {
    let text =
        format!("another writer has held its folder for {} s; nothing was changed, try again", PATIENCE.as_secs());
    FileFault::Other(text).into()
}
