//! An index of the directories beneath a root, which finds new protected names without listing every directory.
//!
//! A directory with the same change time has the same entries. An update calls `lstat` on each known directory and
//! lists only changed and new ones.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::{self, DirEntry},
    io,
    os::unix::{ffi::OsStringExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    thread,
};

use helve_contract::ProjectFile;
use serde::{Deserialize, Serialize};

use super::{protected_names::ProtectedNames, stamp::Stamp};

/// The maximum number of indexed directories per root; those nearest to the root come first.
const MAX_DIRS: usize = 200_000;
/// The number of directories that one thread checks.
const DIRS_PER_THREAD: usize = 2048;
const MAX_THREADS: usize = 4;
/// Directories inside `.git` with many entries that contain no other git directory. A git directory that a command
/// creates there is found through the link to it.
pub(super) const INSIDE_GIT: [&str; 12] = [
    "objects",
    "refs",
    "logs",
    "reftable",
    "hooks",
    "info",
    "branches",
    "remotes",
    "lfs",
    "rr-cache",
    "rebase-merge",
    "rebase-apply",
];
/// Virtual file systems of the kernel.
const NOT_ON_DISK: [&str; 3] = ["/proc", "/sys", "/dev"];

/// A directory as it was last listed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Dir {
    stamp: Stamp,
    /// Entries with protected names, as bytes.
    protected: Vec<Vec<u8>>,
    /// Entries that programs outside the sandbox run automatically, as bytes.
    project: Vec<Vec<u8>>,
    /// Whether it contains `.git`.
    pub(super) is_repository: bool,
    /// Whether git accepts it as a git directory: `.git`, a bare repository, or a submodule's or worktree's
    /// directory.
    pub(super) has_git_layout: bool,
}

impl Dir {
    pub(super) fn protected(&self) -> impl Iterator<Item = OsString> {
        self.protected.iter().cloned().map(OsString::from_vec)
    }

    pub(super) fn project(&self) -> impl Iterator<Item = OsString> {
        self.project.iter().cloned().map(OsString::from_vec)
    }
}

/// The directories beneath a root, except inside protected paths. Inside `.git` it covers the git directories of
/// submodules and worktrees.
#[derive(Clone, Debug, Default)]
pub(super) struct DirIndex {
    dirs: HashMap<PathBuf, Dir>,
    is_partial: bool,
}

impl DirIndex {
    pub(super) fn len(&self) -> usize {
        self.dirs.len()
    }

    /// Whether the index is incomplete because of its limit.
    pub(super) fn is_partial(&self) -> bool {
        self.is_partial
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&PathBuf, &Dir)> {
        self.dirs.iter()
    }

    /// Updates the index; returns whether any directory was listed again.
    pub(super) fn update(&mut self, root: &Path, skipped: Option<&Path>, names: &ProtectedNames) -> bool {
        let (changed, gone) = self.look();
        let has_changed = !changed.is_empty() || !gone.is_empty() || self.dirs.is_empty();
        if !gone.is_empty() {
            self.remove(&gone, root);
        }
        let mut queue: std::collections::VecDeque<PathBuf> =
            changed.into_iter().filter(|dir| self.dirs.contains_key(dir)).collect();
        if !self.dirs.contains_key(root) {
            queue.push_back(root.to_owned());
        }
        if names.only_at_root() {
            queue.retain(|dir| dir == root);
        }
        while let Some(dir) = queue.pop_front() {
            let is_known = self.dirs.contains_key(&dir);
            if !is_known && self.dirs.len() >= MAX_DIRS {
                self.is_partial = true;
                continue;
            }
            let Some((entry, inner)) = list(&dir, root, names) else {
                self.dirs.remove(&dir);
                continue;
            };
            self.dirs.insert(dir, entry);
            if names.only_at_root() {
                continue;
            }
            let new = inner.into_iter().filter(|inner| {
                !self.dirs.contains_key(inner)
                    && skipped != Some(inner.as_path())
                    && !NOT_ON_DISK.iter().any(|it| inner == Path::new(it))
            });
            queue.extend(new);
        }
        has_changed
    }

