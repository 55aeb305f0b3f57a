//! Landlock rulesets that many commands share. A system with secrets needs hundreds of rules, and creating them takes
//! as long as starting a program.

use std::{
    fs,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::supervise::{FileFingerprint, PathGrant, build_ruleset};

#[derive(Default)]
pub(super) struct RulesetCache(Mutex<Option<CachedRuleset>>);

struct CachedRuleset {
    grants: Vec<(PathBuf, PathGrant)>,
    seen: Vec<(PathBuf, PathGrant, GrantFingerprint)>,
    rules: Arc<OwnedFd>,
}

/// The identity of a path, plus its change time if its entries are granted one by one.
type GrantFingerprint = (FileFingerprint, Option<(i64, i64)>);

impl RulesetCache {
    /// The ruleset for these grants: the cached one if nothing has changed. `None` if it cannot be created.
    pub(super) fn rules_for(&self, grants: &[(PathBuf, PathGrant)]) -> Option<Arc<OwnedFd>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.as_ref().filter(|it| it.grants == grants)
            && kept.seen.iter().all(|(place, grant, then)| fingerprint(place, *grant) == *then)
        {
            return Some(kept.rules.clone());
        }
        // Read first, so that changes during the creation are noticed next time.
        let seen = revalidated_grants(grants)
            .map(|(place, grant)| (place.clone(), *grant, fingerprint(place, *grant)))
            .collect();
        let rules = Arc::new(build_ruleset(grants).ok().flatten()?);
        *kept = Some(CachedRuleset { grants: grants.to_vec(), seen, rules: rules.clone() });
        Some(rules)
    }
}

/// The paths to check again. A directory granted entry by entry reports changed entries by its own time; only links
/// need a check.
fn revalidated_grants(grants: &[(PathBuf, PathGrant)]) -> impl Iterator<Item = &(PathBuf, PathGrant)> {
    let listed: Vec<&Path> =
        grants.iter().filter(|(_, grant)| *grant == PathGrant::List).map(|(dir, _)| dir.as_path()).collect();
    grants.iter().filter(move |(place, grant)| {
        let told = *grant != PathGrant::List && place.parent().is_some_and(|above| listed.contains(&above));
        !told || place.is_symlink()
    })
}

fn fingerprint(place: &Path, grant: PathGrant) -> GrantFingerprint {
    let about = if grant == PathGrant::List { fs::metadata(place).ok() } else { None };
    (FileFingerprint::of(place), about.map(|about| (about.mtime(), about.mtime_nsec())))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        os::unix::fs::symlink,
        time::{Duration, SystemTime},
    };

    use super::*;

    #[test]
    fn are_made_again_when_a_name_leads_elsewhere() {
        let top = std::env::temp_dir().join(format!("helve-made-{}", std::process::id()));
        let [system, linked, work] = ["system", "linked", "work"].map(|name| top.join(name));
        for dir in [&system, &linked, &work] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(system.join("hosts"), "1").unwrap();
        fs::write(linked.join("names"), "1").unwrap();
        symlink(linked.join("names"), system.join("names")).unwrap();
        // Timestamps are coarse: the events of this test must not share one.
        let before = SystemTime::now() - Duration::from_secs(60);
        File::open(&system).unwrap().set_modified(before).unwrap();
        let grants = [
            (system.clone(), PathGrant::List),
            (system.join("hosts"), PathGrant::Read),
            (system.join("names"), PathGrant::Read),
            (work.clone(), PathGrant::Write),
        ];
        let made = RulesetCache::default();
        let Some(first) = made.rules_for(&grants) else {
            eprintln!("this kernel has no Landlock");
            return fs::remove_dir_all(top).unwrap();
        };
        fs::write(work.join("new"), "1").unwrap();
        let again = made.rules_for(&grants).unwrap();
        assert!(Arc::ptr_eq(&first, &again), "a command's own files change nothing");

        fs::write(linked.join("other"), "2").unwrap();
        fs::rename(linked.join("other"), linked.join("names")).unwrap();
        let second = made.rules_for(&grants).unwrap();
        assert!(!Arc::ptr_eq(&first, &second), "the link leads to another file");

        fs::write(system.join("other"), "2").unwrap();
        fs::rename(system.join("other"), system.join("hosts")).unwrap();
        let third = made.rules_for(&grants).unwrap();
        assert!(!Arc::ptr_eq(&second, &third), "the entry is another file");
        assert!(!Arc::ptr_eq(&third, &made.rules_for(&grants[..1]).unwrap()), "other places have other rules");
        fs::remove_dir_all(top).unwrap();
    }
}
