//! The start of a walk and the filters of the walker.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use helve_contract::{
    Access, Result, SafePath,
    ports::{FileKind, IgnoreOptions},
};
use ignore::WalkBuilder;
use rustix::{
    fd::OwnedFd,
    fs::{OFlags, fstat},
};

use crate::local::{beneath::Beneath, fault::FsError, files::kind, names::is_temporary};

/// The start of a walk, resolved beneath its root.
pub(in crate::local) struct WalkRoot<'a> {
    /// The requested path.
    pub(in crate::local) path: &'a SafePath,
    pub(in crate::local) top: Arc<OwnedFd>,
    /// The resolved path of the start, beneath the root.
    pub(in crate::local) real: PathBuf,
    pub(in crate::local) kind: FileKind,
    /// Whether any rule denies reads.
    has_deny_rules: bool,
}

impl<'a> WalkRoot<'a> {
    pub(in crate::local) fn resolve(beneath: &Beneath, path: &'a SafePath) -> Result<Self> {
        let opened = beneath.open(path, OFlags::PATH)?;
        let stat = fstat(&opened.fd).map_err(|errno| FsError::from(errno).with_path(path))?;
        let (top, kind) = (beneath.root_handle(path)?, kind(&stat));
        let real = opened.real.unwrap_or_else(|| path.relative().to_owned());
        if kind == FileKind::Folder {
            // The walker skips unreadable directories; at the start that would look like an empty directory.
            beneath
                .open_no_links(&top, &real, OFlags::RDONLY | OFlags::DIRECTORY)
                .map_err(|errno| FsError::from(errno).with_path(path))?;
        }
        Ok(Self { path, top, real, kind, has_deny_rules: path.rules().iter().any(|rule| rule.denies == Access::Read) })
    }

    /// The path for the walker: it lists names by path, and every hit is opened beneath the root's handle.
    pub(in crate::local) fn on_host(&self) -> PathBuf {
        let dir = &self.path.root().dir;
        if self.real.as_os_str().is_empty() { dir.clone() } else { dir.join(&self.real) }
    }

    /// The path of an entry beneath the root; `None` if a rule hides it.
    pub(in crate::local) fn relative<'p>(&self, met: &'p Path) -> Option<&'p Path> {
        let relative = strip_dir(&self.path.root().dir, met)?;
        let bytes = relative.as_os_str().as_bytes();
        if is_temporary(&bytes[memchr::memrchr(b'/', bytes).map_or(0, |at| at + 1)..]) {
            return None;
        }
        // A file that the caller named is exempt; entries found beneath a directory are checked.
        let denied = self.has_deny_rules && relative != self.real && !self.path.may_find(relative);
        (!denied).then_some(relative)
    }
}

/// Strips a directory prefix. The walker keeps the spelling of the directory, so a comparison of bytes suffices.
pub(super) fn strip_dir<'p>(folder: &Path, path: &'p Path) -> Option<&'p Path> {
    let (folder, path) = (folder.as_os_str().as_bytes(), path.as_os_str().as_bytes());
    let rest = path.strip_prefix(folder)?;
    let is_whole = folder.is_empty() || folder.ends_with(b"/") || rest.is_empty();
    let rest = if is_whole { rest } else { rest.strip_prefix(b"/")? };
    Some(Path::new(OsStr::from_bytes(rest)))
}

/// The number of walker threads: all cores, up to a limit.
fn thread_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(12)
}

/// A walker with ripgrep's defaults.
pub(in crate::local) fn builder(start: &WalkRoot<'_>, noise: IgnoreOptions) -> WalkBuilder {
    let mut builder = WalkBuilder::new(start.on_host());
    builder
        .threads(thread_count())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_under_a_whole_folder() {
        let seen = |folder: &str, path: &'static str| strip_dir(Path::new(folder), Path::new(path)).map(Path::to_owned);
        for (folder, path, want) in [
            ("/w", "/w/a/b", Some("a/b")),
            ("/w", "/w", Some("")),
            ("/w", "/wide/a", None),
            ("/", "/a", Some("a")),
            ("", "a/b", Some("a/b")),
            ("a", "b/a", None),
        ] {
            assert_eq!(seen(folder, path).as_deref(), want.map(Path::new), "{folder} {path}");
        }
    }
}
