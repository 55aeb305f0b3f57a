//! Atomic replacement of a file: write a temporary file beside it, sync it, and rename it.

use std::{
    collections::HashMap,
    ffi::OsStr,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use helve_contract::{
    FileErrorKind, Result, SafePath,
    ports::{ContentDigest, ContentHasher, Expect, FileKind},
};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{
        Access, AtFlags, Dir, FlockOperation, Mode, OFlags, RenameFlags, Stat, StatxFlags, XattrFlags, accessat,
        fchmod, fchown, fgetxattr, flistxattr, flock, fsetxattr, fstat, openat, renameat, renameat_with, statat, statx,
        unlinkat,
    },
    io::{Errno, read, write},
};

use super::{
    fault::FsError,
    files::{READ_FLAGS, kind},
    lock::DirHandle,
    names::{is_temporary, temp_name},
};

/// The age after which an unused temporary file counts as stale, on a file system without locks.
const STALE_AFTER: Duration = Duration::from_secs(3600);

/// What currently exists at a location.
pub(super) enum CurrentEntry {
    Absent,
    File(Stat),
    /// A symbolic link: the actual location is elsewhere.
    Symlink,
}

impl CurrentEntry {
    /// Reads the current entry and refuses what a file cannot replace.
    pub(super) fn inspect(folder: &DirHandle, name: &OsStr) -> Result<Self, FsError> {
        let stat = match statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(Self::Absent),
            Err(errno) => return Err(errno.into()),
        };
        match kind(&stat) {
            FileKind::Folder => Err(FileErrorKind::IsFolder.into()),
            FileKind::Other => Err(FileErrorKind::NotRegular.into()),
            FileKind::Link => Ok(Self::Symlink),
            FileKind::File => Ok(Self::File(stat)),
        }
    }

    pub(super) fn file(&self) -> Option<&Stat> {
        match self {
            Self::File(stat) => Some(stat),
            Self::Absent | Self::Symlink => None,
        }
    }

    /// Checks that the current content is what the writer expects.
    pub(super) fn check_expectation(&self, expect: Expect, folder: &DirHandle, name: &OsStr) -> Result<(), FsError> {
        match (expect, self) {
            (Expect::Anything, _) | (Expect::Absent, Self::Absent) => Ok(()),
            (Expect::Absent, _) => Err(FileErrorKind::Exists.into()),
            (Expect::Content(_), Self::Absent) => Err(FileErrorKind::Changed.into()),
            (Expect::Content(wanted), _) => {
                let fd = openat(&folder.fd, name, READ_FLAGS | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
                if read_content_hash(&fd)? == wanted { Ok(()) } else { Err(FileErrorKind::Changed.into()) }
            }
        }
    }
}

