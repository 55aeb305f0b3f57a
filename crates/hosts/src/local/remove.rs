//! Removing a file, a link or a whole directory.

use std::{
    ffi::{CStr, CString, OsStr},
    path::{Path, PathBuf},
};

use helve_contract::{Error, Result, SafePath, ports::FileKind};
use rustix::{
    fd::{AsFd as _, OwnedFd},
    fs::{AtFlags, Dir, Mode, OFlags, fstat, openat, statat, unlinkat},
    io::Errno,
};

use super::{
    beneath::{Beneath, FinalSymlink, MissingParents, sync_folder},
    fault::FsError,
    files::kind,
};

/// Removes a file, a link (not its target), or a directory with its content.
pub(super) fn remove(beneath: &Beneath, path: &SafePath) -> Result<FileKind> {
    if path.relative().as_os_str().is_empty() {
        return Err(Error::denied(format!(
            "{path} is the workspace itself, which is not removed; name something in it"
        )));
    }
    let failed = |errno: Errno| beneath.explain(path, errno.into());
    let place = beneath.locate(path, FinalSymlink::NoFollow, MissingParents::Fail)?;
    let (folder, name) = (&place.folder, &place.name);
    let kind = kind(&statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?);

    if kind == FileKind::Folder {
        TreeVisitor { path, change: VisitAction::Check }.visit(&folder.fd, name, &place.real)?;
        TreeVisitor { path, change: VisitAction::Remove }.visit(&folder.fd, name, &place.real)?;
    }
    let held = folder.lock().map_err(|trouble| trouble.with_path(path))?;
    let flags = if kind == FileKind::Folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    unlinkat(&folder.fd, name, flags).map_err(failed)?;
    drop(held);
    sync_folder(folder.fd.as_fd()).map_err(failed)?;
    Ok(kind)
}

/// Visits a directory tree through handles only, so that it follows no link.
struct TreeVisitor<'a> {
    path: &'a SafePath,
    change: VisitAction,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VisitAction {
    /// Checks the rules for every entry before anything changes.
    Check,
    /// Removes every entry, innermost first.
    Remove,
}

/// The maximum number of open directories. Parents are reopened on the way back.
const MAX_OPEN_DIRS: usize = 64;

struct DirFrame {
    /// The handle, kept while the directory is near the innermost one.
    fd: Option<OwnedFd>,
    /// Device and inode, to recognise the directory on the way back.
    id: (u64, u64),
    /// Subdirectories that are still to be visited.
    folders: Vec<CString>,
    real: PathBuf,
}

impl TreeVisitor<'_> {
    fn visit(&self, folder: &OwnedFd, name: &OsStr, real: &Path) -> Result<()> {
        let name = CString::new(name.as_encoded_bytes()).map_err(|_| self.failed(real, Errno::INVAL))?;
        let mut levels = vec![self.enter(folder, &name, real.to_owned())?];
        let mut names: Vec<CString> = Vec::new();
        while let Some(level) = levels.last_mut() {
            if let (Some(name), Some(fd)) = (level.folders.pop(), &level.fd) {
                let inner = self.enter(fd, &name, level.real.join(path_of(&name)))?;
                names.push(name);
                levels.push(inner);
                if let Some(far) = levels.len().checked_sub(MAX_OPEN_DIRS + 1) {
                    levels[far].fd = None;
                }
                continue;
            }
            let Some(done) = levels.pop() else { break };
            let (Some(above), Some(name)) = (levels.last_mut(), names.pop()) else { break };
            let fd = match above.fd.take() {
                Some(fd) => fd,
                None => self.reopen(above, done.fd.as_ref())?,
            };
            if self.change == VisitAction::Remove {
                self.unlink(&fd, &above.real, &name, AtFlags::REMOVEDIR)?;
            }
            above.fd = Some(fd);
        }
        Ok(())
    }

    /// Opens a directory and processes its entries, except subdirectories, which it records.
    fn enter(&self, folder: &OwnedFd, name: &CStr, real: PathBuf) -> Result<DirFrame> {
        let open = || {
            let fd = openat(folder, name, OPEN_DIR_FLAGS, Mode::empty())?;
            Ok((Dir::read_from(&fd)?, id(&fd)?, fd))
        };
        let (entries, id, fd) = open().map_err(|errno| self.failed(&real, errno))?;
        let mut folders = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|errno| self.failed(&real, errno))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let inner = real.join(path_of(name));
            self.path.check_rules(&inner)?;
            match statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| kind(&stat)) {
                Ok(FileKind::Folder) => folders.push(name.to_owned()),
                Ok(_) if self.change == VisitAction::Remove => self.unlink(&fd, &real, name, AtFlags::empty())?,
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(self.failed(&inner, errno)),
            }
        }
        Ok(DirFrame { fd: Some(fd), id, folders, real })
    }

    /// Reopens a directory from its child. If the child was moved, this is another directory and nothing happens
    /// there.
    fn reopen(&self, level: &DirFrame, inner: Option<&OwnedFd>) -> Result<OwnedFd> {
        let open = || {
            let fd = openat(inner.ok_or(Errno::BADF)?, c"..", OPEN_DIR_FLAGS, Mode::empty())?;
            if id(&fd)? == level.id { Ok(fd) } else { Err(Errno::BUSY) }
        };
        open().map_err(|errno| self.failed(&level.real, errno))
    }

    fn unlink(&self, folder: &OwnedFd, real: &Path, name: &CStr, flags: AtFlags) -> Result<()> {
        match unlinkat(folder, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed(&real.join(path_of(name)), errno)),
        }
    }

    fn failed(&self, real: &Path, errno: Errno) -> Error {
        match FsError::from(errno).with_path(self.path) {
            Error::File { fault, .. } => Error::file(self.path.display_relative(real), fault),
            other => other,
        }
    }
}

const OPEN_DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Device and inode.
fn id(fd: &OwnedFd) -> rustix::io::Result<(u64, u64)> {
    fstat(fd).map(|stat| (stat.st_dev, stat.st_ino))
}

fn path_of(name: &CStr) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(OsStr::from_bytes(name.to_bytes()))
}
