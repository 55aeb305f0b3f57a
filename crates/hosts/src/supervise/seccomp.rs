//! The seccomp filter: refuses system calls that no command needs, whatever the file rules say.
//!
//! It is hand-written because it must check the architecture and the x32 numbering first: otherwise another numbering
//! would bypass the list.
//!
//! Without namespaces (L1) the filter also covers what Landlock has no rule for: attributes of files, and limits and
//! priorities of other processes.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter,
};

use super::plan::SocketPolicy;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

/// System calls of x86 in their x32 numbering have this bit.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

const RET_ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const RET_KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const RET_EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
const RET_ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

/// New namespaces of every kind, as flags of `clone`.
const CLONE_NEW_FLAGS: u32 = 0x7E02_0000;

/// Newer calls have the same number on every architecture; `libc` does not define all of them for every C library.
const PROCESS_MADVISE: i64 = 440;
const QUOTACTL_FD: i64 = 443;
const PROCESS_MRELEASE: i64 = 448;
pub(super) const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const OPEN_TREE_ATTR: i64 = 467;
const FILE_SETATTR: i64 = 469;

/// The newest reviewed call. A later one may bypass this filter.
const NEWEST: i64 = FILE_SETATTR;

/// Who answers calls that change attributes of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attributes {
    /// The kernel, because mounts confine them.
    Kernel,
    /// The supervisor, by seccomp notification.
    Supervisor,
    /// Refused, because notifications are unavailable.
    Nobody,
}

/// Calls that change a mode, an owner, times, an extended attribute or a length. Landlock has a rule only for the
/// last, since Linux 6.2.
pub(super) const ATTRIBUTES: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_truncate,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// Newer forms of the same, which programs do without where they are absent.
const ABSENT_ATTRIBUTES: [i64; 3] = [SETXATTRAT, REMOVEXATTRAT, FILE_SETATTR];

/// Calls whose first argument is a pid. 0 is the caller; any other may be outside the command.
const OWN_PROCESS: [i64; 7] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// `setpriority` for all processes of a user. `libc` gives it different types.
const PRIO_USER: u32 = 2;
/// `ioprio_set` for the same.
const IOPRIO_WHO_USER: u32 = 3;

/// `ioctl` requests of file systems by their type byte: ext4 and the generic flags (`f`), versions (`v`), XFS and project
/// ids (`X`), btrfs, f2fs, bcachefs, Ceph. Some change a file that is open for reading only.
const FILE_SYSTEM_REQUESTS: [u32; 7] = [0x66, 0x76, 0x58, 0x94, 0xF5, 0xBC, 0x97];

/// Those of them that read, or that need a file open for writing: clone, clone range, deduplicate, flags, version, extents,
/// project id.
const HARMLESS_REQUESTS: [u32; 7] =
    [0x4004_9409, 0x4020_940D, 0xC018_9436, 0x8008_6601, 0x8008_7601, 0xC020_660B, 0x801C_581F];

/// Looking into other processes, other ways around the filter, the machine itself.
const DENIED_SYSCALLS: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    QUOTACTL_FD,
    OPEN_TREE_ATTR,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// System V IPC. Without an IPC namespace a command shares it with all programs of its user.
const SYSV_IPC_SYSCALLS: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Up to this many numbers are compared linearly.
const LINEAR_MAX: usize = 4;

/// Memory of other processes, by a descriptor. Without a PID namespace these may be anybody's.
const FOREIGN_PROCESSES: [i64; 2] = [PROCESS_MADVISE, PROCESS_MRELEASE];

