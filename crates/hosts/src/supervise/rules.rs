//! The kernel's file rules (Landlock), made from a list of places.

use std::{os::fd::OwnedFd, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};

use super::plan::Grant;

/// The newest rules asked for; an older kernel enforces those it knows.
const RULES: ABI = ABI::V6;

/// Rules that let a process use these places and no others, ready to be taken on; none where the kernel has no Landlock.
/// A place that does not exist is passed over.
pub(crate) fn rules_for(grants: &[(PathBuf, Grant)]) -> Result<Option<OwnedFd>, String> {
    let failed = |error: landlock::RulesetError| format!("cannot set up the file rules: {error}");
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RULES))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(RULES)))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    for (place, grant) in grants {
        if let Ok(file) = PathFd::new(place) {
            ruleset = ruleset.add_rule(PathBeneath::new(file, rights(*grant))).map_err(failed)?;
        }
    }
    Ok(ruleset.into())
}

fn rights(grant: Grant) -> BitFlags<AccessFs> {
    match grant {
        Grant::List => AccessFs::ReadDir.into(),
        Grant::Read => AccessFs::from_read(RULES),
        Grant::Write => AccessFs::from_all(RULES),
    }
}
