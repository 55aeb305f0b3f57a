//! Command lines, taken apart.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_engine::trials::command(data));
