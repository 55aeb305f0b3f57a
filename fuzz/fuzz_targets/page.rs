//! Pages of the web.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_web::trials::page(data));
