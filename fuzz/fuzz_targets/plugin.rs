//! Lines of a plugin.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_plugins::trials::line(data));
