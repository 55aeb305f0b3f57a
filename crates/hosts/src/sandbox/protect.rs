//! Read-only mounts for existing protected paths.
//!
//! An existing path is mounted read-only over itself. A missing path gets no mount, so nothing is created in the
//! workspace. [`integrity`](super::integrity) moves it away after a command has created it.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use helve_contract::{Error, Result};

use crate::supervise::Mounts;

/// Refuses names that no mount can protect.
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

/// The mounts for these names beneath each root, and beneath the home directory if a root contains it.
pub(super) fn mounts<'a>(
    roots: impl Iterator<Item = &'a PathBuf>,
    names: &[String],
    at_home: &[String],
    home: &Path,
) -> Mounts {
    let mut mounts = Mounts::default();
    for root in roots {
        for name in names.iter().chain(at_home) {
            protect(root, Path::new(name), &mut mounts);
        }
        if home != root && home.starts_with(root) {
            for name in at_home {
                protect(home, Path::new(name), &mut mounts);
            }
        }
    }
    mounts
}

fn protect(root: &Path, name: &Path, mounts: &mut Mounts) {
    let mut at = root.to_owned();
    let mut pinned = Vec::new();
    let mut parts = name.components().peekable();
    while let Some(part) = parts.next() {
        at.push(part);
        let Ok(about) = fs::symlink_metadata(&at) else { return };
        // A link cannot be a mount point, but its target can.
        if about.is_symlink() {
            let real = fs::canonicalize(root.join(name));
            add(&mut mounts.read_only, real.into_iter().filter(|real| real.starts_with(root)));
            break;
        }
        if parts.peek().is_none() {
            add(&mut mounts.read_only, [at]);
            break;
        }
        if !about.is_dir() {
            // A file in the place of a directory, such as the `.git` of a worktree.
            add(&mut mounts.read_only, [at]);
            break;
        }
        pinned.push(at.clone());
    }
    add(&mut mounts.pinned, pinned);
}

fn add(list: &mut Vec<PathBuf>, paths: impl IntoIterator<Item = PathBuf>) {
    for path in paths {
        if !list.contains(&path) {
            list.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn mounts_what_exists_and_creates_nothing() {
        let top = std::env::temp_dir().join(format!("helve-protect-{}", std::process::id()));
        fs::create_dir_all(top.join(".git")).unwrap();
        fs::create_dir_all(top.join("conf")).unwrap();
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(top.join(".git/config"), "").unwrap();
        symlink("conf", top.join(".vscode")).unwrap();
        let top = fs::canonicalize(top).unwrap();
        let names = [".helve", ".git/config", ".git/hooks", ".vscode", "a/b/c"].map(str::to_owned);
        let mounts = mounts(std::iter::once(&top), &names, &[], Path::new("/nowhere"));
        assert_eq!(mounts.read_only, [top.join(".git/config"), top.join("conf")]);
        assert_eq!(mounts.pinned, [top.join(".git")], "a folder above a missing place may be renamed");
        assert!(!top.join(".helve").exists() && !top.join("a/b/c").exists());
        fs::remove_dir_all(top).unwrap();
    }
}
