//! PDF files and images.
//!
//! The content is untrusted, and a parser may loop, allocate without end or overflow its stack. So it runs in a child
//! process with limits and without files or network; [`DocumentReader`] communicates with it.

mod child;
mod layout;
mod pdf;
mod picture;
mod reader;
mod walls;
mod wire;

pub use child::run_parser_if_requested;
pub use reader::DocumentReader;

/// What comes over the pipe, and what it may carry, tried on any bytes.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_any(data: &[u8]) {
    if let Some((_, rest)) = wire::split::<wire::ParseRequest>(data) {
        assert!(rest.len() + 4 <= data.len());
    }
    _ = wire::split::<wire::ParseResponse>(data);
    // Document parsers may panic; the child turns that into an error.
    _ = std::panic::catch_unwind(|| _ = picture::fit_for_model(data));
    _ = std::panic::catch_unwind(|| _ = pdf::text(data, None));
}
