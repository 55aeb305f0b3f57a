//! The last of the outer walls, raised by the stage itself: which places are read-only depends on what is in the workspace
//! when a command is run, and the walls may have been built before.
//!
//! For that the outer sandbox leaves the stage some power over its own namespaces, and nothing outside of them. It is given
//! up here, before anything else runs.

use std::{fs::File, io::Write as _, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{Mode, OFlags, openat},
    mount::mount_bind_recursive,
};

use super::{child::drop_capabilities, plan::LateMounts, sys};

/// What the outer sandbox must leave to the stage: mounting, limiting namespaces, and giving all of it up.
pub(crate) const REQUIRED_CAPABILITIES: [&str; 3] = ["CAP_SYS_ADMIN", "CAP_SYS_RESOURCE", "CAP_SETPCAP"];

/// The number of user namespaces that may be made inside of this one. The kernel finds the caller's own behind the name.
const MAX_USER_NAMESPACES: &str = "sys/user/max_user_namespaces";

/// Raises what is left of the walls and gives up the power to change them. `proc` is a folder that is `/proc`.
pub(super) fn apply(last: &LateMounts, proc: &OwnedFd) -> Result<(), String> {
    for dir in &last.mounts.pinned {
        bind(dir)?;
    }
    for place in &last.mounts.read_only {
        if bind(place)? {
            sys::make_read_only(place)
                .map_err(|error| format!("cannot make {} read-only: {error}", place.display()))?;
        }
    }
    if last.sealed {
        openat(proc, MAX_USER_NAMESPACES, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(std::io::Error::from)
            .and_then(|file| File::from(file).write_all(b"0"))
            .map_err(|error| format!("cannot forbid further namespaces: {error}"))?;
    }
    drop_capabilities()
}

/// Mounts a place over itself; false where it is gone. The integrity check after another command may have moved it away,
/// and would do so again.
fn bind(place: &Path) -> Result<bool, String> {
    match mount_bind_recursive(place, place) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(error) => Err(format!("cannot protect {}: {error}", place.display())),
    }
}
