//! Several file changes, all or none: prepare all, check all under the locks, then rename one after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
};

use helve_contract::{
    Error, FileErrorKind, Result, SafePath,
    ports::{Expect, FileChange},
};
use rustix::{
    fd::AsFd as _,
    fs::{AtFlags, RenameFlags, Stat, linkat, renameat, renameat_with, statat, unlinkat},
    io::Errno,
};

use super::{
    atomic::{CurrentEntry, InheritedMetadata, TempFile, read_content_hash},
    beneath::{Beneath, EntryLocation, FinalSymlink, MissingParents, sync_folder},
    fault::FsError,
    files::READ_FLAGS,
    journal::{Journal, OpenJournal, PlannedStep},
    lock::{DirHandle, DirLockGuard},
    names::temp_name,
};

/// Applies all changes or none. Each file is old or new at every moment, also after a crash. With a journal, the next
/// start completes or reverts all of them.
pub(super) fn apply_all(beneath: &Beneath, journal: Option<&Journal>, changes: &[FileChange]) -> Result<Vec<String>> {
    let mut places = Vec::with_capacity(changes.len());
    for change in changes {
        places.push(match change {
            FileChange::Write { path, .. } => beneath.locate(path, FinalSymlink::Follow, MissingParents::Create)?,
            FileChange::Remove { path, .. } => beneath.locate(path, FinalSymlink::NoFollow, MissingParents::Fail)?,
        });
    }
    reject_duplicates(changes, &places)?;
    let mut steps = Vec::with_capacity(changes.len());
    for (change, place) in changes.iter().zip(&places) {
        steps.push(ChangeStep::prepare(beneath, change, place)?);
    }

    let locks = lock_all(changes, &places)?;
    for step in &mut steps {
        step.check(beneath)?;
    }
    let note = write_journal(journal, &steps)?;
    let remarks = steps.iter().flat_map(ChangeStep::remarks).collect();
    let last = steps.len().saturating_sub(1);
    for at in 0..steps.len() {
        if let Err(error) = steps[at].commit(at == last) {
            // A step that cannot be reverted now stays in the journal for the next start.
            roll_back(&mut steps[..at], &error)?;
            note.into_iter().for_each(OpenJournal::close);
            return Err(error);
        }
    }
    // From here on the changes are done; a failed sync is still reported.
    let synced: Result<(), Errno> = places.iter().try_for_each(|place| sync_folder(place.folder.fd.as_fd()));
    note.into_iter().for_each(OpenJournal::close);
    drop(steps);
    drop(locks);
    let kept = places.into_iter().try_for_each(|place| place.made.commit());
    match (synced.and(kept), changes.first()) {
        (Err(errno), Some(FileChange::Write { path, .. } | FileChange::Remove { path, .. })) => {
            Err(FsError::from(errno).with_path(path))
        }
        _ => Ok(remarks),
    }
}

/// Writes the planned steps to the journal if there are several and a journal exists.
fn write_journal(journal: Option<&Journal>, steps: &[ChangeStep<'_>]) -> Result<Option<OpenJournal>> {
    let (Some(journal), [first, _, ..]) = (journal, steps) else { return Ok(None) };
    let Some(planned) = steps.iter().map(ChangeStep::planned).collect::<Option<Vec<_>>>() else { return Ok(None) };
    let noted = journal.open(planned).map_err(|error| match error.raw_os_error() {
        Some(number) => FsError::from(Errno::from_raw_os_error(number)).with_path(first.path),
        None => Error::Internal(error.into()),
    })?;
    Ok(Some(noted))
}

/// Reverts the completed steps in reverse order. Reports when that fails too.
fn roll_back(done: &mut [ChangeStep<'_>], first: &Error) -> Result<()> {
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

fn reject_duplicates(changes: &[FileChange], places: &[EntryLocation]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for (change, place) in changes.iter().zip(places) {
        if !seen.insert((place.folder.key, &place.name)) {
            let text = format!("{} is changed twice; join the two changes into one", path_of(change));
            return Err(Error::failed(text));
        }
    }
    Ok(())
}

/// Locks every directory once, always in the same order, to prevent deadlocks.
fn lock_all<'a>(changes: &[FileChange], places: &'a [EntryLocation]) -> Result<Vec<DirLockGuard<'a>>> {
    let folders: BTreeMap<_, (&DirHandle, &FileChange)> =
        places.iter().zip(changes).map(|(place, change)| (place.folder.key, (&place.folder, change))).collect();
    folders
        .into_values()
        .map(|(folder, change)| folder.lock().map_err(|trouble| trouble.with_path(path_of(change))))
        .collect()
}

fn path_of(change: &FileChange) -> &SafePath {
    match change {
        FileChange::Write { path, .. } | FileChange::Remove { path, .. } => path,
    }
}

/// One change in progress.
struct ChangeStep<'a> {
    path: &'a SafePath,
    folder: &'a DirHandle,
    name: &'a OsStr,
    expect: Expect,
    /// The new content; `None` if the file is to be removed.
    draft: Option<TempFile<'a>>,
    /// The file that existed at the check.
    before: Option<Stat>,
    /// The name of the old file's backup.
    backup_name: String,
    done: StepState,
}

