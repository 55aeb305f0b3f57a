//! Creating, replacing and removing files, all or none: everything is checked first, and taken back when one fails.

use std::{collections::BTreeSet, path::PathBuf};

use bashkit::FileSystem;
use helve_contract::{
    Error, FileFault, Result, SafePath,
    ports::{Change, Content, Expect, Kind, Written},
};

use super::{
    fault::fault,
    place::{self, Last, kind},
};

/// Creates or replaces a file and the folders above it.
pub(super) async fn write(files: &dyn FileSystem, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<Written> {
    let mut step = Step::check(files, path, Some(bytes), expect).await?;
    let created = step.before.is_none();
    if let Err(error) = step.commit(files).await {
        step.undo(files).await;
        return Err(error);
    }
    Ok(Written { created, remarks: Vec::new() })
}

/// Does all of the changes, or none.
pub(super) async fn change(files: &dyn FileSystem, changes: &[Change]) -> Result<Vec<String>> {
    let mut steps = Vec::with_capacity(changes.len());
    let mut seen = BTreeSet::new();
    for change in changes {
        let step = match change {
            Change::Write { path, bytes, expect, like } => {
                let mut step = Step::check(files, path, Some(bytes), *expect).await?;
                if let Some(like) = like {
                    step.mode = Some(place::need(files, like, Last::Follow).await?.meta.mode);
                }
                step
            }
            Change::Remove { path, expect } => Step::check(files, path, None, *expect).await?,
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

/// One change on its way.
struct Step<'a> {
    path: &'a SafePath,
    /// Where it really is.
    target: PathBuf,
    /// The new content; nothing when the file is to be removed.
    bytes: Option<&'a [u8]>,
    mode: Option<u32>,
    /// What was there: content and mode.
    before: Option<(Vec<u8>, u32)>,
    /// Folders that were made for it, the outermost first.
    made: Vec<PathBuf>,
}

impl<'a> Step<'a> {
    /// Refuses what cannot be done, and what is not as expected.
    async fn check(
        files: &dyn FileSystem,
        path: &'a SafePath,
        bytes: Option<&'a [u8]>,
        expect: Expect,
    ) -> Result<Self> {
        let place = match bytes {
            Some(_) => place::find(files, path, Last::Follow).await?,
            None => place::need(files, path, Last::Keep).await?,
        };
        let failed = |fault| Err(Error::file(path, fault));
        let before = match place.there().map(|meta| (kind(meta), meta.mode)) {
            None if kind(&place.meta) != Kind::Folder => return failed(FileFault::NotFolder),
            None => None,
            Some((Kind::File, mode)) => match files.read_file(&place.here).await {
                Ok(bytes) => Some((bytes, mode)),
                Err(error) => return failed(fault(&error)),
            },
            Some((Kind::Folder, _)) => return failed(FileFault::IsFolder),
            Some(_) => return failed(FileFault::NotRegular),
        };
        let meets = match (expect, &before) {
            (Expect::Anything, _) | (Expect::Absent, None) => true,
            (Expect::Absent, Some(_)) => return failed(FileFault::Exists),
            (Expect::Content(_), None) => false,
            (Expect::Content(wanted), Some((bytes, _))) => Content::of(bytes) == wanted,
        };
        if !meets {
            return failed(FileFault::Changed);
        }
        Ok(Self { path, target: place.path(), bytes, mode: None, before, made: Vec::new() })
    }

    async fn commit(&mut self, files: &dyn FileSystem) -> Result<()> {
        let (path, failed) = (self.path, |error: bashkit::Error| Error::file(self.path, fault(&error)));
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
            files.mkdir(&folder, false).await.map_err(|error| Error::file(path, fault(&error)))?;
            self.made.push(folder);
        }
        files.write_file(&self.target, bytes).await.map_err(|error| Error::file(path, fault(&error)))?;
        match self.mode {
            Some(mode) => files.chmod(&self.target, mode).await.map_err(|error| Error::file(path, fault(&error))),
            None => Ok(()),
        }
    }

    /// Takes it back. What was there had room before, so that this cannot fail.
    async fn undo(&mut self, files: &dyn FileSystem) {
        match &self.before {
            Some((bytes, mode)) => {
                _ = files.write_file(&self.target, bytes).await;
                _ = files.chmod(&self.target, *mode).await;
            }
            None => _ = files.remove(&self.target, false).await,
        }
        for folder in self.made.iter().rev() {
            _ = files.remove(folder, false).await;
        }
    }
}
