//! Hardens the Helve process: other programs of the same user cannot inspect it, and a crash writes no core dump.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Protects the process's memory and environment from other programs of the same user. Call it early in `main`, after
/// [`run_helper_if_requested`](crate::run_helper_if_requested).
pub fn harden() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(())
}
