//! A module's files: read whole when they are opened, written whole when they are closed.
//!
//! A module that is ended half-way leaves every file as it was. What changed on disk in the meantime is never
//! overwritten: such a close fails.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Component, Path, PathBuf},
    time::{Duration, SystemTime},
};

use helve_contract::{
    Access, Result as Answer, Rights, SafePath,
    ports::{Change, Expect, Kind, Span, Stat},
};

use super::{
    bridge::Bridge,
    guest::{Errno, Fault},
    profile::Mount,
};

/// How many files and folders may be open at once.
const OPEN: usize = 64;
/// The longest path.
const LONGEST: usize = 4096;

/// A place beneath a mount: which, and the clean path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    mount: usize,
    relative: PathBuf,
}

impl Place {
    fn is_beneath(&self, other: &Self) -> bool {
        self.mount == other.mount && self.relative.starts_with(&other.relative)
    }

    fn is_in(&self, folder: &Self) -> bool {
        self.mount == folder.mount && self.relative.parent() == Some(&folder.relative)
    }

    /// Stands for an inode: the same for the same place.
    fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish() | 1
    }
}

/// What a descriptor is.
pub(super) enum Open {
    /// Standard input.
    Input,
    /// Standard output.
    Output,
    /// Standard error.
    Errors,
    /// A folder.
    Folder(Folder),
    /// A file.
    File(File),
}

/// An open folder.
pub(super) struct Folder {
    place: Place,
    is_mount: bool,
    entries: Vec<Row>,
}

/// An open file.
pub(super) struct File {
    /// Where it is written to; nowhere once it was removed.
    place: Option<Place>,
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
pub(super) struct Row {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) number: u64,
}

/// What there is to know about a descriptor or a path.
pub(super) struct About {
    pub(super) kind: Kind,
    pub(super) size: u64,
    pub(super) modified: Option<SystemTime>,
    pub(super) number: u64,
}

/// How a module wants to open something.
pub(super) struct Wish {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) create: bool,
    pub(super) exclusive: bool,
    pub(super) truncate: bool,
    pub(super) append: bool,
    pub(super) folder: bool,
}

/// The descriptors of one call.
pub(super) struct Files {
    mounts: Vec<Mount>,
    open: Vec<Option<Open>>,
    /// Folders that were made and have nothing in them yet: a host makes them with their first file.
    made: BTreeSet<Place>,
    host: Bridge,
    room: usize,
}

impl Files {
    /// Standard input, output and error, and the mounts; `room` is how many bytes of files may be open at once.
    pub(super) fn new(mounts: Vec<Mount>, host: Bridge, room: usize) -> Self {
        let folders = (0..mounts.len()).map(|mount| {
            let place = Place { mount, relative: PathBuf::new() };
            Open::Folder(Folder { place, is_mount: true, entries: Vec::new() })
        });
        let open = [Open::Input, Open::Output, Open::Errors].into_iter().chain(folders).map(Some).collect();
        Self { mounts, open, made: BTreeSet::new(), host, room }
    }

    /// What a descriptor is.
    pub(super) fn get(&self, fd: u32) -> Result<&Open, Fault> {
        self.open.get(fd as usize).and_then(Option::as_ref).ok_or(Errno::BADF.into())
    }

    /// The name of a folder that was open from the start.
    pub(super) fn mount(&self, fd: u32) -> Result<&str, Fault> {
        match self.get(fd)? {
            Open::Folder(folder) if folder.is_mount => Ok(&self.mounts[folder.place.mount].name),
            _ => Err(Errno::BADF.into()),
        }
    }

    /// The folders that were open from the start, and their names.
    pub(super) fn preopened(&self) -> Vec<(u32, String)> {
        let fds = 3..3 + self.mounts.len() as u32;
        fds.filter_map(|fd| Some((fd, self.mount(fd).ok()?.to_owned()))).collect()
    }

    /// Whether a descriptor may be read and written; a folder is read.
    pub(super) fn rights(&self, fd: u32) -> Result<(bool, bool), Fault> {
        match self.get(fd)? {
            Open::File(file) => Ok((file.readable, file.writable)),
            _ => Ok((true, false)),
        }
    }

