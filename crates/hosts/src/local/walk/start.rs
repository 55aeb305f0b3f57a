//! Where a walk starts, and what it passes over.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use helve_contract::{
    Access, Result, SafePath,
    ports::{Kind, Noise},
};
use ignore::WalkBuilder;
use rustix::{
    fd::OwnedFd,
    fs::{OFlags, fstat},
};

use crate::local::{beneath::Beneath, fault::Trouble, files::kind, names::is_temporary};

/// The start of a walk, found beneath its root.
pub(in crate::local) struct Start<'a> {
    /// What was asked for.
    pub(in crate::local) path: &'a SafePath,
    /// The handle of the root.
    pub(in crate::local) top: Arc<OwnedFd>,
    /// Where the start really is, beneath the root.
    pub(in crate::local) real: PathBuf,
    /// What it is.
    pub(in crate::local) kind: Kind,
    /// Some rule forbids reading something.
    ruled: bool,
}

impl<'a> Start<'a> {
    pub(in crate::local) fn find(beneath: &Beneath, path: &'a SafePath) -> Result<Self> {
        let opened = beneath.open(path, OFlags::PATH)?;
        let stat = fstat(&opened.fd).map_err(|errno| Trouble::from(errno).about(path))?;
        let (top, kind) = (beneath.top(path)?, kind(&stat));
        let real = opened.real.unwrap_or_else(|| path.relative().to_owned());
        if kind == Kind::Folder {
            // The walker passes over what it may not read; at the start that would look like an empty folder.
            beneath
                .straight(&top, &real, OFlags::RDONLY | OFlags::DIRECTORY)
                .map_err(|errno| Trouble::from(errno).about(path))?;
        }
        Ok(Self { path, top, real, kind, ruled: path.rules().iter().any(|rule| rule.denies == Access::Read) })
    }

    /// Where the walker starts: it lists names by path, and everything it finds is opened beneath the root's handle.
    pub(in crate::local) fn on_host(&self) -> PathBuf {
        let dir = &self.path.root().dir;
        if self.real.as_os_str().is_empty() { dir.clone() } else { dir.join(&self.real) }
    }

    /// The path of something met, beneath the root; nothing for what must not be seen.
    pub(in crate::local) fn relative<'p>(&self, met: &'p Path) -> Option<&'p Path> {
        let relative = met.strip_prefix(&self.path.root().dir).ok()?;
        if is_temporary(relative.file_name().unwrap_or_default().as_encoded_bytes()) {
            return None;
        }
        let denied = self.ruled && self.path.rules().denial(relative, Access::Read).is_some();
        (!denied).then_some(relative)
    }
}

/// How many threads walk: all cores, to a degree.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(12)
}

/// A walker with ripgrep's defaults.
pub(in crate::local) fn builder(start: &Start<'_>, noise: Noise) -> WalkBuilder {
    let mut builder = WalkBuilder::new(start.on_host());
    builder
        .threads(threads())
        .follow_links(false)
        .hidden(!noise.hidden)
        .parents(!noise.ignored)
        .ignore(!noise.ignored)
        .git_global(!noise.ignored)
        .git_ignore(!noise.ignored)
        .git_exclude(!noise.ignored)
        .require_git(true)
        .current_dir(&start.path.root().dir);
    if !noise.ignored {
        builder.add_custom_ignore_filename(".rgignore");
    }
    builder
}
