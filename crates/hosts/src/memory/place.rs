//! Where a path really is: links are followed, a part at a time.

use std::{
    collections::VecDeque,
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

use bashkit::{FileSystem, FileType, Metadata};
use helve_contract::{Error, FileFault, SafePath, nearest, ports::Kind};

use super::fault::fault;

/// How many links may be on a way.
const LINKS: usize = 40;
/// How many neighbours are compared with a name that is missing.
const NEIGHBOURS: usize = 10_000;

/// Whether the last part of a path is followed when it is a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Follow,
    Keep,
}

/// A place without links on the way to it.
pub(super) struct Place {
    /// The deepest folder (or thing) that is there.
    pub(super) here: PathBuf,
    /// What it is.
    pub(super) meta: Metadata,
    /// The parts that are not there.
    pub(super) missing: Vec<OsString>,
}

impl Place {
    /// Its whole path.
    pub(super) fn path(&self) -> PathBuf {
        self.missing.iter().fold(self.here.clone(), |path, part| path.join(part))
    }

    /// What is there, if anything.
    pub(super) fn there(&self) -> Option<&Metadata> {
        self.missing.is_empty().then_some(&self.meta)
    }
}

pub(super) fn kind(meta: &Metadata) -> Kind {
    match meta.file_type {
        FileType::File => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Symlink => Kind::Link,
        FileType::Fifo => Kind::Other,
    }
}

/// The place of a path.
pub(super) async fn find(files: &dyn FileSystem, path: &SafePath, last: Last) -> helve_contract::Result<Place> {
    follow(files, &path.on_host(), last).await.map_err(|fault| Error::file(path, fault))
}

/// The place of a path where something must be; what is near is told when nothing is.
pub(super) async fn need(files: &dyn FileSystem, path: &SafePath, last: Last) -> helve_contract::Result<Place> {
    let place = find(files, path, last).await?;
    match place.missing.first() {
        None => Ok(place),
        Some(part) => {
            let near = near(files, path, &place.here, &part.to_string_lossy()).await;
            Err(Error::file(path, FileFault::Missing { near }))
        }
    }
}

async fn near(files: &dyn FileSystem, path: &SafePath, here: &Path, wanted: &str) -> Vec<String> {
    let Ok(beneath) = here.strip_prefix(&path.root().dir) else { return Vec::new() };
    let entries = files.read_dir(here).await.unwrap_or_default();
    let mut names: Vec<&str> = entries.iter().map(|it| it.name.as_str()).take(NEIGHBOURS).collect();
    names.sort_unstable();
    nearest(wanted, names).into_iter().map(|name| path.shown(&beneath.join(name))).collect()
}

async fn follow(files: &dyn FileSystem, path: &Path, last: Last) -> Result<Place, FileFault> {
    let mut left: VecDeque<OsString> = parts(path);
    let mut here = PathBuf::from("/");
    let mut meta = files.lstat(&here).await.map_err(|error| fault(&error))?;
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == ".." {
            here.pop();
            meta = files.lstat(&here).await.map_err(|error| fault(&error))?;
            continue;
        }
        if !meta.file_type.is_dir() {
            return Err(FileFault::NotFolder);
        }
        let next = here.join(&part);
        let Ok(found) = files.lstat(&next).await else {
            let missing = std::iter::once(part).chain(left).collect();
            return Ok(Place { here, meta, missing });
        };
        if found.file_type.is_symlink() && (last == Last::Follow || !left.is_empty()) {
            links += 1;
            if links > LINKS {
                return Err(FileFault::LinkLoop);
            }
            let target = files.read_link(&next).await.map_err(|error| fault(&error))?;
            if target.is_absolute() {
                here = PathBuf::from("/");
                meta = files.lstat(&here).await.map_err(|error| fault(&error))?;
            }
            for part in parts(&target).into_iter().rev() {
                left.push_front(part);
            }
            continue;
        }
        here = next;
        meta = found;
    }
    Ok(Place { here, meta, missing: Vec::new() })
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
