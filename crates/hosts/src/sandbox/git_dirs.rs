//! The git directories beneath a root, from which plain `git` reads config files and hooks.
//!
//! They are `.git` directories, bare repositories, directories of submodules and worktrees inside `.git`, and every
//! target of a `.git` file, a `commondir` file or a link. The directory index knows most of them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{
    dir_index::{DirIndex, INSIDE_GIT},
    git_config::{self, resolve},
    items::read_file,
};
use crate::supervise::Mounts;

/// The maximum number of git directories that mounts protect, nearest to the root first: each mount costs time. The
/// check after a command restores the others.
const MAX_MOUNTED: usize = 64;
/// The maximum number of included config files per git directory.
const MAX_INCLUDED: usize = 16;
/// What is read-only in a git directory that existed before the session's commands.
const READ_ONLY: [&str; 5] = ["config", "config.worktree", "hooks", "commondir", "info/attributes"];

/// The git directories of a root, and the files and links named `.git` that lead to one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GitDirs {
    pub(super) dirs: BTreeSet<PathBuf>,
    pub(super) links: BTreeSet<PathBuf>,
    /// Config files that git directories include.
    pub(super) included: BTreeSet<PathBuf>,
}

impl GitDirs {
    /// Finds them in a current index.
    pub(super) fn find(root: &Path, index: &DirIndex) -> Self {
        let mut found = Self::default();
        for (dir, entry) in index.iter() {
            if entry.has_git_layout {
                found.dirs.insert(dir.clone());
            }
            if !entry.is_repository {
                continue;
            }
            let git = dir.join(".git");
            match fs::symlink_metadata(&git) {
                Ok(about) if about.is_dir() => _ = found.dirs.insert(git),
                Ok(_) => {
                    found.dirs.extend(target(&git).filter(|to| to.starts_with(root) && to.is_dir()));
                    found.links.insert(git);
                }
                Err(_) => {}
            }
        }
        let common: Vec<PathBuf> = found.dirs.iter().filter_map(|dir| common_dir(dir)).collect();
        found.dirs.extend(common.into_iter().filter(|dir| dir.starts_with(root) && dir.is_dir()));
        found.included = found.dirs.iter().flat_map(|dir| included(dir, root)).collect();
        found
    }

    /// Adds what the later state contains and the earlier one does not.
    pub(super) fn add_new(&mut self, earlier: &Self, later: &Self) {
        self.dirs.extend(later.dirs.difference(&earlier.dirs).cloned());
        self.links.extend(later.links.difference(&earlier.links).cloned());
    }

    /// Removes entries that no longer exist: a recreated one may have another owner.
    pub(super) fn retain(&mut self, now: &Self) {
        self.dirs.retain(|dir| now.dirs.contains(dir));
        self.links.retain(|link| now.links.contains(link));
    }

    /// The mounts that protect config files and hooks, except those that the session's commands created.
    pub(super) fn mounts(&self, root: &Path, made: &Self) -> Mounts {
        let mut mounts = Mounts::default();
        let mut dirs: Vec<&PathBuf> = self.dirs.difference(&made.dirs).collect();
        dirs.sort_by_key(|dir| (dir.components().count(), dir.as_os_str().len()));
        let mut links: Vec<&PathBuf> = self.links.difference(&made.links).collect();
        links.sort_by_key(|link| link.components().count());
        for dir in dirs.into_iter().take(MAX_MOUNTED) {
            let places: Vec<PathBuf> = READ_ONLY.iter().filter_map(|name| mountable(&dir.join(name), root)).collect();
            if places.is_empty() {
                continue;
            }
            // A git directory must not be replaced, nor `.git/modules` above it. A directory that contains a
            // repository may be moved as a whole.
            let parts: Vec<PathBuf> = dir.ancestors().take_while(|it| *it != root).map(Path::to_owned).collect();
            let outermost = parts.iter().rposition(|it| it.file_name().is_some_and(|name| name == ".git"));
            mounts.pinned.extend(parts.into_iter().take(outermost.unwrap_or(0) + 1).rev());
            mounts.read_only.extend(places);
        }
        mounts.read_only.extend(links.into_iter().take(MAX_MOUNTED).filter_map(|link| mountable(link, root)));
        let made_by_commands: BTreeSet<PathBuf> = made.dirs.iter().flat_map(|dir| included(dir, root)).collect();
        mounts.read_only.extend(self.included.difference(&made_by_commands).take(MAX_MOUNTED).cloned());
        for list in [&mut mounts.pinned, &mut mounts.read_only] {
            let mut seen = BTreeSet::new();
            list.retain(|path| seen.insert(path.clone()));
        }
        mounts
    }
}

