//! Moves files that commands planted to a directory where no program uses them.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            ffi::OsStrExt as _,
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
        },
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{CWD, Mode, OFlags, RenameFlags, ResolveFlags, openat, openat2, renameat_with},
    io::Errno,
};

use super::items::Original;

/// The maximum number of entries and bytes copied to another file system. Larger trees are renamed in place to an
/// inert name.
const MAX_COPIED_ENTRIES: usize = 10_000;
const MAX_COPIED_BYTES: u64 = 256 << 20;

/// One run of the check: all its moves go to one new directory.
pub(super) struct Batch {
    /// The directory of all runs.
    base: PathBuf,
    id: String,
    /// Of this run, made when the first file is moved.
    dir: Option<(PathBuf, OwnedFd)>,
    count: usize,
}

impl Batch {
    pub(super) fn new(base: &Path) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let id = format!("{seconds}-{}-{number}", std::process::id());
        Self { base: base.to_owned(), id, dir: None, count: 0 }
    }

    /// Moves a file or directory beneath a root away; returns its new path. Follows no symbolic link.
    pub(super) fn take(&mut self, root: &Path, path: &Path) -> io::Result<PathBuf> {
        let relative = path.strip_prefix(root).map_err(io::Error::other)?;
        let name = relative.file_name().ok_or_else(|| io::Error::other("a root is not moved"))?;
        let parent = open_beneath(root, relative.parent().unwrap_or(Path::new("")))?;
        self.count += 1;
        let new_name = inert_name(name, self.count);
        let target = self.open();
        let Ok((dir, target)) = target else { return self.rename_in_place(&parent, path, name) };
        match rename(&parent, name, &target, &new_name) {
            Ok(()) => {}
            Err(Errno::XDEV) => {
                let aside = self.rename_in_place(&parent, path, name)?;
                let from = PathBuf::from(format!("/proc/self/fd/{}", parent.as_raw_fd()))
                    .join(aside.file_name().unwrap_or_default());
                let to = dir.join(&new_name);
                let mut left = (MAX_COPIED_ENTRIES, MAX_COPIED_BYTES);
                if copy(&from, &to, &mut left).is_err() {
                    _ = fs::remove_dir_all(&to);
                    _ = fs::remove_file(&to);
                    return Ok(aside);
                }
                if fs::symlink_metadata(&from)?.is_dir() {
                    fs::remove_dir_all(&from)?;
                } else {
                    fs::remove_file(&from)?;
                }
            }
            Err(Errno::NOENT) => return Err(Errno::NOENT.into()),
            Err(_) => return self.rename_in_place(&parent, path, name),
        }
        let origin = OpenOptions::new().append(true).create(true).mode(0o600).open(dir.join("origins.txt"));
        // A convenience for the user: the reply contains the same.
        _ = origin.and_then(|mut file| writeln!(file, "{}\t{}", new_name.display(), path.display()));
        Ok(dir.join(new_name))
    }

    /// Restores a file or link that was taken. Follows no symbolic link.
    pub(super) fn put(&self, root: &Path, path: &Path, original: &Original) -> io::Result<()> {
        let relative = path.strip_prefix(root).map_err(io::Error::other)?;
        let name = relative.file_name().ok_or_else(|| io::Error::other("a root is not written"))?;
        let parent = open_beneath(root, relative.parent().unwrap_or(Path::new("")))?;
        if original.is_link {
            return Ok(rustix::fs::symlinkat(OsStr::from_bytes(&original.bytes), &parent, name)?);
        }
        // Written under another name first: git may read it at any moment.
        let aside = OsString::from(format!(".helve-{}-{}", self.id, self.count));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&parent, &aside, flags, Mode::from_raw_mode(0o600))?);
        file.write_all(&original.bytes)?;
        file.set_permissions(Permissions::from_mode(original.mode))?;
        let done = renameat_with(&parent, &aside, &parent, name, RenameFlags::NOREPLACE);
        if done.is_err() {
            _ = rustix::fs::unlinkat(&parent, &aside, rustix::fs::AtFlags::empty());
        }
        Ok(done?)
    }

    fn open(&mut self) -> io::Result<(PathBuf, OwnedFd)> {
        if self.dir.is_none() {
            let dir = self.base.join(&self.id);
            DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
            let dir = fs::canonicalize(dir)?;
            let open = open_dir(&dir)?;
            self.dir = Some((dir, open));
        }
        match &self.dir {
            Some((dir, open)) => Ok((dir.clone(), open.try_clone()?)),
            None => Err(io::Error::other("no quarantine folder")),
        }
    }

    /// Fallback without a usable quarantine directory: rename to a name that no program uses.
    fn rename_in_place(&self, parent: &OwnedFd, path: &Path, name: &OsStr) -> io::Result<PathBuf> {
        let mut new_name = name.to_owned();
        new_name.push(format!(".quarantined-{}-{}", self.id, self.count));
        rename(parent, name, parent, &new_name)?;
        Ok(path.with_file_name(new_name))
    }
}

