//! What the engine does for itself: programs of the same user cannot look into it, and a crash writes nothing down.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Closes the engine's memory and environment to other programs of the same user. Call it early in `main`, after
/// [`run_helper_if_requested`](crate::run_helper_if_requested).
pub fn harden() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(())
}