/// The path to mount: the path itself or the target of a link. `None` outside the root.
fn mountable(path: &Path, root: &Path) -> Option<PathBuf> {
    let about = fs::symlink_metadata(path).ok()?;
    if !about.is_symlink() {
        return (about.is_dir() || about.is_file()).then(|| path.to_owned());
    }
    fs::canonicalize(path).ok().filter(|real| real.starts_with(root) && real != root)
}

/// The resolved target of a `.git` file or link; the final component need not exist.
pub(super) fn target(link: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(link).ok()?;
    if real.is_dir() {
        return Some(real);
    }
    let text = path_text(&real)?;
    let to = text.strip_prefix("gitdir: ")?.trim_end_matches(['\r', '\n']);
    // Git resolves it relative to the directory of the name, not of the link's target.
    resolve(&link.parent()?.join(to))
}

/// The directory that a `commondir` file names.
pub(super) fn common_dir(git_dir: &Path) -> Option<PathBuf> {
    let text = path_text(&fs::canonicalize(git_dir.join("commondir")).ok()?)?;
    resolve(&git_dir.join(text.trim_end_matches(['\r', '\n'])))
}

/// The text of a file that contains a path. Git stops at a NUL byte, so such a file is refused.
fn path_text(file: &Path) -> Option<String> {
    String::from_utf8(read_file(file)?).ok().filter(|text| !text.contains('\0'))
}

/// Whether nothing in a git directory makes git run a program. A `.git` directory is the user's or was checked; any
/// other git directory may be untrusted project content.
pub(super) fn is_harmless(git_dir: &Path, root: &Path) -> bool {
    let beneath = git_dir.strip_prefix(root).unwrap_or(git_dir);
    if beneath.iter().any(|part| part == ".git") {
        return true;
    }
    let dirs = [Some(git_dir.to_owned()), common_dir(git_dir)];
    dirs.into_iter().flatten().all(|dir| {
        let settings = ["config", "config.worktree"].map(|name| dir.join(name));
        let runs_nothing = |path: &PathBuf| {
            if fs::symlink_metadata(path).is_err() {
                return true;
            }
            let text = fs::canonicalize(path).ok().and_then(|real| read_file(&real));
            text.is_some_and(|text| git_config::runs_nothing(&text, &dir, root))
        };
        let hooks = fs::read_dir(dir.join("hooks")).into_iter().flatten().flatten();
        settings.iter().all(runs_nothing)
            && hooks.map(|it| it.path()).all(|it| it.extension().is_some_and(|end| end == "sample"))
    })
}

/// Whether git implements a merge strategy. Any other name is a program, possibly in the work tree.
pub(super) fn is_known_strategy(name: &str) -> bool {
    ["ort", "recursive", "resolve", "octopus", "ours", "subtree"].contains(&name.trim())
}

/// The included config files of a git directory, beneath the root.
fn included(git_dir: &Path, root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![git_dir.join("config"), git_dir.join("config.worktree")];
    while let Some(file) = open.pop() {
        let Some(text) = fs::canonicalize(&file).ok().and_then(|real| read_file(&real)) else { continue };
        for path in git_config::included(&text) {
            let Some(real) = file.parent().and_then(|dir| fs::canonicalize(dir.join(path)).ok()) else { continue };
            if real.starts_with(root) && found.len() < MAX_INCLUDED && found.insert(real.clone()) {
                open.push(real);
            }
        }
    }
    found
}

