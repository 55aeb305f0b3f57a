//! Path resolution: follows links component by component.

use std::{
    collections::VecDeque,
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

use bashkit::{FileSystem, FileType, Metadata};
use helve_contract::{Error, FileErrorKind, SafePath, closest_names, ports::FileKind};

use super::fault::from_bashkit_error;

const MAX_SYMLINKS: usize = 40;
const MAX_SIMILAR_CANDIDATES: usize = 10_000;

/// Whether a final link is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FinalSymlink {
    Follow,
    Keep,
}

/// A path without links.
pub(super) struct ResolvedPath {
    /// The deepest existing entry.
    pub(super) here: PathBuf,
    pub(super) meta: Metadata,
    /// The components that do not exist.
    pub(super) missing: Vec<OsString>,
}

impl ResolvedPath {
    pub(super) fn path(&self) -> PathBuf {
        self.missing.iter().fold(self.here.clone(), |path, part| path.join(part))
    }

    /// The metadata, if the path exists.
    pub(super) fn existing(&self) -> Option<&Metadata> {
        self.missing.is_empty().then_some(&self.meta)
    }
}

pub(super) fn kind(meta: &Metadata) -> FileKind {
    match meta.file_type {
        FileType::File => FileKind::File,
        FileType::Directory => FileKind::Folder,
        FileType::Symlink => FileKind::Link,
        FileType::Fifo => FileKind::Other,
    }
}

/// Resolves a path.
pub(super) async fn resolve(
    files: &dyn FileSystem,
    path: &SafePath,
    last: FinalSymlink,
) -> helve_contract::Result<ResolvedPath> {
    follow(files, &path.host_path(), last).await.map_err(|fault| Error::file(path, fault))
}

/// Resolves a path that must exist; the error suggests similar names.
pub(super) async fn resolve_existing(
    files: &dyn FileSystem,
    path: &SafePath,
    last: FinalSymlink,
) -> helve_contract::Result<ResolvedPath> {
    let place = resolve(files, path, last).await?;
    match place.missing.first() {
        None => Ok(place),
        Some(part) => {
            let near = similar_paths(files, path, &place.here, &part.to_string_lossy()).await;
            Err(Error::file(path, FileErrorKind::Missing { near }))
        }
    }
}

async fn similar_paths(files: &dyn FileSystem, path: &SafePath, here: &Path, wanted: &str) -> Vec<String> {
    let Ok(beneath) = here.strip_prefix(&path.root().dir) else { return Vec::new() };
    let entries = files.read_dir(here).await.unwrap_or_default();
    let mut names: Vec<&str> = entries.iter().map(|it| it.name.as_str()).take(MAX_SIMILAR_CANDIDATES).collect();
    names.sort_unstable();
    closest_names(wanted, names).into_iter().map(|name| path.display_relative(&beneath.join(name))).collect()
}

async fn follow(files: &dyn FileSystem, path: &Path, last: FinalSymlink) -> Result<ResolvedPath, FileErrorKind> {
    let mut left: VecDeque<OsString> = parts(path);
    let mut here = PathBuf::from("/");
    let mut meta = files.lstat(&here).await.map_err(|error| from_bashkit_error(&error))?;
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == ".." {
            here.pop();
            meta = files.lstat(&here).await.map_err(|error| from_bashkit_error(&error))?;
            continue;
        }
        if !meta.file_type.is_dir() {
            return Err(FileErrorKind::NotFolder);
        }
        let next = here.join(&part);
        let Ok(found) = files.lstat(&next).await else {
            let missing = std::iter::once(part).chain(left).collect();
            return Ok(ResolvedPath { here, meta, missing });
        };
        if found.file_type.is_symlink() && (last == FinalSymlink::Follow || !left.is_empty()) {
            links += 1;
            if links > MAX_SYMLINKS {
                return Err(FileErrorKind::LinkLoop);
            }
            let target = files.read_link(&next).await.map_err(|error| from_bashkit_error(&error))?;
            if target.is_absolute() {
                here = PathBuf::from("/");
                meta = files.lstat(&here).await.map_err(|error| from_bashkit_error(&error))?;
            }
            for part in parts(&target).into_iter().rev() {
                left.push_front(part);
            }
            continue;
        }
        here = next;
        meta = found;
    }
    Ok(ResolvedPath { here, meta, missing: Vec::new() })
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}
