//! Trusted project files, by path and content: a changed file needs a new decision of the user.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::source::{open_regular, read_limited};

/// The list of trusted files in the state directory, accessible to its owner only.
pub struct TrustStore {
    file: PathBuf,
}

impl TrustStore {
    /// The list in this state directory.
    pub fn new(state: &Path) -> Self {
        Self { file: state.join("trust.json") }
    }

    /// Whether this file is trusted with this content.
    pub fn is_trusted(&self, path: &Path, content: &[u8]) -> bool {
        path.to_str().and_then(|path| self.read_or_empty().remove(path)).is_some_and(|hash| hash == digest(content))
    }

    /// Whether this file is trusted with its current content, of any size.
    pub fn holds_file(&self, path: &Path) -> bool {
        let accepted = path.to_str().and_then(|path| self.read_or_empty().remove(path));
        accepted.is_some_and(|hash| file_digest(path).is_ok_and(|now| now == hash))
    }

    /// Trusts a file with its current content.
    pub fn add_file(&self, path: &Path) -> io::Result<()> {
        let hash = file_digest(path)?;
        let _alone = self.lock()?;
        let mut list = self.read_strict()?;
        list.insert(text(path)?.to_owned(), hash);
        self.save(&list)
    }

    /// Trusts a file with this content.
    pub fn add(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let _alone = self.lock()?;
        let mut list = self.read_strict()?;
        list.insert(text(path)?.to_owned(), digest(content));
        self.save(&list)
    }

    /// Removes a file from the list. Returns whether it was there.
    pub fn remove(&self, path: &Path) -> io::Result<bool> {
        let _alone = self.lock()?;
        let mut list = self.read_strict()?;
        let known = list.remove(text(path)?).is_some();
        if known {
            self.save(&list)?;
        }
        Ok(known)
    }

    /// The current list. A list that others could have written counts as empty.
    fn read_or_empty(&self) -> BTreeMap<String, String> {
        let mine = self
            .file
            .symlink_metadata()
            .is_ok_and(|it| it.is_file() && it.uid() == rustix::process::geteuid().as_raw() && it.mode() & 0o022 == 0);
        if !mine {
            return BTreeMap::new();
        }
        read_limited(&self.file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// The list for a change: an unreadable list is not overwritten.
    fn read_strict(&self) -> io::Result<BTreeMap<String, String>> {
        let list = self.read_or_empty();
        let unread = list.is_empty()
            && read_limited(&self.file).is_ok_and(|bytes| {
                serde_json::from_slice::<BTreeMap<String, String>>(&bytes).is_err() && !bytes.trim_ascii().is_empty()
            });
        if unread {
            let text = format!("{} is damaged; move it away, and trust what is needed anew", self.file.display());
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
        Ok(list)
    }

    /// An exclusive lock for changing the list, until dropped.
    fn lock(&self) -> io::Result<fs::File> {
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.file.with_extension("lock"))?;
        lock.lock()?;
        Ok(lock)
    }

    /// Writes the list to a temporary file and renames it. Overwrites a temporary file that a killed process left.
    fn save(&self, list: &BTreeMap<String, String>) -> io::Result<()> {
        let fresh = self.file.with_extension("json.new");
        let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        let written = serde_json::to_vec_pretty(list)
            .map_err(io::Error::from)
            .and_then(|bytes| out.write_all(&bytes))
            .and_then(|()| out.sync_all())
            .and_then(|()| fs::rename(&fresh, &self.file));
        if written.is_err() {
            _ = fs::remove_file(&fresh);
        }
        written
    }
}

fn text(path: &Path) -> io::Result<&str> {
    path.to_str().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "its path is not UTF-8; rename the folder"))
}

/// The digest of a regular file, read in chunks.
fn file_digest(path: &Path) -> io::Result<String> {
    let mut file = open_regular(path)?;
    let (mut hasher, mut piece) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Ok(crate::state::hex(&hasher.finalize()));
        }
        hasher.update(&piece[..count]);
    }
}

fn digest(content: &[u8]) -> String {
    crate::state::hex(&Sha256::digest(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_ends_when_the_content_changes() {
        let state = crate::state::tests::folder("trust");
        let trust = TrustStore::new(&state);
        let file = Path::new("/p/helve.toml");
        assert!(!trust.is_trusted(file, b"a"));
        trust.add(file, b"a").unwrap();
        assert!(
            trust.is_trusted(file, b"a")
                && !trust.is_trusted(file, b"b")
                && !trust.is_trusted(Path::new("/q/helve.toml"), b"a")
        );
        assert_eq!(state.join("trust.json").metadata().unwrap().mode() & 0o777, 0o600);
        assert!(trust.remove(file).unwrap() && !trust.remove(file).unwrap());
        let program = state.join("program");
        fs::write(&program, "a").unwrap();
        assert!(!trust.holds_file(&program));
        trust.add_file(&program).unwrap();
        assert!(trust.holds_file(&program) && trust.is_trusted(&program, b"a"));
        fs::write(&program, "b").unwrap();
        assert!(!trust.holds_file(&program));
        fs::remove_dir_all(state).unwrap();
    }
}
