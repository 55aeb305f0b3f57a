//! A module's files: read completely when opened, written completely when closed.
//!
//! A module that is ended early leaves every file unchanged. Concurrent changes on disk are never overwritten: the
//! close fails.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Component, Path, PathBuf},
    time::{Duration, SystemTime},
};

use helve_contract::{
    Access, Result as Answer, RootPermission, SafePath,
    ports::{Expect, FileChange, FileKind, Span, Stat},
};

use super::{
    bridge::HostBridge,
    guest::{GuestError, WasiErrno},
    profile::Mount,
};

/// How many files and directories may be open at once.
const MAX_DESCRIPTORS: usize = 64;
/// The longest path.
const MAX_PATH_BYTES: usize = 4096;

/// A place beneath a mount: which, and the clean path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct GuestPath {
    mount: usize,
    relative: PathBuf,
}

impl GuestPath {
    fn is_beneath(&self, other: &Self) -> bool {
        self.mount == other.mount && self.relative.starts_with(&other.relative)
    }

    fn is_in(&self, folder: &Self) -> bool {
        self.mount == folder.mount && self.relative.parent() == Some(&folder.relative)
    }

    /// Stands for an inode: the same for the same place.
    fn inode(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish() | 1
    }
}

/// What a descriptor is.
pub(super) enum Descriptor {
    /// Standard input.
    Input,
    /// Standard output.
    Output,
    /// Standard error.
    Errors,
    /// A directory.
    Folder(DirDescriptor),
    /// A file.
    File(FileDescriptor),
}

/// An open directory.
pub(super) struct DirDescriptor {
    place: GuestPath,
    is_mount: bool,
    entries: Vec<DirRow>,
}

/// An open file.
pub(super) struct FileDescriptor {
    /// Where it is written to; nowhere once it was removed.
    place: Option<GuestPath>,
    number: u64,
    bytes: Vec<u8>,
    at: u64,
    readable: bool,
    writable: bool,
    appends: bool,
    is_changed: bool,
    expect: Expect,
}

/// One row of a listing.
#[derive(Clone)]
pub(super) struct DirRow {
    pub(super) name: String,
    pub(super) kind: FileKind,
    pub(super) number: u64,
}

/// What there is to know about a descriptor or a path.
pub(super) struct FileAttributes {
    pub(super) kind: FileKind,
    pub(super) size: u64,
    pub(super) modified: Option<SystemTime>,
    pub(super) number: u64,
}

/// How a module wants to open something.
pub(super) struct OpenFlags {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) create: bool,
    pub(super) exclusive: bool,
    pub(super) truncate: bool,
    pub(super) append: bool,
    pub(super) folder: bool,
}

/// The descriptors of one call.
pub(super) struct DescriptorTable {
    mounts: Vec<Mount>,
    open: Vec<Option<Descriptor>>,
    /// Created empty directories: a host creates them with their first file.
    empty_dirs: BTreeSet<GuestPath>,
    host: HostBridge,
    max_buffered_bytes: usize,
}

impl DescriptorTable {
    /// Standard input, output and error, and the mounts; `room` is how many bytes of files may be open at once.
    pub(super) fn new(mounts: Vec<Mount>, host: HostBridge, room: usize) -> Self {
        let folders = (0..mounts.len()).map(|mount| {
            let place = GuestPath { mount, relative: PathBuf::new() };
            Descriptor::Folder(DirDescriptor { place, is_mount: true, entries: Vec::new() })
        });
        let open =
            [Descriptor::Input, Descriptor::Output, Descriptor::Errors].into_iter().chain(folders).map(Some).collect();
        Self { mounts, open, empty_dirs: BTreeSet::new(), host, max_buffered_bytes: room }
    }

    /// What a descriptor is.
    pub(super) fn get(&self, fd: u32) -> Result<&Descriptor, GuestError> {
        self.open.get(fd as usize).and_then(Option::as_ref).ok_or(WasiErrno::BADF.into())
    }

