//! Arguments that a model wrote, mended.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_engine::trials::arguments(data));