/// `1-mcp.json` for `.mcp.json`.
fn inert_name(name: &OsStr, count: usize) -> OsString {
    let text = name.to_string_lossy();
    let plain = text.trim_start_matches('.');
    format!("{count}-{}", if plain.is_empty() { "file" } else { plain }).into()
}

/// Renames without replacing anything. If the directory's mode forbids it, the owner gets write permission
/// temporarily.
fn rename(from: &OwnedFd, name: &OsStr, to: &OwnedFd, new_name: &OsStr) -> Result<(), Errno> {
    let attempt = || renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE);
    match attempt() {
        Err(Errno::ACCESS | Errno::PERM) => {}
        done => return done,
    }
    let mode = mode_of(from);
    if let Some(mode) = mode {
        _ = set_mode(from, mode | 0o700);
    }
    if let Ok(inner) =
        openat(from, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        && let Some(mode) = mode_of(&inner)
    {
        _ = set_mode(&inner, mode | 0o700);
    }
    let done = attempt();
    if let Some(mode) = mode {
        _ = set_mode(from, mode);
    }
    done
}

fn mode_of(file: &OwnedFd) -> Option<u32> {
    rustix::fs::fstat(file).ok().map(|about| about.st_mode & 0o7777)
}

/// A directory, opened without the right to read it. A link in its place is not followed.
pub(super) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// A directory beneath a root, reached without following any link.
fn open_beneath(root: &Path, relative: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = openat(CWD, root, flags, Mode::empty())?;
    if relative.as_os_str().is_empty() {
        return Ok(top);
    }
    let ways = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(&top, relative, flags, Mode::empty(), ways)?)
}

/// Sets the mode of a file that was opened by its path alone.
pub(super) fn set_mode(file: impl AsFd, mode: u32) -> io::Result<()> {
    fs::set_permissions(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()), Permissions::from_mode(mode))
}