    /// Finds changed and removed directories.
    fn look(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let known: Vec<(&PathBuf, &Dir)> = self.dirs.iter().collect();
        let judge = |part: &[(&PathBuf, &Dir)]| {
            let (mut changed, mut gone) = (Vec::new(), Vec::new());
            for (path, dir) in part {
                match fs::symlink_metadata(path) {
                    Ok(about) if !about.is_dir() => gone.push((*path).clone()),
                    Ok(about) if dir.stamp.still_holds(&Stamp::of(&about)) => {}
                    Ok(_) => changed.push((*path).clone()),
                    Err(_) => gone.push((*path).clone()),
                }
            }
            (changed, gone)
        };
        if known.len() <= DIRS_PER_THREAD {
            return judge(&known);
        }
        let part = known.len().div_ceil(MAX_THREADS).max(DIRS_PER_THREAD);
        thread::scope(|scope| {
            let workers: Vec<_> = known.chunks(part).map(|part| scope.spawn(move || judge(part))).collect();
            let mut all = (Vec::new(), Vec::new());
            for (changed, gone) in workers.into_iter().filter_map(|worker| worker.join().ok()) {
                all.0.extend(changed);
                all.1.extend(gone);
            }
            all
        })
    }

    /// Removes directories and everything reached through them.
    fn remove(&mut self, gone: &[PathBuf], root: &Path) {
        for dir in gone {
            self.dirs.remove(dir);
        }
        let mut left: Vec<PathBuf> = self.dirs.keys().cloned().collect();
        left.sort_by_key(|dir| dir.as_os_str().len());
        for dir in left {
            if dir != root && !dir.parent().is_some_and(|above| self.dirs.contains_key(above)) {
                self.dirs.remove(&dir);
            }
        }
    }

    /// Serialises the index for the next process.
    pub(super) fn to_bytes(&self) -> Option<Vec<u8>> {
        let dirs: Vec<(Vec<u8>, &Dir)> =
            self.dirs.iter().map(|(path, dir)| (path.clone().into_os_string().into_vec(), dir)).collect();
        postcard::to_allocvec(&(self.is_partial, dirs)).ok()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (is_partial, dirs): (bool, Vec<(Vec<u8>, Dir)>) = postcard::from_bytes(bytes).ok()?;
        let dirs = dirs.into_iter().map(|(path, dir)| (OsString::from_vec(path).into(), dir)).collect();
        Some(Self { dirs, is_partial })
    }
}

/// Lists a directory: returns its record and the subdirectories to index. `None` if it is not a directory.
fn list(path: &Path, root: &Path, names: &ProtectedNames) -> Option<(Dir, Vec<PathBuf>)> {
    // Read before the listing, so that the next update notices concurrent changes.
    let about = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir)?;
    let mut dir = Dir {
        stamp: Stamp::of(&about),
        protected: Vec::new(),
        project: Vec::new(),
        is_repository: false,
        has_git_layout: false,
    };
    let mut inner = Vec::new();
    let beneath = path.strip_prefix(root).unwrap_or(path);
    let is_inside_git = beneath.components().any(|part| part.as_os_str() == ".git");
    let mut parts = [false; 4];
    for entry in entries(path, about.permissions().mode()) {
        let name = entry.file_name();
        for (part, known) in parts.iter_mut().zip(["HEAD", "objects", "refs", "commondir"]) {
            *part |= name == known;
        }
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if names.is_repository(&name) {
            dir.is_repository = true;
            if is_dir {
                inner.push(entry.path());
            }
        } else if names.is_protected(&name, path == root) {
            dir.protected.push(name.into_vec());
        } else if is_dir {
            inner.push(entry.path());
        } else if names.has_git() && ProjectFile::find(&beneath.join(&name)).is_some() {
            dir.project.push(name.into_vec());
        }
    }
    // These names have a meaning only in a git directory. In `modules` they are names of submodules.
    if is_inside_git && is_git_dir(path, parts) {
        inner.retain(|it| !INSIDE_GIT.iter().any(|name| it.file_name().is_some_and(|it| it == *name)));
    }
    dir.has_git_layout = matches!(parts, [true, true, true, _] | [true, _, _, true]) && names.has_git();
    Some((dir, inner))
}

/// Whether a directory at or inside `.git` is a git directory, by its name or content.
fn is_git_dir(path: &Path, parts: [bool; 4]) -> bool {
    let is_named = |name: &str| path.file_name().is_some_and(|it| it == name);
    let has_layout = matches!(parts, [true, true, true, _] | [true, _, _, true]);
    is_named(".git") || has_layout && !is_named("modules") && !is_named("worktrees")
}

/// The entries of a directory. A directory without read permission would hide names from Helve but not from programs,
/// so the owner gets read permission temporarily.
pub(super) fn entries(path: &Path, mode: u32) -> Vec<DirEntry> {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().collect(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let Ok(folder) = super::quarantine::open_dir(path) else { return Vec::new() };
            if super::quarantine::set_mode(&folder, mode | 0o700).is_err() {
                return Vec::new();
            }
            let entries = fs::read_dir(path).map(|entries| entries.flatten().collect()).unwrap_or_default();
            _ = super::quarantine::set_mode(&folder, mode);
            entries
        }
        Err(_) => Vec::new(),
    }
}
