//! Properties that hold for any bytes. Tests check some, fuzzers many.

use crate::{artifacts, fs};

/// A file and a patch, with a zero byte between them: a patch that fits changes nothing beside its hunks.
pub fn patch(data: &[u8]) {
    fs::fuzz_patch(data);
}

/// A document with front matter is read or refused; what was written is read as it was.
pub fn front_matter(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(task) = artifacts::TaskFrontMatter::parse(text) {
        let Ok(written) = task.to_markdown() else { return };
        let again = artifacts::TaskFrontMatter::parse(&written).unwrap_or_else(|why| panic!("{written}: {why}"));
        assert_eq!((again.front.id, again.front.title), (task.front.id, task.front.title));
    }
    _ = artifacts::Walkthrough::parse(text);
}

#[cfg(test)]
mod corpus {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/replay.rs"));

    #[test]
    fn is_replayed() {
        replay("patch", super::patch);
        replay("front", super::front_matter);
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
                super::patch(data);
                super::front_matter(data);
            }
        }
    }
}
