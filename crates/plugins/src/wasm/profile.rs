//! Capability profiles: which of the session's roots a module sees, and whether it may change them.

use std::{fmt, sync::Arc};

use helve_contract::{Access, Effects, Result, Root, SafePath, Workspace};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a module may reach. Every module has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// Looks at `shared`, `tmp` and `vault`.
    #[serde(alias = "file_read_only")]
    FileReadOnly,
    /// Looks at and changes `shared` and `tmp`.
    #[serde(alias = "file_read_write")]
    FileReadWrite,
    /// Sees no folder at all. There is no network inside a module: what it works on comes with the call.
    #[serde(alias = "web")]
    Web,
    /// Looks at `vault`, and cannot take anything elsewhere.
    #[serde(alias = "vault_read_step")]
    VaultReadStep,
    /// Changes `shared` and `tmp`, and does not see `vault`.
    #[serde(alias = "vault_write_step")]
    VaultWriteStep,
}

impl Profile {
    /// The only profile that a well-known operation runs with.
    pub(super) fn of_operation(name: &str) -> Option<Self> {
        Some(match name {
            "file_read" | "file_read_bytes" | "file_search" | "file_list" => Self::FileReadOnly,
            "file_write" | "file_write_bytes" | "file_edit" | "file_delete" => Self::FileReadWrite,
            "web_fetch" | "web_search" => Self::Web,
            "vault_copyto_read" => Self::VaultReadStep,
            "vault_copyto_write" => Self::VaultWriteStep,
            _ => return None,
        })
    }

    /// What follows for the gate.
    pub(super) fn effects(self) -> Effects {
        match self {
            Self::FileReadOnly | Self::VaultReadStep => Effects::READS,
            Self::FileReadWrite | Self::VaultWriteStep => Effects::READS.and(Effects::WRITES).and(Effects::DESTROYS),
            Self::Web => Effects::NONE,
        }
    }

    fn roots(self) -> (&'static [&'static str], Access) {
        match self {
            Self::FileReadOnly => (&["shared", "tmp", "vault"], Access::Read),
            Self::FileReadWrite | Self::VaultWriteStep => (&["shared", "tmp"], Access::Write),
            Self::Web => (&[], Access::Read),
            Self::VaultReadStep => (&["vault"], Access::Read),
        }
    }

    /// The folders of a session that a module with this profile sees. A root that the session lacks is not there.
    pub(super) fn mounts(self, workspace: &Workspace) -> Result<Vec<Mount>> {
        let (names, access) = self.roots();
        names
            .iter()
            .filter_map(|name| Some((name, root(workspace.roots(), name)?)))
            .map(|(name, root)| {
                let top = workspace.at(&root.dir, "", Access::Read)?;
                Ok(Mount { name: format!("/{name}"), top, access })
            })
            .collect()
    }
}

/// The name, as configuration spells it.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The root of this name; a workspace without names is `shared`.
fn root<'a>(roots: &'a [Arc<Root>], name: &str) -> Option<&'a Arc<Root>> {
    let unnamed = || roots.first().filter(|root| name == "shared" && root.name.is_none());
    roots.iter().find(|root| root.name.as_deref() == Some(name)).or_else(unnamed)
}

/// A folder as a module sees it.
#[derive(Clone, Debug)]
pub(super) struct Mount {
    /// What the module calls it.
    pub(super) name: String,
    /// Where it is.
    pub(super) top: SafePath,
    /// What the profile allows; the root's own rights come on top.
    pub(super) access: Access,
}

impl Mount {
    /// For the audit record.
    pub(super) fn told(&self) -> Value {
        json!({"path": self.name, "access": if self.access == Access::Write { "rw" } else { "ro" }})
    }
}
