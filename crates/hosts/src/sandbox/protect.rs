//! Places beneath a root that no command may change, whether they exist or not.
//!
//! A place that exists is mounted read-only over itself. For one that does not, an empty folder stands in while commands
//! run: it cannot be written, removed or renamed, git does not see it, and it is gone afterwards. A lock on the stand-in
//! tells engines on the same workspace that it is still in use.

use std::{
    collections::HashMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Component, Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use helve_contract::{Error, Result};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

use crate::supervise::{Keep, Mounts};

/// How often something is tried again that another engine thwarts.
const PATIENCE: usize = 16;

/// Refuses names that no mount can stand for.
pub(super) fn check(names: &[String]) -> Result<()> {
    for name in names {
        let path = Path::new(name);
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || !plain || name.contains(['*', '?', '[', '\0']) {
            return Err(Error::failed(format!(
                "the protected place `{name}` is not a plain name beneath the workspace, and cannot be enforced; \
                 write it as in `.git/hooks`"
            )));
        }
    }
    Ok(())
}

/// Which names are protected.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    /// In every root, whether they exist or not.
    pub(super) everywhere: &'a [String],
    /// Where they exist, and in a root that holds the user's home: elsewhere nothing reads a new one.
    pub(super) at_home: &'a [String],
    /// The user's home.
    pub(super) home: &'a Path,
}

/// Finds out what to mount, and puts stand-ins where nothing is. They are removed when the second answer is dropped.
pub(super) fn prepare<'a>(roots: impl Iterator<Item = &'a PathBuf>, names: Names<'_>) -> Result<(Mounts, Keep)> {
    let mut mounts = Mounts::default();
    let mut keep = Keep::new();
    for root in roots {
        let holds_home = names.home.starts_with(root);
        let at_home = names.at_home.iter().filter(|name| holds_home || fs::symlink_metadata(root.join(name)).is_ok());
        for name in names.everywhere.iter().chain(at_home) {
            protect(root, Path::new(name), &mut mounts, &mut keep)?;
        }
    }
    Ok((mounts, keep))
}

fn protect(root: &Path, name: &Path, mounts: &mut Mounts, keep: &mut Keep) -> Result<()> {
    let mut at = root.to_owned();
    let mut parts = name.components().peekable();
    while let Some(part) = parts.next() {
        at.push(part);
        let last = parts.peek().is_none();
        match look(&at) {
            // A link cannot be mounted over; what it leads to can.
            There::Link => {
                let real = fs::canonicalize(root.join(name));
                add(&mut mounts.read_only, real.into_iter().find(|real| real.starts_with(root)));
                return Ok(());
            }
            There::Folder if !last => add(&mut mounts.pinned, Some(at.clone())),
            There::Folder | There::File => {
                add(&mut mounts.read_only, Some(at));
                return Ok(());
            }
            // A repository that a command makes is its own; see `Fresh`.
            There::Nothing if !last && part.as_os_str() == ".git" => return Ok(()),
            it @ (There::StandIn { .. } | There::Nothing) => {
                let folder = !matches!(it, There::StandIn { folder: false });
                let stand_in = StandIn::at(&at, shape(&at, folder))?;
                // What is there is protected, and what cannot be made by us cannot be made by a command.
                if stand_in.is_some() || matches!(it, There::StandIn { .. }) {
                    add(&mut mounts.read_only, Some(at));
                }
                keep.extend(stand_in.map(boxed));
                return Ok(());
            }
        }
    }
    Ok(())
}

/// What is in the place of a name.
enum There {
    Nothing,
    Link,
    Folder,
    File,
    /// Put there for a command: of this engine, another one, or one that was killed.
    StandIn {
        folder: bool,
    },
}

fn look(at: &Path) -> There {
    // A stand-in may go while it is looked at, because nobody needs it any more.
    for _ in 0..PATIENCE {
        let Ok(about) = fs::symlink_metadata(at) else { break };
        let folder = about.is_dir();
        match StandIn::looks_like(at, &about) {
            Ok(true) => return There::StandIn { folder },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ if about.is_symlink() => return There::Link,
            _ if folder => return There::Folder,
            _ => return There::File,
        }
    }
    There::Nothing
}

fn boxed<T: std::any::Any + Send>(it: T) -> Box<dyn std::any::Any + Send> {
    Box::new(it)
}

fn add(list: &mut Vec<PathBuf>, path: Option<PathBuf>) {
    if let Some(path) = path
        && !list.contains(&path)
    {
        list.push(path);
    }
}

/// What a stand-in is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    File,
    Folder,
}

/// A folder, because git does not see empty ones. Inside of git's own folder it does not look, but it opens `config`.
fn shape(path: &Path, folder: bool) -> Shape {
    let inside_git = path.parent().is_some_and(|above| above.ends_with(".git"));
    if !folder || inside_git && !path.ends_with("hooks") { Shape::File } else { Shape::Folder }
}

