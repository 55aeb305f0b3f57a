//! The pipe to the child that parses documents, and the documents.
#![no_main]

use std::panic::{self, PanicHookInfo};

libfuzzer_sys::fuzz_target!(init: panic::set_hook(Box::new(tripped)), |data: &[u8]| helve_web::trials::document(data));

/// The crates that read documents may trip, and are caught; what is ours may not.
fn tripped(info: &PanicHookInfo<'_>) {
    if info.location().is_some_and(|it| it.file().contains("crates/web/src/")) {
        eprintln!("{info}");
        std::process::abort();
    }
}