    /// The name of a directory that was open from the start.
    pub(super) fn mount(&self, fd: u32) -> Result<&str, GuestError> {
        match self.get(fd)? {
            Descriptor::Folder(folder) if folder.is_mount => Ok(&self.mounts[folder.place.mount].name),
            _ => Err(WasiErrno::BADF.into()),
        }
    }

    /// The directories that were open from the start, and their names.
    pub(super) fn preopened(&self) -> Vec<(u32, String)> {
        let fds = 3..3 + self.mounts.len() as u32;
        fds.filter_map(|fd| Some((fd, self.mount(fd).ok()?.to_owned()))).collect()
    }

    /// Whether a descriptor may be read and written; a directory is read.
    pub(super) fn rights(&self, fd: u32) -> Result<(bool, bool), GuestError> {
        match self.get(fd)? {
            Descriptor::File(file) => Ok((file.readable, file.writable)),
            _ => Ok((true, false)),
        }
    }

    /// Opens a path from an open directory.
    pub(super) fn open(&mut self, base: u32, path: &str, wish: &OpenFlags) -> Result<u32, GuestError> {
        let place = self.resolve(base, path)?;
        self.flush_beneath(&place)?;
        if wish.write || wish.create || wish.truncate {
            self.safe_path(&place, Access::Write)?;
        }
        let opened = match self.stat_path(&place)? {
            Some(_) if wish.create && wish.exclusive => return Err(WasiErrno::EXIST.into()),
            Some(Stat { kind: FileKind::Folder, .. }) if wish.write || wish.truncate => {
                return Err(WasiErrno::ISDIR.into());
            }
            Some(Stat { kind: FileKind::Folder, .. }) => {
                Descriptor::Folder(DirDescriptor { place, is_mount: false, entries: Vec::new() })
            }
            Some(_) if wish.folder => return Err(WasiErrno::NOTDIR.into()),
            Some(Stat { kind: FileKind::File, .. }) => self.existing(place, wish)?,
            Some(_) => return Err(WasiErrno::NOTSUP.into()),
            None if wish.create && !wish.folder => self.created(place, wish)?,
            None => return Err(WasiErrno::NOENT.into()),
        };
        self.insert(opened)
    }

    fn existing(&self, place: GuestPath, wish: &OpenFlags) -> Result<Descriptor, GuestError> {
        let bytes = if wish.truncate { Vec::new() } else { self.read_whole(&place)? };
        let expect = if wish.truncate || !wish.write { Expect::Anything } else { content(&bytes) };
        Ok(Descriptor::File(FileDescriptor::new(place, bytes, wish, expect, wish.truncate)))
    }

    fn created(&mut self, place: GuestPath, wish: &OpenFlags) -> Result<Descriptor, GuestError> {
        self.needs_folder(&place)?;
        let mut file = FileDescriptor::new(place, Vec::new(), wish, Expect::Absent, true);
        if wish.exclusive {
            // Exclusive creation must fail now, not at the close.
            self.save(&mut file)?;
        }
        Ok(Descriptor::File(file))
    }

    fn insert(&mut self, opened: Descriptor) -> Result<u32, GuestError> {
        let free = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if free >= MAX_DESCRIPTORS {
            return Err(WasiErrno::MFILE.into());
        }
        if free == self.open.len() {
            self.open.push(None);
        }
        self.open[free] = Some(opened);
        Ok(free as u32)
    }

    /// Closes a descriptor; a changed file is written.
    pub(super) fn close(&mut self, fd: u32) -> Result<(), GuestError> {
        let saved = self.sync(fd);
        if let Some(slot) = self.open.get_mut(fd as usize) {
            *slot = None;
        }
        saved
    }

    /// Writes a changed file.
    pub(super) fn sync(&mut self, fd: u32) -> Result<(), GuestError> {
        let slot = self.open.get_mut(fd as usize).ok_or(WasiErrno::BADF)?;
        match slot.take() {
            None => Err(WasiErrno::BADF.into()),
            Some(Descriptor::File(mut file)) => {
                let saved = self.save(&mut file);
                self.open[fd as usize] = Some(Descriptor::File(file));
                saved
            }
            other => {
                *slot = other;
                Ok(())
            }
        }
    }