/// What has been done and how to revert it.
enum StepState {
    Pending,
    Created,
    /// The old file has the temporary name.
    Exchanged,
    /// The old file has this name too, or only this name.
    BackedUp(BackupFile),
    /// The last step: it keeps no backup.
    Final,
}

/// An old file under another name; removed when dropped.
struct BackupFile {
    name: String,
    live: bool,
}

impl<'a> ChangeStep<'a> {
    fn prepare(beneath: &Beneath, change: &'a FileChange, place: &'a EntryLocation) -> Result<Self> {
        let (folder, name) = (&place.folder, place.name.as_os_str());
        let path = path_of(change);
        let failed = |trouble: FsError| trouble.with_path(path);
        let now = CurrentEntry::inspect(folder, name).map_err(failed)?;
        let aside = temp_name().map_err(|errno| failed(errno.into()))?;
        let step = |draft, expect| Self {
            path,
            folder,
            name,
            expect,
            draft,
            before: None,
            backup_name: aside,
            done: StepState::Pending,
        };
        let (bytes, expect, like) = match change {
            FileChange::Write { bytes, expect, like, .. } => (bytes, expect, like),
            FileChange::Remove { .. } if matches!(now, CurrentEntry::Absent) => {
                return Err(beneath.explain(path, Errno::NOENT.into()));
            }
            FileChange::Remove { expect, .. } => return Ok(step(None, *expect)),
        };
        let own = now.file().map(|stat| InheritedMetadata::of(&folder.fd, name, stat)).transpose();
        let own = own.map_err(|errno| failed(errno.into()))?;
        let like = match like {
            Some(other) => {
                let fd = beneath.open(other, READ_FLAGS)?.fd;
                Some(InheritedMetadata::of_open(&fd).map_err(|errno| FsError::from(errno).with_path(other))?)
            }
            None => own,
        };
        let draft = TempFile::write(folder, bytes, like.as_ref()).map_err(|errno| failed(errno.into()))?;
        Ok(step(Some(draft), *expect))
    }

    /// Remarks about metadata that cannot be preserved.
    fn remarks(&self) -> Vec<String> {
        self.draft.as_ref().map(|draft| draft.lost().remarks(self.path)).unwrap_or_default()
    }

    /// Checks under the lock that the current entry is what the writer expects.
    fn check(&mut self, beneath: &Beneath) -> Result<()> {
        let failed = |trouble: FsError| trouble.with_path(self.path);
        let now = CurrentEntry::inspect(self.folder, self.name).map_err(failed)?;
        match (&now, self.expect) {
            // Removing a link: compare the content of its target.
            (CurrentEntry::Symlink, Expect::Content(wanted)) if self.draft.is_none() => {
                let fd = beneath.open(self.path, READ_FLAGS)?.fd;
                if read_content_hash(&fd).map_err(|errno| failed(errno.into()))? != wanted {
                    return Err(failed(FileErrorKind::Changed.into()));
                }
            }
            (CurrentEntry::Symlink, _) if self.draft.is_some() => return Err(failed(FileErrorKind::Changed.into())),
            (now, expect) => now.check_expectation(expect, self.folder, self.name).map_err(failed)?,
        }
        self.before = now.file().copied();
        Ok(())
    }

    fn commit(&mut self, last: bool) -> Result<()> {
        let result = match (self.draft.take(), last) {
            (None, true) => unlinkat(&self.folder.fd, self.name, AtFlags::empty()).map(|()| StepState::Final),
            (None, false) => self.move_to_backup(),
            (Some(draft), _) if self.before.is_none() => self.create(draft),
            (Some(draft), true) => draft.replace(self.name).map(|()| StepState::Final),
            (Some(draft), false) => self.exchange(draft),
        };
        self.done = result.map_err(|errno| FsError::from(errno).with_path(self.path))?;
        Ok(())
    }

