//! A file of events that was left in any state.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    helve_engine::trials::events(data, folder.expect("a folder").path());
});
