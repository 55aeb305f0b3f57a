//! Properties that hold for any bytes. Tests check some, fuzzers many.

use crate::{
    documents,
    html::{self, HtmlPart, HtmlTextStyle},
};

/// A page becomes text, in every style, and nothing invisible is left in it.
pub fn page(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for style in [HtmlTextStyle::Markdown, HtmlTextStyle::Text] {
        for part in [HtmlPart::Main, HtmlPart::Whole] {
            _ = html::render_page(&text, "https://example.org/a/b", style, part);
        }
    }
}

/// What comes over the pipe to or from the child that parses, and the documents it may carry.
pub fn document(data: &[u8]) {
    documents::fuzz_any(data);
}

#[cfg(test)]
mod corpus {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/replay.rs"));

    #[test]
    fn is_replayed() {
        replay("page", super::page);
        replay("document", super::document);
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
                super::page(data);
                super::document(data);
            }
        }
    }
}
