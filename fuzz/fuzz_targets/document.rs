//! The pipe to the child that parses documents, and the documents.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_web::trials::document(data));
