//! Opens paths beneath the handle of a root, so that no change of the tree can lead outside.
//!
//! A path without symbolic links takes one `openat2`. A path with links is walked one component at a time, each
//! opened relative to its parent without following links. A link is read, checked and spliced into the remaining
//! path. The same walk is the fallback for kernels without `openat2`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use helve_contract::{Error, FileErrorKind, Result, SafePath, closest_names};
use rustix::{
    fd::{AsFd as _, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, readlinkat, unlinkat,
    },
    io::Errno,
};

use super::{
    fault::FsError,
    lock::DirHandle,
    names::{escape_invisible, is_temporary},
};

/// The maximum number of links in a path; the kernel has the same limit.
const MAX_SYMLINKS: usize = 40;
/// How often a path is retried when it changes concurrently.
const MAX_RETRIES: usize = 64;
/// The number of root handles in the cache.
const MAX_CACHED_ROOTS: usize = 256;
/// The maximum number of names compared with a missing one.
const MAX_SIMILAR_CANDIDATES: usize = 10_000;

/// Opens the paths that [`SafePath`]s name.
pub(super) struct Beneath {
    /// The most recently used comes first.
    roots: Mutex<Vec<(PathBuf, Arc<OwnedFd>)>>,
    method: ResolveMethod,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResolveMethod {
    Openat2,
    /// Component by component.
    ComponentWalk,
}

/// What to do with a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalSymlink {
    Follow,
    /// Operate on the link itself.
    NoFollow,
}

/// What to do about missing parent directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingParents {
    Create,
    /// Return a not-found error.
    Fail,
}

/// An open file or directory, with its resolved path.
pub(super) struct OpenedPath {
    pub(super) fd: OwnedFd,
    /// The path beneath the root, if links led to another one than requested.
    pub(super) real: Option<PathBuf>,
}

/// A name in an open directory: an existing or future entry.
pub(super) struct EntryLocation {
    pub(super) folder: DirHandle,
    pub(super) name: OsString,
    /// The path beneath the root.
    pub(super) real: PathBuf,
    /// The parent directories that were created.
    pub(super) made: CreatedDirs,
}

/// Created directories; removed again when dropped, unless committed.
#[derive(Default)]
pub(super) struct CreatedDirs(Vec<(OwnedFd, OsString)>);

impl CreatedDirs {
    /// Keeps the directories and syncs their names.
    pub(super) fn commit(mut self) -> Result<(), Errno> {
        std::mem::take(&mut self.0).into_iter().try_for_each(|(parent, _)| sync_folder(parent.as_fd()))
    }
}

impl Drop for CreatedDirs {
    fn drop(&mut self) {
        for (parent, name) in self.0.drain(..).rev() {
            // If another process has put a file into it, the directory stays.
            _ = unlinkat(&parent, &name, AtFlags::REMOVEDIR);
        }
    }
}

/// Syncs a directory.
pub(super) fn sync_folder(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    let synced = match rustix::fs::fsync(folder) {
        // The handle is `O_PATH`.
        Err(Errno::BADF) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat(folder, ".", flags, Mode::empty()).and_then(rustix::fs::fsync)
        }
        synced => synced,
    };
    match synced {
        // Some file systems cannot sync directories, and need not.
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
        result => result,
    }
}

