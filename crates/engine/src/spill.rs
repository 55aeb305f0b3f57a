//! The file that holds the whole of a text that did not fit.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use rustix::{fs::OFlags, process::geteuid};

/// How often old files are looked for.
const SWEEP: Duration = Duration::from_secs(60);
/// All files together, unless said otherwise.
const TOTAL: u64 = 256 << 20;
const SUFFIX: &str = ".txt";

/// A private folder for whole outputs. Its files have names that nobody guesses, and go away after a while.
#[derive(Debug)]
pub struct Spill {
    folder: PathBuf,
    keep_for: Duration,
    total: u64,
    swept: Mutex<Option<Instant>>,
}

impl Spill {
    /// Files in this folder, each kept for so long. The folder is made when it is needed, for its owner alone.
    pub fn new(folder: PathBuf, keep_for: Duration) -> Self {
        Self { folder, keep_for, total: TOTAL, swept: Mutex::new(None) }
    }

    /// At most so many bytes in all; the oldest files go first.
    pub fn total(self, bytes: u64) -> Self {
        Self { total: bytes, ..self }
    }

    /// Where the files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the parts of a text to a new file, and says where it is.
    pub(crate) fn write(&self, parts: &[&str]) -> io::Result<PathBuf> {
        let size = parts.iter().map(|it| it.len() as u64).sum();
        if size > self.total {
            return Err(io::Error::other(format!("{size} bytes are more than the folder may hold")));
        }
        self.prepare()?;
        self.sweep(size);
        let path = self.folder.join(format!("{}{SUFFIX}", crate::events::random_hex()?));
        let mut file = create(&path)?;
        for part in parts {
            file.write_all(part.as_bytes()).inspect_err(|_| _ = fs::remove_file(&path))?;
        }
        Ok(path)
    }

    /// Makes the folder, or makes sure that the one there is ours and closed to others.
    fn prepare(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let what = fs::symlink_metadata(&self.folder)?;
        if !what.is_dir() || what.uid() != geteuid().as_raw() {
            return Err(io::Error::other(format!("{} is not a folder of this user", self.folder.display())));
        }
        if what.mode() & 0o077 != 0 {
            fs::set_permissions(&self.folder, Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// Removes what is too old, at most once a minute, and the oldest where there is no room.
    fn sweep(&self, coming: u64) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if coming < self.total / 64 && swept.is_some_and(|last| last.elapsed() < SWEEP) {
            return;
        }
        *swept = Some(Instant::now());
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(is_ours))
            .filter_map(|entry| {
                let what = entry.metadata().ok().filter(fs::Metadata::is_file)?;
                Some((what.modified().ok()?, what.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut used: u64 = files.iter().map(|(_, size, _)| size).sum();
        let now = SystemTime::now();
        for (modified, size, path) in files {
            let old = now.duration_since(modified).is_ok_and(|age| age > self.keep_for);
            if (old || used + coming > self.total) && fs::remove_file(path).is_ok() {
                used -= size;
            }
        }
    }
}

/// Only files that were made here are ever removed.
fn is_ours(name: &str) -> bool {
    name.strip_suffix(SUFFIX).is_some_and(|stem| stem.len() == 32 && stem.bytes().all(|it| it.is_ascii_hexdigit()))
}

fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("helve-spill-{name}-{}", crate::events::random_hex().unwrap()));
        _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn only_the_owner_can_look() {
        let spill = Spill::new(folder("private").join("a/b"), Duration::from_secs(60));
        let path = spill.write(&["all of it"]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "all of it");
        let modes = [path.as_path(), spill.folder()].map(|it| fs::metadata(it).unwrap().mode() & 0o777);
        assert_eq!(modes, [0o600, 0o700]);
        fs::remove_dir_all(spill.folder().ancestors().nth(2).unwrap()).unwrap();
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_refused() {
        let folder = folder("link");
        std::os::unix::fs::symlink("/", &folder).unwrap();
        let error = Spill::new(folder.clone(), Duration::ZERO).write(&["x"]).unwrap_err();
        assert!(error.to_string().ends_with("is not a folder of this user"), "{error}");
        fs::remove_file(folder).unwrap();
    }

    #[test]
    fn old_files_go_and_others_stay() {
        let spill = Spill::new(folder("old"), Duration::ZERO);
        let first = spill.write(&["one"]).unwrap();
        let foreign = spill.folder().join("notes.txt");
        fs::write(&foreign, "mine").unwrap();
        *spill.swept.lock().unwrap() = None;
        let second = spill.write(&["two"]).unwrap();
        assert_eq!([&first, &foreign, &second].map(|it| it.exists()), [false, true, true]);
        fs::remove_dir_all(spill.folder()).unwrap();
    }

    #[test]
    fn the_oldest_make_room() {
        let spill = Spill::new(folder("room"), Duration::from_secs(600)).total(10);
        let first = spill.write(&["123456"]).unwrap();
        let second = spill.write(&["abcdef"]).unwrap();
        assert_eq!([first.exists(), second.exists()], [false, true]);
        assert!(spill.write(&["more than ten"]).is_err());
        fs::remove_dir_all(spill.folder()).unwrap();
    }
}
