//! Reverts a command's change to a file of a git directory that would make git run something.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::{
    git_config::{self, Verdict},
    git_dirs, integrity_notes as notes,
    items::{GitChange, Original, Rule, read_file},
    quarantine::Batch,
};

/// What to do about a change.
pub(super) enum Repair {
    /// Moves the file to the quarantine directory and restores the original.
    Undo,
    /// Replaces the config file by this text, without these settings.
    Settings(String, Vec<String>),
    /// Replaces the rebase todo list by this text.
    Steps(String),
}

/// The repair for a change; `None` if git runs nothing because of it.
pub(super) fn plan(change: &GitChange, root: &Path, other_roots: &[PathBuf]) -> Option<Repair> {
    let git_dir = change.path.parent()?;
    let before = change.before.as_ref().filter(|it| !it.is_link).map(|it| &it.bytes[..]);
    match change.rule {
        Rule::GitConfig => match read_file(&change.path).map(|now| git_config::judge(before, &now, git_dir, root)) {
            Some(Verdict::Keep) => None,
            Some(Verdict::Rewrite(text, removed)) => Some(Repair::Settings(text, removed)),
            Some(Verdict::Unreadable) | None => Some(Repair::Undo),
        },
        Rule::GitLink => {
            let to = git_dirs::target(&change.path);
            let is_safe =
                to.is_some_and(|to| git_dirs::may_lead_to(&to, root, other_roots) && git_dirs::is_harmless(&to, root));
            (!is_safe).then_some(Repair::Undo)
        }
        Rule::GitCommonDir => (!git_dirs::is_worktree_common_dir(git_dir)).then_some(Repair::Undo),
        Rule::GitSteps => {
            let Some(text) = read_file(&change.path) else { return Some(Repair::Undo) };
            git_dirs::without_exec(&String::from_utf8_lossy(&text)).map(Repair::Steps)
        }
        Rule::GitStrategy => {
            let text = read_file(&change.path).unwrap_or_default();
            let name = match change.path.file_name() {
                Some(name) if name == "opts" => git_config::strategy(&text),
                _ => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
            };
            let is_safe = name.is_ok_and(|name| name.is_none_or(|name| git_dirs::is_known_strategy(&name)));
            (!is_safe).then_some(Repair::Undo)
        }
        Rule::GitFixed | Rule::Fixed | Rule::Project => Some(Repair::Undo),
    }
}

impl Repair {
    /// The message if nothing may be moved.
    pub(super) fn warning(&self, path: &Path) -> String {
        match self {
            Self::Settings(_, keys) => notes::settings_stay(path, keys),
            Self::Undo | Self::Steps(_) => notes::created(path),
        }
    }

    /// Applies the repair; returns the message and the new path of the command's file.
    pub(super) fn apply(self, change: &GitChange, root: &Path, batch: &mut Batch) -> io::Result<(String, PathBuf)> {
        let path = &change.path;
        let mode = fs::symlink_metadata(path).map_or(0o644, |about| about.permissions().mode() & 0o777);
        let place = batch.take(root, path)?;
        let file = |text: String| Original { is_link: false, mode: mode | 0o600, bytes: text.into_bytes() };
        let note = match self {
            Self::Settings(text, keys) => {
                batch.put(root, path, &file(text))?;
                notes::settings_removed(path, &keys, &place)
            }
            Self::Steps(text) => {
                batch.put(root, path, &file(text))?;
                notes::steps_removed(path)
            }
            Self::Undo => match &change.before {
                Some(original) => {
                    batch.put(root, path, original)?;
                    notes::restored(path, &place)
                }
                None => return Ok((notes::moved(path, &place), place)),
            },
        };
        Ok((note, place))
    }
}
