//! Walks in-memory files with ripgrep's semantics for ignore files, hidden files, types and globs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use bashkit::FileSystem;
use helve_contract::ports::{FileKind, IgnoreOptions};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
    overrides::Override,
    types::Types,
};

use super::place::kind;

const MAX_DEPTH: usize = 256;

pub(super) struct WalkEntry {
    pub(super) path: PathBuf,
    pub(super) kind: FileKind,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
}

pub(super) struct WalkFilter<'a> {
    pub(super) noise: IgnoreOptions,
    pub(super) globs: Option<&'a Override>,
    pub(super) types: Option<&'a Types>,
}

/// The ignore files of a directory and its parents, innermost first.
struct IgnoreRules {
    own: Gitignore,
    above: Option<Arc<IgnoreRules>>,
}

/// Everything beneath a directory, sorted by path.
pub(super) async fn walk_all(files: &dyn FileSystem, from: &Path) -> Vec<WalkEntry> {
    let everything = IgnoreOptions { ignored: true, hidden: true };
    walk(files, from, &WalkFilter { noise: everything, globs: None, types: None }).await
}

/// The entries beneath a directory that pass the filter, sorted by path.
pub(super) async fn walk(files: &dyn FileSystem, from: &Path, sieve: &WalkFilter<'_>) -> Vec<WalkEntry> {
    let mut met = Vec::new();
    let (mut rules, mut in_git) = (None, false);
    if !sieve.noise.ignored {
        let mut above: Vec<&Path> = from.ancestors().skip(1).collect();
        above.reverse();
        for folder in above {
            in_git |= files.lstat(&folder.join(".git")).await.is_ok();
            rules = read_rules(files, folder, in_git, rules).await;
        }
    }
    let mut left = vec![(from.to_owned(), rules, in_git, 0)];
    while let Some((folder, above, in_git, depth)) = left.pop() {
        let in_git = in_git || files.lstat(&folder.join(".git")).await.is_ok();
        let rules = if sieve.noise.ignored { None } else { read_rules(files, &folder, in_git, above).await };
        for entry in files.read_dir(&folder).await.unwrap_or_default() {
            let (path, kind) = (folder.join(&entry.name), kind(&entry.metadata));
            if !is_included(sieve, rules.as_deref(), &path, kind == FileKind::Folder) {
                continue;
            }
            if kind == FileKind::Folder && depth < MAX_DEPTH {
                left.push((path.clone(), rules.clone(), in_git, depth + 1));
            }
            met.push(WalkEntry { path, kind, size: entry.metadata.size, modified: entry.metadata.modified });
        }
    }
    met.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    met
}

/// Order of precedence: globs, ignore files, types, hidden names.
fn is_included(sieve: &WalkFilter<'_>, rules: Option<&IgnoreRules>, path: &Path, is_folder: bool) -> bool {
    if let Some(globs) = sieve.globs.filter(|it| !it.is_empty()) {
        match globs.matched(path, is_folder) {
            Match::None => {}
            Match::Ignore(_) => return false,
            Match::Whitelist(_) => return true,
        }
    }
    let mut named = false;
    let mut next = rules;
    while let Some(rules) = next {
        match rules.own.matched(path, is_folder) {
            Match::None => next = rules.above.as_deref(),
            Match::Ignore(_) => return false,
            Match::Whitelist(_) => {
                named = true;
                break;
            }
        }
    }
    if let Some(types) = sieve.types.filter(|it| !it.is_empty()) {
        match types.matched(path, is_folder) {
            Match::None => {}
            Match::Ignore(_) => return false,
            Match::Whitelist(_) => named = true,
        }
    }
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().first() == Some(&b'.'));
    named || sieve.noise.hidden || !is_hidden
}

async fn read_rules(
    files: &dyn FileSystem,
    folder: &Path,
    in_git: bool,
    above: Option<Arc<IgnoreRules>>,
) -> Option<Arc<IgnoreRules>> {
    let mut builder = GitignoreBuilder::new(folder);
    let mut any = false;
    // Later files take precedence.
    for name in [".gitignore", ".ignore", ".rgignore"] {
        if name == ".gitignore" && !in_git {
            continue;
        }
        let Ok(bytes) = files.read_file(&folder.join(name)).await else { continue };
        any = true;
        for line in String::from_utf8_lossy(&bytes).lines() {
            // An invalid pattern is skipped, as in git.
            _ = builder.add_line(None, line);
        }
    }
    match builder.build() {
        Ok(own) if any => Some(Arc::new(IgnoreRules { own, above })),
        _ => above,
    }
}
