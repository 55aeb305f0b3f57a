//! The journal of multi-file changes: written before the first file and removed after the last. The next start rolls
//! back an incomplete change, or cleans up after a complete one.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use helve_contract::ports::FileKind;
use rustix::{
    fd::{AsFd as _, AsRawFd as _},
    fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, statat, unlinkat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{beneath::sync_folder, files::kind, lock::DirHandle, names::temp_name};

/// The format version of journal entries.
const VERSION: u32 = 1;

/// The journal directory: private, and no tool can reach it.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    folder: PathBuf,
}

/// A multi-file change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JournalEntry {
    version: u32,
    pub(super) steps: Vec<PlannedStep>,
}

/// One step of a change, in order. After the last step the change is complete.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PlannedStep {
    /// The directory, by path and by device and inode: the path alone is not trusted.
    folder: PathBuf,
    key: (u64, u64),
    name: String,
    /// The other name: of the new content before the step, of the old content after it.
    aside: String,
    /// The inode before the step, if the file existed.
    old: Option<u64>,
    /// The inode after the step, if the file exists.
    new: Option<u64>,
}

impl PlannedStep {
    /// Creates a step; `None` if a name cannot be serialised.
    pub(super) fn new(
        folder: &DirHandle,
        name: &OsStr,
        aside: &str,
        old: Option<u64>,
        new: Option<u64>,
    ) -> Option<Self> {
        let path = fs::read_link(format!("/proc/self/fd/{}", folder.fd.as_fd().as_raw_fd())).ok()?;
        let aside = aside.to_owned();
        Some(Self { folder: path, key: folder.key, name: name.to_str()?.to_owned(), aside, old, new })
    }
}

/// A journal entry on disk; locked while the change runs.
pub(super) struct OpenJournal {
    path: PathBuf,
    _file: File,
}

impl OpenJournal {
    /// Removes the entry: the change is complete.
    pub(super) fn close(self) {
        _ = fs::remove_file(&self.path);
    }
}

impl Journal {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Writes an entry and syncs it before returning.
    pub(super) fn open(&self, steps: Vec<PlannedStep>) -> io::Result<OpenJournal> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let id = temp_name()?;
        let fresh = self.folder.join(format!("{id}.new"));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        let path = self.folder.join(format!("{id}.json"));
        let written = (|| {
            file.lock()?;
            file.write_all(&serde_json::to_vec(&JournalEntry { version: VERSION, steps })?)?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            File::open(&self.folder)?.sync_all()
        })();
        match written {
            Ok(()) => Ok(OpenJournal { path, _file: file }),
            Err(error) => {
                _ = fs::remove_file(&fresh);
                _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Recovers changes that killed processes left incomplete. Entries that cannot be recovered are kept under
    /// another name.
    pub(super) fn recover(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for path in entries.flatten().map(|it| it.path()) {
            match path.extension().and_then(OsStr::to_str) {
                Some("json") => recover_one(&path),
                Some("new") if is_abandoned(&path) => _ = fs::remove_file(&path),
                _ => {}
            }
        }
    }
}

fn is_abandoned(path: &Path) -> bool {
    let changed = path.metadata().and_then(|it| it.modified()).ok();
    changed.and_then(|it| SystemTime::now().duration_since(it).ok()).is_some_and(|age| age > Duration::from_secs(60))
}

fn recover_one(path: &Path) {
    let Ok(file) = File::open(path) else { return };
    // The writer is alive, or another process recovers it.
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) || !path.exists() {
        return;
    }
    let entry = io::read_to_string(&file).ok().and_then(|text| serde_json::from_str::<JournalEntry>(&text).ok());
    let whole = entry.filter(|it| it.version == VERSION).is_some_and(|entry| entry.recover());
    _ = if whole { fs::remove_file(path) } else { fs::rename(path, path.with_extension("unsettled")) };
}

impl JournalEntry {
    /// Rolls back all steps, or cleans up if the last one was done. Returns whether every file is in the expected
    /// state.
    fn recover(&self) -> bool {
        let Some((last, before)) = self.steps.split_last() else { return true };
        let Some(there) = last.open_dir().map(|folder| inode(&folder, &last.name)) else { return false };
        let done = there == last.new;
        if !done && there != last.old {
            return false; // Somebody has changed it since: nobody can tell any more.
        }
        let mut whole = true;
        if done {
            for step in before {
                whole &= step.open_dir().is_some_and(|folder| step.remove_backup(&folder, step.old));
            }
        } else {
            for step in self.steps.iter().rev() {
                whole &= step.open_dir().is_some_and(|folder| {
                    let Ok(_held) = folder.lock() else { return false };
                    step.roll_back(&folder).is_ok() && sync_folder(folder.fd.as_fd()).is_ok()
                });
            }
        }
        whole
    }
}

impl PlannedStep {
    /// Opens the directory if it is still the same.
    fn open_dir(&self) -> Option<DirHandle> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(CWD, &self.folder, flags, Mode::empty()).ok()?;
        DirHandle::new(fd).ok().filter(|folder| folder.key == self.key)
    }

    /// Removes the file under the other name if it has this inode.
    fn remove_backup(&self, folder: &DirHandle, which: Option<u64>) -> bool {
        match inode(folder, &self.aside) {
            Some(there) if Some(there) == which => unlinkat(&folder.fd, &self.aside, AtFlags::empty()).is_ok(),
            _ => true,
        }
    }

