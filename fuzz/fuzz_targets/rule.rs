//! Rules of settings and plans, and what they say about calls.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_engine::trials::rule(data));
