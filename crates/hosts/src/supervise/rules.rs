//! The kernel's file rules (Landlock), made from a list of places.

use std::{os::fd::OwnedFd, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};

use super::plan::PathGrant;

/// The newest rules asked for; an older kernel enforces those it knows.
const LANDLOCK_ABI: ABI = ABI::V6;

/// Creates a ruleset that allows only these paths; `None` if the kernel has no Landlock. Skips missing paths.
pub(crate) fn build_ruleset(grants: &[(PathBuf, PathGrant)]) -> Result<Option<OwnedFd>, String> {
    let failed = |error: landlock::RulesetError| format!("cannot set up the file rules: {error}");
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(LANDLOCK_ABI)))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    for (place, grant) in grants {
        if let Ok(file) = PathFd::new(place) {
            ruleset = ruleset.add_rule(PathBeneath::new(file, access_flags(*grant))).map_err(failed)?;
        }
    }
    Ok(ruleset.into())
}

fn access_flags(grant: PathGrant) -> BitFlags<AccessFs> {
    match grant {
        PathGrant::List => AccessFs::ReadDir.into(),
        PathGrant::Read => AccessFs::from_read(LANDLOCK_ABI),
        PathGrant::Write => AccessFs::from_all(LANDLOCK_ABI),
    }
}
