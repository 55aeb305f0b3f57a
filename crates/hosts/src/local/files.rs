//! Reading files: metadata, content and directory listings.

use std::{
    ffi::CStr,
    thread,
    time::{Duration, SystemTime},
};

use helve_contract::{
    Error, FileErrorKind, Result, SafePath,
    ports::{DirEntry, DirListing, FileChunk, FileKind, FileStamp, ListOptions, Span, Stat},
};
use rustix::{
    buffer::spare_capacity,
    fd::{AsFd as _, OwnedFd},
    fs::{AtFlags, FileType, OFlags, RawDir, fstat, readlinkat, statat},
    io::{Errno, pread},
};

use super::{
    beneath::Beneath,
    fault::FsError,
    names::{escape_invisible, is_temporary},
};

/// The maximum size of a chunk.
pub(super) const MAX_CHUNK_BYTES: u64 = 64 << 20;

/// Flags for reading: a FIFO without a writer does not block, a terminal does not become the controlling one.
pub(super) const READ_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Metadata of a path, following links.
pub(super) fn stat(beneath: &Beneath, path: &SafePath) -> Result<Stat> {
    let opened = beneath.open(path, OFlags::PATH)?;
    let stat = fstat(&opened.fd).map_err(|errno| FsError::from(errno).with_path(path))?;
    Ok(Stat { kind: kind(&stat), size: stat.st_size as u64, modified: modified(&stat) })
}

/// An open regular file and its metadata at that time.
pub(super) struct OpenFile {
    fd: OwnedFd,
    size: u64,
    stamp: FileStamp,
}

impl OpenFile {
    pub(super) fn open(beneath: &Beneath, path: &SafePath) -> Result<Self> {
        let opened = beneath.open(path, READ_FLAGS)?;
        let stat = fstat(&opened.fd).map_err(|errno| FsError::from(errno).with_path(path))?;
        match kind(&stat) {
            FileKind::File => {}
            FileKind::Folder => return Err(Error::file(path, FileErrorKind::IsFolder)),
            FileKind::Link | FileKind::Other => return Err(Error::file(path, FileErrorKind::NotRegular)),
        }
        Ok(Self { fd: opened.fd, size: stat.st_size as u64, stamp: stamp(&stat) })
    }

    /// The expected length of a span, according to the file size.
    pub(super) fn expected_len(&self, span: Span) -> u64 {
        span.len.min(MAX_CHUNK_BYTES).min(self.size.saturating_sub(span.start))
    }

    pub(super) fn read(self, path: &SafePath, span: Span) -> Result<FileChunk> {
        let most = span.len.min(MAX_CHUNK_BYTES) as usize;
        // One byte more than expected, so that the first read also reaches the end. Files of `/proc` report size 0.
        let mut bytes = Vec::with_capacity(most.min(self.expected_len(span) as usize + 1));
        while bytes.len() < most {
            if bytes.len() == bytes.capacity() {
                bytes.reserve((most - bytes.len()).min(bytes.len().max(64 << 10)));
            }
            let (before, at) = (bytes.capacity() - bytes.len(), span.start.saturating_add(bytes.len() as u64));
            match pread(&self.fd, spare_capacity(&mut bytes), at) {
                Ok(read) if read < before => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(FsError::from(errno).with_path(path)),
            }
        }
        bytes.truncate(most);
        Ok(FileChunk { bytes, size: self.size, stamp: self.stamp })
    }
}

/// The entries of a directory, sorted by name.
pub(super) fn list(beneath: &Beneath, path: &SafePath) -> Result<Vec<DirEntry>> {
    list_some(beneath, path, ListOptions { include_hidden: true, limit: usize::MAX, with_metadata: true })
        .map(|it| it.entries)
}

/// The first entries of a directory. Names and kinds come from the directory itself; entries are only `stat`ed for
/// more.
pub(super) fn list_some(beneath: &Beneath, path: &SafePath, glance: ListOptions) -> Result<DirListing> {
    let failed = |errno: Errno| FsError::from(errno).with_path(path);
    let folder = beneath.open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)?.fd;
    let (mut names, hidden) = read_names(&folder, glance.include_hidden).map_err(failed)?;
    let rest = names.first(glance.limit);
    let look = |part: &[NameSpan]| -> Result<Vec<DirEntry>, Errno> {
        let mut items = Vec::with_capacity(part.len());
        for (name, file_type) in names.iter(part) {
            // Some file systems do not report the kind.
            if glance.with_metadata || file_type == FileType::Unknown {
                items.extend(stat_entry(&folder, name)?);
            } else {
                let (name, kind) = (escape_invisible(name.to_bytes()), kind_of(file_type));
                items.push(DirEntry { name, kind, size: 0, modified: None, target: None });
            }
        }
        Ok(items)
    };
    let many = glance.with_metadata && names.entries.len() >= PARALLEL_THRESHOLD;
    let items = if many { map_in_two_threads(&names.entries, look) } else { look(&names.entries) }.map_err(failed)?;
    Ok(DirListing { entries: items, omitted: rest, hidden })
}