impl Beneath {
    /// Uses `openat2` if the kernel has it.
    pub(super) fn new() -> Self {
        let probe = openat2(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
        Self::with_method(if probe.is_ok() { ResolveMethod::Openat2 } else { ResolveMethod::ComponentWalk })
    }

    fn with_method(way: ResolveMethod) -> Self {
        Self { roots: Mutex::default(), method: way }
    }

    /// The handle of a path's root, opened once.
    pub(super) fn root_handle(&self, path: &SafePath) -> Result<Arc<OwnedFd>> {
        let dir = &path.root().dir;
        let mut tops = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = tops.iter().position(|(it, _)| it.as_os_str() == dir.as_os_str()) {
            tops.swap(0, at);
            return Ok(tops[0].1.clone());
        }
        let top = Arc::new(self.open_root(dir).map_err(|errno| FsError::from(errno).with_path(path))?);
        if tops.len() >= MAX_CACHED_ROOTS {
            tops.clear();
        }
        tops.push((dir.clone(), top.clone()));
        Ok(top)
    }

    /// Roots are configured without links; a root that became a link later is not followed.
    fn open_root(&self, dir: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self.method {
            ResolveMethod::Openat2 => openat2(CWD, dir, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS),
            ResolveMethod::ComponentWalk => openat(CWD, dir, flags | OFlags::NOFOLLOW, Mode::empty()),
        }
    }

    /// Drops the handle of a deleted root, so that a recreated one is found.
    fn forget_deleted(&self, path: &SafePath, top: &OwnedFd) -> bool {
        let deleted = fstat(top).is_ok_and(|stat| stat.st_nlink == 0);
        if deleted {
            let mut tops = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
            tops.retain(|(dir, _)| *dir != path.root().dir);
        }
        deleted
    }

    /// Opens a path and follows links beneath the root. The target of a link is checked like the path itself.
    pub(super) fn open(&self, path: &SafePath, flags: OFlags) -> Result<OpenedPath> {
        let top = self.root_handle(path)?;
        let result = match self.open_no_links(&top, path.relative(), flags) {
            Err(Errno::LOOP) => return self.open_through_links(path, &top, flags),
            result => result,
        };
        match result {
            Ok(fd) => Ok(OpenedPath { fd, real: None }),
            Err(Errno::NOENT) if self.forget_deleted(path, &top) => {
                let fd = self.open_no_links(&*self.root_handle(path)?, path.relative(), flags);
                Ok(OpenedPath { fd: fd.map_err(|errno| self.explain(path, errno.into()))?, real: None })
            }
            Err(errno) => Err(self.explain(path, errno.into())),
        }
    }

    /// Opens a path without links; returns `LOOP` if it contains one. `PATH` with `NOFOLLOW` opens a final link
    /// itself.
    pub(super) fn open_no_links(&self, top: &OwnedFd, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        if self.method == ResolveMethod::ComponentWalk {
            return open_by_components(top, relative, flags);
        }
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        retry_on_eintr(|| openat2(top, relative, flags | OFlags::CLOEXEC, Mode::empty(), resolve))
    }

    /// Resolves the links of a path beneath its root. Components that do not exist stay unchanged.
    pub(super) fn real_path(&self, path: &SafePath) -> Result<PathBuf> {
        let top = self.root_handle(path)?;
        let walk =
            ComponentWalk::resolve(path, &top, FinalSymlink::Follow).map_err(|trouble| self.explain(path, trouble))?;
        Ok(walk.real())
    }

    fn open_through_links(&self, path: &SafePath, top: &OwnedFd, flags: OFlags) -> Result<OpenedPath> {
        for _ in 0..MAX_RETRIES {
            let walk = ComponentWalk::resolve(path, top, FinalSymlink::Follow)
                .map_err(|trouble| self.explain(path, trouble))?;
            let real = walk.real();
            path.check_rules(&real)?;
            if !walk.missing.is_empty() {
                return Err(self.explain(path, Errno::NOENT.into()));
            }
            let (folder, name) = walk.end(top);
            match openat(folder, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(fd) if is_link(&fd) => {}
                Ok(fd) => return Ok(OpenedPath { fd, real: Some(real) }),
                // A link replaced it after the walk.
                Err(Errno::LOOP | Errno::NOENT) => {}
                Err(errno) => return Err(self.explain(path, errno.into())),
            }
        }
        Err(path_keeps_changing(path))
    }

    /// The directory and name of a path that will be created, replaced or removed.
    pub(super) fn locate(&self, path: &SafePath, last: FinalSymlink, parents: MissingParents) -> Result<EntryLocation> {
        let Some(name) = path.relative().file_name() else {
            return Err(Error::file(path, FileErrorKind::IsFolder));
        };
        let top = self.root_handle(path)?;
        let parent = path.relative().parent().unwrap_or(Path::new(""));
        match self.open_no_links(&top, parent, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(fd) if last == FinalSymlink::NoFollow || !names_link(&fd, name) => {
                return Ok(EntryLocation {
                    folder: DirHandle::new(fd).map_err(|errno| self.explain(path, errno.into()))?,
                    name: name.to_owned(),
                    real: path.relative().to_owned(),
                    made: CreatedDirs::default(),
                });
            }
            Ok(_) | Err(Errno::LOOP | Errno::NOENT) => {}
            Err(errno) => return Err(self.explain(path, errno.into())),
        }
        self.forget_deleted(path, &top);
        let top = self.root_handle(path)?;
        for _ in 0..MAX_RETRIES {
            if let Some(place) = self.locate_through_links(path, &top, last, parents)? {
                return Ok(place);
            }
        }
        Err(path_keeps_changing(path))
    }

    /// Returns `None` if the path changed concurrently.
    fn locate_through_links(
        &self,
        path: &SafePath,
        top: &OwnedFd,
        last: FinalSymlink,
        parents: MissingParents,
    ) -> Result<Option<EntryLocation>> {
        let explain = |errno: Errno| self.explain(path, errno.into());
        let mut walk = ComponentWalk::resolve(path, top, last).map_err(|trouble| self.explain(path, trouble))?;
        let real = walk.real();
        path.check_rules(&real)?;

        let mut made = CreatedDirs::default();
        let name = match walk.missing.pop() {
            Some(name) => {
                if parents == MissingParents::Fail && !walk.missing.is_empty() {
                    return Err(explain(Errno::NOENT));
                }
                name
            }
            None => match walk.leaf.take() {
                Some(leaf) => leaf,
                None => {
                    walk.folders.pop();
                    match walk.names.pop() {
                        Some(name) => name,
                        None => return Err(Error::file(path, FileErrorKind::IsFolder)),
                    }
                }
            },
        };
        for part in std::mem::take(&mut walk.missing) {
            let here = walk.current_dir(top);
            match mkdirat(here, &part, Mode::from_raw_mode(0o777)) {
                Ok(()) => {
                    let parent = here.try_clone_to_owned().map_err(|_| explain(Errno::MFILE))?;
                    made.0.push((parent, part.clone()));
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(explain(errno)),
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match openat(here, &part, flags, Mode::empty()) {
                Ok(fd) => walk.folders.push(fd),
                Err(Errno::LOOP | Errno::NOTDIR | Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(explain(errno)),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(walk.current_dir(top), ".", flags, Mode::empty()).map_err(explain)?;
        Ok(Some(EntryLocation { folder: DirHandle::new(fd).map_err(explain)?, name, real, made }))
    }

    /// The error for the model; a missing file comes with similar names.
    pub(super) fn explain(&self, path: &SafePath, trouble: FsError) -> Error {
        if trouble == FsError::Errno(Errno::NOENT) {
            let near = self.similar_paths(path).unwrap_or_default();
            return Error::file(path, FileErrorKind::Missing { near });
        }
        trouble.with_path(path)
    }

    /// Paths similar to a missing one: siblings of its first missing component.
    fn similar_paths(&self, path: &SafePath) -> Option<Vec<String>> {
        let top = self.root_handle(path).ok()?;
        let walk = ComponentWalk::resolve(path, &top, FinalSymlink::Follow).ok()?;
        let wanted = escape_invisible(walk.missing.first()?.as_bytes());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(walk.current_dir(&top), ".", flags, Mode::empty()).ok()?;
        let names: Vec<String> = Dir::new(folder)
            .ok()?
            .filter_map(Result::ok)
            .map(|entry| escape_invisible(entry.file_name().to_bytes()))
            .filter(|name| !matches!(name.as_str(), "." | "..") && !is_temporary(name.as_bytes()))
            .take(MAX_SIMILAR_CANDIDATES)
            .collect();
        let here: PathBuf = walk.names.iter().collect();
        let near = closest_names(&wanted, names.iter().map(String::as_str));
        Some(near.into_iter().map(|name| path.display_relative(&here.join(name))).collect())
    }
}

/// Opens a path without links, component by component.
fn open_by_components(top: &OwnedFd, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here = openat(top, ".", step, Mode::empty())?;
    let Some(last) = relative.file_name() else {
        return openat(&here, ".", flags | OFlags::CLOEXEC, Mode::empty());
    };
    for part in relative.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(name) = part else { return Err(Errno::XDEV) };
        let next = openat(&here, name, step, Mode::empty())?;
        here = if is_link(&next) { return Err(Errno::LOOP) } else { next };
    }
    let fd = match openat(&here, last, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        // For a link in place of a directory the kernel reports `ENOTDIR` before `ELOOP`.
        Err(Errno::NOTDIR) if names_link(&here, last) => return Err(Errno::LOOP),
        fd => fd?,
    };
    let wants_link = flags.contains(OFlags::PATH | OFlags::NOFOLLOW);
    if !wants_link && is_link(&fd) { Err(Errno::LOOP) } else { Ok(fd) }
}

/// Retries after `EINTR`.
fn retry_on_eintr<T>(mut work: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..MAX_RETRIES {
        match work() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
    work()
}

fn path_keeps_changing(path: &SafePath) -> Error {
    let text = "somebody keeps changing the folders on the way to it; nothing was done, try again later";
    Error::file(path, FileErrorKind::Other(text.into()))
}

fn is_link(fd: &OwnedFd) -> bool {
    fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

fn names_link(folder: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// A walk along a path, component by component. It ends at a directory, at an entry of one, or where components are
/// missing.
struct ComponentWalk {
    /// The open directories beneath the root, outermost first.
    folders: Vec<OwnedFd>,
    names: Vec<OsString>,
    /// The final entry, if it is not a directory.
    leaf: Option<OsString>,
    /// The components that do not exist, in order.
    missing: Vec<OsString>,
}

impl ComponentWalk {
    fn resolve(path: &SafePath, top: &OwnedFd, last: FinalSymlink) -> Result<Self, FsError> {
        let mut walk = Self { folders: Vec::new(), names: Vec::new(), leaf: None, missing: Vec::new() };
        let mut ahead = Vec::new();
        push(&mut ahead, path.relative());
        let mut links = 0;
        while let Some(part) = ahead.pop() {
            if part == ".." {
                if walk.folders.pop().is_none() {
                    return Err(FileErrorKind::Outside.into());
                }
                walk.names.pop();
                continue;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = match retry_on_eintr(|| openat(walk.current_dir(top), &part, flags, Mode::empty())) {
                Err(Errno::NOENT) => {
                    walk.missing.push(part);
                    walk.missing.extend(ahead.drain(..).rev());
                    break;
                }
                fd => fd?,
            };
            match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
                FileType::Symlink if !ahead.is_empty() || last == FinalSymlink::Follow => {
                    links += 1;
                    if links > MAX_SYMLINKS {
                        return Err(Errno::LOOP.into());
                    }
                    walk.splice(path, &fd, &mut ahead)?;
                }
                FileType::Directory => {
                    walk.folders.push(fd);
                    walk.names.push(part);
                }
                _ if ahead.is_empty() => walk.leaf = Some(part),
                _ => return Err(Errno::NOTDIR.into()),
            }
        }
        // `..` after a missing component is invalid.
        if walk.missing.iter().any(|part| part == "..") {
            return Err(Errno::NOENT.into());
        }
        Ok(walk)
    }

    /// Prepends the target of a link to the remaining components. An absolute target is relative to the root that
    /// contains it.
    fn splice(&mut self, path: &SafePath, link: &OwnedFd, ahead: &mut Vec<OsString>) -> Result<(), FsError> {
        let target = PathBuf::from(OsString::from_vec(readlinkat(link, "", Vec::new())?.into_bytes()));
        if !target.is_absolute() {
            push(ahead, &target);
            return Ok(());
        }
        let root = path.root();
        let inside = std::iter::once(&root.dir).chain(&root.also).find_map(|dir| target.strip_prefix(dir).ok());
        push(ahead, inside.ok_or(FileErrorKind::Outside)?);
        self.folders.clear();
        self.names.clear();
        Ok(())
    }

    /// The innermost directory.
    fn current_dir<'a>(&'a self, top: &'a OwnedFd) -> BorrowedFd<'a> {
        self.folders.last().unwrap_or(top).as_fd()
    }

    /// The end of the walk: a directory and a name in it, or the directory itself.
    fn end<'a>(&'a self, top: &'a OwnedFd) -> (BorrowedFd<'a>, &'a OsStr) {
        (self.current_dir(top), self.leaf.as_deref().unwrap_or(OsStr::new(".")))
    }

    /// The path beneath the root, with missing components.
    fn real(&self) -> PathBuf {
        self.names.iter().chain(&self.leaf).chain(&self.missing).collect()
    }
}

/// Pushes the components of a path onto the stack, the first on top.
fn push(ahead: &mut Vec<OsString>, path: &Path) {
    ahead.extend(path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    }));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use helve_contract::{Access, PathRules, PathStyle, Root, Workspace};

    use super::*;

    /// A directory that contains a root and files outside it; removed when dropped.
    struct Ground(PathBuf);

    impl Ground {
        fn new(name: &str) -> Self {
            let dir = fs::canonicalize(std::env::temp_dir()).unwrap();
            let dir = dir.join(format!("helve-beneath-{name}-{}", std::process::id()));
            fs::create_dir_all(dir.join("root/real/deep")).unwrap();
            fs::write(dir.join("root/real/deep/file"), "inside").unwrap();
            fs::write(dir.join("secret"), "outside").unwrap();
            for (link, target) in [
                ("relative", "real/deep/file".into()),
                ("absolute", dir.join("root/real/deep/file")),
                ("folder", dir.join("root/real")),
                ("real/up", "../real/./deep/../deep".into()),
                ("out", "../secret".into()),
                ("out-absolute", dir.join("secret")),
                ("neighbour", PathBuf::from(format!("{}-evil/x", dir.join("root").display()))),
                ("loop", "loop".into()),
                ("nothing", "real/missing/../deep/file".into()),
            ] {
                std::os::unix::fs::symlink(target, dir.join("root").join(link)).unwrap();
            }
            Self(dir)
        }

        fn path(&self, path: &str) -> SafePath {
            let roots = [Root::writable(self.0.join("root"))];
            let workspace = Workspace::new(roots, PathRules::default(), PathStyle::Relative);
            workspace.check(Path::new(path), Access::Write, None).unwrap()
        }

        fn read(&self, beneath: &Beneath, path: &str) -> String {
            use std::io::Read as _;
            match beneath.open(&self.path(path), OFlags::RDONLY) {
                Ok(opened) => {
                    let mut text = String::new();
                    fs::File::from(opened.fd).read_to_string(&mut text).unwrap();
                    format!("{text} {}", opened.real.unwrap_or_else(|| path.into()).display())
                }
                Err(Error::File { fault, .. }) => format!("{fault:?}"),
                Err(error) => error.to_string(),
            }
        }
    }

    impl Drop for Ground {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn both_ways_lead_to_the_same_places() {
        let ground = Ground::new("both");
        for beneath in [Beneath::new(), Beneath::with_method(ResolveMethod::ComponentWalk)] {
            for (path, wanted) in [
                ("real/deep/file", "inside real/deep/file"),
                ("relative", "inside real/deep/file"),
                ("absolute", "inside real/deep/file"),
                ("folder/deep/file", "inside real/deep/file"),
                ("real/up/file", "inside real/deep/file"),
                ("folder/up/file", "inside real/deep/file"),
                ("out", "Outside"),
                ("out-absolute", "Outside"),
                ("neighbour", "Outside"),
                ("loop", "LinkLoop"),
                ("nothing", "Missing { near: [] }"),
                ("real/deep/fil", "Missing { near: [\"real/deep/file\"] }"),
                ("real/deep/file/x", "NotFolder"),
            ] {
                assert_eq!(ground.read(&beneath, path), wanted, "{path} by {:?}", beneath.method);
            }
        }
    }

    #[test]
    fn both_ways_find_the_same_place_to_write() {
        let ground = Ground::new("place");
        for beneath in [Beneath::new(), Beneath::with_method(ResolveMethod::ComponentWalk)] {
            for (path, wanted) in [
                ("new", "new"),
                ("relative", "real/deep/file"),
                ("folder/new/er", "real/new/er"),
                ("real/up/new", "real/deep/new"),
            ] {
                let place = beneath.locate(&ground.path(path), FinalSymlink::Follow, MissingParents::Create).unwrap();
                assert_eq!((place.real.as_path(), place.folder.key.1 > 0), (Path::new(wanted), true), "{path}");
            }
            // Directories created for a failed write are removed.
            assert!(!ground.0.join("root/real/new").exists());
            let kept = beneath.locate(&ground.path("relative"), FinalSymlink::NoFollow, MissingParents::Fail).unwrap();
            assert_eq!((kept.real.as_path(), kept.name.as_os_str()), (Path::new("relative"), OsStr::new("relative")));
        }
    }
}
