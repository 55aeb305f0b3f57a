//! The vault in `oxydra`.

use helve_contract::Reply;
use helve_tools::vault as room;
use schemars::JsonSchema;
use serde::Deserialize;

/// Copies a file out of /vault. An existing file is not replaced.
#[derive(Deserialize, JsonSchema)]
pub(super) struct VaultCopyto {
    /// File under /vault
    source_path: String,
    /// New file under /shared or /tmp
    destination_path: String,
}

impl From<VaultCopyto> for room::CopyTo {
    fn from(VaultCopyto { source_path, destination_path }: VaultCopyto) -> Self {
        Self { source_path, destination_path }
    }
}

pub(super) fn copied(out: room::Copied) -> Reply {
    out.into()
}
