//! The part of WASI 0.2 that tools need: `wasi:cli`, `wasi:io`, `wasi:clocks`, `wasi:random` and `wasi:filesystem`.
//!
//! It stands on the same [`GuestState`](super::guest::GuestState) as preview 1, so both see the same directories and
//! limits.

mod files;
mod process;
mod streams;

use super::canonical::{HostFn, HostFunction, ResultLayout};

/// The function of this name. The interface comes without its version.
pub(super) fn function(interface: &str, name: &str) -> Option<&'static HostFunction> {
    let mut all = process::FUNCTIONS.iter().chain(streams::FUNCTIONS).chain(files::FUNCTIONS);
    all.find(|it| it.interface == interface && it.name == name)
}

const fn function_of(
    (interface, name): (&'static str, &'static str),
    takes: &'static str,
    gives: ResultLayout,
    work: HostFn,
) -> HostFunction {
    HostFunction { interface, name, params: takes, result: gives, work }
}