/// Whether a command may leave a `.git` file with this target: a checked git directory.
pub(super) fn may_lead_to(target: &Path, root: &Path, other_roots: &[PathBuf]) -> bool {
    let is_indexed = |root: &PathBuf| {
        let beneath = target.strip_prefix(root).ok();
        beneath.is_some_and(|it| {
            it.iter().any(|part| part == ".git") && !it.iter().any(|p| INSIDE_GIT.iter().any(|i| p == *i))
        })
    };
    target.starts_with(root) && target != root || other_roots.iter().any(is_indexed)
}

/// Whether a command may leave a `commondir` file: only in a worktree, with its enclosing repository as target.
pub(super) fn is_worktree_common_dir(git_dir: &Path) -> bool {
    let above = git_dir.parent();
    above.is_some_and(|it| it.file_name().is_some_and(|name| name == "worktrees"))
        && common_dir(git_dir).is_some_and(|common| above.and_then(Path::parent) == Some(common.as_path()))
}

/// A rebase todo list without the steps that run commands; `None` if it has none.
pub(super) fn without_exec(todo: &str) -> Option<String> {
    let runs = |line: &&str| matches!(line.split_whitespace().next(), Some("exec" | "x"));
    todo.lines()
        .any(|line| runs(&line))
        .then(|| todo.lines().filter(|line| !runs(line)).flat_map(|it| [it, "\n"]).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::sandbox::protected_names::ProtectedNames;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("helve-git-dirs-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Self(fs::canonicalize(dir).unwrap())
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn git_dir(&self, name: &str) {
            for file in ["HEAD", "config", "objects/x", "refs/x", "hooks/x.sample"] {
                self.write(&format!("{name}/{file}"), "");
            }
        }

        fn find(&self) -> GitDirs {
            let names = ProtectedNames::new(&[], &[".git/config".to_owned()], &[], "/nowhere".into());
            let mut index = DirIndex::default();
            index.update(&self.0, None, &names);
            GitDirs::find(&self.0, &index)
        }

        fn short<'a>(&self, list: impl IntoIterator<Item = &'a PathBuf>) -> Vec<String> {
            list.into_iter().map(|it| it.strip_prefix(&self.0).unwrap().to_str().unwrap().to_owned()).collect()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn finds_every_kind_of_git_folder() {
        let tree = Tree::new("kinds");
        for dir in [".git", ".git/modules/a/b", "sub/.git", "bare", ".git/objects/hidden", "elsewhere/x"] {
            tree.git_dir(dir);
        }
        tree.write(".git/worktrees/w/HEAD", "");
        tree.write(".git/worktrees/w/commondir", "../..\n");
        tree.write("s/.git", "gitdir: ../.git/objects/hidden\n");
        tree.write("w/.git", "gitdir: /nowhere/at/all\n");
        tree.write("empty/.git/config", "");
        tree.write("odd/HEAD", "");
        tree.write("odd/commondir", "../elsewhere/y\n");
        tree.write("elsewhere/y/config", "");
        fs::create_dir(tree.0.join("l")).unwrap();
        symlink("../elsewhere/x", tree.0.join("l/.git")).unwrap();
        let found = tree.find();
        assert_eq!(
            tree.short(&found.dirs),
            [
                ".git",
                ".git/modules/a/b",
                ".git/objects/hidden",
                ".git/worktrees/w",
                "bare",
                "elsewhere/x",
                "elsewhere/y",
                "empty/.git",
                "odd",
                "sub/.git",
            ]
        );
        assert_eq!(tree.short(&found.links), ["l/.git", "s/.git", "w/.git"]);
    }

    #[test]
    fn mounts_hold_what_was_there_and_leave_open_what_commands_made() {
        let tree = Tree::new("mounts");
        for dir in [".git", ".git/modules/s", "a/sub/.git", "mine/.git"] {
            tree.git_dir(dir);
        }
        tree.write("a/s/.git", "gitdir: ../../.git/modules/s\n");
        let made = GitDirs { dirs: [tree.0.join("mine/.git")].into(), ..GitDirs::default() };
        let mounts = tree.find().mounts(&tree.0, &made);
        assert_eq!(tree.short(&mounts.pinned), [".git", "a/sub/.git", ".git/modules", ".git/modules/s"]);
        let places =
            [".git", "a/sub/.git", ".git/modules/s"].map(|dir| ["config", "hooks"].map(|it| format!("{dir}/{it}")));
        assert_eq!(tree.short(&mounts.read_only), [&places.concat()[..], &["a/s/.git".to_owned()]].concat());
    }

    #[test]
    fn links_must_lead_to_git_folders_that_are_checked() {
        let others = [PathBuf::from("/other")];
        let may = |to: &str| may_lead_to(Path::new(to), Path::new("/w"), &others);
        assert!(may("/w/.git/modules/s") && may("/w/x") && may("/other/.git/worktrees/w"));
        assert!(!may("/") && !may("/w") && !may("/tmp/x") && !may("/other/x") && !may("/other/.git/objects/x"));
    }

    #[test]
    fn only_project_folders_that_run_nothing_may_be_linked() {
        let tree = Tree::new("linked");
        for dir in ["plain", "settings", "hooked", "common", "a/.git"] {
            tree.git_dir(dir);
        }
        for dir in ["settings", "a/.git"] {
            tree.write(&format!("{dir}/config"), "[core]\n\tfsmonitor = x\n");
        }
        tree.write("hooked/hooks/pre-commit", "");
        tree.write("common/commondir", "../settings\n");
        let harmless = |name: &str| is_harmless(&tree.0.join(name), &tree.0);
        assert!(harmless("plain") && harmless("a/.git") && harmless("missing"));
        assert!(!harmless("settings") && !harmless("hooked") && !harmless("common"));
        assert!(is_known_strategy("ort\n") && !is_known_strategy("x/evil"));
        assert!(git_config::strategy(b"[options]\n\tstrategy = x/evil\n").unwrap().unwrap().contains('/'));
        tree.write("s/.git", "gitdir: ../plain\0/../a\n");
        assert_eq!(target(&tree.0.join("s/.git")), None, "git reads to the NUL byte only");
    }

    #[test]
    fn included_settings_files_are_found_beneath_the_root() {
        let tree = Tree::new("included");
        tree.git_dir(".git");
        tree.write(".git/config", "[include]\n\tpath = ../one\n[includeIf \"gitdir:/\"]\n\tpath = /etc/passwd\n");
        tree.write("one", "[include]\n\tpath = sub/two\n");
        tree.write("sub/two", "[include]\n\tpath = ../one\n");
        let found = tree.find();
        assert_eq!(tree.short(&found.included), ["one", "sub/two"]);
        let read_only = found.mounts(&tree.0, &GitDirs::default()).read_only;
        assert!(read_only.contains(&tree.0.join("one")) && read_only.contains(&tree.0.join("sub/two")));
    }

    #[test]
    fn submodules_with_any_name_are_found() {
        let tree = Tree::new("named");
        tree.git_dir(".git");
        for name in ["lfs", "objects", "info/x"] {
            tree.git_dir(&format!(".git/modules/{name}"));
        }
        tree.write(".git/modules/HEAD", "");
        tree.write(".git/modules/refs/x", "");
        let found = tree.find();
        for name in ["lfs", "objects", "info/x"] {
            assert!(found.dirs.contains(&tree.0.join(".git/modules").join(name)), "{name}: {:?}", found.dirs);
        }
    }

    #[test]
    fn steps_that_run_commands_leave_a_rebase() {
        assert_eq!(without_exec("pick 1 a\n# exec\n"), None);
        assert_eq!(
            without_exec("pick 1 exec\n x evil\nexec\tevil\npick 2\n").as_deref(),
            Some("pick 1 exec\npick 2\n")
        );
    }
}
