//! Capability profiles (seed 003): which roots of a session a class of tools can reach. Open it to change what a
//! profile allows.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Root, RootPermission, Workspace};

/// The name of the root with secrets.
const VAULT: &str = "vault";

/// What a tool or a module may access. A tool has at most one profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CapabilityProfile {
    /// Reads every root, including `vault`; no writes.
    #[serde(alias = "file_read_only")]
    FileReadOnly,
    /// Reads and writes the roots except `vault`.
    #[serde(alias = "file_read_write")]
    FileReadWrite,
    /// Accesses no root.
    #[serde(alias = "web")]
    Web,
    /// Reads only `vault`.
    #[serde(alias = "vault_read_step")]
    VaultReadStep,
    /// Writes the writable roots; cannot see `vault`.
    #[serde(alias = "vault_write_step")]
    VaultWriteStep,
}

impl CapabilityProfile {
    /// The part of a workspace that this profile allows. It never adds access.
    #[must_use]
    pub fn narrow(self, workspace: &Workspace) -> Workspace {
        let is_vault = |root: &Root| root.name.as_deref() == Some(VAULT);
        let read_only = |root: &Arc<Root>| match root.rights {
            RootPermission::Read => root.clone(),
            RootPermission::Write => Arc::new(Root { rights: RootPermission::Read, ..Root::clone(root) }),
        };
        workspace.with_roots(|root| match self {
            Self::FileReadOnly => Some(read_only(root)),
            Self::FileReadWrite => (!is_vault(root)).then(|| root.clone()),
            Self::Web => None,
            Self::VaultReadStep => is_vault(root).then(|| read_only(root)),
            Self::VaultWriteStep => (!is_vault(root) && root.rights == RootPermission::Write).then(|| root.clone()),
        })
    }
}

/// The name in settings and records.
impl fmt::Display for CapabilityProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl CapabilityProfile {
    /// The name in settings and records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FileReadOnly => "FileReadOnly",
            Self::FileReadWrite => "FileReadWrite",
            Self::Web => "Web",
            Self::VaultReadStep => "VaultReadStep",
            Self::VaultWriteStep => "VaultWriteStep",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Access, PathRules, PathStyle};

    #[test]
    fn a_profile_leaves_only_its_roots() {
        let workspace = Workspace::new(
            [
                Root::writable("/s").with_name("shared"),
                Root::writable("/t").with_name("tmp"),
                Root::readable("/v").with_name("vault"),
                Root::readable("/o").with_name("output"),
            ],
            PathRules::default(),
            PathStyle::Virtual,
        );
        let reach = |profile: CapabilityProfile| {
            let narrow = profile.narrow(&workspace);
            ["shared", "tmp", "vault", "output"]
                .map(|root| {
                    let path = format!("/{root}/f");
                    let can = |access| narrow.check(Path::new(&path), access, None).is_ok();
                    match (can(Access::Read), can(Access::Write)) {
                        (true, true) => "rw",
                        (true, false) => "ro",
                        _ => "-",
                    }
                })
                .join(" ")
        };
        let profiles = [
            CapabilityProfile::FileReadOnly,
            CapabilityProfile::FileReadWrite,
            CapabilityProfile::Web,
            CapabilityProfile::VaultReadStep,
            CapabilityProfile::VaultWriteStep,
        ];
        assert_eq!(profiles.map(reach), ["ro ro ro ro", "rw rw - ro", "- - - -", "- - ro -", "rw rw - -"]);
    }
}
