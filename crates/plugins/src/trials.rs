//! Properties that hold for any bytes. Tests check some, fuzzers many.

use crate::{
    protocol::{CallLine, HandshakeLine, ProtocolForm, parse_handshake, parse_result},
    schema,
};

/// A line from a plugin is understood or is noise; a schema has an object at its root, whatever came.
pub fn line(data: &[u8]) {
    if let HandshakeLine::Tools(_, tools) = parse_handshake(data) {
        assert!(!tools.is_empty());
    }
    for form in [ProtocolForm::Init, ProtocolForm::Describe] {
        if let CallLine::Result(reply) = parse_result(form, data, "call-1") {
            assert!(reply.text.len() <= 64 + 64 * data.len(), "a reply is bounded by what came");
            assert!(!reply.text.is_empty() || !reply.media.is_empty());
        }
    }
    if let Ok(value) = serde_json::from_slice(data)
        && let Ok(schema) = schema::checked(value)
    {
        assert_eq!(schema["type"], "object");
    }
}

#[cfg(test)]
mod corpus {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/replay.rs"));

    #[test]
    fn is_replayed() {
        replay("plugin", super::line);
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
                super::line(data);
            }
        }
    }
}
