//! New content for a file: written beside it, synced, and then put in its place in one step.

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

/// When a temporary file that nobody put in place counts as left behind, on a disk that does not know locks.
const STALE_AFTER: Duration = Duration::from_secs(3600);

/// What is at a place now.
pub(super) enum CurrentEntry {
    /// Nothing.
    Absent,
    /// A regular file.
    File(Stat),
    /// A link, so that the place is elsewhere.
    Symlink,
}

impl CurrentEntry {
    /// Looks, and refuses what cannot be replaced by a file.
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

    /// The file that is there.
    pub(super) fn file(&self) -> Option<&Stat> {
        match self {
            Self::File(stat) => Some(stat),
            Self::Absent | Self::Symlink => None,
        }
    }

    /// Whether it is what the writer believes.
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

/// The content of an open file.
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

/// A temporary file beside the one it will be; removed when dropped before that.
pub(super) struct TempFile<'a> {
    folder: &'a DirHandle,
    name: String,
    /// Held open and locked: as long as it is, nobody takes it for something left behind.
    file: OwnedFd,
    /// Something is there under the temporary name: the new content, or the old after an exchange.
    exists: bool,
    /// What of the old file it could not take over.
    lost: Lost,
}

impl<'a> TempFile<'a> {
    /// Writes the content and puts it on disk, with the mode, owner and attributes of another file if there is one.
    pub(super) fn write(folder: &'a DirHandle, bytes: &[u8], like: Option<&InheritedMetadata>) -> Result<Self, Errno> {
        remove_stale_temp_files(folder);
        // What it must not be read by before its owner and mode are set, nobody reads.
        let mut draft = Self::begin(folder, if like.is_some() { 0o600 } else { 0o666 })?;
        write_all(&draft.file, bytes)?;
        if let Some(like) = like {
            draft.lost = like.apply(&draft.file)?;
        }
        rustix::fs::fsync(&draft.file)?;
        Ok(draft)
    }

    /// An empty file that is locked and has a name, with the bits of this mode that new files get.
    fn begin(folder: &'a DirHandle, mode: u32) -> Result<Self, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let name = temp_name()?;
            let file = openat(&folder.fd, &name, flags, Mode::from_raw_mode(mode))?;
            let draft = Self { folder, name, file, exists: true, lost: Lost::default() };
            // A disk without locks goes by age instead.
            _ = flock(&draft.file, FlockOperation::LockExclusive);
            // Somebody who sweeps may have been faster than the lock; then there is another name.
            if fstat(&draft.file)?.st_nlink > 0 {
                return Ok(draft);
            }
        }
    }

    /// Which file it is.
    pub(super) fn inode(&self) -> Result<u64, Errno> {
        Ok(fstat(&self.file)?.st_ino)
    }

    /// What of the old file it could not take over.
    pub(super) fn lost(&self) -> &Lost {
        &self.lost
    }

    /// Its name in the folder.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Puts it in its place, over whatever is there.
    pub(super) fn replace(mut self, name: &OsStr) -> Result<(), Errno> {
        renameat(&self.folder.fd, &self.name, &self.folder.fd, name)?;
        self.exists = false;
        Ok(())
    }

    /// Puts it in its place, where nothing may be.
    pub(super) fn create(&mut self, name: &OsStr) -> Result<(), Errno> {
        match renameat_with(&self.folder.fd, &self.name, &self.folder.fd, name, RenameFlags::NOREPLACE) {
            // A disk that cannot promise it; the lock and the look before it have to do.
            Err(Errno::INVAL | Errno::NOSYS) => renameat(&self.folder.fd, &self.name, &self.folder.fd, name)?,
            result => result?,
        }
        self.exists = false;
        Ok(())
    }

    /// Changes places with a file. The old one is then under the temporary name.
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

/// What a new file takes over from an old one.
pub(super) struct InheritedMetadata {
    stat: Stat,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl InheritedMetadata {
    /// Remembers a file in a folder. Refuses one that the user may not write, as writing into it would.
    pub(super) fn of(folder: impl AsFd, name: &OsStr, stat: &Stat) -> Result<Self, Errno> {
        accessat(&folder, name, Access::WRITE_OK, AtFlags::empty())?;
        let attributes = openat(&folder, name, READ_FLAGS | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .map(|fd| attributes(&fd))
            .unwrap_or_default();
        Ok(Self { stat: *stat, attributes })
    }

    /// Remembers an open file.
    pub(super) fn of_open(fd: &OwnedFd) -> Result<Self, Errno> {
        Ok(Self { stat: fstat(fd)?, attributes: attributes(fd) })
    }

    /// Owner first, because a change of owner takes bits off the mode. The set-id bits go, as they do on any write.
    fn apply(&self, fd: &OwnedFd) -> Result<Lost, Errno> {
        use rustix::fs::{Gid, Uid};
        let (owner, group) = (Uid::from_raw(self.stat.st_uid), Gid::from_raw(self.stat.st_gid));
        if fchown(fd, Some(owner), Some(group)).is_err() {
            // Not ours to give away; the group alone may be.
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

/// What a new file could not take over from the old one, as it was and as it is.
#[derive(Debug, Default)]
pub(super) struct Lost {
    owner: Option<(u32, u32)>,
    group: Option<(u32, u32)>,
    mode: Option<(u32, u32)>,
    attributes: Vec<String>,
}

impl Lost {
    /// In sentences for the model.
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

/// The attributes that belong to a file's user, and its access list. Capabilities go, as they do on any write.
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

/// A disk without modes gives all files the same one; that is no reason not to write.
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

/// Removes what a killed process of ours left in a folder, the first time this process writes there. What is in use is
/// locked; old files that a change of several keeps are safe because their folder is.
fn remove_stale_temp_files(folder: &DirHandle) {
    /// Which folders, and when each was made: a new one may have the number of one that is gone.
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

/// Seconds and nanoseconds.
type BirthTime = Option<(i64, u32)>;

/// When a folder was made, where the disk knows that.
fn birth_time(folder: &OwnedFd) -> BirthTime {
    let about = statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let known = StatxFlags::from_bits_retain(about.stx_mask).contains(StatxFlags::BTIME);
    known.then_some((about.stx_btime.tv_sec, about.stx_btime.tv_nsec))
}

/// Since its last change of any kind: a kept old file has its old time of content.
#[allow(clippy::unnecessary_cast, reason = "the types of these fields differ between architectures")]
fn age(stat: &Stat) -> Option<Duration> {
    let then = UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(stat.st_ctime as i64).ok()?))?;
    SystemTime::now().duration_since(then).ok()
}