    /// Opens a path from an open folder.
    pub(super) fn open(&mut self, base: u32, path: &str, wish: &Wish) -> Result<u32, Fault> {
        let place = self.place(base, path)?;
        self.settle(&place)?;
        if wish.write || wish.create || wish.truncate {
            self.safe(&place, Access::Write)?;
        }
        let opened = match self.look(&place)? {
            Some(_) if wish.create && wish.exclusive => return Err(Errno::EXIST.into()),
            Some(Stat { kind: Kind::Folder, .. }) if wish.write || wish.truncate => return Err(Errno::ISDIR.into()),
            Some(Stat { kind: Kind::Folder, .. }) => {
                Open::Folder(Folder { place, is_mount: false, entries: Vec::new() })
            }
            Some(_) if wish.folder => return Err(Errno::NOTDIR.into()),
            Some(Stat { kind: Kind::File, .. }) => self.existing(place, wish)?,
            Some(_) => return Err(Errno::NOTSUP.into()),
            None if wish.create && !wish.folder => self.created(place, wish)?,
            None => return Err(Errno::NOENT.into()),
        };
        self.insert(opened)
    }

    fn existing(&self, place: Place, wish: &Wish) -> Result<Open, Fault> {
        let bytes = if wish.truncate { Vec::new() } else { self.whole(&place)? };
        let expect = if wish.truncate || !wish.write { Expect::Anything } else { content(&bytes) };
        Ok(Open::File(File::new(place, bytes, wish, expect, wish.truncate)))
    }

    fn created(&mut self, place: Place, wish: &Wish) -> Result<Open, Fault> {
        self.needs_folder(&place)?;
        let mut file = File::new(place, Vec::new(), wish, Expect::Absent, true);
        if wish.exclusive {
            // Whoever creates a file to have it alone must know now, not at the end.
            self.save(&mut file)?;
        }
        Ok(Open::File(file))
    }

    fn insert(&mut self, opened: Open) -> Result<u32, Fault> {
        let free = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if free >= OPEN {
            return Err(Errno::MFILE.into());
        }
        if free == self.open.len() {
            self.open.push(None);
        }
        self.open[free] = Some(opened);
        Ok(free as u32)
    }

    /// Closes a descriptor; a changed file is written.
    pub(super) fn close(&mut self, fd: u32) -> Result<(), Fault> {
        let saved = self.sync(fd);
        if let Some(slot) = self.open.get_mut(fd as usize) {
            *slot = None;
        }
        saved
    }

    /// Writes a changed file.
    pub(super) fn sync(&mut self, fd: u32) -> Result<(), Fault> {
        let slot = self.open.get_mut(fd as usize).ok_or(Errno::BADF)?;
        match slot.take() {
            None => Err(Errno::BADF.into()),
            Some(Open::File(mut file)) => {
                let saved = self.save(&mut file);
                self.open[fd as usize] = Some(Open::File(file));
                saved
            }
            other => {
                *slot = other;
                Ok(())
            }
        }
    }

