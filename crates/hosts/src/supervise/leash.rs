//! Programs that are behind no walls, and yet end with the engine, however that ends.
//!
//! The leash is this binary under another first argument. It runs the program as its child, with the same standard files,
//! and watches the engine. When the engine is gone it kills the program with all that came from it.

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

/// The first argument that turns the binary into the leash. The engine's process id and the program follow.
pub(super) const KILL_ON_EXIT_ARG: &str = "--helve-leash";

/// Whether `main` of this binary knows the argument.
pub(super) static HELPER_AVAILABLE: AtomicBool = AtomicBool::new(false);

/// A program and its arguments, put so that it ends with this process, however that ends.
///
/// Both stay as they are where the program is not found, so that starting it says so itself, and in a binary whose `main`
/// does not begin with [`run_helper_if_requested`](crate::run_helper_if_requested).
#[must_use]
pub fn kill_on_exit(program: &str, args: &[String], dir: &Path) -> (String, Vec<String>) {
    if !HELPER_AVAILABLE.load(Ordering::Relaxed) || !is_found(program, dir) {
        return (program.to_owned(), args.to_vec());
    }
    // This name leads to the running binary even when its file has been replaced.
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
    // An id that was given to somebody else meanwhile is not the engine.
    if getppid() != Some(engine) {
        return Ok(125);
    }
    // A signal for the whole group is the program's to heed; the leash ends when the program does.
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
            // What the program writes ends when the program ends, not when the leash does.
            let null = File::options().read(true).write(true).open("/dev/null")?;
            (0..3).try_for_each(|at| sys::dup_to(&null, at))?;
            let (status, _) = TreeWatcher::new(main, TreeTracking::Walk, watched, signals).run()?;
            Ok(status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0)))
        }
    }
}
