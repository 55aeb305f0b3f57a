//! What `#[tool]` makes of a function, and what it says when it makes nothing.
#![allow(clippy::unwrap_used, missing_docs)]

mod expands;
mod nowhere;

#[test]
fn ui() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
