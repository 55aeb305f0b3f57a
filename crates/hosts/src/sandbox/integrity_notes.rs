//! Messages of the integrity check to the model and the user.

use std::path::{Path, PathBuf};

use helve_contract::ProjectFile;

/// The maximum number of files that a reply lists.
pub(super) const MAX_NAMED: usize = 8;

const WHY: &str = "programs and agents obey a file of that name without asking";

/// Message about one moved file.
pub(super) fn moved(path: &Path, place: &Path) -> String {
    format!(
        "{} is protected and was created while commands ran. It was moved to {}, because {WHY}. A file that the user made \
         meanwhile is moved too. Ask the user to look at it and to put it in place",
        path.display(),
        place.display()
    )
}

pub(super) fn moved_notes(moved: &[(PathBuf, PathBuf)], quarantine: &Path) -> Vec<String> {
    let one = |(path, place): &(PathBuf, PathBuf)| self::moved(path, place);
    let mut notes: Vec<String> = moved.iter().take(MAX_NAMED).map(one).collect();
    if moved.len() > MAX_NAMED {
        let place = moved.first().and_then(|(_, place)| place.parent()).unwrap_or(quarantine);
        notes.push(format!(
            "{} more protected files were created while commands ran and were moved to {}; origins.txt there lists them",
            moved.len() - MAX_NAMED,
            place.display()
        ));
    }
    notes
}

pub(super) fn stays(path: &Path, object: &str) -> String {
    format!(
        "{} is protected and was written while commands ran. It stays, because the same content stands in commit {:.12}, \
         which was there before. Tell the user: {WHY}",
        path.display(),
        object
    )
}

pub(super) fn changed(path: &Path) -> String {
    format!(
        "{} is protected, but was changed while this command ran; the kernel could not prevent that here. Show the user \
         what changed before anything uses it",
        path.display()
    )
}

pub(super) fn created(path: &Path) -> String {
    format!(
        "{} is protected, but was created while this command ran, outside of a sandbox. Show it to the user before anything \
         uses it",
        path.display()
    )
}

pub(super) fn not_moved(path: &Path, error: &std::io::Error) -> String {
    format!(
        "{} is protected and was created while commands ran. It could not be moved away ({error}). Tell the user to remove \
         it: {WHY}",
        path.display()
    )
}

/// Message about denied files that a command created without a sandbox.
pub(super) fn denied_created(path: &Path) -> String {
    format!(
        "{} was created while this command ran, although a path rule denies writing it. Nothing prevents that outside of a \
         sandbox. Tell the user",
        path.display()
    )
}

/// Message about denied files that were moved.
pub(super) fn denied_moved(moved: &[(PathBuf, PathBuf)]) -> Vec<String> {
    let one = |(path, place): &(PathBuf, PathBuf)| {
        format!(
            "{} was created while commands ran, although a path rule denies writing it. It was moved to {}. Use another \
             name, or ask the user to change the rule",
            path.display(),
            place.display()
        )
    };
    let mut notes: Vec<String> = moved.iter().take(MAX_NAMED).map(one).collect();
    if let Some((_, place)) = moved.get(MAX_NAMED) {
        let dir = place.parent().unwrap_or(place).display();
        let more = moved.len() - MAX_NAMED;
        notes.push(format!(
            "{more} more files that a path rule denies were moved to {dir}; origins.txt there lists them"
        ));
    }
    notes
}

/// Message about a denied file that could not be moved.
pub(super) fn denied_not_moved(path: &Path, error: &std::io::Error) -> String {
    format!(
        "{} was created while commands ran, although a path rule denies writing it. It could not be moved away ({error}). \
         Tell the user to remove it",
        path.display()
    )
}

/// Message about settings removed from a git config file.
pub(super) fn settings_removed(path: &Path, keys: &[String], original: &Path) -> String {
    if keys.is_empty() {
        return format!("{} was written while commands ran, and was put into a plain form", path.display());
    }
    format!(
        "{} was written while commands ran. These settings were removed, because they can make git run programs outside of \
         the sandbox: {}. The file as it was is {}. Ask the user to set them if they are wanted",
        path.display(),
        keys.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", "),
        original.display()
    )
}

/// Message about dangerous git settings that stay because there is no sandbox.
pub(super) fn settings_stay(path: &Path, keys: &[String]) -> String {
    format!(
        "{} was written while commands ran and has settings that can make git run programs ({}). Show it to the user before \
         git is used there",
        path.display(),
        keys.join(", ")
    )
}

/// Message about a restored file of a git directory.
pub(super) fn restored(path: &Path, changed: &Path) -> String {
    format!(
        "{} is protected and was changed while commands ran. Its earlier content was put back, because git runs what it \
         names. The changed file is {}",
        path.display(),
        changed.display()
    )
}

/// Message about removed rebase steps.
pub(super) fn steps_removed(path: &Path) -> String {
    format!(
        "{} was written while commands ran. Its `exec` steps were removed, because `git rebase --continue` would run them \
         outside of the sandbox",
        path.display()
    )
}

/// Message about files that programs outside the sandbox run.
pub(super) fn project_files(root: &Path, files: &[PathBuf]) -> String {
    let named = |path: &PathBuf| {
        let short = path.strip_prefix(root).unwrap_or(path);
        let run_by = ProjectFile::find(short).map_or("programs", |row| row.run_by);
        format!("{} (run by {run_by})", short.display())
    };
    let mut text = files.iter().take(MAX_NAMED).map(named).collect::<Vec<_>>().join(", ");
    if files.len() > MAX_NAMED {
        text += &format!(" and {} more", files.len() - MAX_NAMED);
    }
    format!("This command wrote files that other programs run outside of the sandbox: {text}. Tell the user")
}

pub(super) fn partial(root: &Path) -> String {
    format!(
        "{} has more folders than are checked after a command; new protected files in the deepest ones are not noticed",
        root.display()
    )
}
