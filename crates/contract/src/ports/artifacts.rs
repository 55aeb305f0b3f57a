//! Artifacts of planned runs: plans, task documents, walkthroughs, change requests and state, each with a version.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use super::Lease;
use crate::{Error, Result, ids};

/// The largest artifact, in bytes.
pub const MAX_ARTIFACT: u64 = 16 << 20;
/// How long the lease of a run lasts unless it is renewed.
pub const RUN_LEASE: Duration = Duration::from_secs(60);
/// The longest path of an artifact, and the longest name in it, in bytes.
const MAX_PATH: usize = 1024;
const MAX_NAME: usize = 200;

/// The artifacts of planned runs, by run and path. Every write compares versions and replaces the whole body.
///
/// One owner at a time plans or executes a run; it claims the run and writes with the lease. Whoever does not hold it, such
/// as a person who decides about a change request, writes without a lease and must name the version that is replaced.
#[async_trait]
pub trait Artifacts: Send + Sync {
    /// Claims a run; it need not exist yet. [`Error::RunHeld`]: another owner has it.
    async fn claim_run(&self, run: &str, owner: &str, length: Duration) -> Result<Lease>;
    /// Renews a lease, also one that ran out and that nobody claimed since. [`Error::LeaseLost`]: somebody did.
    async fn hold_run(&self, lease: &Lease, length: Duration) -> Result<Lease>;
    /// Gives a lease back. [`Error::LeaseLost`]: somebody else has claimed the run.
    async fn release_run(&self, lease: &Lease) -> Result<()>;
    /// An artifact. `None`: there is none at this path.
    async fn read(&self, run: &str, path: &str) -> Result<Option<Artifact>>;
    /// Writes an artifact where it has the expected version, and answers the new one.
    ///
    /// [`Error::LeaseLost`]: the lease is stale. [`Error::VersionConflict`]: the artifact has another version. Nothing was
    /// written then. `lease` may be `None` only where `expected` is not [`ExpectedVersion::Any`].
    async fn write(
        &self,
        lease: Option<&Lease>,
        run: &str,
        path: &str,
        body: &[u8],
        expected: &ExpectedVersion,
    ) -> Result<ArtifactVersion>;
    /// The paths of all artifacts beneath a folder of the run, sorted; `""` is the run itself.
    async fn list(&self, run: &str, folder: &str) -> Result<Vec<String>>;
    /// The runs that have artifacts, sorted.
    async fn runs(&self) -> Result<Vec<String>>;
}

/// An artifact as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its content.
    pub body: Vec<u8>,
    /// The version of that content.
    pub version: ArtifactVersion,
}

/// A version of an artifact. It can only be compared: a number in a table, a hash of the content in files. Writing the
/// content that is there already may keep the version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArtifactVersion(String);

impl ArtifactVersion {
    /// A version, in the form of whoever stores the artifacts.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The form of whoever stores the artifacts.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What must be there for a write to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// Whatever is there is replaced.
    Any,
    /// Nothing is there.
    Absent,
    /// This version is there.
    Is(ArtifactVersion),
}

impl ExpectedVersion {
    /// Whether a write may replace what is there.
    #[must_use]
    pub fn allows(&self, current: Option<&ArtifactVersion>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => current.is_none(),
            Self::Is(version) => current == Some(version),
        }
    }
}

/// Checks what every implementation checks before a write: the names, the size, and that a write without a lease names a
/// version.
pub fn check_artifact_write(
    lease: Option<&Lease>,
    run: &str,
    path: &str,
    body: &[u8],
    expected: &ExpectedVersion,
) -> Result<()> {
    check_run_name(run)?;
    check_artifact_path(path)?;
    if body.len() as u64 > MAX_ARTIFACT {
        return Err(Error::failed(format!(
            "{path} has {} bytes, and an artifact has {MAX_ARTIFACT} at most. Write less, or several artifacts",
            body.len()
        )));
    }
    match lease {
        Some(lease) if lease.key != run => Err(Error::LeaseLost(format!("run {run}"))),
        None if *expected == ExpectedVersion::Any => Err(Error::failed(format!(
            "{path} of run {run} cannot be replaced without the lease of the run. Read it and name its version"
        ))),
        _ => Ok(()),
    }
}

/// Checks the name of a run: one path component that people can see and type.
pub fn check_run_name(run: &str) -> Result<()> {
    if is_component(run) { Ok(()) } else { Err(invalid("run", run)) }
}

