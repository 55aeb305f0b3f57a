//! Creates, replaces and removes files, all or none: checks every change first and rolls back when one fails.

use std::{collections::BTreeSet, path::PathBuf};

use bashkit::FileSystem;
use helve_contract::{
    Error, FileErrorKind, Result, SafePath,
    ports::{ContentDigest, Expect, FileChange, FileKind, WriteOutcome},
};

use super::{
    fault::from_bashkit_error,
    place::{self, FinalSymlink, kind},
};

/// Creates or replaces a file and the directories above it.
pub(super) async fn write(
    files: &dyn FileSystem,
    path: &SafePath,
    bytes: &[u8],
    expect: Expect,
) -> Result<WriteOutcome> {
    let mut step = MemoryChange::check(files, path, Some(bytes), expect).await?;
    let created = step.before.is_none();
    if let Err(error) = step.commit(files).await {
        step.undo(files).await;
        return Err(error);
    }
    Ok(WriteOutcome { created, remarks: Vec::new() })
}

/// Applies all changes or none.
pub(super) async fn change(files: &dyn FileSystem, changes: &[FileChange]) -> Result<Vec<String>> {
    let mut steps = Vec::with_capacity(changes.len());
    let mut seen = BTreeSet::new();
    for change in changes {
        let step = match change {
            FileChange::Write { path, bytes, expect, like } => {
                let mut step = MemoryChange::check(files, path, Some(bytes), *expect).await?;
                if let Some(like) = like {
                    step.mode = Some(place::resolve_existing(files, like, FinalSymlink::Follow).await?.meta.mode);
                }
                step
            }
            FileChange::Remove { path, expect } => MemoryChange::check(files, path, None, *expect).await?,
        };
        if !seen.insert(step.target.clone()) {
            return Err(Error::failed(format!("{} is changed twice; join the two changes into one", step.path)));
        }
        steps.push(step);
    }
    for at in 0..steps.len() {
        if let Err(error) = steps[at].commit(files).await {
            for step in steps[..=at].iter_mut().rev() {
                step.undo(files).await;
            }
            return Err(error);
        }
    }
    Ok(Vec::new())
}

/// One change in progress.
struct MemoryChange<'a> {
    path: &'a SafePath,
    /// The resolved path.
    target: PathBuf,
    /// The new content; `None` if the file is to be removed.
    bytes: Option<&'a [u8]>,
    mode: Option<u32>,
    /// The previous content and mode.
    before: Option<(Vec<u8>, u32)>,
    /// Directories created for it, outermost first.
    created_dirs: Vec<PathBuf>,
}

impl<'a> MemoryChange<'a> {
    /// Refuses impossible changes and unexpected content.
    async fn check(
        files: &dyn FileSystem,
        path: &'a SafePath,
        bytes: Option<&'a [u8]>,
        expect: Expect,
    ) -> Result<Self> {
        let place = match bytes {
            Some(_) => place::resolve(files, path, FinalSymlink::Follow).await?,
            None => place::resolve_existing(files, path, FinalSymlink::Keep).await?,
        };
        let failed = |fault| Err(Error::file(path, fault));
        let before = match place.existing().map(|meta| (kind(meta), meta.mode)) {
            None if kind(&place.meta) != FileKind::Folder => return failed(FileErrorKind::NotFolder),
            None => None,
            Some((FileKind::File, mode)) => match files.read_file(&place.here).await {
                Ok(bytes) => Some((bytes, mode)),
                Err(error) => return failed(from_bashkit_error(&error)),
            },
            Some((FileKind::Folder, _)) => return failed(FileErrorKind::IsFolder),
            Some(_) => return failed(FileErrorKind::NotRegular),
        };
        let meets = match (expect, &before) {
            (Expect::Anything, _) | (Expect::Absent, None) => true,
            (Expect::Absent, Some(_)) => return failed(FileErrorKind::Exists),
            (Expect::Content(_), None) => false,
            (Expect::Content(wanted), Some((bytes, _))) => ContentDigest::of(bytes) == wanted,
        };
        if !meets {
            return failed(FileErrorKind::Changed);
        }
        Ok(Self { path, target: place.path(), bytes, mode: None, before, created_dirs: Vec::new() })
    }

    async fn commit(&mut self, files: &dyn FileSystem) -> Result<()> {
        let (path, failed) = (self.path, |error: bashkit::Error| Error::file(self.path, from_bashkit_error(&error)));
        let Some(bytes) = self.bytes else {
            return files.remove(&self.target, false).await.map_err(failed);
        };
        let mut missing = Vec::new();
        for folder in self.target.ancestors().skip(1) {
            if files.lstat(folder).await.is_ok() {
                break;
            }
            missing.push(folder.to_owned());
        }
        for folder in missing.into_iter().rev() {
            files.mkdir(&folder, false).await.map_err(|error| Error::file(path, from_bashkit_error(&error)))?;
            self.created_dirs.push(folder);
        }
        files.write_file(&self.target, bytes).await.map_err(|error| Error::file(path, from_bashkit_error(&error)))?;
        match self.mode {
            Some(mode) => {
                files.chmod(&self.target, mode).await.map_err(|error| Error::file(path, from_bashkit_error(&error)))
            }
            None => Ok(()),
        }
    }

    /// Rolls the change back. The old content fitted before, so this cannot fail.
    async fn undo(&mut self, files: &dyn FileSystem) {
        match &self.before {
            Some((bytes, mode)) => {
                _ = files.write_file(&self.target, bytes).await;
                _ = files.chmod(&self.target, *mode).await;
            }
            None => _ = files.remove(&self.target, false).await,
        }
        for folder in self.created_dirs.iter().rev() {
            _ = files.remove(folder, false).await;
        }
    }
}
