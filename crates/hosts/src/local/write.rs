//! Creates or replaces one file.

use helve_contract::{
    Error, FileErrorKind, Result, SafePath,
    ports::{Expect, WriteOutcome},
};
use rustix::fd::AsFd as _;

use super::{
    atomic::{CurrentEntry, InheritedMetadata, TempFile},
    beneath::{Beneath, EntryLocation, FinalSymlink, MissingParents, sync_folder},
    fault::FsError,
};

/// How often a location that becomes a link is resolved again.
const MAX_RETRIES: usize = 16;

/// Creates or replaces a file: writes a temporary file beside it, syncs it, and renames it under the directory lock.
pub(super) fn write(beneath: &Beneath, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<WriteOutcome> {
    for _ in 0..MAX_RETRIES {
        let place = beneath.locate(path, FinalSymlink::Follow, MissingParents::Create)?;
        if let Some(written) = replace(place, path, bytes, expect).map_err(|trouble| trouble.with_path(path))? {
            return Ok(written);
        }
    }
    Err(Error::file(path, FileErrorKind::LinkLoop))
}

/// Returns `None` if a link has replaced the file meanwhile.
fn replace(
    place: EntryLocation,
    path: &SafePath,
    bytes: &[u8],
    expect: Expect,
) -> Result<Option<WriteOutcome>, FsError> {
    // This drop order removes the temporary file before the directories created for it.
    let EntryLocation { made, folder, name, .. } = place;
    let (folder, name) = (&folder, name.as_os_str());
    let now = CurrentEntry::inspect(folder, name)?;
    let like = match &now {
        CurrentEntry::Symlink => return Ok(None),
        CurrentEntry::Absent if matches!(expect, Expect::Content(_)) => return Err(FileErrorKind::Changed.into()),
        CurrentEntry::File(_) if expect == Expect::Absent => return Err(FileErrorKind::Exists.into()),
        CurrentEntry::File(stat) => Some(InheritedMetadata::of(&folder.fd, name, stat)?),
        CurrentEntry::Absent => None,
    };
    let mut draft = TempFile::write(folder, bytes, like.as_ref())?;

    let held = folder.lock()?;
    let now = CurrentEntry::inspect(folder, name)?;
    if matches!(now, CurrentEntry::Symlink) {
        return Ok(None);
    }
    now.check_expectation(expect, folder, name)?;
    let created = now.file().is_none();
    let remarks = draft.lost().remarks(path);
    if expect == Expect::Absent {
        draft.create(name)?;
    } else {
        draft.replace(name)?;
    }
    drop(held);

    sync_folder(folder.fd.as_fd())?;
    made.commit()?;
    Ok(Some(WriteOutcome { created, remarks }))
}
