//! Removing a file, a link or a whole folder.

use std::path::{Path, PathBuf};

use helve_contract::{Error, Result, SafePath, ports::Kind};
use rustix::{
    fd::{AsFd as _, OwnedFd},
    fs::{AtFlags, Dir, Mode, OFlags, openat, statat, unlinkat},
    io::Errno,
};

use super::{
    beneath::{Beneath, Last, Parents, sync_folder},
    fault::Trouble,
    files::kind,
};

/// Removes a file, a link (not what it points to), or a folder with all that is in it.
pub(super) fn remove(beneath: &Beneath, path: &SafePath) -> Result<Kind> {
    if path.relative().as_os_str().is_empty() {
        return Err(Error::denied(format!(
            "{path} is the workspace itself, which is not removed; name something in it"
        )));
    }
    let failed = |errno: Errno| beneath.explain(path, errno.into());
    let place = beneath.place(path, Last::Keep, Parents::Need)?;
    let (folder, name) = (&place.folder, &place.name);
    let kind = kind(&statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?);

    if kind == Kind::Folder {
        Tree { path, change: Change::Look }.visit(&folder.fd, name, &place.real)?;
        Tree { path, change: Change::Remove }.visit(&folder.fd, name, &place.real)?;
    }
    let held = folder.lock().map_err(|trouble| trouble.about(path))?;
    let flags = if kind == Kind::Folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    unlinkat(&folder.fd, name, flags).map_err(failed)?;
    drop(held);
    sync_folder(folder.fd.as_fd()).map_err(failed)?;
    Ok(kind)
}

/// A folder and what is in it, visited by handles alone, so that no link is followed.
struct Tree<'a> {
    path: &'a SafePath,
    change: Change,
}

/// What a visit does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Asks the rules about everything, before anything is touched.
    Look,
    /// Removes everything in the folder, innermost first.
    Remove,
}

/// A folder on the way down.
struct Level {
    fd: OwnedFd,
    entries: Dir,
    real: PathBuf,
}

impl Tree<'_> {
    fn visit(&self, folder: &OwnedFd, name: &std::ffi::OsStr, real: &Path) -> Result<()> {
        let name = std::ffi::CString::new(name.as_encoded_bytes()).map_err(|_| self.failed(real, Errno::INVAL))?;
        let mut levels = vec![self.enter(folder, &name, real.to_owned())?];
        let mut names: Vec<std::ffi::CString> = Vec::new();
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.entries.next() else {
                levels.pop();
                if let (Some(above), Some(name)) = (levels.last(), names.pop())
                    && self.change == Change::Remove
                {
                    self.unlink(above, &name, AtFlags::REMOVEDIR)?;
                }
                continue;
            };
            let entry = entry.map_err(|errno| self.failed(&level.real, errno))?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            let real = level.real.join(path_of(entry.file_name()));
            self.path.judge(&real)?;
            match statat(&level.fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).map(|stat| kind(&stat)) {
                Ok(Kind::Folder) => {
                    let inner = self.enter(&level.fd, entry.file_name(), real)?;
                    names.push(entry.file_name().to_owned());
                    levels.push(inner);
                }
                Ok(_) if self.change == Change::Remove => self.unlink(level, entry.file_name(), AtFlags::empty())?,
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(self.failed(&real, errno)),
            }
        }
        Ok(())
    }

    fn enter(&self, folder: &OwnedFd, name: &std::ffi::CStr, real: PathBuf) -> Result<Level> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || {
            let fd = openat(folder, name, flags, Mode::empty())?;
            let entries = Dir::read_from(&fd)?;
            Ok((fd, entries))
        };
        let (fd, entries) = open().map_err(|errno| self.failed(&real, errno))?;
        Ok(Level { fd, entries, real })
    }

    fn unlink(&self, level: &Level, name: &std::ffi::CStr, flags: AtFlags) -> Result<()> {
        match unlinkat(&level.fd, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed(&level.real.join(path_of(name)), errno)),
        }
    }

    fn failed(&self, real: &Path, errno: Errno) -> Error {
        match Trouble::from(errno).about(self.path) {
            Error::File { fault, .. } => Error::file(self.path.shown(real), fault),
            other => other,
        }
    }
}

fn path_of(name: &std::ffi::CStr) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()))
}
