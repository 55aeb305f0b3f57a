//! Several changes, all or none: prepare everything, check everything under the locks, then rename one after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
};

use helve_contract::{
    Error, FileFault, Result, SafePath,
    ports::{Change, Expect},
};
use rustix::{
    fd::AsFd as _,
    fs::{AtFlags, RenameFlags, Stat, linkat, renameat, renameat_with, statat, unlinkat},
    io::Errno,
};

use super::{
    atomic::{Draft, Like, Now, content},
    beneath::{Beneath, Last, Parents, Place, sync_folder},
    fault::Trouble,
    files::LOOK,
    journal::{Journal, Open, Planned},
    lock::{Folder, Held},
    names::temporary,
};

/// Does all of the changes, or none. Each file is old or new at every moment, also after a crash; with a journal, the next
/// start makes all of them old or all of them new.
pub(super) fn change(beneath: &Beneath, journal: Option<&Journal>, changes: &[Change]) -> Result<Vec<String>> {
    let mut places = Vec::with_capacity(changes.len());
    for change in changes {
        places.push(match change {
            Change::Write { path, .. } => beneath.place(path, Last::Follow, Parents::Make)?,
            Change::Remove { path, .. } => beneath.place(path, Last::Keep, Parents::Need)?,
        });
    }
    refuse_twice(changes, &places)?;
    let mut steps = Vec::with_capacity(changes.len());
    for (change, place) in changes.iter().zip(&places) {
        steps.push(Step::prepare(beneath, change, place)?);
    }

    let locks = lock_all(changes, &places)?;
    for step in &mut steps {
        step.check(beneath)?;
    }
    let note = note(journal, &steps)?;
    let remarks = steps.iter().flat_map(Step::remarks).collect();
    let last = steps.len().saturating_sub(1);
    for at in 0..steps.len() {
        if let Err(error) = steps[at].commit(at == last) {
            // What cannot be taken back now stays noted for the next start.
            undo(&mut steps[..at], &error)?;
            note.into_iter().for_each(Open::close);
            return Err(error);
        }
    }
    // From here on the changes are done; a disk that cannot sync says so all the same.
    let synced: Result<(), Errno> = places.iter().try_for_each(|place| sync_folder(place.folder.fd.as_fd()));
    note.into_iter().for_each(Open::close);
    drop(steps);
    drop(locks);
    let kept = places.into_iter().try_for_each(|place| place.made.keep());
    match (synced.and(kept), changes.first()) {
        (Err(errno), Some(Change::Write { path, .. } | Change::Remove { path, .. })) => {
            Err(Trouble::from(errno).about(path))
        }
        _ => Ok(remarks),
    }
}

/// Writes down what is about to be done, where more than one file is and there is a place to.
fn note(journal: Option<&Journal>, steps: &[Step<'_>]) -> Result<Option<Open>> {
    let (Some(journal), [first, _, ..]) = (journal, steps) else { return Ok(None) };
    let Some(planned) = steps.iter().map(Step::planned).collect::<Option<Vec<_>>>() else { return Ok(None) };
    let noted = journal.open(planned).map_err(|error| match error.raw_os_error() {
        Some(number) => Trouble::from(Errno::from_raw_os_error(number)).about(first.path),
        None => Error::Internal(error.into()),
    })?;
    Ok(Some(noted))
}

/// Takes back what was done, last first. When even that fails, says so.
fn undo(done: &mut [Step<'_>], first: &Error) -> Result<()> {
    let stuck: Vec<String> =
        done.iter_mut().rev().filter_map(|step| step.undo().err().map(|_| step.path.to_string())).collect();
    if stuck.is_empty() {
        return Ok(());
    }
    Err(Error::failed(format!(
        "{first}. Taking back the changes before it failed for {}: look at them",
        stuck.join(", ")
    )))
}

fn refuse_twice(changes: &[Change], places: &[Place]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for (change, place) in changes.iter().zip(places) {
        if !seen.insert((place.folder.key, &place.name)) {
            let text = format!("{} is changed twice; join the two changes into one", path_of(change));
            return Err(Error::failed(text));
        }
    }
    Ok(())
}

/// Locks every folder once, always in the same order, so that two callers cannot wait for each other.
fn lock_all<'a>(changes: &[Change], places: &'a [Place]) -> Result<Vec<Held<'a>>> {
    let folders: BTreeMap<_, (&Folder, &Change)> =
        places.iter().zip(changes).map(|(place, change)| (place.folder.key, (&place.folder, change))).collect();
    folders
        .into_values()
        .map(|(folder, change)| folder.lock().map_err(|trouble| trouble.about(path_of(change))))
        .collect()
}

