//! Removes placeholders of earlier versions: empty read-only files and directories in place of missing protected
//! ones.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::{FlockOperation, flock};

/// Removes the placeholders beneath a root that no running engine holds.
pub(super) fn remove<'a>(root: &Path, names: impl Iterator<Item = &'a String>) {
    for name in names {
        let path = root.join(name);
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        if !is_placeholder(&path, &about).unwrap_or(false) {
            continue;
        }
        // A process of an earlier version holds a lock while its command runs.
        let open = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path);
        let Ok(file) = open else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        // A directory that is not empty stays.
        _ = if about.is_dir() { fs::remove_dir(&path) } else { fs::remove_file(&path) };
    }
}

fn is_placeholder(path: &Path, about: &fs::Metadata) -> io::Result<bool> {
    let mode = about.mode() & 0o7777;
    if about.is_dir() {
        return Ok(mode == 0o555 && fs::read_dir(path)?.next().is_none());
    }
    let inside_git = path.parent().is_some_and(|above| above.ends_with(".git"));
    let content: &[u8] = if path.ends_with(".git/commondir") { b".\n" } else { b"" };
    let could_be =
        about.is_file() && inside_git && mode == 0o444 && about.nlink() == 1 && about.len() == content.len() as u64;
    Ok(could_be && (content.is_empty() || fs::read(path)? == content))
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn removes_placeholders_and_nothing_else() {
        let top = std::env::temp_dir().join(format!("helve-placeholders-{}", std::process::id()));
        fs::create_dir_all(top.join(".git")).unwrap();
        let names =
            [".claude", ".helve", ".idea", ".vscode", ".mcp.json", ".git/commondir", ".git/config"].map(str::to_owned);
        for name in &names[..4] {
            fs::create_dir(top.join(name)).unwrap();
        }
        fs::write(top.join(".idea/x"), "").unwrap();
        fs::write(top.join(".mcp.json"), "").unwrap();
        fs::write(top.join(".git/commondir"), ".\n").unwrap();
        fs::write(top.join(".git/config"), "[core]\n").unwrap();
        for name in [".claude", ".helve", ".idea"] {
            fs::set_permissions(top.join(name), Permissions::from_mode(0o555)).unwrap();
        }
        for name in [".mcp.json", ".git/commondir", ".git/config"] {
            fs::set_permissions(top.join(name), Permissions::from_mode(0o444)).unwrap();
        }
        let held = fs::File::open(top.join(".helve")).unwrap();
        flock(&held, FlockOperation::LockShared).unwrap();
        remove(&top, names.iter());
        let left: Vec<_> = names.iter().filter(|name| top.join(name).exists()).map(String::as_str).collect();
        assert_eq!(left, [".helve", ".idea", ".vscode", ".mcp.json", ".git/config"], "`.helve` is in use");
        drop(held);
        remove(&top, names.iter());
        assert!(!top.join(".helve").exists());
        fs::remove_dir_all(top).unwrap();
    }
}
