//! Looking at files: what they are, what is in them, what is in a folder.

use std::{
    ffi::{CStr, CString},
    time::{Duration, SystemTime},
};

use helve_contract::{
    Error, FileFault, Result, SafePath,
    ports::{Chunk, Item, Kind, Span, Stamp, Stat},
};
use rustix::{
    buffer::spare_capacity,
    fd::{AsFd as _, OwnedFd},
    fs::{AtFlags, Dir, FileType, OFlags, fstat, readlinkat, statat},
    io::{Errno, pread},
};

use super::{
    beneath::Beneath,
    fault::Trouble,
    names::{is_temporary, visible},
};

/// The most bytes of one chunk.
pub(super) const CHUNK: u64 = 64 << 20;

/// How a file is opened for reading: a FIFO without a writer does not block, a terminal does not become ours.
pub(super) const LOOK: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// What a path is, following links.
pub(super) fn stat(beneath: &Beneath, path: &SafePath) -> Result<Stat> {
    let opened = beneath.open(path, OFlags::PATH)?;
    let stat = fstat(&opened.fd).map_err(|errno| Trouble::from(errno).about(path))?;
    Ok(Stat { kind: kind(&stat), size: stat.st_size as u64, modified: modified(&stat) })
}

/// A regular file that is open, and how it was when it was opened.
pub(super) struct Reader {
    fd: OwnedFd,
    size: u64,
    stamp: Stamp,
}

impl Reader {
    pub(super) fn open(beneath: &Beneath, path: &SafePath) -> Result<Self> {
        let opened = beneath.open(path, LOOK)?;
        let stat = fstat(&opened.fd).map_err(|errno| Trouble::from(errno).about(path))?;
        match kind(&stat) {
            Kind::File => {}
            Kind::Folder => return Err(Error::file(path, FileFault::IsFolder)),
            Kind::Link | Kind::Other => return Err(Error::file(path, FileFault::NotRegular)),
        }
        Ok(Self { fd: opened.fd, size: stat.st_size as u64, stamp: stamp(&stat) })
    }

    /// How many bytes a span will give, as far as the size tells.
    pub(super) fn expects(&self, span: Span) -> u64 {
        span.len.min(CHUNK).min(self.size.saturating_sub(span.start))
    }

    pub(super) fn read(self, path: &SafePath, span: Span) -> Result<Chunk> {
        let most = span.len.min(CHUNK) as usize;
        // One byte more than is expected, so that the first read also sees the end. Files of `/proc` say 0.
        let mut bytes = Vec::with_capacity(most.min(self.expects(span) as usize + 1));
        while bytes.len() < most {
            if bytes.len() == bytes.capacity() {
                bytes.reserve((most - bytes.len()).min(bytes.len().max(64 << 10)));
            }
            let (before, at) = (bytes.capacity() - bytes.len(), span.start.saturating_add(bytes.len() as u64));
            match pread(&self.fd, spare_capacity(&mut bytes), at) {
                Ok(read) if read < before => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Trouble::from(errno).about(path)),
            }
        }
        bytes.truncate(most);
        Ok(Chunk { bytes, size: self.size, stamp: self.stamp })
    }
}

/// The entries of a folder, sorted by name.
pub(super) fn list(beneath: &Beneath, path: &SafePath) -> Result<Vec<Item>> {
    let failed = |errno: Errno| Trouble::from(errno).about(path);
    let (folder, names) = entries(beneath, path)?;
    let mut items = Vec::with_capacity(names.len());
    for (name, _) in names {
        items.extend(item(&folder, &name).map_err(failed)?);
    }
    Ok(items)
}

/// The same with names and kinds alone: the folder itself tells them, so that no entry is looked at.
pub(super) fn names(beneath: &Beneath, path: &SafePath) -> Result<Vec<Item>> {
    let failed = |errno: Errno| Trouble::from(errno).about(path);
    let (folder, names) = entries(beneath, path)?;
    let mut items = Vec::with_capacity(names.len());
    for (name, file_type) in names {
        match file_type {
            // Some disks do not tell.
            FileType::Unknown => items.extend(item(&folder, &name).map_err(failed)?),
            known => items.push(Item {
                name: visible(name.to_bytes()),
                kind: kind_of(known),
                size: 0,
                modified: None,
                target: None,
            }),
        }
    }
    Ok(items)
}

/// A folder, and what it tells of its entries, sorted by name.
fn entries(beneath: &Beneath, path: &SafePath) -> Result<(OwnedFd, Vec<(CString, FileType)>)> {
    let failed = |errno: Errno| Trouble::from(errno).about(path);
    let folder = beneath.open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)?.fd;
    let mut names = Vec::new();
    for entry in Dir::read_from(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") && !is_temporary(name) {
            names.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok((folder, names))
}

/// An entry as it is now; nothing, if it is gone since the folder was read.
fn item(folder: &OwnedFd, name: &CStr) -> Result<Option<Item>, Errno> {
    let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let kind = kind(&stat);
    let target = match kind {
        Kind::Link => readlinkat(folder.as_fd(), name, Vec::new()).ok().map(|target| visible(target.to_bytes())),
        _ => None,
    };
    let (size, modified) = (stat.st_size as u64, modified(&stat));
    Ok(Some(Item { name: visible(name.to_bytes()), kind, size, modified, target }))
}

pub(super) fn kind(stat: &rustix::fs::Stat) -> Kind {
    kind_of(FileType::from_raw_mode(stat.st_mode))
}

fn kind_of(file_type: FileType) -> Kind {
    match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

#[allow(clippy::unnecessary_cast, reason = "the types of these fields differ between architectures")]
pub(super) fn modified(stat: &rustix::fs::Stat) -> Option<SystemTime> {
    let seconds = stat.st_mtime as i64;
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start =
        if seconds < 0 { SystemTime::UNIX_EPOCH.checked_sub(whole) } else { SystemTime::UNIX_EPOCH.checked_add(whole) };
    start?.checked_add(Duration::from_nanos(stat.st_mtime_nsec as u64))
}

/// Device and inode, size, and the times of the last change of content and of anything.
#[allow(clippy::unnecessary_cast, reason = "the types of these fields differ between architectures")]
pub(super) fn stamp(stat: &rustix::fs::Stat) -> Stamp {
    let nanos = |seconds: i64, nanos: u64| (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanos);
    Stamp([
        (stat.st_dev as u64).rotate_left(48) ^ stat.st_ino as u64,
        stat.st_size as u64,
        nanos(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
        nanos(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
    ])
}
