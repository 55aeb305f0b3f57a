//! Artifacts of planned runs as files: `artifacts/RUN/…` for the artifacts, `runs/RUN/lease` for the lease of the
//! run.

use std::{
    collections::HashMap,
    fs::{File, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use helve_contract::{
    Error, FileErrorKind, Result,
    jiff::Timestamp,
    ports::{
        Artifact, ArtifactVersion, Artifacts, BlobId, ExpectedVersion, Lease, MAX_ARTIFACT, check_artifact_path,
        check_artifact_write, check_run_name,
    },
};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use crate::files::{Dir, DirLock, Privacy, blocking, explain, is_same};

/// The directories beneath the top, and the file that says who holds a run.
const ARTIFACTS: &str = "artifacts";
const RUNS: &str = "runs";
const LEASE: &str = "lease";
/// The size of a lease file. It is written in one piece, so that a kill leaves the old or the new one.
const LEASE_BYTES: usize = 512;
/// How long a writer waits for another one.
const PATIENCE: Duration = Duration::from_secs(30);

/// Artifacts as files beneath a directory, such as `.forge`. Cheap to clone; clones share the held leases.
///
/// A version is the hash of the content, so an edited file has a new one. A claim holds a kernel lock on the run's
/// lease file, which ends with the process and never before. The file contains the claim's epoch, and every write
/// with a lease compares it. Writers of one run exclude each other by a lock on the run's directory.
#[derive(Clone)]
pub struct FileArtifacts {
    top: PathBuf,
    held: Arc<Mutex<HashMap<String, File>>>,
}

/// Who holds a run, as it is written in the lease's file.
#[derive(Default, Serialize, Deserialize)]
struct Holder {
    owner: String,
    epoch: u64,
    pid: u32,
}

impl Holder {
    fn read(file: &File) -> io::Result<Self> {
        let mut bytes = [0; LEASE_BYTES];
        let read = file.read_at(&mut bytes, 0)?;
        // An empty or damaged file names no holder. Owners differ, so a restarted epoch is harmless.
        Ok(serde_json::from_slice(bytes[..read].trim_ascii()).unwrap_or_default())
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.resize(LEASE_BYTES - 1, b' ');
        bytes.push(b'\n');
        file.write_all_at(&bytes, 0)?;
        file.sync_data()
    }
}

impl FileArtifacts {
    /// The artifacts beneath a directory, which must exist.
    #[must_use]
    pub fn at(top: &Path) -> Self {
        Self { top: top.to_owned(), held: Arc::default() }
    }

    fn explain(&self, error: io::Error) -> Error {
        explain(&self.top, error)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, File>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory of a run that is locked for writers, and the lock.
    fn lock(&self, run: &str) -> io::Result<(Dir, DirLock)> {
        let dir = Dir::open(&self.top)?.make_dir(RUNS, Privacy::Usual)?.make_dir(run, Privacy::Usual)?;
        let lock = dir.lock(true, PATIENCE)?;
        Ok((dir, lock))
    }

    fn claim_now(&self, run: &str, owner: &str) -> Result<Lease> {
        check_run_name(run)?;
        let (dir, _lock) = self.lock(run).map_err(|error| self.explain(error))?;
        let mut held = self.held();
        // A deleted lease file excludes nobody.
        let own = held.remove(run).filter(|file| is_same(file, &dir, LEASE).unwrap_or(false));
        let is_own = own.is_some();
        let file = match own {
            Some(file) => file,
            None => dir.open_record(LEASE).map_err(|error| self.explain(error))?,
        };
        let found = Holder::read(&file).map_err(|error| self.explain(error))?;
        let is_held = match file.try_lock() {
            Ok(()) => is_own && !found.owner.is_empty() && found.owner != owner,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(error)) => return Err(self.explain(error)),
        };
        if is_held {
            if is_own {
                held.insert(run.to_owned(), file);
            }
            return Err(Error::RunHeld(format!("run {run} is in use by process {}", found.pid)));
        }
        let holder = Holder { owner: owner.to_owned(), epoch: found.epoch + 1, pid: std::process::id() };
        holder.write(&file).map_err(|error| self.explain(error))?;
        held.insert(run.to_owned(), file);
        Ok(Lease { key: run.to_owned(), owner: holder.owner, epoch: holder.epoch, until: Timestamp::MAX })
    }

    /// Compares a lease with the file. The caller holds the lock of the run.
    fn check_lease(&self, dir: &Dir, lease: &Lease) -> Result<()> {
        let holder = match dir.open_file(LEASE) {
            Ok(Some(file)) => Holder::read(&file).map_err(|error| self.explain(error))?,
            Ok(None) => Holder::default(),
            Err(error) => return Err(self.explain(error)),
        };
        if holder.owner == lease.owner && holder.epoch == lease.epoch {
            Ok(())
        } else {
            Err(Error::LeaseLost(format!("run {}", lease.key)))
        }
    }

    fn hold_now(&self, lease: &Lease) -> Result<Lease> {
        check_run_name(&lease.key)?;
        let (dir, _lock) = self.lock(&lease.key).map_err(|error| self.explain(error))?;
        self.check_lease(&dir, lease)?;
        Ok(lease.clone())
    }

    fn release_now(&self, lease: &Lease) -> Result<()> {
        check_run_name(&lease.key)?;
        let (dir, _lock) = self.lock(&lease.key).map_err(|error| self.explain(error))?;
        self.check_lease(&dir, lease)?;
        let file = match self.held().remove(&lease.key) {
            Some(file) => file,
            None => dir.open_record(LEASE).map_err(|error| self.explain(error))?,
        };
        let nobody = Holder { owner: String::new(), epoch: lease.epoch, pid: 0 };
        nobody.write(&file).map_err(|error| self.explain(error))?;
        // A child process may briefly hold the same open file, so closing it here is not enough.
        _ = file.unlock();
        Ok(())
    }

    /// Opens the parent directory of a path and returns the file name. `None`: the directory does not exist.
    fn find_parent<'a>(&self, run: &str, path: &'a str) -> io::Result<Option<(Dir, &'a str)>> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok(self.find_folder(run, folder)?.map(|dir| (dir, name)))
    }

    /// Opens a directory of a run. `None`: it does not exist.
    fn find_folder(&self, run: &str, folder: &str) -> io::Result<Option<Dir>> {
        let mut dir = Dir::open(&self.top)?;
        for name in [ARTIFACTS, run].into_iter().chain(folder.split('/').filter(|it| !it.is_empty())) {
            dir = match dir.find_dir(name) {
                Ok(Some(dir)) => dir,
                Ok(None) => return Ok(None),
                Err(error) => return Err(error),
            };
        }
        Ok(Some(dir))
    }

    fn read_now(&self, run: &str, path: &str) -> Result<Option<Artifact>> {
        check_run_name(run)?;
        check_artifact_path(path)?;
        let explain = |error| explain(&self.top.join(ARTIFACTS).join(run).join(path), error);
        let Some((dir, name)) = self.find_parent(run, path).map_err(explain)? else { return Ok(None) };
        let Some(file) = dir.open_file(name).map_err(explain)? else { return Ok(None) };
        let mut body = Vec::new();
        (&file).take(MAX_ARTIFACT + 1).read_to_end(&mut body).map_err(explain)?;
        if body.len() as u64 > MAX_ARTIFACT {
            let bytes = file.metadata().map_err(explain)?.len();
            let shown = format!("{ARTIFACTS}/{run}/{path}");
            return Err(Error::file(shown, FileErrorKind::TooLarge { bytes, limit: MAX_ARTIFACT }));
        }
        Ok(Some(Artifact { version: version(&body), body }))
    }

    fn write_now(
        &self,
        lease: Option<&Lease>,
        run: &str,
        path: &str,
        body: &[u8],
        expected: &ExpectedVersion,
    ) -> Result<ArtifactVersion> {
        check_artifact_write(lease, run, path, body, expected)?;
        let explain = |error| explain(&self.top.join(ARTIFACTS).join(run).join(path), error);
        let (locked, _lock) = self.lock(run).map_err(explain)?;
        if let Some(lease) = lease {
            self.check_lease(&locked, lease)?;
        }
        if *expected != ExpectedVersion::Any {
            let current = self.read_now(run, path)?.map(|it| it.version);
            if !expected.allows(current.as_ref()) {
                return Err(Error::VersionConflict(format!("{ARTIFACTS}/{run}/{path}")));
            }
        }
        let write = || {
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            let mut dir = Dir::open(&self.top)?;
            for name in [ARTIFACTS, run].into_iter().chain(folder.split('/').filter(|it| !it.is_empty())) {
                dir = dir.make_dir(name, Privacy::Usual)?;
            }
            dir.remove_temporaries()?;
            let mut temporary = dir.temporary(Privacy::Usual)?;
            temporary.file.write_all(body)?;
            temporary.publish(name)
        };
        write().map_err(explain)?;
        Ok(version(body))
    }

    fn list_now(&self, run: &str, folder: &str) -> Result<Vec<String>> {
        check_run_name(run)?;
        if !folder.is_empty() {
            check_artifact_path(folder)?;
        }
        let walk = || {
            let mut paths = Vec::new();
            match self.find_folder(run, folder) {
                Ok(Some(dir)) => collect(&dir, folder, &mut paths)?,
                // A file has nothing beneath it.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
                Err(error) => return Err(error),
            }
            paths.sort();
            Ok(paths)
        };
        walk().map_err(|error| self.explain(error))
    }

    /// Lists the runs without a runtime.
    pub fn runs_now(&self) -> Result<Vec<String>> {
        let list = || {
            let Some(dir) = Dir::open(&self.top)?.find_dir(ARTIFACTS)? else { return Ok(Vec::new()) };
            let entries = dir.entries()?.into_iter();
            let mut runs: Vec<String> =
                entries.filter(|(_, kind)| *kind == FileType::Directory).map(|(name, _)| name).collect();
            runs.sort();
            Ok(runs)
        };
        list().map_err(|error| self.explain(error))
    }
}

/// Adds the files beneath a directory. Skips hidden ones: temporary files and those of other programs.
fn collect(dir: &Dir, folder: &str, paths: &mut Vec<String>) -> io::Result<()> {
    for (name, kind) in dir.entries()? {
        if name.starts_with('.') {
            continue;
        }
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        match kind {
            FileType::RegularFile => paths.push(path),
            _ => {
                if let Some(inner) = dir.find_dir(&name)? {
                    collect(&inner, &path, paths)?;
                }
            }
        }
    }
    Ok(())
}

fn version(body: &[u8]) -> ArtifactVersion {
    ArtifactVersion::new(BlobId::of(body).to_string())
}

#[async_trait]
impl Artifacts for FileArtifacts {
    async fn claim_run(&self, run: &str, owner: &str, _: Duration) -> Result<Lease> {
        let (this, run, owner) = (self.clone(), run.to_owned(), owner.to_owned());
        blocking(move || this.claim_now(&run, &owner)).await
    }

    async fn hold_run(&self, lease: &Lease, _: Duration) -> Result<Lease> {
        let (this, lease) = (self.clone(), lease.clone());
        blocking(move || this.hold_now(&lease)).await
    }

    async fn release_run(&self, lease: &Lease) -> Result<()> {
        let (this, lease) = (self.clone(), lease.clone());
        blocking(move || this.release_now(&lease)).await
    }

    async fn read(&self, run: &str, path: &str) -> Result<Option<Artifact>> {
        let (this, run, path) = (self.clone(), run.to_owned(), path.to_owned());
        blocking(move || this.read_now(&run, &path)).await
    }

    async fn write(
        &self,
        lease: Option<&Lease>,
        run: &str,
        path: &str,
        body: &[u8],
        expected: &ExpectedVersion,
    ) -> Result<ArtifactVersion> {
        let (this, run, path) = (self.clone(), run.to_owned(), path.to_owned());
        let (lease, body, expected) = (lease.cloned(), body.to_owned(), expected.clone());
        blocking(move || this.write_now(lease.as_ref(), &run, &path, &body, &expected)).await
    }

    async fn list(&self, run: &str, folder: &str) -> Result<Vec<String>> {
        let (this, run, folder) = (self.clone(), run.to_owned(), folder.to_owned());
        blocking(move || this.list_now(&run, &folder)).await
    }

    async fn runs(&self) -> Result<Vec<String>> {
        let this = self.clone();
        blocking(move || this.runs_now()).await
    }
}
