//! Capability profiles: which roots of the session a module sees, and whether they are writable.

use std::sync::Arc;

use helve_contract::{
    Access, CapabilityProfile, Effects, Result, Root, SafePath, Workspace,
    events::{MountAccess, MountInfo},
};

/// What a profile means for a module.
pub(super) trait ModuleProfile: Sized {
    /// The only profile that a well-known operation runs with.
    fn of_operation(name: &str) -> Option<Self>;
    /// The effects that the gate judges.
    fn effects(self) -> Effects;
    /// The directories of a session that a module with this profile sees. A root that the session lacks is not there.
    fn mounts(self, workspace: &Workspace) -> Result<Vec<Mount>>;
}

impl ModuleProfile for CapabilityProfile {
    fn of_operation(name: &str) -> Option<Self> {
        Some(match name {
            "file_read" | "file_read_bytes" | "file_search" | "file_list" => Self::FileReadOnly,
            "file_write" | "file_write_bytes" | "file_edit" | "file_delete" => Self::FileReadWrite,
            "web_fetch" | "web_search" => Self::Web,
            "vault_copyto_read" => Self::VaultReadStep,
            "vault_copyto_write" => Self::VaultWriteStep,
            _ => return None,
        })
    }

    fn effects(self) -> Effects {
        match self {
            Self::FileReadOnly | Self::VaultReadStep => Effects::READS,
            Self::FileReadWrite | Self::VaultWriteStep => {
                Effects::READS.union(Effects::WRITES).union(Effects::DESTROYS)
            }
            Self::Web => Effects::NONE,
        }
    }

    fn mounts(self, workspace: &Workspace) -> Result<Vec<Mount>> {
        let (names, access) = roots(self);
        names
            .iter()
            .filter_map(|name| Some((name, root(workspace.roots(), name)?)))
            .map(|(name, root)| {
                let top = workspace.resolve_in_root(&root.dir, "", Access::Read)?;
                Ok(Mount { name: format!("/{name}"), root: top, access })
            })
            .collect()
    }
}

/// The names of the roots that a profile mounts, and what a module may do there.
fn roots(profile: CapabilityProfile) -> (&'static [&'static str], Access) {
    match profile {
        CapabilityProfile::FileReadOnly => (&["shared", "tmp", "vault"], Access::Read),
        CapabilityProfile::FileReadWrite | CapabilityProfile::VaultWriteStep => (&["shared", "tmp"], Access::Write),
        CapabilityProfile::Web => (&[], Access::Read),
        CapabilityProfile::VaultReadStep => (&["vault"], Access::Read),
    }
}

/// The root of this name; a workspace without names is `shared`.
fn root<'a>(roots: &'a [Arc<Root>], name: &str) -> Option<&'a Arc<Root>> {
    let unnamed = || roots.first().filter(|root| name == "shared" && root.name.is_none());
    roots.iter().find(|root| root.name.as_deref() == Some(name)).or_else(unnamed)
}

/// A directory as a module sees it.
#[derive(Clone, Debug)]
pub(super) struct Mount {
    /// What the module calls it.
    pub(super) name: String,
    /// Where it is.
    pub(super) root: SafePath,
    /// What the profile allows; the root's own rights come on top.
    pub(super) access: Access,
}

impl Mount {
    /// For the audit record.
    pub(super) fn to_audit_json(&self) -> MountInfo {
        let access = if self.access == Access::Write { MountAccess::ReadWrite } else { MountAccess::ReadOnly };
        MountInfo { path: self.name.clone(), access }
    }
}
