//! Paths that a model wrote.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_contract::trials::path(data));
