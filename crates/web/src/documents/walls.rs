//! The sandbox that a parser child applies to itself before it reads any input.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Address space: an image of 100 megapixels and its smaller copy fit.
const MAX_ADDRESS_SPACE: u64 = 1 << 30;
/// Seconds of computing.
const MAX_CPU_SECS: u64 = 10;

/// Closes inherited files, sets limits, and sets no-new-privileges.
pub(super) fn apply_rlimits() -> io::Result<()> {
    close_inherited();
    let limits = [
        (Resource::As, MAX_ADDRESS_SPACE),
        (Resource::Cpu, MAX_CPU_SECS),
        (Resource::Nofile, 8),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::Memlock, 0),
    ];
    for (resource, most) in limits {
        // A tighter inherited limit cannot be raised.
        let most = getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Installs a seccomp filter for this thread and its children: no files, sockets or programs.
///
/// Refused calls return an error instead of killing, so that a library that only probes continues.
pub(super) fn install_seccomp() -> io::Result<()> {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

    let calls = [
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_pidfd_send_signal,
        libc::SYS_unlinkat,
        libc::SYS_renameat2,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
        libc::SYS_mkdirat,
        libc::SYS_mknodat,
        libc::SYS_fchmodat,
        libc::SYS_fchownat,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_chroot,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_shmget,
        libc::SYS_prlimit64,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod,
    ];
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(
        calls.into_iter().map(|call| (call, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        arch,
    )
    .map_err(io::Error::other)?;
    let program = BpfProgram::try_from(filter).map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

/// Closes every descriptor but the three of the pipe, whoever left it open.
#[allow(unsafe_code, reason = "closing a range of descriptors has no safe wrapper")]
fn close_inherited() {
    // SAFETY: this is the start of a process; nothing here owns a descriptor above 2. A kernel without the call
    // returns an error and closes nothing.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
    }
}
