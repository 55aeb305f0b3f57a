//! Properties that hold for any input bytes, for tests and fuzzers.

use std::path::Path;

use crate::source::parse_settings;

/// A settings file is parsed or refused with a reason, as TOML and as YAML.
pub fn settings(data: &[u8]) {
    for name in ["helve.toml", "helve.yaml"] {
        if let Err(why) = parse_settings(Path::new(name), data) {
            assert!(!why.is_empty());
        }
    }
}

#[cfg(test)]
mod corpus {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/replay.rs"));

    #[test]
    fn is_replayed() {
        replay("config", super::settings);
    }
}
