//! A schema from outside, and arguments for it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_engine::trials::schema(data));
