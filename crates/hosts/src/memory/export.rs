//! Exports in-memory files to another host.

use std::path::Path;

use helve_contract::{
    Access, Error, FileErrorKind, Result, SafePath,
    ports::{Expect, FileChange, FileKind, Host},
};

use super::{MemoryHost, walk};

impl MemoryHost {
    /// Writes every file beneath a directory to another host beneath `to`, all or none, each with its expected
    /// content. Skips links. Returns the number of files.
    pub async fn export(&self, from: &Path, host: &dyn Host, to: &SafePath, expect: Expect) -> Result<usize> {
        let mut changes = Vec::new();
        for met in walk::walk_all(&*self.files, from).await {
            if met.kind != FileKind::File {
                continue;
            }
            let beneath = met.path.strip_prefix(from).unwrap_or(&met.path);
            let path = to.in_same_root(to.relative().join(beneath), Access::Write)?;
            let bytes = self.files.read_file(&met.path).await;
            let bytes = bytes.map_err(|error| Error::file(&path, FileErrorKind::Other(error.to_string())))?;
            changes.push(FileChange::Write { path, bytes, expect, like: None });
        }
        let count = changes.len();
        if count > 0 {
            host.apply_changes(changes).await?;
        }
        Ok(count)
    }
}
