//! `HostLayer`: a host that wraps another one, changes some operations and forwards the others.

use std::path::PathBuf;

use async_trait::async_trait;

use super::host::{
    DirEntry, DirListing, Expect, FileChange, FileChunk, FileKind, FindQuery, FindResult, GrepQuery, GrepResult, Host,
    ListOptions, Process, ProcessSpec, SandboxLevel, Span, Stat, WriteOutcome,
};
use crate::{Result, SafePath};

/// A host that wraps another one. Implement the changed operations; [`inner`](Self::inner) handles the rest of
/// [`Host`].
#[async_trait]
pub trait HostLayer: Send + Sync {
    /// The wrapped host.
    fn inner(&self) -> &dyn Host;

    /// [`Host::write`].
    async fn layered_write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<WriteOutcome> {
        self.inner().write(path, bytes, expect).await
    }

    /// [`Host::apply_changes`].
    async fn layered_change(&self, changes: Vec<FileChange>) -> Result<Vec<String>> {
        self.inner().apply_changes(changes).await
    }

    /// [`Host::remove`].
    async fn layered_remove(&self, path: &SafePath) -> Result<FileKind> {
        self.inner().remove(path).await
    }

    /// [`Host::spawn`].
    async fn layered_spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>> {
        self.inner().spawn(command).await
    }
}

#[async_trait]
impl<T: HostLayer> Host for T {
    fn name(&self) -> &str {
        self.inner().name()
    }
    async fn stat(&self, path: &SafePath) -> Result<Stat> {
        self.inner().stat(path).await
    }
    async fn real_path(&self, path: &SafePath) -> Result<PathBuf> {
        self.inner().real_path(path).await
    }
    async fn read(&self, path: &SafePath, span: Span) -> Result<FileChunk> {
        self.inner().read(path, span).await
    }
    async fn write(&self, path: &SafePath, bytes: &[u8], expect: Expect) -> Result<WriteOutcome> {
        self.layered_write(path, bytes, expect).await
    }
    async fn apply_changes(&self, changes: Vec<FileChange>) -> Result<Vec<String>> {
        self.layered_change(changes).await
    }
    async fn remove(&self, path: &SafePath) -> Result<FileKind> {
        self.layered_remove(path).await
    }
    async fn list(&self, path: &SafePath) -> Result<Vec<DirEntry>> {
        self.inner().list(path).await
    }
    async fn list_with(&self, path: &SafePath, glance: ListOptions) -> Result<DirListing> {
        self.inner().list_with(path, glance).await
    }
    async fn find(&self, path: &SafePath, find: &FindQuery) -> Result<FindResult> {
        self.inner().find(path, find).await
    }
    async fn grep(&self, path: &SafePath, grep: &GrepQuery) -> Result<GrepResult> {
        self.inner().grep(path, grep).await
    }
    async fn spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>> {
        self.layered_spawn(command).await
    }
    fn sandbox_level(&self) -> SandboxLevel {
        self.inner().sandbox_level()
    }
}