/// The whole filter.
pub(super) fn filter(sockets: SocketPolicy, attributes: Attributes) -> Vec<sock_filter> {
    let mut out = Vec::with_capacity(256);
    out.push(load(4));
    unless(&mut out, BPF_JEQ, ARCH, RET_KILL);
    out.push(load(0));
    #[cfg(target_arch = "x86_64")]
    when(&mut out, BPF_JGE, X32, RET_EPERM);
    out.extend(choices(&denied_syscalls(sockets, attributes), RET_EPERM));
    let shares_machine = attributes != Attributes::Kernel;
    if shares_machine {
        without_namespaces(&mut out, attributes);
    }
    // Its flags are behind a pointer, which a filter cannot read. Programs fall back to `clone`.
    when(&mut out, BPF_JEQ, libc::SYS_clone3 as u32, RET_ENOSYS);
    block(&mut out, libc::SYS_clone, |out| {
        out.push(load(argument(0)));
        when(out, BPF_JSET, CLONE_NEW_FLAGS, RET_EPERM);
    });
    // Only the low half counts for the kernel, so only the low half is compared.
    block(&mut out, libc::SYS_ioctl, |out| {
        out.push(load(argument(1)));
        when(out, BPF_JEQ, libc::TIOCSTI as u32, RET_EPERM);
        when(out, BPF_JEQ, libc::TIOCLINUX as u32, RET_EPERM);
        if shares_machine {
            for request in HARMLESS_REQUESTS {
                when(out, BPF_JEQ, request, RET_ALLOW);
            }
            out.push(statement(BPF_ALU | BPF_AND | BPF_K, 0xFF00));
            for kind in FILE_SYSTEM_REQUESTS {
                when(out, BPF_JEQ, kind << 8, RET_EPERM);
            }
        }
    });
    socket_rules(&mut out, sockets);
    out.push(ret(RET_ALLOW));
    out
}

/// Rules for commands without namespaces, which can reach files and processes of others.
fn without_namespaces(out: &mut Vec<sock_filter>, attributes: Attributes) {
    when(out, BPF_JGE, NEWEST as u32 + 1, RET_ENOSYS);
    for number in ABSENT_ATTRIBUTES {
        when(out, BPF_JEQ, number as u32, RET_ENOSYS);
    }
    if attributes == Attributes::Supervisor {
        out.extend(choices(&ordered(ATTRIBUTES), NOTIFY));
    }
    for number in OWN_PROCESS {
        block(out, number, |out| {
            out.push(load(argument(0)));
            unless(out, BPF_JEQ, 0, RET_EPERM);
        });
    }
    // "All processes of a user" is a kind of its own here, and 0 is this user.
    for (number, user) in [(libc::SYS_setpriority, PRIO_USER), (libc::SYS_ioprio_set, IOPRIO_WHO_USER)] {
        block(out, number, |out| {
            out.push(load(argument(0)));
            when(out, BPF_JEQ, user, RET_EPERM);
            out.push(load(argument(1)));
            unless(out, BPF_JEQ, 0, RET_EPERM);
        });
    }
}

/// All numbers that are refused whatever their arguments, in order.
fn denied_syscalls(sockets: SocketPolicy, attributes: Attributes) -> Vec<u32> {
    // Sockets of every kind are for commands with namespaces only.
    let shared = if sockets.has_namespaces() { &[] } else { SYSV_IPC_SYSCALLS };
    let foreign: &[i64] = if attributes == Attributes::Kernel { &[] } else { &FOREIGN_PROCESSES };
    let changing = if attributes == Attributes::Nobody { ATTRIBUTES } else { &[] };
    ordered(&[DENIED_SYSCALLS, shared, foreign, changing].concat())
}

fn ordered(numbers: &[i64]) -> Vec<u32> {
    let mut numbers: Vec<u32> = numbers.iter().map(|number| *number as u32).collect();
    numbers.sort_unstable();
    numbers
}

/// Returns a result for these sorted numbers, by binary search; other numbers continue. The kernel evaluates every
/// number when it loads a filter, so linear comparisons would be slow.
fn choices(numbers: &[u32], then: u32) -> Vec<sock_filter> {
    let (lower, upper) = numbers.split_at(numbers.len() / 2);
    let Some(first) = upper.first().filter(|_| numbers.len() > LINEAR_MAX) else {
        let mut out = Vec::new();
        for number in numbers {
            when(&mut out, BPF_JEQ, *number, then);
        }
        return out;
    };
    let (lower, upper) = (choices(lower, then), choices(upper, then));
    let mut out = vec![jump(BPF_JGE, *first, (lower.len() + 1) as u8, 0)];
    out.extend(lower);
    out.push(statement(BPF_JMP | BPF_JA, upper.len() as u32));
    out.extend(upper);
    out
}

