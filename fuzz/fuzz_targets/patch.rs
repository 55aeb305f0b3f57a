//! A file and a patch for it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_tools::trials::patch(data));