/// From this number of entries on, a second thread processes one half.
const PARALLEL_THRESHOLD: usize = 512;

/// Processes both halves in parallel, if a second thread can be started.
fn map_in_two_threads<T: Sync, R: Send, E: Send>(
    all: &[T],
    work: impl Fn(&[T]) -> Result<Vec<R>, E> + Sync,
) -> Result<Vec<R>, E> {
    let (first, second) = all.split_at(all.len() / 2);
    thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, || work(second)).ok();
        let mut done = work(first)?;
        done.extend(other.and_then(|it| it.join().ok()).unwrap_or_else(|| work(second))?);
        Ok(done)
    })
}

/// Start and end of a name in the arena, and the file type.
type NameSpan = (usize, usize, FileType);

/// Directory names in one allocation: there may be a hundred thousand.
#[derive(Default)]
struct NameArena {
    /// The names, each followed by a NUL.
    text: Vec<u8>,
    entries: Vec<NameSpan>,
}

impl NameArena {
    /// Keeps the first `most` names, sorted; returns how many are dropped.
    fn first(&mut self, most: usize) -> usize {
        let text = &self.text;
        let order = |a: &NameSpan, b: &NameSpan| text[a.0..a.1].cmp(&text[b.0..b.1]);
        let rest = self.entries.len().saturating_sub(most);
        if rest > 0 {
            self.entries.select_nth_unstable_by(most, order);
            self.entries.truncate(most);
        }
        self.entries.sort_unstable_by(order);
        rest
    }

    fn iter(&self, places: &[NameSpan]) -> impl Iterator<Item = (&CStr, FileType)> {
        let name = |start: usize, end: usize| CStr::from_bytes_with_nul(&self.text[start..=end]).ok();
        places.iter().filter_map(move |(start, end, kind)| Some((name(*start, *end)?, *kind)))
    }
}

/// The buffer size for reading a directory.
const DIR_BUFFER_BYTES: usize = 64 << 10;

/// Reads the entries of an opened directory; also returns the number of skipped hidden entries.
fn read_names(folder: &OwnedFd, with_hidden: bool) -> Result<(NameArena, usize), Errno> {
    let (mut names, mut hidden) = (NameArena::default(), 0);
    let mut room = Vec::with_capacity(DIR_BUFFER_BYTES);
    let mut entries = RawDir::new(folder, room.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || is_temporary(name) {
            continue;
        }
        if !with_hidden && name.starts_with(b".") {
            hidden += 1;
            continue;
        }
        let start = names.text.len();
        names.text.extend_from_slice(entry.file_name().to_bytes_with_nul());
        names.entries.push((start, names.text.len() - 1, entry.file_type()));
    }
    Ok((names, hidden))
}

/// Metadata of an entry; `None` if it no longer exists.
fn stat_entry(folder: &OwnedFd, name: &CStr) -> Result<Option<DirEntry>, Errno> {
    let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let kind = kind(&stat);
    let target = match kind {
        FileKind::Link => {
            readlinkat(folder.as_fd(), name, Vec::new()).ok().map(|target| escape_invisible(target.to_bytes()))
        }
        _ => None,
    };
    let (size, modified) = (stat.st_size as u64, modified(&stat));
    Ok(Some(DirEntry { name: escape_invisible(name.to_bytes()), kind, size, modified, target }))
}

pub(super) fn kind(stat: &rustix::fs::Stat) -> FileKind {
    kind_of(FileType::from_raw_mode(stat.st_mode))
}

fn kind_of(file_type: FileType) -> FileKind {
    match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Folder,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
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

/// Device, inode, size, and the times of the last modification and inode change.
#[allow(clippy::unnecessary_cast, reason = "the types of these fields differ between architectures")]
pub(super) fn stamp(stat: &rustix::fs::Stat) -> FileStamp {
    let nanos = |seconds: i64, nanos: u64| (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanos);
    FileStamp([
        (stat.st_dev as u64).rotate_left(48) ^ stat.st_ino as u64,
        stat.st_size as u64,
        nanos(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
        nanos(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
    ])
}