/// Checks the path of an artifact: names with `/` between them, none of them `.`, `..` or a hidden file.
pub fn check_artifact_path(path: &str) -> Result<()> {
    let is_path = path.len() <= MAX_PATH && path.split('/').all(|it| is_component(it) && !it.starts_with('.'));
    if is_path { Ok(()) } else { Err(invalid("path", path)) }
}

fn is_component(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !matches!(name, "." | "..")
        && !name.chars().any(|it| matches!(it, '/' | '\\') || it.is_control())
}

fn invalid(what: &str, text: &str) -> Error {
    Error::failed(format!("`{}` cannot be the {what} of an artifact: use plain names", text.escape_debug()))
}

/// The artifacts of one run, and the lease that writes to it carry. Clones share the lease.
#[derive(Clone)]
pub struct RunArtifacts {
    run: String,
    port: Arc<dyn Artifacts>,
    lease: Arc<Mutex<Option<Lease>>>,
}

impl RunArtifacts {
    /// The artifacts of a run, without a lease.
    #[must_use]
    pub fn new(port: Arc<dyn Artifacts>, run: &str) -> Self {
        Self { run: run.to_owned(), port, lease: Arc::default() }
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The lease that is held, if any.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_lease(&self, lease: Option<Lease>) {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = lease;
    }

    /// Claims the run for this handle and its clones.
    pub async fn claim(&self) -> Result<()> {
        let owner = self.lease().map_or_else(ids::new_id, |lease| lease.owner);
        let lease = self.port.claim_run(&self.run, &owner, RUN_LEASE).await?;
        self.set_lease(Some(lease));
        Ok(())
    }

    /// Renews the lease, where there is one.
    pub async fn renew(&self) -> Result<()> {
        if let Some(lease) = self.lease() {
            let renewed = self.port.hold_run(&lease, RUN_LEASE).await?;
            self.set_lease(Some(renewed));
        }
        Ok(())
    }

    /// Gives the lease back, where there is one. A lease that was lost is no error here.
    pub async fn release(&self) -> Result<()> {
        let Some(lease) = self.lease() else { return Ok(()) };
        self.set_lease(None);
        match self.port.release_run(&lease).await {
            Err(Error::LeaseLost(_)) => Ok(()),
            outcome => outcome,
        }
    }

    /// An artifact. `None`: there is none at this path.
    pub async fn read(&self, path: &str) -> Result<Option<Artifact>> {
        self.port.read(&self.run, path).await
    }

    /// Writes an artifact with the lease that is held.
    pub async fn write(&self, path: &str, body: &[u8], expected: &ExpectedVersion) -> Result<ArtifactVersion> {
        self.port.write(self.lease().as_ref(), &self.run, path, body, expected).await
    }

    /// The paths beneath a folder, sorted.
    pub async fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.port.list(&self.run, folder).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_in_the_run() {
        for good in ["dag.json", "tasks/a.md", "task-1/2/walkthrough.md", "specs/Übersicht (1).md"] {
            assert!(check_artifact_path(good).is_ok(), "{good}");
        }
        let (long, deep) = ("x".repeat(201), "a/".repeat(600) + "a");
        for bad in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a\\b", "a\0", "a\nb", ".git", "a/.x", &long, &deep]
        {
            assert!(check_artifact_path(bad).is_err(), "{bad}");
        }
        assert!(check_run_name("plan-1").is_ok() && check_run_name("a/b").is_err() && check_run_name("..").is_err());
    }

    #[test]
    fn without_a_lease_a_version_must_be_named() {
        let body = b"x".as_slice();
        let write = |lease: Option<&Lease>, expected| check_artifact_write(lease, "r", "a", body, &expected);
        let told = write(None, ExpectedVersion::Any).unwrap_err().to_string();
        assert!(told.contains("cannot be replaced without the lease"), "{told}");
        assert!(write(None, ExpectedVersion::Absent).is_ok());
        let lease = |key: &str| Lease { key: key.to_owned(), owner: "o".into(), epoch: 1, until: jiff::Timestamp::MAX };
        assert!(write(Some(&lease("r")), ExpectedVersion::Any).is_ok());
        assert!(matches!(write(Some(&lease("other")), ExpectedVersion::Any), Err(Error::LeaseLost(_))));
        let large = vec![0; MAX_ARTIFACT as usize + 1];
        assert!(check_artifact_write(None, "r", "a", &large, &ExpectedVersion::Absent).is_err());
    }
}
