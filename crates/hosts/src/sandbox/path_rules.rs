//! Path rules for commands: which existing files are hidden and which are read-only.
//!
//! Mounts enforce them at L2 and L3. Other levels have no mounts and refuse commands while such files exist.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use helve_contract::{
    Access, Error, GlobReach, PathGlob, Result, SafePath,
    ports::{ProcessSpec, SandboxLevel},
};

use super::{dir_index::entries, stamp::Stamp};
use crate::supervise::Mounts;

/// The maximum number of mounts for one command.
const MAX_PLACES: usize = 1000;
/// The most directories that are looked at.
const MAX_DIRS: usize = 200_000;

/// Paths that path rules deny to a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeniedPlaces {
    pub(super) hidden: Vec<PathBuf>,
    pub(super) read_only: Vec<PathBuf>,
    /// Links with such names, and their targets.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Parent directories: renaming one would move a path out of its rule.
    pub(super) pinned: Vec<PathBuf>,
}

impl DeniedPlaces {
    fn len(&self) -> usize {
        self.hidden.len() + self.read_only.len()
    }

    /// Adds the mounts for read-only and pinned paths.
    pub(super) fn add_to(&self, mounts: &mut Mounts) {
        let add = |list: &mut Vec<PathBuf>, more: &[PathBuf]| {
            list.extend(more.iter().filter(|path| !list.contains(path)).cloned().collect::<Vec<_>>());
        };
        add(&mut mounts.pinned, &self.pinned);
        add(&mut mounts.read_only, &self.read_only);
    }

    /// Refuses a command at a level that cannot enforce the rules.
    pub(super) fn refuse_unless_enforced(&self, level: SandboxLevel) -> Result<()> {
        let Some(first) = self.hidden.iter().chain(&self.read_only).next().filter(|_| level < SandboxLevel::Nested)
        else {
            return Ok(());
        };
        let (what, others) = (if self.hidden.is_empty() { "change" } else { "read" }, self.len() - 1);
        let others = if others == 0 { String::new() } else { format!(" and {others} more") };
        Err(Error::denied(format!(
            "refused: a path rule denies {}{others}, and the sandbox level here ({}) cannot keep a command from it: it \
             could {what} it. Use the file tools, or ask the user to use sandbox level L2 or L3 or to change the rule",
            first.display(),
            level.name()
        )))
    }
}

/// Refuses a command on a host that cannot apply path rules to commands.
pub(crate) fn refuse_any(command: &ProcessSpec, host: &str) -> Result<()> {
    if command.roots.iter().all(|root| root.command_rules().next().is_none()) {
        return Ok(());
    }
    Err(Error::denied(format!(
        "refused: path rules deny some files, and {host} cannot keep a command from them. Use the file tools, or ask the \
         user to remove the rules or to run commands on this machine"
    )))
}

/// A directory as it was when it was last listed.
struct Listed {
    stamp: Stamp,
    /// Entries that a rule matches, with what it denies.
    denied: Vec<(PathBuf, Access)>,
    /// Links whose names a rule matches, and their targets.
    links: Vec<(PathBuf, PathBuf)>,
    /// Subdirectories that may contain more.
    inner: Vec<PathBuf>,
}

/// Finds denied places. Directories that have not changed since the last command are not listed again.
#[derive(Default)]
pub(super) struct PathRuleIndex(Mutex<HashMap<PathBuf, IndexedRoot>>);

/// The directories of one root, listed for these rules.
#[derive(Default)]
struct IndexedRoot {
    rules: Vec<(PathGlob, Access)>,
    dirs: HashMap<PathBuf, Listed>,
}

impl PathRuleIndex {
    /// The denied paths of these roots.
    pub(super) fn find<'a>(&self, roots: impl Iterator<Item = &'a SafePath>) -> Result<DeniedPlaces> {
        self.find_at_most(roots, MAX_PLACES)
    }

    /// Like `find`, without the limit for mounts.
    pub(super) fn find_all<'a>(&self, roots: impl Iterator<Item = &'a SafePath>) -> Result<DeniedPlaces> {
        self.find_at_most(roots, usize::MAX)
    }

    fn find_at_most<'a>(&self, roots: impl Iterator<Item = &'a SafePath>, most: usize) -> Result<DeniedPlaces> {
        let mut places = DeniedPlaces::default();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for root in roots {
            let rules: Vec<(PathGlob, Access)> = root.command_rules().collect();
            if rules.is_empty() {
                continue;
            }
            // Paths are mounted under the resolved path of the root.
            let Ok(top) = fs::canonicalize(&root.root().dir) else { continue };
            let indexed = known.entry(top.clone()).or_default();
            if indexed.rules != rules {
                *indexed = IndexedRoot { rules, dirs: HashMap::new() };
            }
            walk(&top, &indexed.rules, &mut indexed.dirs, &mut places)?;
            if places.len() > most {
                return Err(too_many("files", most));
            }
        }
        Ok(places)
    }
}

