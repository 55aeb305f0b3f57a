//! Notices changes that no wall could prevent.
//!
//! Without mounts, one name beneath a writable folder cannot be made read-only; and a repository that a command makes is
//! the command's own. Nothing is undone here, because somebody else may have made the change. It is told.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The most entries of a folder that are looked at.
const ENTRIES: usize = 256;

/// How some places looked before a command ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witness {
    protected: Vec<(PathBuf, Vec<Mark>)>,
    /// Folders of repositories that did not exist.
    fresh: Vec<PathBuf>,
}

/// Tells two states of a file apart.
type Mark = (PathBuf, u64, u64, i64, i64);

impl Witness {
    /// Looks at the protected places themselves: for levels that cannot protect them.
    pub(super) fn of_all<'a>(roots: impl Iterator<Item = &'a PathBuf>, names: &[String]) -> Self {
        let places = roots.flat_map(|root| names.iter().map(|name| root.join(name)));
        Self { protected: places.map(|place| (place.clone(), marks(&place))).collect(), fresh: Vec::new() }
    }

    /// Looks for what mounts do not hold: repositories that are not there yet, and protected places behind a link, which
    /// may itself be put elsewhere.
    pub(super) fn of_new<'a>(roots: impl Iterator<Item = &'a PathBuf>, names: &[String], at_home: &[String]) -> Self {
        let wanted = names.iter().any(|name| Path::new(name).starts_with(".git"));
        let mut seen = Self::default();
        for root in roots {
            let repository = root.join(".git");
            if wanted && fs::symlink_metadata(&repository).is_err() {
                seen.fresh.push(repository);
            }
            let linked = names.iter().chain(at_home).filter(|name| is_behind_a_link(root, Path::new(name)));
            seen.protected.extend(linked.map(|name| root.join(name)).map(|place| (place.clone(), marks(&place))));
        }
        seen
    }

    /// What has changed since, in words.
    pub(super) fn tell(&self) -> Vec<String> {
        let changed = self.protected.iter().filter(|(place, before)| marks(place) != *before).map(|(place, _)| {
            format!(
                "{} is protected, but was changed while this command ran; the kernel could not prevent that here. \
                 Show the user what changed before anything uses it",
                place.display()
            )
        });
        let planted = self.fresh.iter().filter_map(|dir| {
            let hooks = fs::read_dir(dir.join("hooks")).ok()?;
            let hook = hooks.flatten().take(ENTRIES).find(|it| it.path().extension().is_none_or(|end| end != "sample"))?;
            Some(format!(
                "this command made a repository with a hook of its own ({}), which git would run outside of the sandbox. \
                 Show it to the user before git is used there",
                hook.path().display()
            ))
        });
        changed.chain(planted).collect()
    }
}

/// Whether a name beneath a root, or a folder on the way to it, is a symbolic link.
fn is_behind_a_link(root: &Path, name: &Path) -> bool {
    let mut at = root.to_owned();
    name.components().any(|part| {
        at.push(part);
        fs::symlink_metadata(&at).is_ok_and(|about| about.is_symlink())
    })
}

/// A file, or a folder with its entries; nothing where nothing is.
fn marks(place: &Path) -> Vec<Mark> {
    let Some(mark) = mark(place) else { return Vec::new() };
    let mut all = vec![mark];
    let entries = fs::read_dir(place).into_iter().flatten().flatten().take(ENTRIES);
    all.extend(entries.filter_map(|entry| self::mark(&entry.path())));
    all.sort();
    all
}

fn mark(path: &Path) -> Option<Mark> {
    let about = fs::symlink_metadata(path).ok()?;
    Some((path.to_owned(), about.ino(), about.len(), about.mtime(), about.mtime_nsec()))
}