fn path_of(change: &Change) -> &SafePath {
    match change {
        Change::Write { path, .. } | Change::Remove { path, .. } => path,
    }
}

/// One change on its way.
struct Step<'a> {
    path: &'a SafePath,
    folder: &'a Folder,
    name: &'a OsStr,
    expect: Expect,
    /// The new content; nothing when the file is to be removed.
    draft: Option<Draft<'a>>,
    /// The file that was there when it was checked.
    before: Option<Stat>,
    /// The name that the old file gets where it is put aside.
    aside: String,
    done: Done,
}

/// What has been done, and how to take it back.
enum Done {
    /// Nothing.
    No,
    /// A file was created.
    Created,
    /// The old file is under the draft's name.
    Exchanged,
    /// The old file is under this name as well, or only there.
    Kept(Kept),
    /// Nothing comes after this, so that nothing was kept.
    Last,
}

/// An old file under another name; removed when dropped.
struct Kept {
    name: String,
    live: bool,
}

impl<'a> Step<'a> {
    fn prepare(beneath: &Beneath, change: &'a Change, place: &'a Place) -> Result<Self> {
        let (folder, name) = (&place.folder, place.name.as_os_str());
        let path = path_of(change);
        let failed = |trouble: Trouble| trouble.about(path);
        let now = Now::look(folder, name).map_err(failed)?;
        let aside = temporary().map_err(|errno| failed(errno.into()))?;
        let step = |draft, expect| Self { path, folder, name, expect, draft, before: None, aside, done: Done::No };
        let (bytes, expect, like) = match change {
            Change::Write { bytes, expect, like, .. } => (bytes, expect, like),
            Change::Remove { .. } if matches!(now, Now::Absent) => {
                return Err(beneath.explain(path, Errno::NOENT.into()));
            }
            Change::Remove { expect, .. } => return Ok(step(None, *expect)),
        };
        let own = now.file().map(|stat| Like::of(&folder.fd, name, stat)).transpose();
        let own = own.map_err(|errno| failed(errno.into()))?;
        let like = match like {
            Some(other) => {
                let fd = beneath.open(other, LOOK)?.fd;
                Some(Like::of_open(&fd).map_err(|errno| Trouble::from(errno).about(other))?)
            }
            None => own,
        };
        let draft = Draft::write(folder, bytes, like.as_ref()).map_err(|errno| failed(errno.into()))?;
        Ok(step(Some(draft), *expect))
    }

    /// What of the old file cannot be kept.
    fn remarks(&self) -> Vec<String> {
        self.draft.as_ref().map(|draft| draft.lost().remarks(self.path)).unwrap_or_default()
    }

    /// Under the lock: is what is there what the writer believes?
    fn check(&mut self, beneath: &Beneath) -> Result<()> {
        let failed = |trouble: Trouble| trouble.about(self.path);
        let now = Now::look(self.folder, self.name).map_err(failed)?;
        match (&now, self.expect) {
            // A link to be removed: what it points to is what was read.
            (Now::Link, Expect::Content(wanted)) if self.draft.is_none() => {
                let fd = beneath.open(self.path, LOOK)?.fd;
                if content(&fd).map_err(|errno| failed(errno.into()))? != wanted {
                    return Err(failed(FileFault::Changed.into()));
                }
            }
            (Now::Link, _) if self.draft.is_some() => return Err(failed(FileFault::Changed.into())),
            (now, expect) => now.meets(expect, self.folder, self.name).map_err(failed)?,
        }
        self.before = now.file().copied();
        Ok(())
    }

    fn commit(&mut self, last: bool) -> Result<()> {
        let result = match (self.draft.take(), last) {
            (None, true) => unlinkat(&self.folder.fd, self.name, AtFlags::empty()).map(|()| Done::Last),
            (None, false) => self.put_aside(),
            (Some(draft), _) if self.before.is_none() => self.create(draft),
            (Some(draft), true) => draft.replace(self.name).map(|()| Done::Last),
            (Some(draft), false) => self.exchange(draft),
        };
        self.done = result.map_err(|errno| Trouble::from(errno).about(self.path))?;
        Ok(())
    }

    /// What will be done, for the journal. The file to be removed may be a link, which is moved as it is.
    fn planned(&self) -> Option<Planned> {
        let old = statat(&self.folder.fd, self.name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| stat.st_ino);
        let new = self.draft.as_ref().map(Draft::inode).transpose().ok()?;
        let aside = self.draft.as_ref().map_or(self.aside.as_str(), Draft::name);
        Planned::new(self.folder, self.name, aside, old, new)
    }