/// Copies files, directories and links, and nothing else. No link is followed.
fn copy(from: &Path, to: &Path, left: &mut (usize, u64)) -> io::Result<()> {
    let about = fs::symlink_metadata(from)?;
    let too_much = || io::Error::other("too much to copy");
    left.0 = left.0.checked_sub(1).ok_or_else(too_much)?;
    if about.is_symlink() {
        symlink(fs::read_link(from)?, to)
    } else if about.is_dir() {
        if about.mode() & 0o500 != 0o500 {
            fs::set_permissions(from, Permissions::from_mode(about.mode() | 0o700))?;
        }
        DirBuilder::new().mode(0o700).create(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()), left)?;
        }
        Ok(())
    } else if about.is_file() {
        left.1 = left.1.checked_sub(about.len()).ok_or_else(too_much)?;
        let open = || OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(from);
        let mut source = match open() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                fs::set_permissions(from, Permissions::from_mode(about.mode() | 0o400))?;
                open()?
            }
            other => other?,
        };
        let mut target: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        io::copy(&mut source, &mut target).map(drop)
    } else {
        // A pipe, a socket or a device has nothing in it to keep.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("helve-quarantine-{name}-{}", std::process::id()));
            fs::create_dir_all(dir.join("root/sub")).unwrap();
            Self(fs::canonicalize(dir).unwrap())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn moves_files_folders_and_links_under_names_that_nothing_obeys() {
        let top = Scratch::new("moves");
        let root = top.0.join("root");
        fs::write(root.join("sub/.mcp.json"), "x").unwrap();
        fs::create_dir(root.join(".claude")).unwrap();
        fs::write(root.join(".claude/settings.json"), "y").unwrap();
        fs::set_permissions(root.join(".claude"), Permissions::from_mode(0o555)).unwrap();
        fs::set_permissions(root.join("sub"), Permissions::from_mode(0o555)).unwrap();
        symlink("/etc", root.join(".vscode")).unwrap();
        let mut batch = Batch::new(&top.0.join("quarantine"));
        let moved: Vec<PathBuf> = ["sub/.mcp.json", ".claude", ".vscode"]
            .iter()
            .map(|it| batch.take(&root, &root.join(it)).unwrap())
            .collect();
        let names: Vec<_> = moved.iter().map(|it| it.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["1-mcp.json", "2-claude", "3-vscode"]);
        assert_eq!(fs::read_to_string(&moved[0]).unwrap(), "x");
        assert_eq!(fs::read_to_string(moved[1].join("settings.json")).unwrap(), "y");
        assert_eq!(fs::read_link(&moved[2]).unwrap(), Path::new("/etc"));
        assert_eq!(fs::metadata(root.join("sub")).unwrap().mode() & 0o777, 0o555, "the folder is as it was");
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "only `sub` is left");
        let origins = fs::read_to_string(moved[0].with_file_name("origins.txt")).unwrap();
        assert!(origins.contains(&format!("1-mcp.json\t{}", root.join("sub/.mcp.json").display())), "{origins}");
    }

    #[test]
    fn a_link_on_the_way_is_not_followed() {
        let top = Scratch::new("links");
        fs::create_dir(top.0.join("outside")).unwrap();
        fs::write(top.0.join("outside/.mcp.json"), "theirs").unwrap();
        symlink(top.0.join("outside"), top.0.join("root/link")).unwrap();
        let mut batch = Batch::new(&top.0.join("quarantine"));
        assert!(batch.take(&top.0.join("root"), &top.0.join("root/link/.mcp.json")).is_err());
        assert_eq!(fs::read_to_string(top.0.join("outside/.mcp.json")).unwrap(), "theirs");
    }

    #[test]
    fn without_a_quarantine_folder_the_name_is_changed() {
        let top = Scratch::new("in-place");
        let root = top.0.join("root");
        fs::write(top.0.join("file"), "").unwrap();
        fs::write(root.join(".mcp.json"), "x").unwrap();
        let moved = Batch::new(&top.0.join("file/quarantine")).take(&root, &root.join(".mcp.json")).unwrap();
        assert_eq!(moved.parent(), Some(root.as_path()));
        assert!(moved.file_name().unwrap().to_str().unwrap().starts_with(".mcp.json.quarantined-"), "{moved:?}");
        assert_eq!(fs::read_to_string(&moved).unwrap(), "x");
    }

    #[test]
    fn a_copy_keeps_links_and_is_bounded() {
        let top = Scratch::new("copies");
        let from = top.0.join("root/sub");
        fs::write(from.join("a"), "abc").unwrap();
        symlink("/etc/passwd", from.join("l")).unwrap();
        let to = top.0.join("copy");
        copy(&from, &to, &mut (10, 10)).unwrap();
        assert_eq!(fs::read_to_string(to.join("a")).unwrap(), "abc");
        assert_eq!(fs::read_link(to.join("l")).unwrap(), Path::new("/etc/passwd"));
        assert!(copy(&from, &top.0.join("second"), &mut (10, 2)).is_err());
        assert!(copy(&from, &top.0.join("third"), &mut (2, 100)).is_err());
    }
}
