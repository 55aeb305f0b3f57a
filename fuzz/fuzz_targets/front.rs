//! Documents with front matter.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_tools::trials::front(data));
