//! Detects changes of a file or directory without reading it.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// The kernel's file clock advances in steps. Two changes within this time may have the same timestamp.
const CLOCK_STEP: i128 = 40_000_000;
/// The same, on file systems that keep whole seconds.
const COARSE_CLOCK_STEP: i128 = 2_500_000_000;

/// Identity and last change of a file or directory. A program can set the time of modification but not the time of
/// change.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Stamp {
    dev: u64,
    ino: u64,
    /// The creation time, if known: inode numbers are reused.
    born: u64,
    size: u64,
    changed: (i64, i64),
    /// Whether it was taken so soon after a change that a later change may be invisible.
    recent: bool,
}

impl Stamp {
    pub(super) fn of(about: &fs::Metadata) -> Self {
        let changed = (about.ctime(), about.ctime_nsec());
        let step = if changed.1 == 0 { COARSE_CLOCK_STEP } else { CLOCK_STEP };
        let nanos = i128::from(changed.0) * 1_000_000_000 + i128::from(changed.1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i128);
        let size = if about.is_dir() { 0 } else { about.len() };
        let born = about.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let born = born.map_or(0, |time| time.as_nanos() as u64);
        Self { dev: about.dev(), ino: about.ino(), born, size, changed, recent: nanos > now - step }
    }

    /// Whether nothing has changed from this state to a later one.
    pub(super) fn still_holds(&self, later: &Self) -> bool {
        !self.recent && self.is_same_state(later)
    }

    /// Whether both are the same state of one file. Its name cannot have changed, but that of a parent directory can.
    pub(super) fn is_same_state(&self, other: &Self) -> bool {
        self.is_same_file(other) && (self.size, self.changed) == (other.size, other.changed)
    }

    /// Which file it is.
    pub(super) fn file(&self) -> (u64, u64, u64) {
        (self.dev, self.ino, self.born)
    }

    /// Whether both are states of one file.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        self.file() == other.file()
    }
}
