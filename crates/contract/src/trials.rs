//! Properties that hold for any input bytes, for tests and fuzzers.

use std::path::{Component, Path};

use crate::{Access, PathRules, PathStyle, Root, Workspace};

/// A path from a model resolves to a clean path beneath a root, or is refused.
pub fn check_path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for reading in [PathStyle::Relative, PathStyle::Absolute, PathStyle::Virtual] {
        let roots = [Root::writable("/w/proj").with_name("shared"), Root::readable("/w/vault").with_name("vault")];
        let workspace = Workspace::new(roots, PathRules::default(), reading);
        for access in [Access::Read, Access::Write] {
            let Ok(path) = workspace.check(Path::new(text), access, None) else { continue };
            let place = path.host_path();
            assert!(
                place.starts_with("/w/proj") || (place.starts_with("/w/vault") && access == Access::Read),
                "{}",
                place.display()
            );
            assert!(
                path.relative().components().all(|part| matches!(part, Component::Normal(_))),
                "{}",
                place.display()
            );
            assert!(!text.contains('\0'), "{}", place.display());
        }
    }
}

#[cfg(test)]
mod corpus {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/replay.rs"));

    #[test]
    fn is_replayed() {
        replay("path", super::check_path);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_falls_over(data in prop::collection::vec(any::<u8>(), 0..300), text in ".{0,200}") {
            for data in [&data[..], text.as_bytes()] {
                super::check_path(data);
            }
        }
    }
}
