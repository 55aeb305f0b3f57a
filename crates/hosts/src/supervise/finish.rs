//! The final mounts of the outer sandbox, made by the init helper: the read-only paths depend on the workspace when a
//! command starts, and the sandbox may be prepared earlier.
//!
//! For this the outer sandbox leaves the helper capabilities in its own namespaces. The helper drops them here,
//! before anything else runs.

use std::{fs::File, io::Write as _, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{Mode, OFlags, openat},
    mount::mount_bind_recursive,
};

use super::{child::drop_capabilities, plan::LateMounts, sys};

/// The capabilities that the outer sandbox must leave: mounting, limiting namespaces, and dropping capabilities.
pub(crate) const REQUIRED_CAPABILITIES: [&str; 3] = ["CAP_SYS_ADMIN", "CAP_SYS_RESOURCE", "CAP_SETPCAP"];

/// The number of user namespaces that may be made inside of this one. The kernel finds the caller's own behind the name.
const MAX_USER_NAMESPACES: &str = "sys/user/max_user_namespaces";

/// Makes the final mounts and drops the capabilities. `proc` is a handle of `/proc`.
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

/// Bind-mounts a path over itself; returns false if it is gone. The integrity check of another command may have moved
/// it.
fn bind(place: &Path) -> Result<bool, String> {
    match mount_bind_recursive(place, place) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(error) => Err(format!("cannot protect {}: {error}", place.display())),
    }
}