    /// Restores the old state. A file that another process has changed since is left alone, and is an error.
    fn roll_back(&self, folder: &DirHandle) -> Result<(), Errno> {
        let (there, aside) = (inode(folder, &self.name), inode(folder, &self.aside));
        match (self.old, self.new) {
            // The step was not done: the other name holds the new content.
            (old, new) if there == old => {
                self.remove_backup(folder, new);
                Ok(())
            }
            (Some(old), Some(new)) if there == Some(new) && aside == Some(old) => {
                renameat(&folder.fd, &self.aside, &folder.fd, &self.name)
            }
            (None, Some(new)) if there == Some(new) => unlinkat(&folder.fd, &self.name, AtFlags::empty()),
            (Some(old), None) if there.is_none() && aside == Some(old) => {
                renameat_with(&folder.fd, &self.aside, &folder.fd, &self.name, RenameFlags::NOREPLACE)
            }
            _ => Err(Errno::BUSY),
        }
    }
}

/// The inode of this name.
fn inode(folder: &DirHandle, name: &str) -> Option<u64> {
    let stat = statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    matches!(kind(&stat), FileKind::File | FileKind::Link).then_some(stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four files with a prepared change and its journal entry: `a` is changed, `c` created, `d` removed, and `b`
    /// changed last.
    struct Stage {
        top: PathBuf,
        journal: Journal,
    }

    impl Drop for Stage {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.top);
        }
    }

    impl Stage {
        fn new() -> Self {
            let top = std::env::temp_dir().join(format!("helve-journal-{}", temp_name().unwrap()));
            fs::create_dir_all(&top).unwrap();
            let top = fs::canonicalize(top).unwrap();
            let journal = Journal::new(top.join("notes"));
            let stage = Self { top, journal };
            for (name, text) in
                [("a", "a1"), ("b", "b1"), ("d", "d1"), ("a.new", "a2"), ("b.new", "b2"), ("c.new", "c2")]
            {
                fs::write(stage.top.join(name), text).unwrap();
            }
            let folder = stage.folder();
            let which = |name: &str| inode(&folder, name);
            let step = |name: &str, aside: &str| {
                PlannedStep::new(&folder, name.as_ref(), aside, which(name), which(aside)).unwrap()
            };
            let steps = vec![step("a", "a.new"), step("c", "c.new"), step("d", "d.old"), step("b", "b.new")];
            // The entry is not closed, as if the writer was killed.
            drop(stage.journal.open(steps).unwrap());
            stage
        }

        fn folder(&self) -> DirHandle {
            DirHandle::new(openat(CWD, &self.top, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()).unwrap()
        }

        /// Performs the steps up to this one.
        fn until(self, last: usize) -> Self {
            let folder = self.folder();
            let swap = |name: &str, aside: &str, flags| {
                renameat_with(&folder.fd, aside, &folder.fd, name, flags).unwrap();
            };
            let steps: [&dyn Fn(); 4] = [
                &|| swap("a", "a.new", RenameFlags::EXCHANGE),
                &|| swap("c", "c.new", RenameFlags::NOREPLACE),
                &|| swap("d.old", "d", RenameFlags::NOREPLACE),
                &|| swap("b", "b.new", RenameFlags::empty()),
            ];
            steps[..last].iter().for_each(|step| step());
            self
        }

        /// Content of every file and the number of entries, after the next start.
        fn after(&self) -> (Vec<String>, usize) {
            self.journal.recover();
            let files = fs::read_dir(&self.top).unwrap().flatten().filter(|it| it.path().is_file());
            let mut seen: Vec<String> = files.map(|it| fs::read_to_string(it.path()).unwrap()).collect();
            seen.sort();
            (seen, fs::read_dir(self.top.join("notes")).unwrap().count())
        }
    }

    #[test]
    fn the_next_start_takes_back_what_was_half_done() {
        for last in 0..4 {
            let stage = Stage::new().until(last);
            assert_eq!(stage.after(), (["a1", "b1", "d1"].map(str::to_owned).to_vec(), 0), "killed after step {last}");
        }
    }

    #[test]
    fn the_next_start_clears_up_after_what_was_done() {
        assert_eq!(Stage::new().until(4).after(), (["a2", "b2", "c2"].map(str::to_owned).to_vec(), 0));
    }

    #[test]
    fn what_somebody_has_changed_since_is_left_alone_and_stays_noted() {
        let stage = Stage::new().until(2);
        // Written beside the old file, so that it cannot reuse its inode.
        fs::write(stage.top.join("mine"), "mine").unwrap();
        fs::rename(stage.top.join("mine"), stage.top.join("b")).unwrap();
        let (seen, notes) = stage.after();
        assert!(["a1", "a2", "mine", "c2"].iter().all(|it| seen.iter().any(|there| there == it)), "{seen:?}");
        assert_eq!(notes, 1);
        assert_eq!(stage.after(), (seen, 1), "nobody looks at it again");
    }

    #[test]
    fn a_note_of_somebody_who_lives_is_not_touched() {
        let stage = Stage::new().until(1);
        let path = fs::read_dir(stage.top.join("notes")).unwrap().next().unwrap().unwrap().path();
        let held = File::open(path).unwrap();
        held.lock().unwrap();
        let (seen, notes) = stage.after();
        assert!(seen.iter().any(|it| it == "a2") && notes == 1, "{seen:?}");
    }
}
