//! A tool's name and its arguments at the gate: commands, paths, patches and addresses in them.
#![no_main]

#[path = "../gate.rs"]
mod gate;

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_dialects::all().iter().for_each(|dialect| gate::check(data, dialect)));