/// Hashes the content of an open file.
pub(super) fn read_content_hash(fd: &OwnedFd) -> Result<ContentDigest, Errno> {
    let mut pieces = ContentHasher::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match read(fd, &mut buffer) {
            Ok(0) => return Ok(pieces.finalize()),
            Ok(len) => pieces.update(&buffer[..len]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// A temporary file beside its target; removed if dropped before the rename.
pub(super) struct TempFile<'a> {
    folder: &'a DirHandle,
    name: String,
    /// Open and locked, so that no other process treats it as stale.
    file: OwnedFd,
    /// A file exists under the temporary name: the new content, or the old content after an exchange.
    exists: bool,
    /// Metadata of the old file that could not be preserved.
    lost: Lost,
}

impl<'a> TempFile<'a> {
    /// Writes and syncs the content, with the mode, owner and attributes of another file if given.
    pub(super) fn write(folder: &'a DirHandle, bytes: &[u8], like: Option<&InheritedMetadata>) -> Result<Self, Errno> {
        remove_stale_temp_files(folder);
        // Nobody else may read the file before its owner and mode are set.
        let mut draft = Self::begin(folder, if like.is_some() { 0o600 } else { 0o666 })?;
        write_all(&draft.file, bytes)?;
        if let Some(like) = like {
            draft.lost = like.apply(&draft.file)?;
        }
        rustix::fs::fsync(&draft.file)?;
        Ok(draft)
    }

    /// Creates an empty, locked file with a new name and this mode (minus the umask).
    fn begin(folder: &'a DirHandle, mode: u32) -> Result<Self, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let name = temp_name()?;
            let file = openat(&folder.fd, &name, flags, Mode::from_raw_mode(mode))?;
            let draft = Self { folder, name, file, exists: true, lost: Lost::default() };
            // File systems without locks use the age instead.
            _ = flock(&draft.file, FlockOperation::LockExclusive);
            // A concurrent cleanup may remove the file before it is locked; then try another name.
            if fstat(&draft.file)?.st_nlink > 0 {
                return Ok(draft);
            }
        }
    }

    pub(super) fn inode(&self) -> Result<u64, Errno> {
        Ok(fstat(&self.file)?.st_ino)
    }

    /// Metadata of the old file that could not be preserved.
    pub(super) fn lost(&self) -> &Lost {
        &self.lost
    }

    /// The file's name in the directory.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Renames it to its target and replaces what is there.
    pub(super) fn replace(mut self, name: &OsStr) -> Result<(), Errno> {
        renameat(&self.folder.fd, &self.name, &self.folder.fd, name)?;
        self.exists = false;
        Ok(())
    }

    /// Renames it to its target, where nothing may exist.
    pub(super) fn create(&mut self, name: &OsStr) -> Result<(), Errno> {
        match renameat_with(&self.folder.fd, &self.name, &self.folder.fd, name, RenameFlags::NOREPLACE) {
            // The file system has no no-replace rename; the lock and the earlier check must suffice.
            Err(Errno::INVAL | Errno::NOSYS) => renameat(&self.folder.fd, &self.name, &self.folder.fd, name)?,
            result => result?,
        }
        self.exists = false;
        Ok(())
    }

    /// Exchanges it with a file. The old file then has the temporary name.
    pub(super) fn exchange(&self, name: &OsStr) -> Result<(), Errno> {
        renameat_with(&self.folder.fd, &self.name, &self.folder.fd, name, RenameFlags::EXCHANGE)
    }
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        if self.exists {
            _ = unlinkat(&self.folder.fd, &self.name, AtFlags::empty());
        }
    }
}

/// Metadata that a new file takes over from an old one.
pub(super) struct InheritedMetadata {
    stat: Stat,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl InheritedMetadata {
    /// Records the metadata of a file in a directory. Refuses a file that the user may not write.
    pub(super) fn of(folder: impl AsFd, name: &OsStr, stat: &Stat) -> Result<Self, Errno> {
        accessat(&folder, name, Access::WRITE_OK, AtFlags::empty())?;
        let attributes = openat(&folder, name, READ_FLAGS | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .map(|fd| attributes(&fd))
            .unwrap_or_default();
        Ok(Self { stat: *stat, attributes })
    }

    /// Records the metadata of an open file.
    pub(super) fn of_open(fd: &OwnedFd) -> Result<Self, Errno> {
        Ok(Self { stat: fstat(fd)?, attributes: attributes(fd) })
    }

    /// Sets the owner first, because a change of owner clears mode bits. Set-id bits are dropped, as on any write.
    fn apply(&self, fd: &OwnedFd) -> Result<Lost, Errno> {
        use rustix::fs::{Gid, Uid};
        let (owner, group) = (Uid::from_raw(self.stat.st_uid), Gid::from_raw(self.stat.st_gid));
        if fchown(fd, Some(owner), Some(group)).is_err() {
            // Only root may change the owner; a change of the group may still work.
            _ = fchown(fd, None, Some(group));
        }
        set_mode(fd, self.stat.st_mode & 0o1777)?;
        let set =
            |(name, value): &&(Vec<u8>, Vec<u8>)| fsetxattr(fd, name.as_slice(), value, XattrFlags::empty()).is_err();
        let attributes = self.attributes.iter().filter(set).map(|(name, _)| String::from_utf8_lossy(name).into_owned());
        let attributes = attributes.collect();
        let new = fstat(fd)?;
        let change = |old: u32, new: u32| (old != new).then_some((old, new));
        Ok(Lost {
            owner: change(self.stat.st_uid, new.st_uid),
            group: change(self.stat.st_gid, new.st_gid),
            mode: change(self.stat.st_mode & 0o1777, new.st_mode & 0o1777),
            attributes,
        })
    }
}

/// The metadata that a new file could not take over, before and after.
#[derive(Debug, Default)]
pub(super) struct Lost {
    owner: Option<(u32, u32)>,
    group: Option<(u32, u32)>,
    mode: Option<(u32, u32)>,
    attributes: Vec<String>,
}

impl Lost {
    /// Remarks for the model.
    pub(super) fn remarks(&self, path: &SafePath) -> Vec<String> {
        let mut parts = Vec::new();
        if let Some((old, new)) = self.owner {
            parts.push(format!("its owner is now user {new} and was user {old}"));
        }
        if let Some((old, new)) = self.group {
            parts.push(format!("its group is now {new} and was {old}"));
        }
        if let Some((old, new)) = self.mode {
            parts.push(format!("its mode is now {new:o} and was {old:o}"));
        }
        if !self.attributes.is_empty() {
            parts.push(format!("these attributes are gone: {}", self.attributes.join(", ")));
        }
        if parts.is_empty() {
            return Vec::new();
        }
        let told = parts.join("; ");
        vec![format!(
            "{path} was replaced by a new file, and this user may not set everything as it was: {told}. Tell the user"
        )]
    }
}

/// Reads the user attributes and the ACL of a file. Capabilities are dropped, as on any write.
fn attributes(fd: &OwnedFd) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 4096];
    let Ok(len) = flistxattr(fd, names.as_mut_slice()) else { return Vec::new() };
    names.truncate(len);
    let kept = |name: &&[u8]| name.starts_with(b"user.") || *name == b"system.posix_acl_access";
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let len = fgetxattr(fd, name, value.as_mut_slice()).ok()?;
        value.truncate(len);
        Some((name.to_vec(), value))
    };
    names.split(|byte| *byte == 0).filter(kept).filter_map(value).collect()
}