fn socket_rules(out: &mut Vec<sock_filter>, sockets: SocketPolicy) {
    let families: &[i32] = match sockets {
        SocketPolicy::Ip | SocketPolicy::Own | SocketPolicy::NoConnect => {
            &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]
        }
        SocketPolicy::Pairs => &[libc::AF_UNIX],
        SocketPolicy::IpWithoutLocal => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
    };
    block(out, libc::SYS_socket, |out| {
        out.push(load(argument(0)));
        require_one_of(out, families);
        if families.contains(&libc::AF_NETLINK) {
            // Routes may be read; every other kind of netlink is somebody's private interface.
            out.push(load(argument(0)));
            let skip = jump(BPF_JEQ, libc::AF_NETLINK as u32, 0, 3);
            out.push(skip);
            out.push(load(argument(2)));
            unless(out, BPF_JEQ, 0, RET_EPERM);
        }
        match sockets {
            SocketPolicy::Pairs => deny_datagram_targets(out),
            SocketPolicy::Own | SocketPolicy::NoConnect => {
                let mut local = Vec::new();
                deny_datagram_targets(&mut local);
                out.push(load(argument(0)));
                out.push(jump(BPF_JEQ, libc::AF_UNIX as u32, 0, local.len() as u8));
                out.extend(local);
            }
            SocketPolicy::Ip | SocketPolicy::IpWithoutLocal => {}
        }
    });
    block(out, libc::SYS_socketpair, |out| {
        out.push(load(argument(0)));
        require_one_of(out, &[libc::AF_UNIX]);
        if sockets != SocketPolicy::Ip {
            deny_datagram_targets(out);
        }
    });
    // A named socket of another program (docker, ssh-agent, D-Bus) is an escape that no file rule prevents.
    match sockets {
        SocketPolicy::Pairs => {
            for number in [libc::SYS_connect, libc::SYS_bind] {
                when(out, BPF_JEQ, number as u32, RET_EPERM);
            }
        }
        SocketPolicy::Own => when(out, BPF_JEQ, libc::SYS_connect as u32, NOTIFY),
        SocketPolicy::NoConnect => when(out, BPF_JEQ, libc::SYS_connect as u32, RET_EPERM),
        SocketPolicy::Ip | SocketPolicy::IpWithoutLocal => {}
    }
}

/// A datagram carries its own address, which bypasses the refusal of `connect`.
fn deny_datagram_targets(out: &mut Vec<sock_filter>) {
    out.push(load(argument(1)));
    out.push(statement(BPF_ALU | BPF_AND | BPF_K, 0xF));
    when(out, BPF_JEQ, libc::SOCK_DGRAM as u32, RET_EPERM);
    when(out, BPF_JEQ, libc::SOCK_RAW as u32, RET_EPERM);
}

/// Refuses unless the loaded value is one of these.
fn require_one_of(out: &mut Vec<sock_filter>, values: &[i32]) {
    for (at, value) in values.iter().enumerate() {
        out.push(jump(BPF_JEQ, *value as u32, (values.len() - at) as u8, 0));
    }
    out.push(ret(RET_EPERM));
}

/// Instructions for one system call. They end in an answer, so that what follows still has the number loaded.
fn block(out: &mut Vec<sock_filter>, number: i64, fill: impl FnOnce(&mut Vec<sock_filter>)) {
    let mut inner = Vec::new();
    fill(&mut inner);
    inner.push(ret(RET_ALLOW));
    out.push(jump(BPF_JEQ, number as u32, 0, inner.len() as u8));
    out.extend(inner);
}

