//! Snapshots of the protected files beneath a root, and the differences between two snapshots.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::Read as _,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    dir_index::{DirIndex, entries},
    git_dirs::GitDirs,
    protected_names::{ProtectedNames, is_within},
    stamp::Stamp,
};

/// The maximum number of compared entries per protected directory. A larger directory is compared as a whole.
const MAX_ENTRIES: usize = 512;
/// The maximum size of a git directory's file that can be restored.
const MAX_ORIGINAL: usize = 256 << 10;
/// The largest file whose content is compared.
pub(super) const MAX_CONTENT: u64 = 1 << 20;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    Folder,
    File,
    Other,
}

/// The rule that applies to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Rule {
    /// It must be neither created nor changed.
    Fixed,
    /// The same in a git directory: the original is restored.
    GitFixed,
    /// A git config file, which a command may create. Only settings that run nothing stay.
    GitConfig,
    /// A file named `.git` that points to a git directory.
    GitLink,
    /// A file that names the directory with the settings of a git directory.
    GitCommonDir,
    /// A rebase todo list, which may contain commands.
    GitSteps,
    /// A file that programs outside the sandbox run. Changes are allowed and reported.
    Project,
    /// The merge strategy of a rebase or cherry-pick, which can name a program.
    GitStrategy,
}

impl Rule {
    fn is_git(self) -> bool {
        !matches!(self, Self::Fixed | Self::Project)
    }
}

/// A protected file or directory, or something in such a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Item {
    stamp: Stamp,
    kind: Kind,
    rule: Rule,
    /// The number of path components inside the protected directory.
    depth: usize,
    /// A hash of the content, where it was read.
    content: Option<[u8; 32]>,
    mode: u32,
    /// The content of a file, or the target of a link, in a git directory.
    bytes: Option<Vec<u8>>,
}

/// Items by their paths.
pub(super) type Items = BTreeMap<PathBuf, Item>;

/// What a command did to a file of a git directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GitChange {
    pub(super) path: PathBuf,
    pub(super) rule: Rule,
    pub(super) before: Option<Original>,
}

/// A file or link as it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Original {
    pub(super) is_link: bool,
    pub(super) mode: u32,
    pub(super) bytes: Vec<u8>,
}

/// What a command did to protected places.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// New files and directories, and those that replaced others; with the files in each.
    pub(super) new: Vec<(PathBuf, Vec<PathBuf>)>,
    /// Files whose content was changed in place.
    pub(super) changed: Vec<PathBuf>,
    /// Files of git directories.
    pub(super) git: Vec<GitChange>,
    /// Files that programs run outside of the sandbox.
    pub(super) project: Vec<PathBuf>,
}

impl Differences {
    pub(super) fn is_empty(&self) -> bool {
        self.new.is_empty() && self.changed.is_empty() && self.git.is_empty() && self.project.is_empty()
    }
}

/// Collects the items of a current index. Files within `skipped` belong to Helve.
pub(super) fn collect(
    root: &Path,
    index: &DirIndex,
    git: &GitDirs,
    names: &ProtectedNames,
    skipped: Option<&Path>,
) -> Items {
    let mut found = Collector { items: Items::new(), root, skipped };
    for (dir, entry) in index.iter() {
        for name in entry.project().take(MAX_ENTRIES) {
            found.add_one(&dir.join(name), Rule::Project);
        }
    }
    for (dir, entry) in index.iter() {
        for name in entry.protected() {
            found.add(&dir.join(name), Rule::Fixed);
        }
    }
    for place in &names.places {
        found.add(&root.join(place), Rule::Fixed);
    }
    if names.home.starts_with(root) {
        for place in &names.at_home {
            found.add(&names.home.join(place), Rule::Fixed);
        }
    }
    for file in &git.included {
        found.add_one(file, Rule::GitConfig);
    }
    for link in &git.links {
        found.add_one(link, Rule::GitLink);
    }
    for dir in &git.dirs {
        found.add_git_dir(dir, names);
    }
    found.items
}