/// File systems without modes give all files the same mode; that is not an error.
fn set_mode(fd: &OwnedFd, mode: u32) -> Result<(), Errno> {
    match fchmod(fd, Mode::from_raw_mode(mode)) {
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        result => result,
    }
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(len) => bytes = &bytes[len..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Removes temporary files that killed processes left in a directory, at this process's first write there. Files in
/// use are locked. Backups of a multi-file change are safe because their directory is locked.
fn remove_stale_temp_files(folder: &DirHandle) {
    /// The cleaned directories and their birth times: a new directory may reuse the inode of a deleted one.
    static SWEPT: Mutex<Option<HashMap<(u64, u64), BirthTime>>> = Mutex::new(None);
    {
        let mut swept = SWEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let swept = swept.get_or_insert_default();
        if swept.len() > 10_000 {
            swept.clear();
        }
        let born = birth_time(&folder.fd);
        if swept.insert(folder.key, born) == Some(born) {
            return;
        }
    }
    let Ok(entries) = Dir::read_from(&folder.fd) else { return };
    let mut left = entries.filter_map(Result::ok).filter(|it| is_temporary(it.file_name().to_bytes())).peekable();
    if left.peek().is_none() {
        return;
    }
    let held = folder.try_lock();
    for entry in left {
        let name = entry.file_name();
        let open = openat(&folder.fd, name, READ_FLAGS | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let Ok((file, stat)) = open.and_then(|file| fstat(&file).map(|stat| (file, stat))) else { continue };
        let unused = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => held.is_some(),
            Err(Errno::WOULDBLOCK) => false,
            Err(_) => age(&stat).is_some_and(|age| age > STALE_AFTER),
        };
        if unused && kind(&stat) == FileKind::File {
            _ = unlinkat(&folder.fd, name, AtFlags::empty());
        }
    }
}

type BirthTime = Option<(i64, u32)>;

/// The creation time of a directory, if the file system records it.
fn birth_time(folder: &OwnedFd) -> BirthTime {
    let about = statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let known = StatxFlags::from_bits_retain(about.stx_mask).contains(StatxFlags::BTIME);
    known.then_some((about.stx_btime.tv_sec, about.stx_btime.tv_nsec))
}

/// Uses the time of the last inode change: a backup keeps its old modification time.
#[allow(clippy::unnecessary_cast, reason = "the types of these fields differ between architectures")]
fn age(stat: &Stat) -> Option<Duration> {
    let then = UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(stat.st_ctime as i64).ok()?))?;
    SystemTime::now().duration_since(then).ok()
}
