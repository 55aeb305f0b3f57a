//! Spill files: the full output of truncated replies.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use rustix::{fs::OFlags, process::geteuid};

/// How often expired files are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// All files together, unless said otherwise.
const DEFAULT_MAX_BYTES: u64 = 256 << 20;
const SUFFIX: &str = ".txt";
/// The extension of the file beside a saved text that names the origin of untrusted text.
const ORIGIN: &str = "origin";
/// The longest origin that is read back, in bytes.
const MAX_ORIGIN: usize = 1000;

/// Whether this process recorded an origin. Sessions that share a directory have a [`Spill`] each.
static HAS_RECORDED_ORIGIN: AtomicBool = AtomicBool::new(false);

/// A private directory for spill files. Their names are random, and they expire.
#[derive(Debug)]
pub struct Spill {
    dir: PathBuf,
    keep_for: Duration,
    total: u64,
    swept: Mutex<Option<Instant>>,
    /// Whether an earlier process recorded an origin here.
    has_older_origin: OnceLock<bool>,
}

impl Spill {
    /// Files in this directory expire after `keep_for`. The directory is created on demand, for its owner only.
    pub fn new(folder: PathBuf, keep_for: Duration) -> Self {
        Self {
            dir: folder,
            keep_for,
            total: DEFAULT_MAX_BYTES,
            swept: Mutex::new(None),
            has_older_origin: OnceLock::new(),
        }
    }

    /// The maximum size of all files; the oldest are removed first.
    pub fn max_total_bytes(self, bytes: u64) -> Self {
        Self { total: bytes, ..self }
    }

    /// Where the files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a text to a new file and returns its path. `origin` marks untrusted text, which is tagged again when the
    /// file is read.
    pub(crate) fn write(&self, parts: &[&str], origin: Option<&str>) -> io::Result<PathBuf> {
        let size = parts.iter().map(|it| it.len() as u64).sum();
        if size > self.total {
            return Err(io::Error::other(format!("{size} bytes are more than the folder may hold")));
        }
        self.prepare()?;
        self.sweep(size);
        let path = self.dir.join(format!("{}{SUFFIX}", crate::events::random_hex()?));
        if let Some(origin) = origin {
            // Recorded before the text, so that no reader finds the text without its origin.
            self.record_origin(&path, origin)?;
        }
        let mut file = create(&path)?;
        for part in parts {
            file.write_all(part.as_bytes()).inspect_err(|_| remove(&path))?;
        }
        Ok(path)
    }

    /// Records that a file in this directory holds untrusted text.
    pub(crate) fn record_origin(&self, path: &Path, origin: &str) -> io::Result<()> {
        let Some(name) = path.file_name() else { return Ok(()) };
        let beside = self.dir.join(name).with_extension(ORIGIN);
        HAS_RECORDED_ORIGIN.store(true, Ordering::Relaxed);
        match create(&beside) {
            Ok(mut file) => file.write_all(origin.as_bytes()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether a file here may contain untrusted text. Cheap if none does.
    pub(crate) fn may_hold_untrusted(&self) -> bool {
        HAS_RECORDED_ORIGIN.load(Ordering::Relaxed)
            || *self.has_older_origin.get_or_init(|| self.origins().next().is_some())
    }

    /// The origin of the untrusted text in a file, or in one of the files of a directory. Follows links.
    pub(crate) fn origin_of(&self, path: &Path) -> Option<String> {
        let (path, folder) = (fs::canonicalize(path).ok()?, fs::canonicalize(&self.dir).ok()?);
        if path == folder {
            return self.any_origin();
        }
        (path.parent()? == folder).then(|| read_origin(&path.with_extension(ORIGIN))).flatten()
    }

    /// The origin of one of the files here.
    pub(crate) fn any_origin(&self) -> Option<String> {
        self.origins().find_map(|file| read_origin(&file))
    }

    /// The origin of a file here that a text names.
    pub(crate) fn origin_named_in(&self, text: &str) -> Option<String> {
        let is_named = |file: &PathBuf| file.file_stem().and_then(|it| it.to_str()).is_some_and(|it| text.contains(it));
        self.origins().filter(is_named).find_map(|file| read_origin(&file))
    }

    /// The files that name an origin.
    fn origins(&self) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == ORIGIN))
    }

