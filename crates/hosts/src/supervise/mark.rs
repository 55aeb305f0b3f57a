//! Detects whether a path still names the same file.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// The identity of the file at a path. Mounts and rules hold for that file, whatever the path names later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileFingerprint(Option<(u64, u64, u128)>);

impl FileFingerprint {
    /// The current identity. Inode numbers are reused; the creation time distinguishes such files. Without it, any
    /// change counts as another file.
    pub(crate) fn of(place: &Path) -> Self {
        Self(fs::metadata(place).ok().map(|about| {
            let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            let changed =
                || u128::from(about.ctime().unsigned_abs()) << 32 | u128::from(about.ctime_nsec().unsigned_abs());
            (about.dev(), about.ino(), about.created().map_or_else(|_| changed(), since))
        }))
    }
}