    /// Writes all changed open files when the module has ended.
    pub(super) fn finish(&mut self) -> Result<(), GuestError> {
        (0..self.open.len() as u32)
            .filter(|fd| self.get(*fd).is_ok())
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|fd| self.sync(fd))
    }

    /// Reads from a file, and moves on in it.
    pub(super) fn read(&mut self, fd: u32, into: &mut [u8]) -> Result<usize, GuestError> {
        let at = self.file(fd)?.at;
        let count = self.read_at(fd, at, into)?;
        self.file(fd)?.at += count as u64;
        Ok(count)
    }

    /// Reads from a place in a file.
    pub(super) fn read_at(&mut self, fd: u32, at: u64, into: &mut [u8]) -> Result<usize, GuestError> {
        let file = self.file(fd)?;
        if !file.readable {
            return Err(WasiErrno::BADF.into());
        }
        let rest = file.bytes.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    /// Writes to a file, and moves on in it.
    pub(super) fn write(&mut self, fd: u32, bytes: &[u8]) -> Result<usize, GuestError> {
        let file = self.file(fd)?;
        let at = if file.appends { file.bytes.len() as u64 } else { file.at };
        let count = self.write_at(fd, at, bytes)?;
        self.file(fd)?.at = at + count as u64;
        Ok(count)
    }

    /// Writes to a place in a file.
    pub(super) fn write_at(&mut self, fd: u32, at: u64, bytes: &[u8]) -> Result<usize, GuestError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let end = at.checked_add(bytes.len() as u64).ok_or(WasiErrno::FBIG)?;
        if end > self.file(fd)?.bytes.len() as u64 {
            self.resize(fd, end)?;
        }
        let file = self.file(fd)?;
        if !file.writable {
            return Err(WasiErrno::BADF.into());
        }
        file.bytes[at as usize..end as usize].copy_from_slice(bytes);
        file.is_changed = true;
        Ok(bytes.len())
    }

    /// Cuts a file off or fills it up with zeros.
    pub(super) fn resize(&mut self, fd: u32, size: u64) -> Result<(), GuestError> {
        let held = self.buffered_bytes();
        let room = self.max_buffered_bytes;
        let file = self.file(fd)?;
        if !file.writable {
            return Err(WasiErrno::BADF.into());
        }
        if size > (room - held.min(room) + file.bytes.len()) as u64 {
            return Err(WasiErrno::FBIG.into());
        }
        file.bytes.resize(size as usize, 0);
        file.is_changed = true;
        Ok(())
    }

    /// Moves in a file: from its beginning (0), from where it is (1), from its end (2).
    pub(super) fn seek(&mut self, fd: u32, by: i64, whence: u32) -> Result<u64, GuestError> {
        let file = self.file(fd)?;
        let from = match whence {
            0 => 0,
            1 => file.at,
            2 => file.bytes.len() as u64,
            _ => return Err(WasiErrno::INVAL.into()),
        };
        file.at = from.checked_add_signed(by).ok_or(WasiErrno::INVAL)?;
        Ok(file.at)
    }

    /// Whether writes to a file go to its end, from now on.
    pub(super) fn append(&mut self, fd: u32, appends: bool) -> Result<(), GuestError> {
        self.file(fd)?.appends = appends;
        Ok(())
    }

    /// Whether writes to a descriptor go to its end.
    pub(super) fn appends(&self, fd: u32) -> bool {
        matches!(self.get(fd), Ok(Descriptor::File(file)) if file.appends)
    }

    /// What a descriptor is, as a path would be.
    pub(super) fn attributes(&self, fd: u32) -> Result<FileAttributes, GuestError> {
        Ok(match self.get(fd)? {
            Descriptor::Input | Descriptor::Output | Descriptor::Errors => {
                FileAttributes { kind: FileKind::Other, size: 0, modified: None, number: u64::from(fd) }
            }
            Descriptor::Folder(folder) => {
                FileAttributes { kind: FileKind::Folder, size: 0, modified: None, number: folder.place.inode() }
            }
            Descriptor::File(file) => FileAttributes {
                kind: FileKind::File,
                size: file.bytes.len() as u64,
                modified: None,
                number: file.number,
            },
        })
    }

    /// What a path is.
    pub(super) fn stat(&mut self, base: u32, path: &str) -> Result<FileAttributes, GuestError> {
        let place = self.resolve(base, path)?;
        self.flush_beneath(&place)?;
        let stat = self.stat_path(&place)?.ok_or(WasiErrno::NOENT)?;
        Ok(FileAttributes { kind: stat.kind, size: stat.size, modified: stat.modified, number: place.inode() })
    }

    /// What is in a directory, from a row on. From the beginning it is looked up anew.
    pub(super) fn list(&mut self, fd: u32, from: u64) -> Result<&[DirRow], GuestError> {
        let Descriptor::Folder(folder) = self.get(fd)? else { return Err(WasiErrno::NOTDIR.into()) };
        if from == 0 {
            let place = folder.place.clone();
            let rows = self.rows(&place)?;
            if let Some(Some(Descriptor::Folder(folder))) = self.open.get_mut(fd as usize) {
                folder.entries = rows;
            }
        }
        let Descriptor::Folder(folder) = self.get(fd)? else { return Err(WasiErrno::NOTDIR.into()) };
        Ok(folder.entries.get(usize::try_from(from).unwrap_or(usize::MAX)..).unwrap_or_default())
    }

    fn rows(&mut self, folder: &GuestPath) -> Result<Vec<DirRow>, GuestError> {
        self.flush_beneath(folder)?;
        let row = |name: String, kind| {
            let place = GuestPath { mount: folder.mount, relative: folder.relative.join(&name) };
            DirRow { number: place.inode(), name, kind }
        };
        let made = self.empty_dirs.iter().filter(|it| it.is_in(folder)).filter_map(|it| it.relative.file_name());
        let mut rows: Vec<_> = made.map(|name| row(name.to_string_lossy().into_owned(), FileKind::Folder)).collect();
        if !self.empty_dirs.contains(folder) {
            let path = self.safe_path(folder, Access::Read)?;
            let items = self.host.run(move |host| async move { host.list(&path).await })??;
            rows.extend(items.into_iter().map(|item| row(item.name, item.kind)));
        }
        Ok(rows)
    }

    /// Makes a directory. It comes to be with the first file in it.
    pub(super) fn create_dir(&mut self, base: u32, path: &str) -> Result<(), GuestError> {
        let place = self.resolve(base, path)?;
        self.safe_path(&place, Access::Write)?;
        if self.stat_path(&place)?.is_some() {
            return Err(WasiErrno::EXIST.into());
        }
        self.needs_folder(&place)?;
        self.empty_dirs.insert(place);
        Ok(())
    }

    /// Removes a file.
    pub(super) fn unlink(&mut self, base: u32, path: &str) -> Result<(), GuestError> {
        let place = self.resolve(base, path)?;
        let safe = self.safe_path(&place, Access::Write)?;
        self.flush_beneath(&place)?;
        match self.stat_path(&place)?.map(|it| it.kind) {
            Some(FileKind::Folder) => return Err(WasiErrno::ISDIR.into()),
            // The target of a link may be missing while the link exists; the host decides.
            Some(_) | None => self.host.run(move |host| async move { host.remove(&safe).await })??,
        };
        self.retarget(&place, None);
        Ok(())
    }

    /// Removes an empty directory.
    pub(super) fn remove(&mut self, base: u32, path: &str) -> Result<(), GuestError> {
        let place = self.resolve(base, path)?;
        if place.relative.as_os_str().is_empty() {
            return Err(WasiErrno::BUSY.into());
        }
        let safe = self.safe_path(&place, Access::Write)?;
        if self.stat_path(&place)?.ok_or(WasiErrno::NOENT)?.kind != FileKind::Folder {
            return Err(WasiErrno::NOTDIR.into());
        }
        if !self.rows(&place)?.is_empty() {
            return Err(WasiErrno::NOTEMPTY.into());
        }
        if !self.empty_dirs.remove(&place) {
            self.host.run(move |host| async move { host.remove(&safe).await })??;
        }
        Ok(())
    }

    /// Moves a file, over another if there is one. Directories are not moved.
    pub(super) fn rename(&mut self, from: (u32, &str), to: (u32, &str)) -> Result<(), GuestError> {
        let (from, to) = (self.resolve(from.0, from.1)?, self.resolve(to.0, to.1)?);
        let (old, new) = (self.safe_path(&from, Access::Write)?, self.safe_path(&to, Access::Write)?);
        self.flush_beneath(&from)?;
        self.flush_beneath(&to)?;
        if self.stat_path(&from)?.ok_or(WasiErrno::NOENT)?.kind != FileKind::File {
            return Err(WasiErrno::NOTSUP.into());
        }
        if from == to {
            return Ok(());
        }
        if self.stat_path(&to)?.is_some_and(|it| it.kind == FileKind::Folder) {
            return Err(WasiErrno::ISDIR.into());
        }
        self.needs_folder(&to)?;
        let bytes = self.read_whole(&from)?;
        let expect = content(&bytes);
        let changes = vec![
            FileChange::Write { path: new, bytes, expect: Expect::Anything, like: Some(old.clone()) },
            FileChange::Remove { path: old, expect },
        ];
        self.host.run(move |host| async move { host.apply_changes(changes).await })??;
        self.mark_dirs_exist(&to);
        self.retarget(&to, None);
        self.retarget(&from, Some(&to));
        Ok(())
    }

    /// Waits, as long as anybody waits for the call.
    pub(super) fn sleep(&self, time: Duration) -> Result<(), GuestError> {
        Ok(self.host.run(move |_| tokio::time::sleep(time))?)
    }

    /// Where a path leads, from an open directory and never above it.
    fn resolve(&self, base: u32, path: &str) -> Result<GuestPath, GuestError> {
        let Descriptor::Folder(folder) = self.get(base)? else { return Err(WasiErrno::NOTDIR.into()) };
        if path.is_empty() {
            return Err(WasiErrno::NOENT.into());
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(WasiErrno::NAMETOOLONG.into());
        }
        if path.chars().any(char::is_control) {
            return Err(WasiErrno::INVAL.into());
        }
        let mut below = PathBuf::new();
        for part in Path::new(path).components() {
            match part {
                Component::Normal(name) => below.push(name),
                Component::CurDir => {}
                Component::ParentDir if below.pop() => {}
                _ => return Err(WasiErrno::NOTCAPABLE.into()),
            }
        }
        let top = &folder.place;
        let relative = if below.as_os_str().is_empty() { top.relative.clone() } else { top.relative.join(below) };
        Ok(GuestPath { mount: top.mount, relative })
    }

    /// A place that the profile, the root and the rules allow to be used so.
    fn safe_path(&self, place: &GuestPath, access: Access) -> Result<SafePath, GuestError> {
        let mount = &self.mounts[place.mount];
        if access == Access::Write && (mount.access == Access::Read || mount.root.root().rights == RootPermission::Read)
        {
            return Err(WasiErrno::ROFS.into());
        }
        Ok(mount.root.in_same_root(&place.relative, access)?)
    }

    /// What is at a place, if anything.
    fn stat_path(&self, place: &GuestPath) -> Result<Option<Stat>, GuestError> {
        if self.empty_dirs.contains(place) {
            return Ok(Some(Stat { kind: FileKind::Folder, size: 0, modified: None }));
        }
        let path = self.safe_path(place, Access::Read)?;
        let found: Answer<Stat> = self.host.run(move |host| async move { host.stat(&path).await })?;
        match found.map_err(WasiErrno::from) {
            Ok(stat) => Ok(Some(stat)),
            Err(WasiErrno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn needs_folder(&self, place: &GuestPath) -> Result<(), GuestError> {
        let Some(above) = place.relative.parent().filter(|it| !it.as_os_str().is_empty()) else { return Ok(()) };
        let above = GuestPath { mount: place.mount, relative: above.to_owned() };
        match self.stat_path(&above)?.ok_or(WasiErrno::NOENT)?.kind {
            FileKind::Folder => Ok(()),
            _ => Err(WasiErrno::NOTDIR.into()),
        }
    }

    /// The whole of a file, as far as there is room.
    fn read_whole(&self, place: &GuestPath) -> Result<Vec<u8>, GuestError> {
        let path = self.safe_path(place, Access::Read)?;
        let span = Span::first(self.max_buffered_bytes.saturating_sub(self.buffered_bytes()) as u64);
        let chunk = self.host.run(move |host| async move { host.read(&path, span).await })??;
        if chunk.size > chunk.bytes.len() as u64 && chunk.bytes.len() as u64 == span.len {
            return Err(WasiErrno::FBIG.into());
        }
        Ok(chunk.bytes)
    }

    /// How many bytes the open files hold.
    fn buffered_bytes(&self) -> usize {
        self.open.iter().flatten().map(|it| if let Descriptor::File(file) = it { file.bytes.len() } else { 0 }).sum()
    }

    fn file(&mut self, fd: u32) -> Result<&mut FileDescriptor, GuestError> {
        match self.open.get_mut(fd as usize).and_then(Option::as_mut).ok_or(WasiErrno::BADF)? {
            Descriptor::File(file) => Ok(file),
            Descriptor::Folder(_) => Err(WasiErrno::ISDIR.into()),
            Descriptor::Input | Descriptor::Output | Descriptor::Errors => Err(WasiErrno::SPIPE.into()),
        }
    }

    /// Writes pending changes at and beneath a path, so that readers see them.
    fn flush_beneath(&mut self, place: &GuestPath) -> Result<(), GuestError> {
        let changed = |open: &Option<Descriptor>| match open {
            Some(Descriptor::File(file)) => {
                file.is_changed && file.place.as_ref().is_some_and(|it| it.is_beneath(place))
            }
            _ => false,
        };
        let fds: Vec<_> = (0..).zip(&self.open).filter(|(_, open)| changed(open)).map(|(fd, _)| fd).collect();
        fds.into_iter().try_for_each(|fd| self.sync(fd))
    }

    fn save(&mut self, file: &mut FileDescriptor) -> Result<(), GuestError> {
        let Some(place) = file.place.clone().filter(|_| file.is_changed) else { return Ok(()) };
        let path = self.safe_path(&place, Access::Write)?;
        let (bytes, expect) = (std::mem::take(&mut file.bytes), file.expect);
        let (bytes, written) = self.host.run(move |host| async move {
            let written = host.write(&path, &bytes, expect).await;
            (bytes, written)
        })?;
        file.bytes = bytes;
        written?;
        file.is_changed = false;
        file.expect = content(&file.bytes);
        self.mark_dirs_exist(&place);
        Ok(())
    }

    /// There is something at a place now, so the directories above it are there too.
    fn mark_dirs_exist(&mut self, place: &GuestPath) {
        self.empty_dirs.retain(|made| !place.is_beneath(made));
    }

    /// Open files of one place belong to another from now on, or to none.
    fn retarget(&mut self, from: &GuestPath, to: Option<&GuestPath>) {
        for open in self.open.iter_mut().flatten() {
            if let Descriptor::File(file) = open
                && file.place.as_ref() == Some(from)
            {
                file.place = to.cloned();
            }
        }
    }
}

impl FileDescriptor {
    fn new(place: GuestPath, bytes: Vec<u8>, wish: &OpenFlags, expect: Expect, is_changed: bool) -> Self {
        Self {
            number: place.inode(),
            place: Some(place),
            bytes,
            at: 0,
            readable: wish.read,
            writable: wish.write,
            appends: wish.append,
            is_changed,
            expect,
        }
    }
}

fn content(bytes: &[u8]) -> Expect {
    Expect::bytes(bytes)
}
