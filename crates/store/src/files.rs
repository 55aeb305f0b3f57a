//! Directories opened without following links, and files that appear completely or not at all.

use std::{
    ffi::CStr,
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::Path,
    thread,
    time::{Duration, Instant},
};

use helve_contract::{Error, Result};
use rustix::{
    fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, flock, mkdirat, openat, renameat, statat, unlinkat},
    io::Errno,
};

/// The prefix of temporary files. No artifact or blob has such a name.
const TEMPORARY: &str = ".helve-";
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

/// An open directory, independent of later changes of its path.
pub(crate) struct Dir(OwnedFd);

/// Who may enter new directories.
#[derive(Clone, Copy)]
pub(crate) enum Privacy {
    /// The owner alone. A directory of another user is refused.
    Private,
    /// Whoever the user's mask lets in.
    Usual,
}

impl Privacy {
    fn folder(self) -> Mode {
        Mode::from_raw_mode(if matches!(self, Self::Private) { 0o700 } else { 0o777 })
    }

    fn file(self) -> Mode {
        Mode::from_raw_mode(if matches!(self, Self::Private) { 0o600 } else { 0o666 })
    }
}

impl Dir {
    /// Opens a directory. The last component of the path must not be a link.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, FOLDER, Mode::empty())?))
    }

    /// Opens a private directory and creates it with its parents.
    pub(crate) fn make_private(path: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_err() {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        let dir = Self::open(path)?;
        dir.close_to_others()?;
        Ok(dir)
    }

    fn close_to_others(&self) -> io::Result<()> {
        let found = rustix::fs::fstat(&self.0)?;
        if found.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "the folder belongs to another user"));
        }
        if found.st_mode & 0o077 != 0 {
            rustix::fs::fchmod(&self.0, Privacy::Private.folder())?;
        }
        Ok(())
    }

    /// Opens a directory in this one. `None`: it is not there.
    pub(crate) fn find_dir(&self, name: &str) -> io::Result<Option<Self>> {
        match openat(&self.0, name, FOLDER, Mode::empty()) {
            Ok(fd) => Ok(Some(Self(fd))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a directory in this one, and makes it where it is not there.
    pub(crate) fn make_dir(&self, name: &str, privacy: Privacy) -> io::Result<Self> {
        match mkdirat(&self.0, name, privacy.folder()) {
            // The name must survive a power failure, like the files in it.
            Ok(()) => rustix::fs::fsync(&self.0)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let dir = Self(openat(&self.0, name, FOLDER, Mode::empty())?);
        if matches!(privacy, Privacy::Private) {
            dir.close_to_others()?;
        }
        Ok(dir)
    }

    /// Opens a regular file. `None`: it is not there.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<Option<File>> {
        // Without waiting: a pipe would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match openat(&self.0, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => return Err(not_regular()),
            Err(error) => return Err(error.into()),
        };
        if file.metadata()?.is_file() { Ok(Some(file)) } else { Err(not_regular()) }
    }

    /// Opens a file to read and write in place, and makes it where it is not there.
    pub(crate) fn open_record(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, flags, Privacy::Private.file())?.into())
    }

    /// The size of a regular file. `None`: it is not there.
    pub(crate) fn size(&self, name: &str) -> io::Result<Option<u64>> {
        match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile => {
                Ok(Some(found.st_size.unsigned_abs()))
            }
            Ok(_) => Err(not_regular()),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A new file under a temporary name.
    pub(crate) fn temporary(&self, privacy: Privacy) -> io::Result<Temporary> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let name = random.iter().fold(TEMPORARY.to_owned(), |name, byte| format!("{name}{byte:02x}"));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.0, &name, flags, privacy.file())?.into();
        Ok(Temporary { dir: Self(self.0.try_clone()?), name, file, is_published: false })
    }

    /// Names of files and of directories, without links and anything else.
    pub(crate) fn entries(&self) -> io::Result<Vec<(String, FileType)>> {
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let Some(name) = plain(entry.file_name()) else { continue };
            let kind = match entry.file_type() {
                FileType::Unknown => match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(found) => FileType::from_raw_mode(found.st_mode),
                    Err(_) => continue,
                },
                kind => kind,
            };
            if matches!(kind, FileType::RegularFile | FileType::Directory) {
                entries.push((name.to_owned(), kind));
            }
        }
        Ok(entries)
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Removes temporary files of writers that were killed. The caller holds the lock that every writer holds.
    pub(crate) fn remove_temporaries(&self) -> io::Result<()> {
        for (name, kind) in self.entries()? {
            if kind == FileType::RegularFile && name.starts_with(TEMPORARY) {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Locks the directory, waiting up to this long. The lock ends when the result is dropped.
    pub(crate) fn lock(&self, exclusive: bool, patience: Duration) -> io::Result<DirLock> {
        let how =
            if exclusive { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
        // A lock belongs to an open file: the directory is reopened, so that handles in one process exclude each
        // other.
        let own = openat(&self.0, ".", FOLDER, Mode::empty())?;
        let begun = Instant::now();
        loop {
            match flock(&own, how) {
                Ok(()) => return Ok(DirLock(own)),
                Err(Errno::WOULDBLOCK) if begun.elapsed() < patience => thread::sleep(Duration::from_millis(2)),
                Err(Errno::WOULDBLOCK) => {
                    return Err(io::Error::new(
                        ErrorKind::ResourceBusy,
                        "another process is writing here for too long",
                    ));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn not_regular() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it is no regular file")
}

fn plain(name: &CStr) -> Option<&str> {
    name.to_str().ok().filter(|it| !matches!(*it, "." | ".."))
}

/// A directory that is locked.
pub(crate) struct DirLock(OwnedFd);

impl Drop for DirLock {
    fn drop(&mut self) {
        // A child process may briefly hold the same open directory, so closing it here is not enough.
        _ = flock(self.0.as_fd(), FlockOperation::Unlock);
    }
}

/// A file under a temporary name. It is removed when it is dropped before it got its own name.
pub(crate) struct Temporary {
    dir: Dir,
    name: String,
    pub(crate) file: File,
    is_published: bool,
}

impl Temporary {
    /// Renames the file to its final name, replacing an existing one, and syncs it.
    pub(crate) fn publish(mut self, name: &str) -> io::Result<()> {
        self.file.sync_all()?;
        renameat(&self.dir.0, &self.name, &self.dir.0, name)?;
        self.is_published = true;
        Ok(rustix::fs::fsync(&self.dir.0)?)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_published {
            _ = self.dir.remove(&self.name);
        }
    }
}

/// When a file was last changed. `None`: the file is gone, or the clock was set back.
pub(crate) fn age(file: &File) -> Option<Duration> {
    file.metadata().ok()?.modified().ok()?.elapsed().ok()
}

/// A system error with the next step.
pub(crate) fn explain(path: &Path, error: io::Error) -> Error {
    let path = path.display();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Error::failed(format!("the disk is full, so nothing was written to {path}. Free some space and retry"))
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::failed(format!(
            "{path} cannot be used: {error}. Give this user access, or choose another state folder"
        )),
        ErrorKind::NotADirectory => Error::failed(format!(
            "{path} leads through a symbolic link or a file, and links are not followed there. Remove it and retry"
        )),
        ErrorKind::InvalidInput => Error::failed(format!("{path}: {error}. Remove it and retry")),
        ErrorKind::ResourceBusy => Error::failed(format!("{path}: {error}. Try again later")),
        _ => Error::Internal(anyhow::Error::new(error).context(path.to_string())),
    }
}

/// Runs blocking work on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.into()))?
}

/// Which file it is, whatever its name.
pub(crate) fn is_same(file: &File, dir: &Dir, name: &str) -> io::Result<bool> {
    let open = file.metadata()?;
    match statat(&dir.0, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok((found.st_dev, found.st_ino) == (open.dev(), open.ino())),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