/// How many commands of this engine need each stand-in, and the lock that tells other engines.
static IN_USE: Mutex<Option<HashMap<PathBuf, (usize, File)>>> = Mutex::new(None);

/// An empty file or folder in the place of a missing one, for as long as somebody needs it.
struct StandIn {
    path: PathBuf,
}

impl StandIn {
    /// Whether this is one.
    fn looks_like(path: &Path, about: &fs::Metadata) -> io::Result<bool> {
        let mode = about.mode() & 0o7777;
        if about.is_dir() {
            return Ok(mode == 0o555 && fs::read_dir(path)?.next().is_none());
        }
        let said = content(path);
        let could_be = about.is_file() && mode == 0o444 && about.nlink() == 1 && about.len() == said.len() as u64;
        Ok(could_be && (said.is_empty() || fs::read(path)? == said))
    }

    /// Makes one, or joins those who use it already. `None` where nothing can be made: a command could not either.
    fn at(path: &Path, shape: Shape) -> Result<Option<Self>> {
        let mut guard = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let in_use = guard.get_or_insert_with(HashMap::new);
        if let Some((count, _)) = in_use.get_mut(path) {
            *count += 1;
            return Ok(Some(Self { path: path.to_owned() }));
        }
        // Another engine may remove it between the making and the lock; then it is made again.
        for _ in 0..PATIENCE {
            match make(path, shape) {
                Ok(Some(lock)) => {
                    in_use.insert(path.to_owned(), (1, lock));
                    return Ok(Some(Self { path: path.to_owned() }));
                }
                Ok(None) => {}
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) =>
                {
                    return Ok(None);
                }
                Err(error) => {
                    let text = format!("protecting {}", path.display());
                    return Err(Error::Internal(anyhow::Error::new(error).context(text)));
                }
            }
        }
        Err(Error::failed(format!("{} comes and goes, and cannot be protected; try again", path.display())))
    }
}

/// Makes and locks a stand-in; `None` when it was gone again before it was locked.
fn make(path: &Path, shape: Shape) -> io::Result<Option<File>> {
    let made = match shape {
        Shape::Folder => DirBuilder::new().mode(0o555).create(path),
        Shape::File if content(path).is_empty() => {
            OpenOptions::new().write(true).create_new(true).mode(0o444).open(path).map(drop)
        }
        Shape::File => written(path),
    };
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let Ok(lock) = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) else {
        return Ok(None);
    };
    flock(&lock, FlockOperation::LockShared)?;
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let there = fs::symlink_metadata(path);
    Ok(there.is_ok_and(|there| lock.metadata().is_ok_and(|ours| same(&ours, &there))).then_some(lock))
}

/// What is in a stand-in. Git refuses to work where this file is empty; in this one it reads that all is where it was.
fn content(path: &Path) -> &'static [u8] {
    if path.ends_with(".git/commondir") { b".\n" } else { b"" }
}

/// Makes a stand-in with something in it. Nobody sees it without: it is written elsewhere, and moved.
fn written(path: &Path) -> io::Result<()> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let aside = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(&aside)?;
    file.write_all(content(path))?;
    let moved = renameat_with(CWD, &aside, CWD, path, RenameFlags::NOREPLACE);
    if moved.is_err() {
        _ = fs::remove_file(&aside);
    }
    Ok(moved?)
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let mut guard = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(in_use) = guard.as_mut() else { return };
        if let Some((count, _)) = in_use.get_mut(&self.path) {
            *count -= 1;
            if *count > 0 {
                return;
            }
        }
        let Some((_, lock)) = in_use.remove(&self.path) else { return };
        // Whoever gets the lock alone is the last, and cleans up.
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        match fs::symlink_metadata(&self.path) {
            Ok(about) if about.is_dir() => _ = fs::remove_dir(&self.path),
            Ok(about) if StandIn::looks_like(&self.path, &about).unwrap_or(false) => _ = fs::remove_file(&self.path),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, thread};

    use super::*;

    #[test]
    fn what_stands_in_stays_for_as_long_as_one_of_many_needs_it() {
        let top = std::env::temp_dir().join(format!("helve-protect-{}", std::process::id()));
        fs::create_dir_all(top.join(".git")).unwrap();
        let everywhere = [".helve", ".git/config", ".git/commondir", ".vscode/tasks.json"].map(str::to_owned);
        let names = Names { everywhere: &everywhere, at_home: &[], home: Path::new("/nowhere") };
        let start = Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..3000 {
                        let (mounts, keep) = prepare(std::iter::once(&top), names).unwrap();
                        assert_eq!(mounts.read_only.len(), 4);
                        for place in &mounts.read_only {
                            assert!(fs::symlink_metadata(place).is_ok(), "{} is gone", place.display());
                        }
                        drop(keep);
                    }
                });
            }
        });
        let left: Vec<_> = fs::read_dir(&top).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, [".git"], "and nothing is left of it");
        fs::remove_dir_all(top).unwrap();
    }
}
