//! The vault: a read-only root for secrets. Commands do not see it: the host hides it or refuses the command
//! ([`SafePath::is_in_vault`](helve_contract::SafePath::is_in_vault)). [`VaultCopyTool`] copies one file at a time out of it.

mod copy_to;

pub use copy_to::{VaultCopyOutput, VaultCopyTool};
