//! The `Artifacts` port: plans, task documents, walkthroughs, change requests and state of planned runs, with versions.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use super::Lease;
use crate::{Error, Result, ids};

/// The largest artifact, in bytes.
pub const MAX_ARTIFACT: u64 = 16 << 20;
/// How long the lease of a run lasts without renewal.
pub const RUN_LEASE: Duration = Duration::from_secs(60);
/// The maximum length of an artifact's path, and of a name in it, in bytes.
const MAX_PATH: usize = 1024;
const MAX_NAME: usize = 200;

/// The artifacts of planned runs, by run and path. Every write compares versions and replaces the whole body.
///
/// One owner at a time plans or executes a run; it claims the run and writes with the lease. Others, such as a person
/// who decides about a change request, write without a lease and must name the replaced version.
#[async_trait]
pub trait Artifacts: Send + Sync {
    /// Claims a run; it need not exist yet. [`Error::RunHeld`]: another owner holds it.
    async fn claim_run(&self, run: &str, owner: &str, length: Duration) -> Result<Lease>;
    /// Renews a lease. An expired lease is renewable until another owner claims the run; then [`Error::LeaseLost`].
    async fn hold_run(&self, lease: &Lease, length: Duration) -> Result<Lease>;
    /// Releases a lease. [`Error::LeaseLost`]: another owner has claimed the run.
    async fn release_run(&self, lease: &Lease) -> Result<()>;
    /// Reads an artifact. `None` if the path does not exist.
    async fn read(&self, run: &str, path: &str) -> Result<Option<Artifact>>;
    /// Writes an artifact if it has the expected version, and returns the new version.
    ///
    /// [`Error::LeaseLost`]: the lease is stale. [`Error::VersionConflict`]: the artifact has another version. Both
    /// write nothing. `lease` may be `None` only if `expected` is not [`ExpectedVersion::Any`].
    async fn write(
        &self,
        lease: Option<&Lease>,
        run: &str,
        path: &str,
        body: &[u8],
        expected: &ExpectedVersion,
    ) -> Result<ArtifactVersion>;
    /// The paths of all artifacts beneath a directory of the run, sorted; `""` is the whole run.
    async fn list(&self, run: &str, folder: &str) -> Result<Vec<String>>;
    /// The runs that have artifacts, sorted.
    async fn runs(&self) -> Result<Vec<String>>;
}

/// An artifact with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its content.
    pub body: Vec<u8>,
    /// The version of that content.
    pub version: ArtifactVersion,
}

/// A version of an artifact, for comparison only: a row number in a table, a content hash in files. Writing identical
/// content may keep the version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArtifactVersion(String);

impl ArtifactVersion {
    /// Creates a version from the store's representation.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The store's representation.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The state that a write requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// Any state; existing content is replaced.
    Any,
    /// The artifact does not exist.
    Absent,
    /// The artifact has this version.
    Is(ArtifactVersion),
}

impl ExpectedVersion {
    /// Whether a write may replace the current version.
    #[must_use]
    pub fn allows(&self, current: Option<&ArtifactVersion>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => current.is_none(),
            Self::Is(version) => current == Some(version),
        }
    }
}

/// The checks that every implementation does before a write: the names, the size, and that a write without a lease
/// names a version.
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

/// Checks the name of a run: one path component of visible characters.
pub fn check_run_name(run: &str) -> Result<()> {
    if is_component(run) { Ok(()) } else { Err(invalid("run", run)) }
}

/// Checks the path of an artifact: names separated by `/`, none of them `.`, `..` or hidden.
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

/// The artifacts of one run, with the lease for writes. Clones share the lease.
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

    /// The name of the run.
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

    /// Renews the lease, if one is held.
    pub async fn renew(&self) -> Result<()> {
        if let Some(lease) = self.lease() {
            let renewed = self.port.hold_run(&lease, RUN_LEASE).await?;
            self.set_lease(Some(renewed));
        }
        Ok(())
    }

    /// Releases the lease, if one is held. A lost lease is not an error here.
    pub async fn release(&self) -> Result<()> {
        let Some(lease) = self.lease() else { return Ok(()) };
        self.set_lease(None);
        match self.port.release_run(&lease).await {
            Err(Error::LeaseLost(_)) => Ok(()),
            outcome => outcome,
        }
    }

    /// Reads an artifact. `None` if the path does not exist.
    pub async fn read(&self, path: &str) -> Result<Option<Artifact>> {
        self.port.read(&self.run, path).await
    }

    /// Writes an artifact with the held lease.
    pub async fn write(&self, path: &str, body: &[u8], expected: &ExpectedVersion) -> Result<ArtifactVersion> {
        self.port.write(self.lease().as_ref(), &self.run, path, body, expected).await
    }

    /// The paths beneath a directory, sorted.
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