    fn create(&mut self, mut draft: Draft<'a>) -> Result<Done, Errno> {
        draft.create(self.name)?;
        Ok(Done::Created)
    }

    /// The old file moves under a name of ours.
    fn put_aside(&self) -> Result<Done, Errno> {
        let name = self.aside.clone();
        match renameat_with(&self.folder.fd, self.name, &self.folder.fd, &name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => renameat(&self.folder.fd, self.name, &self.folder.fd, &name)?,
            result => result?,
        }
        Ok(Done::Kept(Kept { name, live: true }))
    }

    /// New and old change places in one step; a disk that cannot do that keeps the old one by a second name.
    fn exchange(&mut self, draft: Draft<'a>) -> Result<Done, Errno> {
        match draft.exchange(self.name) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOSYS) => {
                let name = temporary()?;
                linkat(&self.folder.fd, self.name, &self.folder.fd, &name, AtFlags::empty())?;
                let kept = Kept { name, live: true };
                let replaced = draft.replace(self.name);
                if replaced.is_err() {
                    _ = unlinkat(&self.folder.fd, &kept.name, AtFlags::empty());
                }
                return replaced.map(|()| Done::Kept(kept));
            }
            Err(errno) => return Err(errno),
        }
        // Somebody who does not lock may have put another file there since the check; it gets its place back.
        let old = statat(&self.folder.fd, draft.name(), AtFlags::SYMLINK_NOFOLLOW)?;
        if self.before.is_none_or(|before| (before.st_dev, before.st_ino) != (old.st_dev, old.st_ino)) {
            draft.exchange(self.name)?;
            return Err(Errno::BUSY);
        }
        self.draft = Some(draft);
        Ok(Done::Exchanged)
    }

    fn undo(&mut self) -> Result<(), Errno> {
        match std::mem::replace(&mut self.done, Done::No) {
            Done::No | Done::Last => Ok(()),
            Done::Created => unlinkat(&self.folder.fd, self.name, AtFlags::empty()),
            Done::Exchanged => self.draft.as_ref().map_or(Ok(()), |draft| draft.exchange(self.name)),
            Done::Kept(mut kept) => {
                kept.live = false;
                renameat(&self.folder.fd, &kept.name, &self.folder.fd, self.name)
            }
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if let Done::Kept(kept) = &self.done
            && kept.live
        {
            _ = unlinkat(&self.folder.fd, &kept.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

    use helve_contract::{Access, PathRules, Reading, Root, Workspace};

    use super::*;

    #[test]
    fn what_was_done_is_taken_back() {
        let dir = fs::canonicalize(std::env::temp_dir()).unwrap().join(format!("helve-undo-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("a"), "a1").unwrap();
        fs::write(dir.join("b"), "b1").unwrap();
        let inode = fs::metadata(dir.join("a")).unwrap().ino();
        let workspace = Workspace::new([Root::writable(&dir)], PathRules::default(), Reading::Relative);
        let path = |name: &str| workspace.check(Path::new(name), Access::Write, None).unwrap();
        let write = |name: &str| Change::Write {
            path: path(name),
            bytes: b"new".to_vec(),
            expect: Expect::Anything,
            like: None,
        };
        let changes =
            [write("a"), Change::Remove { path: path("b"), expect: Expect::Anything }, write("c"), write("d/e")];

        let beneath = Beneath::new();
        let places: Vec<Place> =
            changes.iter().map(|change| beneath.place(path_of(change), Last::Follow, Parents::Make).unwrap()).collect();
        let mut steps: Vec<Step<'_>> = changes
            .iter()
            .zip(&places)
            .map(|(change, place)| Step::prepare(&beneath, change, place).unwrap())
            .collect();
        for step in &mut steps {
            step.check(&beneath).unwrap();
            step.commit(false).unwrap();
        }
        let seen = |name: &str| fs::read_to_string(dir.join(name)).ok();
        assert_eq!(["a", "b", "c", "d/e"].map(seen).map(Option::unwrap_or_default), ["new", "", "new", "new"]);

        undo(&mut steps, &Error::failed("the disk broke")).unwrap();
        drop(steps);
        drop(places);
        let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "b"]);
        assert_eq!([seen("a"), seen("b")].map(Option::unwrap), ["a1", "b1"]);
        assert_eq!(fs::metadata(dir.join("a")).unwrap().ino(), inode);
        fs::remove_dir_all(&dir).unwrap();
    }
}
