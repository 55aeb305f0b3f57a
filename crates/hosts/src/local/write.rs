//! Creating and replacing one file.

use helve_contract::{
    Error, FileFault, Result, SafePath,
    ports::{Expect, Written},
};
use rustix::fd::AsFd as _;

use super::{
    atomic::{Draft, Like, Now},
    beneath::{Beneath, Last, Parents, Place, sync_folder},
    fault::Trouble,
};

/// How often a place that turns out to be a link is looked for again.
const TRIES: usize = 16;

/// Creates or replaces a file: a temporary one beside it, synced, and renamed under the folder's lock.
pub(super) fn write(beneath: &Beneath, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<Written> {
    for _ in 0..TRIES {
        let place = beneath.place(path, Last::Follow, Parents::Make)?;
        if let Some(written) = replace(place, path, bytes, expect).map_err(|trouble| trouble.about(path))? {
            return Ok(written);
        }
    }
    Err(Error::file(path, FileFault::LinkLoop))
}

/// `None` when there is a link in its place by now, so that the place is elsewhere.
fn replace(place: Place, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<Option<Written>, Trouble> {
    // In this order, so that the draft goes before the folders that were made for it.
    let Place { made, folder, name, .. } = place;
    let (folder, name) = (&folder, name.as_os_str());
    let now = Now::look(folder, name)?;
    let like = match &now {
        Now::Link => return Ok(None),
        Now::Absent if matches!(expect, Expect::Content(_)) => return Err(FileFault::Changed.into()),
        Now::File(_) if expect == Expect::Absent => return Err(FileFault::Exists.into()),
        Now::File(stat) => Some(Like::of(&folder.fd, name, stat)?),
        Now::Absent => None,
    };
    let mut draft = Draft::write(folder, bytes, like.as_ref())?;

    let held = folder.lock()?;
    let now = Now::look(folder, name)?;
    if matches!(now, Now::Link) {
        return Ok(None);
    }
    now.meets(expect, folder, name)?;
    let created = now.file().is_none();
    let remarks = draft.lost().remarks(path);
    if expect == Expect::Absent {
        draft.create(name)?;
    } else {
        draft.replace(name)?;
    }
    drop(held);

    sync_folder(folder.fd.as_fd())?;
    made.keep()?;
    Ok(Some(Written { created, remarks }))
}
