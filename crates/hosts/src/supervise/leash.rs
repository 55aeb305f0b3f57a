//! Programs outside the sandbox that still end with this process, however it ends.
//!
//! The kill-on-exit wrapper is this binary with another first argument. It runs the program as its child with the
//! same standard files and watches the parent. When the parent is gone, it kills the program and its descendants.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, set_child_subreaper, set_parent_process_death_signal,
};

use super::{
    plan::TreeTracking,
    stage::TreeWatcher,
    sys::{self, Forked},
};

/// The first argument that selects the kill-on-exit wrapper. The parent's pid and the program follow.
pub(super) const KILL_ON_EXIT_ARG: &str = "--helve-leash";

/// Whether `main` of this binary handles the argument.
pub(super) static HELPER_AVAILABLE: AtomicBool = AtomicBool::new(false);

/// Wraps a program and its arguments so that it ends with this process.
///
/// Both stay unchanged if the program is not found, so that starting it reports the error, and in a binary whose
/// `main` does not call [`run_helper_if_requested`](crate::run_helper_if_requested).
#[must_use]
pub fn kill_on_exit(program: &str, args: &[String], dir: &Path) -> (String, Vec<String>) {
    if !HELPER_AVAILABLE.load(Ordering::Relaxed) || !is_found(program, dir) {
        return (program.to_owned(), args.to_vec());
    }
    // This path leads to the running binary even after its file was replaced.
    let own = [KILL_ON_EXIT_ARG.to_owned(), std::process::id().to_string(), program.to_owned()];
    ("/proc/self/exe".to_owned(), own.into_iter().chain(args.iter().cloned()).collect())
}

fn is_found(program: &str, dir: &Path) -> bool {
    if program.contains('/') {
        return dir.join(program).is_file();
    }
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(program).is_file())
}

/// Runs the program to its end; its exit code.
pub(super) fn run_wrapped(mut args: impl Iterator<Item = OsString>) -> io::Result<i32> {
    let engine = args.next().and_then(|it| it.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let (Some(engine), Some(program)) = (engine, args.next()) else {
        return Err(io::Error::other("the leash needs a process and a program"));
    };
    let mut command = Command::new(&program);
    command.args(args);
    sys::close_inherited()?;
    let watched = pidfd_open(engine, PidfdFlags::empty())?;
    // Checks that the pid was not reused by another process.
    if getppid() != Some(engine) {
        return Ok(125);
    }
    // The program handles signals for the whole group; the wrapper exits after it.
    let signals = sys::signalfd(&[libc::SIGCHLD])?;
    set_child_subreaper(Some(getpid()))?;
    match sys::fork()? {
        Forked::Child => {
            sys::reset_signals();
            _ = set_parent_process_death_signal(Some(Signal::KILL));
            let error = command.exec();
            _ = writeln!(io::stderr(), "`{}` cannot be started: {error}", program.display());
            sys::exit_now(127)
        }
        Forked::Parent(main) => {
            // Closes the wrapper's copies, so that the output ends with the program.
            let null = File::options().read(true).write(true).open("/dev/null")?;
            (0..3).try_for_each(|at| sys::dup_to(&null, at))?;
            let (status, _) = TreeWatcher::new(main, TreeTracking::Walk, watched, signals).run()?;
            Ok(status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0)))
        }
    }
}
