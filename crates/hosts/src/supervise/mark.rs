//! Telling whether a place is still the one that it was.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// Which file or folder a name leads to. What the kernel was told of it holds for that one, whatever the name leads to later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileFingerprint(Option<(u64, u64, u128)>);

impl FileFingerprint {
    /// What a name leads to now. Numbers of files are used again; when they were born tells such files apart. Where that is
    /// not known, any change of it makes it another one.
    pub(crate) fn of(place: &Path) -> Self {
        Self(fs::metadata(place).ok().map(|about| {
            let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            let changed =
                || u128::from(about.ctime().unsigned_abs()) << 32 | u128::from(about.ctime_nsec().unsigned_abs());
            (about.dev(), about.ino(), about.created().map_or_else(|_| changed(), since))
        }))
    }
}
