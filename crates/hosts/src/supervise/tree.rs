//! The process tree of a command: signals and kills all descendants.

use std::{fs, process};

use rustix::process::{WaitOptions, WaitStatus, wait};

use super::{plan::TreeTracking, sys};

impl TreeTracking {
    /// Sends a signal to all of it: the command and what came from it.
    pub(super) fn signal(self, main: i32, signal: i32) {
        match (self, self == Self::Walk && shows_this_namespace()) {
            // The kernel leaves out the sender, which is the init helper.
            (Self::Namespace, _) => sys::kill(-1, signal),
            (Self::Walk, true) => descendants().into_iter().for_each(|pid| sys::kill(pid, signal)),
            // Pids in a `/proc` of another namespace belong to others; only the command's process group remains.
            (Self::Walk, false) => sys::kill(-main, signal),
        }
        // A stopped process handles the signal only after SIGCONT.
        if matches!(signal, libc::SIGTERM | libc::SIGHUP | libc::SIGINT | libc::SIGQUIT) {
            self.signal(main, libc::SIGCONT);
        }
    }

    /// Kills the tree. Stops it first, so that it cannot fork faster than the scan.
    pub(super) fn kill(self, main: i32) {
        if self == Self::Walk {
            self.signal(main, libc::SIGSTOP);
        }
        self.signal(main, libc::SIGKILL);
    }
}

/// What waiting for children found.
pub(super) enum Reaped {
    /// One has ended: its id and how.
    One(i32, WaitStatus),
    /// None has ended, but some run.
    Running,
    /// There are none.
    Empty,
}

/// Reaps the next exited child.
pub(super) fn reap() -> Reaped {
    match wait(WaitOptions::NOHANG) {
        Ok(Some((pid, status))) => Reaped::One(pid.as_raw_nonzero().get(), status),
        Ok(None) => Reaped::Running,
        Err(rustix::io::Errno::INTR) => Reaped::Running,
        Err(_) => Reaped::Empty,
    }
}

/// Whether `/proc` is about the processes that this one can see.
pub(super) fn shows_this_namespace() -> bool {
    fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() == process::id().to_string().as_str())
}

/// All processes below this one. Orphans are among them, because the init helper adopts them.
fn descendants() -> Vec<i32> {
    let pairs: Vec<(i32, i32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| Some((pid, parent_of(pid)?)))
        .collect();
    let mut found = vec![process::id() as i32];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(pairs.iter().filter(|(pid, above)| *above == parent && *pid != parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything, so the fields are counted from its end.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
