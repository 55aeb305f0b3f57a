//! The system calls without a safe wrapper.
#![allow(unsafe_code, reason = "fork, signal masks and seccomp have no safe wrapper; each use says why it is sound")]

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use tokio::io::unix::AsyncFd;

/// Which side of a fork this is.
pub(super) enum Forked {
    /// The new process.
    Child,
    /// The old one, with the child's id.
    Parent(i32),
}

/// Forks. Only the init helper calls it, which is single-threaded.
pub(super) fn fork() -> io::Result<Forked> {
    // SAFETY: the init helper is single-threaded, so the child may use everything the parent could.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// Ends the process at once, without running anything more.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Puts an open file at 0, 1 or 2, or at a number that is free.
pub(super) fn dup_to(file: &impl AsRawFd, at: RawFd) -> io::Result<()> {
    // SAFETY: `file` is open during the call; nothing in the helper owns the target number.
    check(unsafe { libc::dup2(file.as_raw_fd(), at) }).map(drop)
}

/// Every open file from 3 on is closed when the next program starts.
pub(super) fn close_on_exec() -> io::Result<()> {
    // SAFETY: sets a flag on descriptors and closes nothing.
    let done = unsafe {
        libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes every open file from 3 on: whatever the engine's own parent left open.
pub(super) fn close_inherited() -> io::Result<()> {
    // SAFETY: called first in the init helper, when it owns only 0, 1 and 2.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, 0 as libc::c_uint) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Holds all signals back and gives a file that is readable when one of some has come.
pub(super) fn signalfd(heeded: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: the sets are initialised by `sigfillset`/`sigemptyset` before they are read; the file is new and ours.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        check(libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()))?;
        let mut some: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut some);
        for signal in heeded {
            libc::sigaddset(&raw mut some, *signal);
        }
        let file = check(libc::signalfd(-1, &raw const some, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        Ok(OwnedFd::from_raw_fd(file))
    }
}

/// Every signal does again what it does by default.
pub(super) fn reset_signals() {
    // SAFETY: sets dispositions and an empty mask; signals that cannot be set (KILL, STOP) are refused without harm.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Sends a signal to one process, or (`-1`) to every other one of the namespace.
pub(super) fn kill(pid: i32, signal: i32) {
    // SAFETY: takes two numbers. A process that is gone already is no error.
    unsafe { libc::kill(pid, signal) };
}

/// Loads a filter of system calls for this process and all that come from it.
pub(super) fn load_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program outlives the call, and the kernel only reads it.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The same, and gives the descriptor from which its notifications are received.
pub(super) fn load_filter_with_listener(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let load = |flags: libc::c_ulong| {
        // SAFETY: the program outlives the call, and the kernel only reads it.
        let file =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
        if file == -1 { Err(io::Error::last_os_error()) } else { Ok(file as RawFd) }
    };
    // A signal must not make a program repeat a call that has been made for it. Before Linux 5.19 it can.
    let file = load(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
        .or_else(|_| load(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER))?;
    // SAFETY: the kernel has just made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// A system call that waits for an answer.
pub(super) struct Notification {
    pub(super) id: u64,
    /// The thread that made it.
    pub(super) thread: u32,
    pub(super) number: i64,
    pub(super) arguments: [u64; 6],
}

/// Room for what the kernel writes, which may be more than this program knows of.
#[repr(C, align(8))]
union NotificationBuffer {
    known: libc::seccomp_notif,
    room: [u64; 64],
}

/// Receives the next system call that waits. An error of kind `ENOENT` says that its thread is gone.
pub(super) fn receive_notification(listener: &impl AsRawFd) -> io::Result<Notification> {
    let mut sizes = libc::seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
    // SAFETY: the kernel writes three numbers into a structure of its own definition.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_NOTIF_SIZES, 0, &raw mut sizes) };
    if done != 0 || usize::from(sizes.seccomp_notif) > size_of::<NotificationBuffer>() {
        return Err(io::Error::other("notifications of this kernel are of an unknown size"));
    }
    let mut buffer = NotificationBuffer { room: [0; 64] };
    // SAFETY: the buffer is zeroed as the kernel demands, and at least as large as what it writes.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut buffer) })?;
    // SAFETY: the kernel has filled it, and every bit pattern is valid for its numbers.
    let known = unsafe { buffer.known };
    let number = i64::from(known.data.nr);
    Ok(Notification { id: known.id, thread: known.pid, number, arguments: known.data.args })
}

/// Whether the thread of a notification still waits for the answer.
pub(super) fn is_waiting(listener: &impl AsRawFd, id: u64) -> bool {
    // SAFETY: the kernel reads one number, which outlives the call.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
}

/// Answers a system call: 0, or the number of an error. It is never let through to the kernel.
pub(super) fn answer_notification(listener: &impl AsRawFd, id: u64, error: i32) {
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: -error, flags: 0 };
    // SAFETY: the kernel reads the structure, which outlives the call. A thread that is gone needs no answer.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
}

/// Makes a mount and all that is mounted beneath it read-only.
pub(super) fn make_read_only(mount: &Path) -> io::Result<()> {
    let path = CString::new(mount.as_os_str().as_bytes())?;
    let wanted = libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = (libc::AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW) as libc::c_uint;
    let size = size_of_val(&wanted);
    // SAFETY: the path is NUL-terminated and the size matches the attributes; both outlive the call, and the kernel
    // only reads them.
    let done = unsafe {
        libc::syscall(libc::SYS_mount_setattr, libc::AT_FDCWD, path.as_ptr(), flags, &raw const wanted, size)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes on file rules for this process and all that come from it.
pub(super) fn restrict_self(rules: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: `rules` is open for as long as the call lasts; the kernel takes a copy of them.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0 as libc::c_uint) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The version of the kernel's Landlock; 0 or less where there is none.
pub(crate) fn landlock_version() -> i64 {
    let nothing = std::ptr::null::<u8>();
    // SAFETY: with this flag (`LANDLOCK_CREATE_RULESET_VERSION`) the kernel reads no memory and makes nothing.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, 1 as libc::c_uint) }
}

/// The inherited standard files, as ours.
pub(super) fn stdio_fd(at: RawFd) -> OwnedFd {
    // SAFETY: the init helper takes each of 0, 1 and 2 once, and nothing else in it closes them.
    unsafe { OwnedFd::from_raw_fd(at) }
}

/// A file whose readiness the runtime watches.
pub(super) fn async_fd(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open file until it is dropped, which deregisters it first.
    unsafe { AsyncFd::register(file) }.map_err(io::Error::other)
}

fn check(answer: i32) -> io::Result<i32> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}
