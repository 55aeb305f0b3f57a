//! The vault in `oxydra`.

use helve_contract::Reply;
use helve_tools::vault as room;
use schemars::JsonSchema;
use serde::Deserialize;

/// Copies a file out of /vault. An existing file is not replaced.
#[derive(Deserialize, JsonSchema)]
pub(super) struct VaultCopyToArgs {
    /// File under /vault
    source_path: String,
    /// New file under /shared or /tmp
    destination_path: String,
}

impl From<VaultCopyToArgs> for room::VaultCopyTool {
    fn from(VaultCopyToArgs { source_path, destination_path }: VaultCopyToArgs) -> Self {
        Self { source_path, destination_path }
    }
}

pub(super) fn render_copy(out: room::VaultCopyOutput) -> Reply {
    out.into()
}