fn walk(
    top: &Path,
    rules: &[(PathGlob, Access)],
    known: &mut HashMap<PathBuf, Listed>,
    places: &mut DeniedPlaces,
) -> Result<()> {
    let mut queue = vec![top.to_owned()];
    let mut seen = 0;
    while let Some(dir) = queue.pop() {
        seen += 1;
        if seen > MAX_DIRS {
            return Err(too_many("folders to look at", MAX_DIRS));
        }
        let Ok(about) = fs::symlink_metadata(&dir) else { continue };
        let stamp = Stamp::of(&about);
        if !known.get(&dir).is_some_and(|it| it.stamp.still_holds(&stamp)) {
            let listed = list(&dir, top, rules, stamp, about.permissions().mode());
            known.insert(dir.clone(), listed);
        }
        let Some(listed) = known.get(&dir) else { continue };
        for (path, denies) in &listed.denied {
            let list = if *denies == Access::Read { &mut places.hidden } else { &mut places.read_only };
            if !list.contains(path) {
                list.push(path.clone());
                let above = path.ancestors().skip(1).take_while(|dir| *dir != top && dir.starts_with(top));
                let above: Vec<_> = above.filter(|dir| !places.pinned.iter().any(|it| it == dir)).collect();
                places.pinned.extend(above.into_iter().rev().map(Path::to_owned));
            }
        }
        let new = listed.links.iter().filter(|link| !places.links.contains(link)).cloned();
        let new: Vec<_> = new.collect();
        places.links.extend(new);
        queue.extend(listed.inner.iter().cloned());
    }
    Ok(())
}

fn too_many(what: &str, most: usize) -> Error {
    Error::denied(format!(
        "refused: the path rules are about more than {most} {what}, which the sandbox cannot hide one by one. Ask the user \
         to name a folder in the rule, such as `secrets/**`"
    ))
}

fn list(dir: &Path, top: &Path, rules: &[(PathGlob, Access)], stamp: Stamp, mode: u32) -> Listed {
    let mut listed = Listed { stamp, denied: Vec::new(), links: Vec::new(), inner: Vec::new() };
    for entry in entries(dir, mode) {
        let path = entry.path();
        let (Ok(kind), Ok(relative)) = (entry.file_type(), path.strip_prefix(top)) else { continue };
        // A link is only a name. Its target is checked by its own name, as in the file tools.
        if kind.is_symlink() {
            if rules.iter().any(|(glob, _)| glob.matches(relative)) {
                listed.links.extend(fs::read_link(&path).ok().map(|to| (path.clone(), to)));
            }
            continue;
        }
        let reach = |denies: Access| {
            let reaches = rules.iter().filter(|(_, it)| *it == denies).map(|(glob, _)| reach(glob, relative, kind));
            let reaches: Vec<_> = reaches.collect();
            (reaches.contains(&GlobReach::Whole), reaches.contains(&GlobReach::Inside))
        };
        let ((hidden, hides), (held, holds)) = (reach(Access::Read), reach(Access::Write));
        if hidden {
            listed.denied.push((path, Access::Read));
            continue;
        }
        if kind.is_dir() && (hides || holds && !held) {
            listed.inner.push(path.clone());
        }
        if held {
            listed.denied.push((path, Access::Write));
        }
    }
    listed
}

fn reach(glob: &PathGlob, relative: &Path, kind: fs::FileType) -> GlobReach {
    match glob.reach(relative) {
        // A file matches by its own name only.
        _ if !kind.is_dir() && glob.matches(relative) => GlobReach::Whole,
        _ if !kind.is_dir() => GlobReach::None,
        reach => reach,
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::{PathRule, PathRules, PathStyle, Root, RuleScope, Workspace};

    use super::*;

    fn places(top: &Path, rules: &[(&str, Access)], index: &PathRuleIndex) -> DeniedPlaces {
        let scope =
            |text: &str| RuleScope { is_absolute: text.starts_with('/'), binds_commands: true, ..RuleScope::default() };
        let rules =
            rules.iter().map(|(text, denies)| PathRule::new(PathGlob::new(text), *denies, "").scoped(scope(text)));
        let workspace = Workspace::new([Root::writable(top)], PathRules::new(rules), PathStyle::Relative);
        index.find([workspace.primary_root(Access::Read).unwrap()].iter()).unwrap()
    }

    #[test]
    fn existing_files_are_found_and_new_ones_too() {
        let folder = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(folder.path()).unwrap();
        for dir in ["secret/deep", "src", "keys"] {
            fs::create_dir_all(top.join(dir)).unwrap();
        }
        for file in ["secret/deep/a", "src/x.PEM", "src/y.rs", "deploy.sh", "keys/k"] {
            fs::write(top.join(file), "").unwrap();
        }
        std::os::unix::fs::symlink("src/y.rs", top.join("link.pem")).unwrap();
        let keys = top.join("keys").display().to_string();
        let rules = [
            ("**/*.pem", Access::Read),
            ("secret/**", Access::Read),
            ("deploy.sh", Access::Write),
            (&*keys, Access::Read),
        ];
        let index = PathRuleIndex::default();
        let sorted = |places: &DeniedPlaces| {
            let mut hidden = places.hidden.clone();
            hidden.sort();
            hidden
        };
        let found = places(&top, &rules, &index);
        assert_eq!(sorted(&found), ["keys", "secret", "src/x.PEM"].map(|it| top.join(it)));
        assert_eq!(found.read_only, [top.join("deploy.sh")]);
        assert_eq!(found.pinned, [top.join("src")]);
        fs::create_dir(top.join("src/new")).unwrap();
        fs::write(top.join("src/new/z.pem"), "").unwrap();
        let found = places(&top, &rules, &index);
        assert_eq!(sorted(&found), ["keys", "secret", "src/new/z.pem", "src/x.PEM"].map(|it| top.join(it)));
        assert!(found.refuse_unless_enforced(SandboxLevel::Full).is_ok());
        let refused = found.refuse_unless_enforced(SandboxLevel::Rules).unwrap_err().to_string();
        assert!(refused.contains("L2 or L3"), "{refused}");
    }
}
