//! What no tool may write.

use helve_contract::{Access, Glob, PathRule};

/// Names that tools may not write, at the top of a root and in every folder beneath.
pub const PROTECTED: &[&str] = &[".git/config", ".git/hooks"];

const WHY: &str =
    "is protected: it can make programs run commands or change what the agent may do; ask the user to change it";

/// The rules that keep tools from writing what is protected.
pub fn protected() -> impl Iterator<Item = PathRule> {
    PROTECTED.iter().map(|name| PathRule {
        glob: Glob::new(&format!("**/{name}")),
        denies: Access::Write,
        why: WHY.to_owned(),
    })
}