struct Collector<'a> {
    items: Items,
    root: &'a Path,
    skipped: Option<&'a Path>,
}

impl Collector<'_> {
    fn add(&mut self, path: &Path, rule: Rule) {
        let Some(about) = self.look(path) else { return };
        let mut inside = Vec::new();
        let whole = !about.is_dir() || list(path, about.permissions().mode(), 1, &mut inside);
        self.items.insert(path.to_owned(), Item::new(&about, rule, 0));
        for (path, about, depth) in inside.into_iter().filter(|_| whole) {
            self.items.insert(path, Item::new(&about, rule, depth));
        }
    }

    fn add_one(&mut self, path: &Path, rule: Rule) {
        if let Some(about) = self.look(path) {
            self.items.insert(path.to_owned(), Item::new(&about, rule, 0));
        }
    }

    fn look(&self, path: &Path) -> Option<fs::Metadata> {
        let is_own = is_within(path, self.skipped) || self.skipped.is_some_and(|own| own.starts_with(path));
        if is_own { None } else { fs::symlink_metadata(path).ok() }
    }

    /// Adds what makes git run programs in a git directory, directly or indirectly.
    fn add_git_dir(&mut self, git: &Path, names: &ProtectedNames) {
        for name in ["config", "config.worktree"] {
            let path = git.join(name);
            let Some(about) = self.look(&path) else { continue };
            let rule = if about.is_file() { Rule::GitConfig } else { Rule::GitFixed };
            self.items.insert(path.clone(), Item::new(&about, rule, 0));
            if about.is_symlink()
                && let Some(real) = self.behind(&path)
            {
                self.add_one(&real, Rule::GitConfig);
            }
        }
        self.add_one(&git.join("commondir"), Rule::GitCommonDir);
        self.add_one(&git.join("rebase-merge/git-rebase-todo"), Rule::GitSteps);
        for name in ["rebase-merge/strategy", "sequencer/opts"] {
            self.add_one(&git.join(name), Rule::GitStrategy);
        }
        // Git creates these directories with samples that it does not run.
        for name in ["hooks", "remotes", "branches"] {
            let path = git.join(name);
            let Some(about) = self.look(&path) else { continue };
            if about.is_dir() {
                self.add_entries(&path, about.permissions().mode());
                continue;
            }
            self.add(&path, Rule::GitFixed);
            if let Some(real) = self.behind(&path).filter(|real| real.is_dir()) {
                self.add_entries(&real, 0o700);
            }
        }
        // Protection by name covers only `.git`; a bare repository has any name.
        let known = ["config", "config.worktree", "commondir", "hooks", "gitdir"];
        for name in names.in_repository(true).filter(|it| !known.contains(&it.as_str()) && !it.contains('*')) {
            self.add(&git.join(name), Rule::GitFixed);
        }
    }

    fn add_entries(&mut self, dir: &Path, mode: u32) {
        let mut paths: Vec<PathBuf> = entries(dir, mode).iter().map(fs::DirEntry::path).collect();
        paths.retain(|path| path.extension().is_none_or(|end| end != "sample"));
        if paths.len() > MAX_ENTRIES {
            // Too many entries: compare the directory as a whole.
            self.add_one(dir, Rule::GitFixed);
            return;
        }
        for path in paths {
            self.add(&path, Rule::GitFixed);
        }
    }

    fn behind(&self, link: &Path) -> Option<PathBuf> {
        fs::canonicalize(link).ok().filter(|real| real.starts_with(self.root))
    }
}

/// Lists a protected directory recursively; returns whether the list is complete.
fn list(dir: &Path, mode: u32, depth: usize, found: &mut Vec<(PathBuf, fs::Metadata, usize)>) -> bool {
    for entry in entries(dir, mode) {
        if found.len() >= MAX_ENTRIES {
            return false;
        }
        let path = entry.path();
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        let (is_dir, mode) = (about.is_dir(), about.permissions().mode());
        found.push((path.clone(), about, depth));
        if is_dir && !list(&path, mode, depth + 1, found) {
            return false;
        }
    }
    true
}