    /// Writes everything that is changed and still open: the module has ended.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        (0..self.open.len() as u32)
            .filter(|fd| self.get(*fd).is_ok())
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|fd| self.sync(fd))
    }

    /// Reads from a file, and moves on in it.
    pub(super) fn read(&mut self, fd: u32, into: &mut [u8]) -> Result<usize, Fault> {
        let at = self.file(fd)?.at;
        let count = self.read_at(fd, at, into)?;
        self.file(fd)?.at += count as u64;
        Ok(count)
    }

    /// Reads from a place in a file.
    pub(super) fn read_at(&mut self, fd: u32, at: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file = self.file(fd)?;
        if !file.readable {
            return Err(Errno::BADF.into());
        }
        let rest = file.bytes.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    /// Writes to a file, and moves on in it.
    pub(super) fn write(&mut self, fd: u32, bytes: &[u8]) -> Result<usize, Fault> {
        let file = self.file(fd)?;
        let at = if file.appends { file.bytes.len() as u64 } else { file.at };
        let count = self.write_at(fd, at, bytes)?;
        self.file(fd)?.at = at + count as u64;
        Ok(count)
    }

    /// Writes to a place in a file.
    pub(super) fn write_at(&mut self, fd: u32, at: u64, bytes: &[u8]) -> Result<usize, Fault> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let end = at.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        if end > self.file(fd)?.bytes.len() as u64 {
            self.resize(fd, end)?;
        }
        let file = self.file(fd)?;
        if !file.writable {
            return Err(Errno::BADF.into());
        }
        file.bytes[at as usize..end as usize].copy_from_slice(bytes);
        file.is_changed = true;
        Ok(bytes.len())
    }

    /// Cuts a file off or fills it up with zeros.
    pub(super) fn resize(&mut self, fd: u32, size: u64) -> Result<(), Fault> {
        let held = self.held();
        let room = self.room;
        let file = self.file(fd)?;
        if !file.writable {
            return Err(Errno::BADF.into());
        }
        if size > (room - held.min(room) + file.bytes.len()) as u64 {
            return Err(Errno::FBIG.into());
        }
        file.bytes.resize(size as usize, 0);
        file.is_changed = true;
        Ok(())
    }

    /// Moves in a file: from its beginning (0), from where it is (1), from its end (2).
    pub(super) fn seek(&mut self, fd: u32, by: i64, whence: u32) -> Result<u64, Fault> {
        let file = self.file(fd)?;
        let from = match whence {
            0 => 0,
            1 => file.at,
            2 => file.bytes.len() as u64,
            _ => return Err(Errno::INVAL.into()),
        };
        file.at = from.checked_add_signed(by).ok_or(Errno::INVAL)?;
        Ok(file.at)
    }

    /// Whether writes to a file go to its end, from now on.
    pub(super) fn append(&mut self, fd: u32, appends: bool) -> Result<(), Fault> {
        self.file(fd)?.appends = appends;
        Ok(())
    }

    /// Whether writes to a descriptor go to its end.
    pub(super) fn appends(&self, fd: u32) -> bool {
        matches!(self.get(fd), Ok(Open::File(file)) if file.appends)
    }

    /// What a descriptor is, as a path would be.
    pub(super) fn about(&self, fd: u32) -> Result<About, Fault> {
        Ok(match self.get(fd)? {
            Open::Input | Open::Output | Open::Errors => {
                About { kind: Kind::Other, size: 0, modified: None, number: u64::from(fd) }
            }
            Open::Folder(folder) => {
                About { kind: Kind::Folder, size: 0, modified: None, number: folder.place.number() }
            }
            Open::File(file) => {
                About { kind: Kind::File, size: file.bytes.len() as u64, modified: None, number: file.number }
            }
        })
    }

    /// What a path is.
    pub(super) fn stat(&mut self, base: u32, path: &str) -> Result<About, Fault> {
        let place = self.place(base, path)?;
        self.settle(&place)?;
        let stat = self.look(&place)?.ok_or(Errno::NOENT)?;
        Ok(About { kind: stat.kind, size: stat.size, modified: stat.modified, number: place.number() })
    }

    /// What is in a folder, from a row on. From the beginning it is looked up anew.
    pub(super) fn list(&mut self, fd: u32, from: u64) -> Result<&[Row], Fault> {
        let Open::Folder(folder) = self.get(fd)? else { return Err(Errno::NOTDIR.into()) };
        if from == 0 {
            let place = folder.place.clone();
            let rows = self.rows(&place)?;
            if let Some(Some(Open::Folder(folder))) = self.open.get_mut(fd as usize) {
                folder.entries = rows;
            }
        }
        let Open::Folder(folder) = self.get(fd)? else { return Err(Errno::NOTDIR.into()) };
        Ok(folder.entries.get(usize::try_from(from).unwrap_or(usize::MAX)..).unwrap_or_default())
    }

    fn rows(&mut self, folder: &Place) -> Result<Vec<Row>, Fault> {
        self.settle(folder)?;
        let row = |name: String, kind| {
            let place = Place { mount: folder.mount, relative: folder.relative.join(&name) };
            Row { number: place.number(), name, kind }
        };
        let made = self.made.iter().filter(|it| it.is_in(folder)).filter_map(|it| it.relative.file_name());
        let mut rows: Vec<_> = made.map(|name| row(name.to_string_lossy().into_owned(), Kind::Folder)).collect();
        if !self.made.contains(folder) {
            let path = self.safe(folder, Access::Read)?;
            let items = self.host.ask(move |host| async move { host.list(&path).await })??;
            rows.extend(items.into_iter().map(|item| row(item.name, item.kind)));
        }
        Ok(rows)
    }

    /// Makes a folder. It comes to be with the first file in it.
    pub(super) fn make(&mut self, base: u32, path: &str) -> Result<(), Fault> {
        let place = self.place(base, path)?;
        self.safe(&place, Access::Write)?;
        if self.look(&place)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.needs_folder(&place)?;
        self.made.insert(place);
        Ok(())
    }

    /// Removes a file.
    pub(super) fn unlink(&mut self, base: u32, path: &str) -> Result<(), Fault> {
        let place = self.place(base, path)?;
        let safe = self.safe(&place, Access::Write)?;
        self.settle(&place)?;
        match self.look(&place)?.map(|it| it.kind) {
            Some(Kind::Folder) => return Err(Errno::ISDIR.into()),
            // What a link points to may be missing; the link is there all the same, and the host knows.
            Some(_) | None => self.host.ask(move |host| async move { host.remove(&safe).await })??,
        };
        self.lead(&place, None);
        Ok(())
    }

    /// Removes an empty folder.
    pub(super) fn remove(&mut self, base: u32, path: &str) -> Result<(), Fault> {
        let place = self.place(base, path)?;
        if place.relative.as_os_str().is_empty() {
            return Err(Errno::BUSY.into());
        }
        let safe = self.safe(&place, Access::Write)?;
        if self.look(&place)?.ok_or(Errno::NOENT)?.kind != Kind::Folder {
            return Err(Errno::NOTDIR.into());
        }
        if !self.rows(&place)?.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        if !self.made.remove(&place) {
            self.host.ask(move |host| async move { host.remove(&safe).await })??;
        }
        Ok(())
    }

    /// Moves a file, over another if there is one. Folders are not moved.
    pub(super) fn rename(&mut self, from: (u32, &str), to: (u32, &str)) -> Result<(), Fault> {
        let (from, to) = (self.place(from.0, from.1)?, self.place(to.0, to.1)?);
        let (old, new) = (self.safe(&from, Access::Write)?, self.safe(&to, Access::Write)?);
        self.settle(&from)?;
        self.settle(&to)?;
        if self.look(&from)?.ok_or(Errno::NOENT)?.kind != Kind::File {
            return Err(Errno::NOTSUP.into());
        }
        if from == to {
            return Ok(());
        }
        if self.look(&to)?.is_some_and(|it| it.kind == Kind::Folder) {
            return Err(Errno::ISDIR.into());
        }
        self.needs_folder(&to)?;
        let bytes = self.whole(&from)?;
        let expect = content(&bytes);
        let changes = vec![
            Change::Write { path: new, bytes, expect: Expect::Anything, like: Some(old.clone()) },
            Change::Remove { path: old, expect },
        ];
        self.host.ask(move |host| async move { host.change(changes).await })??;
        self.found(&to);
        self.lead(&to, None);
        self.lead(&from, Some(&to));
        Ok(())
    }

    /// Waits, as long as anybody waits for the call.
    pub(super) fn sleep(&self, time: Duration) -> Result<(), Fault> {
        Ok(self.host.ask(move |_| tokio::time::sleep(time))?)
    }

    /// Where a path leads, from an open folder and never above it.
    fn place(&self, base: u32, path: &str) -> Result<Place, Fault> {
        let Open::Folder(folder) = self.get(base)? else { return Err(Errno::NOTDIR.into()) };
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if path.len() > LONGEST {
            return Err(Errno::NAMETOOLONG.into());
        }
        if path.chars().any(char::is_control) {
            return Err(Errno::INVAL.into());
        }
        let mut below = PathBuf::new();
        for part in Path::new(path).components() {
            match part {
                Component::Normal(name) => below.push(name),
                Component::CurDir => {}
                Component::ParentDir if below.pop() => {}
                _ => return Err(Errno::NOTCAPABLE.into()),
            }
        }
        let top = &folder.place;
        let relative = if below.as_os_str().is_empty() { top.relative.clone() } else { top.relative.join(below) };
        Ok(Place { mount: top.mount, relative })
    }

    /// A place that the profile, the root and the rules allow to be used so.
    fn safe(&self, place: &Place, access: Access) -> Result<SafePath, Fault> {
        let mount = &self.mounts[place.mount];
        if access == Access::Write && (mount.access == Access::Read || mount.top.root().rights == Rights::Read) {
            return Err(Errno::ROFS.into());
        }
        Ok(mount.top.beside(&place.relative, access)?)
    }

    /// What is at a place, if anything.
    fn look(&self, place: &Place) -> Result<Option<Stat>, Fault> {
        if self.made.contains(place) {
            return Ok(Some(Stat { kind: Kind::Folder, size: 0, modified: None }));
        }
        let path = self.safe(place, Access::Read)?;
        let found: Answer<Stat> = self.host.ask(move |host| async move { host.stat(&path).await })?;
        match found.map_err(Errno::from) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn needs_folder(&self, place: &Place) -> Result<(), Fault> {
        let Some(above) = place.relative.parent().filter(|it| !it.as_os_str().is_empty()) else { return Ok(()) };
        let above = Place { mount: place.mount, relative: above.to_owned() };
        match self.look(&above)?.ok_or(Errno::NOENT)?.kind {
            Kind::Folder => Ok(()),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// The whole of a file, as far as there is room.
    fn whole(&self, place: &Place) -> Result<Vec<u8>, Fault> {
        let path = self.safe(place, Access::Read)?;
        let span = Span::first(self.room.saturating_sub(self.held()) as u64);
        let chunk = self.host.ask(move |host| async move { host.read(&path, span).await })??;
        if chunk.size > chunk.bytes.len() as u64 && chunk.bytes.len() as u64 == span.len {
            return Err(Errno::FBIG.into());
        }
        Ok(chunk.bytes)
    }

    /// How many bytes the open files hold.
    fn held(&self) -> usize {
        self.open.iter().flatten().map(|it| if let Open::File(file) = it { file.bytes.len() } else { 0 }).sum()
    }

    fn file(&mut self, fd: u32) -> Result<&mut File, Fault> {
        match self.open.get_mut(fd as usize).and_then(Option::as_mut).ok_or(Errno::BADF)? {
            Open::File(file) => Ok(file),
            Open::Folder(_) => Err(Errno::ISDIR.into()),
            Open::Input | Open::Output | Open::Errors => Err(Errno::SPIPE.into()),
        }
    }

    /// Writes what is changed at a place and beneath it, so that whoever looks there sees it.
    fn settle(&mut self, place: &Place) -> Result<(), Fault> {
        let changed = |open: &Option<Open>| match open {
            Some(Open::File(file)) => file.is_changed && file.place.as_ref().is_some_and(|it| it.is_beneath(place)),
            _ => false,
        };
        let fds: Vec<_> = (0..).zip(&self.open).filter(|(_, open)| changed(open)).map(|(fd, _)| fd).collect();
        fds.into_iter().try_for_each(|fd| self.sync(fd))
    }

    fn save(&mut self, file: &mut File) -> Result<(), Fault> {
        let Some(place) = file.place.clone().filter(|_| file.is_changed) else { return Ok(()) };
        let path = self.safe(&place, Access::Write)?;
        let (bytes, expect) = (std::mem::take(&mut file.bytes), file.expect);
        let (bytes, written) = self.host.ask(move |host| async move {
            let written = host.write(&path, &bytes, expect).await;
            (bytes, written)
        })?;
        file.bytes = bytes;
        written?;
        file.is_changed = false;
        file.expect = content(&file.bytes);
        self.found(&place);
        Ok(())
    }

    /// There is something at a place now, so the folders above it are there too.
    fn found(&mut self, place: &Place) {
        self.made.retain(|made| !place.is_beneath(made));
    }

    /// Open files of one place belong to another from now on, or to none.
    fn lead(&mut self, from: &Place, to: Option<&Place>) {
        for open in self.open.iter_mut().flatten() {
            if let Open::File(file) = open
                && file.place.as_ref() == Some(from)
            {
                file.place = to.cloned();
            }
        }
    }
}

impl File {
    fn new(place: Place, bytes: Vec<u8>, wish: &Wish, expect: Expect, is_changed: bool) -> Self {
        Self {
            number: place.number(),
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
