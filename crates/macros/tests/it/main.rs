//! Tests of the code that `#[tool]` generates and of its error messages.
#![allow(clippy::unwrap_used, missing_docs)]

mod expands;
mod nowhere;

#[test]
fn ui() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
