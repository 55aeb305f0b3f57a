//! Settings files.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_config::trials::settings(data));