impl Item {
    fn new(about: &fs::Metadata, rule: Rule, depth: usize) -> Self {
        let kind = match about {
            it if it.is_dir() => Kind::Folder,
            it if it.is_file() => Kind::File,
            _ => Kind::Other,
        };
        let mode = about.permissions().mode() & 0o777;
        Self { stamp: Stamp::of(about), kind, rule, depth, content: None, mode, bytes: None }
    }

    /// The current item at the same path.
    pub(super) fn again(&self, path: &Path) -> Option<Self> {
        Some(Self::new(&fs::symlink_metadata(path).ok()?, self.rule, self.depth))
    }

    fn original(&self) -> Option<Original> {
        Some(Original { is_link: self.kind == Kind::Other, mode: self.mode, bytes: self.bytes.clone()? })
    }

    /// Whether nothing has changed since. The target of a link may still differ.
    fn still_holds(&self, later: &Self) -> bool {
        self.kind != Kind::Other && self.stamp.still_holds(&later.stamp)
    }

    /// Reads what is compared later.
    fn read(&mut self, path: &Path, root: &Path) {
        match self.kind {
            Kind::Folder => {}
            Kind::File => {
                let bytes = read_file(path);
                let bytes = if self.rule == Rule::Project { bytes.map(|it| run_part(path, it)) } else { bytes };
                self.content = bytes.as_ref().map(|bytes| Sha256::digest(bytes).into());
                self.bytes = bytes.filter(|it| self.rule.is_git() && it.len() <= MAX_ORIGINAL);
            }
            Kind::Other => {
                let to = fs::read_link(path).ok();
                self.content = to.as_ref().map(|to| {
                    let behind = if self.rule.is_git() { Vec::new() } else { behind(path, root) };
                    Sha256::digest([to.as_os_str().as_bytes(), &behind].concat()).into()
                });
                self.bytes = to.filter(|_| self.rule.is_git()).map(|to| to.into_os_string().into_vec());
            }
        }
    }
}

/// The part of a project file that programs run.
fn run_part(path: &Path, bytes: Vec<u8>) -> Vec<u8> {
    if path.file_name().is_none_or(|name| !name.eq_ignore_ascii_case("package.json")) {
        return bytes;
    }
    let value = serde_json::from_slice::<serde_json::Value>(&bytes);
    value.map(|value| value.get("scripts").map(|it| it.to_string().into_bytes()).unwrap_or_default()).unwrap_or(bytes)
}

/// The content behind a link beneath the root: a file's bytes, or the names and states of a directory's entries.
fn behind(link: &Path, root: &Path) -> Vec<u8> {
    let Some(real) = fs::canonicalize(link).ok().filter(|real| real.starts_with(root)) else { return Vec::new() };
    if let Some(bytes) = read_file(&real) {
        return bytes;
    }
    let mut all: Vec<_> = fs::read_dir(&real).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    all.sort();
    let state = |path: &PathBuf| {
        let about = fs::symlink_metadata(path).ok()?;
        Some(format!("{}\0{} {} {} {}\0", path.display(), about.ino(), about.len(), about.ctime(), about.ctime_nsec()))
    };
    all.iter().take(MAX_ENTRIES).filter_map(state).collect::<String>().into_bytes()
}

/// The content of a regular file that is not too large.
pub(super) fn read_file(path: &Path) -> Option<Vec<u8>> {
    let open = fs::OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    let mut bytes = Vec::new();
    let is_file = open.metadata().ok()?.is_file();
    open.take(MAX_CONTENT + 1).read_to_end(&mut bytes).ok()?;
    (is_file && bytes.len() as u64 <= MAX_CONTENT).then_some(bytes)
}

/// Reads the contents of new items and copies those of unchanged ones.
pub(super) fn read_contents(root: &Path, items: &mut Items, before: &Items) {
    for (path, item) in items {
        match before.get(path) {
            Some(old) if old.content.is_some() && old.still_holds(item) => {
                item.content = old.content;
                item.bytes.clone_from(&old.bytes);
            }
            _ => item.read(path, root),
        }
    }
}