    /// The step for the journal. The file to be removed may be a link, which is moved as it is.
    fn planned(&self) -> Option<PlannedStep> {
        let old = statat(&self.folder.fd, self.name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| stat.st_ino);
        let new = self.draft.as_ref().map(TempFile::inode).transpose().ok()?;
        let aside = self.draft.as_ref().map_or(self.backup_name.as_str(), TempFile::name);
        PlannedStep::new(self.folder, self.name, aside, old, new)
    }

    fn create(&mut self, mut draft: TempFile<'a>) -> Result<StepState, Errno> {
        draft.create(self.name)?;
        Ok(StepState::Created)
    }

    /// Moves the old file to the backup name.
    fn move_to_backup(&self) -> Result<StepState, Errno> {
        let name = self.backup_name.clone();
        match renameat_with(&self.folder.fd, self.name, &self.folder.fd, &name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => renameat(&self.folder.fd, self.name, &self.folder.fd, &name)?,
            result => result?,
        }
        Ok(StepState::BackedUp(BackupFile { name, live: true }))
    }

    /// Exchanges the new and the old file atomically; without that operation, keeps the old one by a hard link.
    fn exchange(&mut self, draft: TempFile<'a>) -> Result<StepState, Errno> {
        match draft.exchange(self.name) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOSYS) => {
                let name = temp_name()?;
                linkat(&self.folder.fd, self.name, &self.folder.fd, &name, AtFlags::empty())?;
                let kept = BackupFile { name, live: true };
                let replaced = draft.replace(self.name);
                if replaced.is_err() {
                    _ = unlinkat(&self.folder.fd, &kept.name, AtFlags::empty());
                }
                return replaced.map(|()| StepState::BackedUp(kept));
            }
            Err(errno) => return Err(errno),
        }
        // A writer without locks may have replaced the file since the check; restore that file.
        let old = statat(&self.folder.fd, draft.name(), AtFlags::SYMLINK_NOFOLLOW)?;
        if self.before.is_none_or(|before| (before.st_dev, before.st_ino) != (old.st_dev, old.st_ino)) {
            draft.exchange(self.name)?;
            return Err(Errno::BUSY);
        }
        self.draft = Some(draft);
        Ok(StepState::Exchanged)
    }

    fn undo(&mut self) -> Result<(), Errno> {
        match std::mem::replace(&mut self.done, StepState::Pending) {
            StepState::Pending | StepState::Final => Ok(()),
            StepState::Created => unlinkat(&self.folder.fd, self.name, AtFlags::empty()),
            StepState::Exchanged => self.draft.as_ref().map_or(Ok(()), |draft| draft.exchange(self.name)),
            StepState::BackedUp(mut kept) => {
                kept.live = false;
                renameat(&self.folder.fd, &kept.name, &self.folder.fd, self.name)
            }
        }
    }
}

impl Drop for ChangeStep<'_> {
    fn drop(&mut self) {
        if let StepState::BackedUp(kept) = &self.done
            && kept.live
        {
            _ = unlinkat(&self.folder.fd, &kept.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

    use helve_contract::{Access, PathRules, PathStyle, Root, Workspace};

    use super::*;

    #[test]
    fn what_was_done_is_taken_back() {
        let dir = fs::canonicalize(std::env::temp_dir()).unwrap().join(format!("helve-undo-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("a"), "a1").unwrap();
        fs::write(dir.join("b"), "b1").unwrap();
        let inode = fs::metadata(dir.join("a")).unwrap().ino();
        let workspace = Workspace::new([Root::writable(&dir)], PathRules::default(), PathStyle::Relative);
        let path = |name: &str| workspace.check(Path::new(name), Access::Write, None).unwrap();
        let write = |name: &str| FileChange::Write {
            path: path(name),
            bytes: b"new".to_vec(),
            expect: Expect::Anything,
            like: None,
        };
        let changes =
            [write("a"), FileChange::Remove { path: path("b"), expect: Expect::Anything }, write("c"), write("d/e")];

        let beneath = Beneath::new();
        let places: Vec<EntryLocation> = changes
            .iter()
            .map(|change| beneath.locate(path_of(change), FinalSymlink::Follow, MissingParents::Create).unwrap())
            .collect();
        let mut steps: Vec<ChangeStep<'_>> = changes
            .iter()
            .zip(&places)
            .map(|(change, place)| ChangeStep::prepare(&beneath, change, place).unwrap())
            .collect();
        for step in &mut steps {
            step.check(&beneath).unwrap();
            step.commit(false).unwrap();
        }
        let seen = |name: &str| fs::read_to_string(dir.join(name)).ok();
        assert_eq!(["a", "b", "c", "d/e"].map(seen).map(Option::unwrap_or_default), ["new", "", "new", "new"]);

        roll_back(&mut steps, &Error::failed("the disk broke")).unwrap();
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