    /// Creates the directory, or checks that the existing one belongs to this user and is private.
    fn prepare(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let what = fs::symlink_metadata(&self.dir)?;
        if !what.is_dir() || what.uid() != geteuid().as_raw() {
            return Err(io::Error::other(format!("{} is not a folder of this user", self.dir.display())));
        }
        if what.mode() & 0o077 != 0 {
            fs::set_permissions(&self.dir, Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// Removes expired files, at most once a minute, and the oldest ones if space is needed.
    fn sweep(&self, coming: u64) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if coming < self.total / 64 && swept.is_some_and(|last| last.elapsed() < SWEEP_INTERVAL) {
            return;
        }
        *swept = Some(Instant::now());
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(is_spill_file))
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
            if (old || used + coming > self.total) && fs::remove_file(&path).is_ok() {
                _ = fs::remove_file(path.with_extension(ORIGIN));
                used -= size;
            }
        }
        // Files of commands are removed elsewhere. A recent origin file may precede its text.
        let is_alone = |file: &PathBuf| {
            let age = fs::metadata(file).and_then(|it| it.modified()).ok().and_then(|it| now.duration_since(it).ok());
            age.is_some_and(|age| age > SWEEP_INTERVAL)
                && !["txt", "log"].iter().any(|it| file.with_extension(it).exists())
        };
        for file in self.origins().filter(is_alone) {
            _ = fs::remove_file(file);
        }
    }
}

fn remove(path: &Path) {
    _ = fs::remove_file(path);
    _ = fs::remove_file(path.with_extension(ORIGIN));
}

fn read_origin(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text[..text.floor_char_boundary(MAX_ORIGIN)].to_owned()).filter(|it| !it.is_empty())
}

/// Only files that were created here are removed.
fn is_spill_file(name: &str) -> bool {
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
        let path = spill.write(&["all of it"], None).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "all of it");
        let modes = [path.as_path(), spill.dir()].map(|it| fs::metadata(it).unwrap().mode() & 0o777);
        assert_eq!(modes, [0o600, 0o700]);
        fs::remove_dir_all(spill.dir().ancestors().nth(2).unwrap()).unwrap();
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_refused() {
        let folder = folder("link");
        std::os::unix::fs::symlink("/", &folder).unwrap();
        let error = Spill::new(folder.clone(), Duration::ZERO).write(&["x"], None).unwrap_err();
        assert!(error.to_string().ends_with("is not a folder of this user"), "{error}");
        fs::remove_file(folder).unwrap();
    }

    #[test]
    fn old_files_go_and_others_stay() {
        let spill = Spill::new(folder("old"), Duration::ZERO);
        let first = spill.write(&["one"], None).unwrap();
        let foreign = spill.dir().join("notes.txt");
        fs::write(&foreign, "mine").unwrap();
        *spill.swept.lock().unwrap() = None;
        let second = spill.write(&["two"], None).unwrap();
        assert_eq!([&first, &foreign, &second].map(|it| it.exists()), [false, true, true]);
        fs::remove_dir_all(spill.dir()).unwrap();
    }

    #[test]
    fn a_file_of_untrusted_text_keeps_its_origin() {
        let spill = Spill::new(folder("origin"), Duration::from_secs(60));
        let mine = spill.write(&["mine"], None).unwrap();
        assert_eq!((spill.origin_of(&mine), spill.any_origin()), (None, None));
        let theirs = spill.write(&["theirs"], Some("https://a.example/")).unwrap();
        // Another session with the same directory knows it too.
        let other = Spill::new(spill.dir().to_owned(), Duration::from_secs(60));
        assert!(other.may_hold_untrusted());
        let link = spill.dir().join("link");
        std::os::unix::fs::symlink(&theirs, &link).unwrap();
        for path in [&theirs, &link, spill.dir()] {
            assert_eq!(other.origin_of(path).as_deref(), Some("https://a.example/"), "{}", path.display());
        }
        let told = |path: &Path| other.origin_named_in(&format!("{}:1: text", path.display()));
        assert_eq!((told(&theirs).as_deref(), told(&mine)), (Some("https://a.example/"), None));
        assert_eq!(other.origin_of(&mine), None);
        fs::remove_dir_all(spill.dir()).unwrap();
    }

    #[test]
    fn an_origin_goes_with_its_file() {
        let spill = Spill::new(folder("gone"), Duration::from_secs(600)).max_total_bytes(10);
        spill.write(&["123456"], Some("a")).unwrap();
        spill.record_origin(Path::new("/x/task-1.log"), "b").unwrap();
        let task = File::options().write(true).open(spill.dir().join("task-1.origin")).unwrap();
        task.set_modified(SystemTime::now() - 2 * SWEEP_INTERVAL).unwrap();
        spill.write(&["abcdef"], None).unwrap();
        assert_eq!((spill.any_origin(), fs::read_dir(spill.dir()).unwrap().count()), (None, 1));
        fs::remove_dir_all(spill.dir()).unwrap();
    }

    #[test]
    fn the_oldest_make_room() {
        let spill = Spill::new(folder("room"), Duration::from_secs(600)).max_total_bytes(10);
        let first = spill.write(&["123456"], None).unwrap();
        let second = spill.write(&["abcdef"], None).unwrap();
        assert_eq!([first.exists(), second.exists()], [false, true]);
        assert!(spill.write(&["more than ten"], None).is_err());
        fs::remove_dir_all(spill.dir()).unwrap();
    }
}
