//! Writing the files out to where they last.

use std::path::Path;

use helve_contract::{
    Access, Error, FileFault, Result, SafePath,
    ports::{Expect, Host, Kind},
};

use super::{Memory, walk};

impl Memory {
    /// Writes every file beneath a folder to another host, beneath `to`. Links are left out. Says how many it wrote.
    pub async fn export(&self, from: &Path, host: &dyn Host, to: &SafePath) -> Result<usize> {
        use bashkit::FileSystem as _;
        let mut written = 0;
        for met in walk::all(&self.files, from).await {
            if met.kind != Kind::File {
                continue;
            }
            let beneath = met.path.strip_prefix(from).unwrap_or(&met.path);
            let path = to.beside(to.relative().join(beneath), Access::Write)?;
            let bytes = self.files.read_file(&met.path).await;
            let bytes = bytes.map_err(|error| Error::file(&path, FileFault::Other(error.to_string())))?;
            host.write(&path, &bytes, Expect::Anything).await?;
            written += 1;
        }
        Ok(written)
    }
}
