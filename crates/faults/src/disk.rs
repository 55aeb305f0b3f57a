//! A small disk in a private mount namespace.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

/// How a test begins that says what it could not do.
pub const SKIPPED: &str = "SKIPPED";

/// Set for a process that has a namespace of its own.
const NAMESPACE_VAR: &str = "HELVE_TEST_MOUNTS";

/// The words that give a command a mount namespace in which it may mount; nothing where that is impossible.
pub fn unshare_command() -> Option<Vec<String>> {
    [["unshare", "-m", "--propagation", "private"].as_slice(), ["unshare", "-Urm"].as_slice()].into_iter().find_map(
        |words| {
            let (first, rest) = words.split_first()?;
            let mut command = Command::new(first);
            let script = "mount -t tmpfs -o size=64k none /mnt && touch /mnt/x";
            command.args(rest).args(["sh", "-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
            let works = command.status().is_ok_and(|it| it.success());
            works.then(|| words.iter().map(|&it| it.to_owned()).collect())
        },
    )
}

/// Continues inside a mount namespace: returns true there. Outside, it runs this program again in one with these
/// arguments and returns whether it succeeded; `None` if namespaces are unavailable.
pub fn rerun_in_mount_namespace(args: &[&str]) -> anyhow::Result<Option<bool>> {
    let Some(words) = unshare_command() else { return Ok(None) };
    let (first, rest) = words.split_first().context("no words")?;
    let mut command = Command::new(first);
    command.args(rest).arg(std::env::current_exe()?).args(args).env(NAMESPACE_VAR, "1");
    Ok(Some(command.status()?.success()))
}

/// Like `rerun_in_mount_namespace`, for a whole program: executes itself in a namespace. Returns only if that is
/// impossible.
pub fn exec_in_mount_namespace() {
    if in_mount_namespace() {
        return;
    }
    if let Some((words, own)) = unshare_command().zip(std::env::current_exe().ok())
        && let Some((first, rest)) = words.split_first()
    {
        let mut command = Command::new(first);
        let error = command.args(rest).arg(own).args(std::env::args_os().skip(1)).env(NAMESPACE_VAR, "1").exec();
        eprintln!("{first}: {error}");
    }
}

/// Whether this process may mount.
pub fn in_mount_namespace() -> bool {
    std::env::var_os(NAMESPACE_VAR).is_some()
}

/// A disk of a few bytes, as long as this lives.
#[derive(Debug)]
pub struct SmallDisk {
    place: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk of this size in KiB at a directory.
    pub fn mount(place: &Path, kib: u64) -> anyhow::Result<Self> {
        fs::create_dir_all(place)?;
        let size = format!("size={kib}k,mode=700");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(place).status()?;
        if !status.success() {
            bail!("no disk at {}", place.display());
        }
        Ok(Self { place: place.to_owned() })
    }

    /// Fills what is left of it, but for so many bytes. Somebody else may write at the same time.
    pub fn fill(&self, left: u64) -> anyhow::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(self.place.join("ballast"))?;
        let block = vec![0; 1 << 16];
        for size in [1 << 16, 1 << 12, 1 << 10] {
            while file.write_all(&block[..size]).is_ok() {}
        }
        file.set_len(file.metadata()?.len().saturating_sub(left)).context("filling the disk")
    }

    /// Makes room again.
    pub fn free(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.place.join("ballast"))?)
    }

    /// From now on nothing can be written.
    pub fn read_only(&self) -> anyhow::Result<()> {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.place).status()?;
        if status.success() { Ok(()) } else { bail!("the disk stays writable") }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("-l").arg(&self.place).status();
    }
}