/// The differences from an earlier snapshot.
pub(super) fn compare(root: &Path, before: &Items, now: &mut Items) -> Differences {
    let mut found = Differences::default();
    let paths: Vec<PathBuf> = now.keys().cloned().collect();
    let mut new = BTreeMap::<PathBuf, Vec<PathBuf>>::new();
    let by_file: HashMap<(u64, u64, u64), (&PathBuf, &Item)> =
        before.iter().map(|(path, item)| (item.stamp.file(), (path, item))).collect();
    for path in paths {
        let Some(item) = now.get_mut(&path) else { continue };
        let old = before.get(&path);
        if old.is_some_and(|old| old.still_holds(item)) {
            continue;
        }
        item.read(&path, root);
        let is_same = |old: &Item| match (old.kind, item.kind) {
            (Kind::Folder, Kind::Folder) => true,
            (a, b) if a != b => false,
            // Too large to be read.
            _ if old.content.is_none() && item.content.is_none() => old.stamp.is_same_state(&item.stamp),
            _ => old.content == item.content,
        };
        // A parent directory was renamed: the item is unchanged.
        let has_moved_along = |item: &Item| {
            let earlier = by_file.get(&item.stamp.file()).filter(|(_, it)| it.stamp.is_same_state(&item.stamp));
            path.parent() != Some(root)
                && earlier.is_some_and(|(from, it)| {
                    it.rule == item.rule && is_same(it) && (!item.rule.is_git() || is_same_role(from, &path, item.rule))
                })
        };
        let has_edited = old.is_some_and(|old| old.kind == item.kind && old.stamp.is_same_file(&item.stamp));
        match (old, item.rule) {
            (Some(old), _) if is_same(old) => {}
            (None, _) if has_moved_along(item) => {}
            // A file without anything to run, such as a manifest without scripts.
            (None, Rule::Project) if item.content == Some(Sha256::digest([]).into()) => {}
            (_, Rule::Project) if item.kind != Kind::Folder => found.project.push(path),
            (_, Rule::Project) => {}
            (Some(old), rule) if rule.is_git() => {
                found.git.push(GitChange { path, rule, before: old.original() });
            }
            (
                None,
                rule @ (Rule::GitConfig | Rule::GitLink | Rule::GitCommonDir | Rule::GitSteps | Rule::GitStrategy),
            ) => {
                found.git.push(GitChange { path, rule, before: None });
            }
            (Some(_), Rule::Fixed) if has_edited => found.changed.push(path),
            _ => {
                let (depth, kind) = (item.depth, item.kind);
                let top: PathBuf = (0..=depth)
                    .rev()
                    .map(|up| above(&path, up))
                    .find(|it| !before.contains_key(it))
                    .unwrap_or_else(|| path.clone());
                let files = new.entry(top).or_default();
                if kind != Kind::Folder {
                    files.push(path);
                }
            }
        }
    }
    found.new = new.into_iter().collect();
    found
}

/// Whether a moved file of a git directory has the same meaning to git: not if its git directory was renamed or moved
/// into a `.git` directory. Links and paths in it may resolve differently, so they are checked again.
fn is_same_role(from: &Path, to: &Path, rule: Rule) -> bool {
    let git_folders = |path: &Path| path.iter().filter(|part| *part == ".git").count();
    let names = |path: &Path| -> Vec<_> {
        path.ancestors().skip(1).take(2).map(|it| it.file_name().map(ToOwned::to_owned)).collect()
    };
    // `hooks/x` has its git directory two levels above, `config` one.
    let depth = if to.parent().and_then(Path::file_name).is_some_and(|name| name == "hooks") { 2 } else { 1 };
    !matches!(rule, Rule::GitLink | Rule::GitCommonDir)
        && git_folders(from) == git_folders(to)
        && names(from).iter().take(depth).eq(names(to).iter().take(depth))
}

/// The directory so many levels above.
fn above(path: &Path, levels: usize) -> PathBuf {
    path.ancestors().nth(levels).unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests;
