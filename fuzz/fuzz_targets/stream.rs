//! The stream of a model.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_agent::model::try_stream(data));