fn when(out: &mut Vec<sock_filter>, test: u32, value: u32, then: u32) {
    out.push(jump(test, value, 0, 1));
    out.push(ret(then));
}

fn unless(out: &mut Vec<sock_filter>, test: u32, value: u32, then: u32) {
    out.push(jump(test, value, 1, 0));
    out.push(ret(then));
}

fn load(at: u32) -> sock_filter {
    statement(BPF_LD | BPF_W | BPF_ABS, at)
}

/// Where the low half of an argument is.
fn argument(index: u32) -> u32 {
    16 + index * 8 + if cfg!(target_endian = "big") { 4 } else { 0 }
}

fn ret(action: u32) -> sock_filter {
    statement(BPF_RET | BPF_K, action)
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn jump(test: u32, value: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | test | BPF_K) as u16, jt: yes, jf: no, k: value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel would.
    fn verdict(sockets: SocketPolicy, arch: u32, number: i64, arguments: [u64; 3]) -> u32 {
        run(&filter(sockets, Attributes::Kernel), arch, number, arguments)
    }

    /// The same for a command without namespaces.
    fn shared_verdict(attributes: Attributes, number: i64, arguments: [u64; 3]) -> u32 {
        run(&filter(SocketPolicy::Pairs, attributes), ARCH, number, arguments)
    }

    fn run(program: &[sock_filter], arch: u32, number: i64, arguments: [u64; 3]) -> u32 {
        let word = |at: u32| match at {
            0 => number as u32,
            4 => arch,
            _ => arguments[((at - 16) / 8) as usize] as u32,
        };
        let (mut at, mut value) = (0, 0);
        loop {
            let step = program[at];
            let code = u32::from(step.code);
            at += 1;
            match code & 0x7 {
                BPF_LD => value = word(step.k),
                BPF_ALU => value &= step.k,
                BPF_RET => return step.k,
                BPF_JMP if code & 0xF0 == BPF_JA => at += step.k as usize,
                _ => {
                    let yes = match code & 0xF0 {
                        BPF_JEQ => value == step.k,
                        BPF_JGE => value >= step.k,
                        _ => value & step.k != 0,
                    };
                    at += usize::from(if yes { step.jt } else { step.jf });
                }
            }
        }
    }

    #[test]
    fn refuses_by_number_and_argument() {
        let ip = |number, arguments| verdict(SocketPolicy::Ip, ARCH, number, arguments);
        assert_eq!(ip(libc::SYS_read, [0; 3]), RET_ALLOW);
        assert_eq!(ip(libc::SYS_ptrace, [0; 3]), RET_EPERM);
        assert_eq!(ip(libc::SYS_clone3, [0; 3]), RET_ENOSYS);
        assert_eq!(ip(libc::SYS_clone, [0x11, 0, 0]), RET_ALLOW);
        assert_eq!(ip(libc::SYS_clone, [0x1000_0011, 0, 0]), RET_EPERM);
        assert_eq!(ip(libc::SYS_ioctl, [0, libc::TIOCSTI | 1 << 40, 0]), RET_EPERM);
        assert_eq!(ip(libc::SYS_ioctl, [0, libc::TCGETS, 0]), RET_ALLOW);
        assert_eq!(verdict(SocketPolicy::Ip, 0x4000_0003, libc::SYS_read, [0; 3]), RET_KILL);
    }

    #[test]
    fn every_number_of_the_list_is_refused_and_no_other() {
        for sockets in [
            SocketPolicy::Ip,
            SocketPolicy::Own,
            SocketPolicy::NoConnect,
            SocketPolicy::Pairs,
            SocketPolicy::IpWithoutLocal,
        ] {
            let listed = |number: i64| {
                DENIED_SYSCALLS.contains(&number)
                    || !sockets.has_namespaces() && SYSV_IPC_SYSCALLS.contains(&number)
                    || by_rule(number, sockets)
            };
            let by_filter = (0..1000).filter(|number| verdict(sockets, ARCH, *number, [0; 3]) == RET_EPERM);
            assert_eq!(by_filter.collect::<Vec<_>>(), (0..1000).filter(|it| listed(*it)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn attributes_are_answered_by_the_supervisor_or_by_nobody() {
        for number in ATTRIBUTES {
            assert_eq!(verdict(SocketPolicy::Ip, ARCH, *number, [0; 3]), RET_ALLOW, "{number}");
            assert_eq!(shared_verdict(Attributes::Supervisor, *number, [0; 3]), NOTIFY, "{number}");
            assert_eq!(shared_verdict(Attributes::Nobody, *number, [0; 3]), RET_EPERM, "{number}");
        }
        for number in ABSENT_ATTRIBUTES.into_iter().chain([NEWEST + 1, 999]) {
            assert_eq!(verdict(SocketPolicy::Ip, ARCH, number, [0; 3]), RET_ALLOW, "{number}");
            assert_eq!(shared_verdict(Attributes::Supervisor, number, [0; 3]), RET_ENOSYS, "{number}");
            assert_eq!(shared_verdict(Attributes::Nobody, number, [0; 3]), RET_ENOSYS, "{number}");
        }
        let notified = (0..1000).filter(|it| shared_verdict(Attributes::Supervisor, *it, [0; 3]) == NOTIFY);
        assert_eq!(notified.count(), ATTRIBUTES.len());
    }

    #[test]
    fn only_the_caller_is_limited_where_processes_are_shared() {
        for attributes in [Attributes::Supervisor, Attributes::Nobody] {
            for number in OWN_PROCESS {
                assert_eq!(shared_verdict(attributes, number, [0, 7, 7]), RET_ALLOW, "{number}");
                assert_eq!(shared_verdict(attributes, number, [1, 7, 7]), RET_EPERM, "{number}");
                assert_eq!(verdict(SocketPolicy::Ip, ARCH, number, [1, 7, 7]), RET_ALLOW, "{number}");
            }
            for (number, process, group, user) in [(libc::SYS_setpriority, 0, 1, 2), (libc::SYS_ioprio_set, 1, 2, 3)] {
                for kind in [process, group] {
                    assert_eq!(shared_verdict(attributes, number, [kind, 0, 7]), RET_ALLOW, "{number}");
                    assert_eq!(shared_verdict(attributes, number, [kind, 4321, 7]), RET_EPERM, "{number}");
                }
                for who in [0, 1000] {
                    assert_eq!(shared_verdict(attributes, number, [user, who, 7]), RET_EPERM, "{number}");
                }
            }
            for number in FOREIGN_PROCESSES {
                assert_eq!(shared_verdict(attributes, number, [0; 3]), RET_EPERM, "{number}");
            }
        }
    }

    #[test]
    fn requests_that_change_files_open_for_reading_are_refused() {
        let request = |number: u64| shared_verdict(Attributes::Supervisor, libc::SYS_ioctl, [3, number, 0]);
        // Flags, project id, version, verity, encryption, a btrfs snapshot.
        for number in [0x4008_6602, 0x401C_5820, 0x4008_7602, 0x4080_6685, 0x800C_6613, 0x5000_9401] {
            assert_eq!(request(number), RET_EPERM, "{number:x}");
            assert_eq!(verdict(SocketPolicy::Ip, ARCH, libc::SYS_ioctl, [3, number, 0]), RET_ALLOW, "{number:x}");
        }
        for number in [0x4004_9409, 0x8008_6601, libc::TCGETS, libc::FIONREAD, libc::TIOCGWINSZ] {
            assert_eq!(request(number), RET_ALLOW, "{number:x}");
        }
        assert_eq!(request(libc::TIOCSTI), RET_EPERM);
    }

    /// What is refused with arguments that are all zero.
    fn by_rule(number: i64, sockets: SocketPolicy) -> bool {
        let always = [libc::SYS_socket, libc::SYS_socketpair];
        let pairs = [libc::SYS_connect, libc::SYS_bind];
        always.contains(&number)
            || sockets == SocketPolicy::Pairs && pairs.contains(&number)
            || sockets == SocketPolicy::NoConnect && number == libc::SYS_connect
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_other_numbering_of_x86_is_refused() {
        assert_eq!(verdict(SocketPolicy::Ip, ARCH, libc::SYS_ptrace | 0x4000_0000, [0; 3]), RET_EPERM);
    }

    #[test]
    fn what_programs_share_is_for_namespaces() {
        for number in [libc::SYS_shmget, libc::SYS_shmctl, libc::SYS_msgsnd, libc::SYS_semop, libc::SYS_mq_open] {
            let verdicts = [SocketPolicy::Ip, SocketPolicy::Pairs, SocketPolicy::IpWithoutLocal]
                .map(|it| verdict(it, ARCH, number, [0; 3]));
            assert_eq!(verdicts, [RET_ALLOW, RET_EPERM, RET_EPERM], "{number}");
        }
    }

    #[test]
    fn sockets_by_family() {
        let socket = |sockets, family: i32, kind: i32, protocol: u64| {
            verdict(sockets, ARCH, libc::SYS_socket, [family as u64, kind as u64, protocol]) == RET_ALLOW
        };
        let cloexec = libc::SOCK_CLOEXEC;
        assert!(socket(SocketPolicy::Ip, libc::AF_INET, libc::SOCK_DGRAM, 0));
        assert!(socket(SocketPolicy::Ip, libc::AF_NETLINK, libc::SOCK_RAW, 0));
        assert!(!socket(SocketPolicy::Ip, libc::AF_NETLINK, libc::SOCK_RAW, 9));
        assert!(!socket(SocketPolicy::Ip, libc::AF_VSOCK, libc::SOCK_STREAM, 0));
        assert!(!socket(SocketPolicy::Pairs, libc::AF_INET, libc::SOCK_STREAM, 0));
        assert!(socket(SocketPolicy::Pairs, libc::AF_UNIX, libc::SOCK_STREAM | cloexec, 0));
        assert!(!socket(SocketPolicy::Pairs, libc::AF_UNIX, libc::SOCK_DGRAM | cloexec, 0));
        assert!(!socket(SocketPolicy::IpWithoutLocal, libc::AF_UNIX, libc::SOCK_STREAM, 0));
        assert_eq!(verdict(SocketPolicy::Pairs, ARCH, libc::SYS_connect, [0; 3]), RET_EPERM);
        assert_eq!(verdict(SocketPolicy::Ip, ARCH, libc::SYS_connect, [0; 3]), RET_ALLOW);
        for (sockets, connect) in [(SocketPolicy::Own, NOTIFY), (SocketPolicy::NoConnect, RET_EPERM)] {
            assert_eq!(verdict(sockets, ARCH, libc::SYS_connect, [0; 3]), connect);
            assert_eq!(verdict(sockets, ARCH, libc::SYS_bind, [0; 3]), RET_ALLOW);
            assert!(socket(sockets, libc::AF_UNIX, libc::SOCK_STREAM | cloexec, 0));
            assert!(socket(sockets, libc::AF_UNIX, libc::SOCK_SEQPACKET, 0));
            assert!(!socket(sockets, libc::AF_UNIX, libc::SOCK_DGRAM | cloexec, 0), "its messages name their receiver");
            assert!(!socket(sockets, libc::AF_UNIX, libc::SOCK_RAW, 0));
            assert!(socket(sockets, libc::AF_INET, libc::SOCK_DGRAM | cloexec, 0));
            assert!(socket(sockets, libc::AF_INET6, libc::SOCK_STREAM, 0));
            assert!(socket(sockets, libc::AF_NETLINK, libc::SOCK_RAW, 0));
            let pair = |kind: i32| verdict(sockets, ARCH, libc::SYS_socketpair, [libc::AF_UNIX as u64, kind as u64, 0]);
            assert_eq!([pair(libc::SOCK_STREAM), pair(libc::SOCK_DGRAM)], [RET_ALLOW, RET_EPERM]);
        }
    }
}
