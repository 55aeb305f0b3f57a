//! Connections that the supervisor makes for a command whose network is off.
//!
//! A socket file in the workspace may belong to a program outside, and no namespace prevents a connection: the kernel
//! finds the socket by its file. A filter cannot see the file. So every `connect` goes to the init helper, which
//! copies the address once, opens the file, and asks the kernel whether a socket of the command's network namespace
//! is bound to it. Only then it connects the command's socket through that file. No call continues in the kernel: the
//! command could change the address after the check.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, openat, statx},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, connect_unspec, netlink,
        recv, send, socket_with,
    },
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

use super::sys::Notification;

/// The largest address of the kernel.
const MAX_ADDRESS: usize = 128;
/// The length of an IPv4 address, and below it the shortest of an IPv6 address.
const IPV4: usize = 16;
const IPV6: usize = 24;

/// Connects the caller's socket, unless that would reach a program outside.
pub(super) fn perform(call: &Notification, is_waiting: impl Fn() -> bool) -> Result<(), Errno> {
    let caller = Caller::find(call.thread)?;
    let [number, address, length, ..] = call.arguments;
    let length = usize::try_from(length as u32).unwrap_or(usize::MAX);
    if length > MAX_ADDRESS {
        return Err(Errno::INVAL);
    }
    let address = caller.memory(address, length)?;
    let socket = caller.descriptor(number as i32)?;
    // While the caller waits, its pid is not reused, so all checks above were about the caller.
    if !is_waiting() {
        return Err(Errno::INTR);
    }
    let (family, rest) = address.split_at_checked(2).ok_or(Errno::INVAL)?;
    match i32::from(u16::from_ne_bytes([family[0], family[1]])) {
        libc::AF_UNIX => connect_local(&caller, &socket, rest),
        libc::AF_INET if length >= IPV4 => connect(&socket, &ipv4(rest)),
        libc::AF_INET6 if length >= IPV6 => connect(&socket, &ipv6(rest)),
        libc::AF_INET | libc::AF_INET6 => Err(Errno::INVAL),
        libc::AF_UNSPEC => connect_unspec(&socket),
        _ => Err(Errno::AFNOSUPPORT),
    }
}

fn connect_local(caller: &Caller, socket: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match name.first() {
        None => Err(Errno::INVAL),
        // An abstract name belongs to the network namespace, which is the command's.
        Some(0) => connect(socket, &SocketAddrUnix::new_abstract_name(&name[1..])?),
        Some(_) => {
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            let file = caller.open(&name[..end])?;
            if !is_bound_here(&file)? {
                return Err(Errno::ACCESS);
            }
            connect(socket, &SocketAddrUnix::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?)
        }
    }
}

fn ipv4(rest: &[u8]) -> SocketAddrV4 {
    let address: [u8; 4] = std::array::from_fn(|at| rest[2 + at]);
    SocketAddrV4::new(Ipv4Addr::from(address), u16::from_be_bytes([rest[0], rest[1]]))
}

fn ipv6(rest: &[u8]) -> SocketAddrV6 {
    let address: [u8; 16] = std::array::from_fn(|at| rest[6 + at]);
    let word = |at: usize| std::array::from_fn(|byte| rest.get(at + byte).copied().unwrap_or(0));
    let port = u16::from_be_bytes([rest[0], rest[1]]);
    SocketAddrV6::new(Ipv6Addr::from(address), port, u32::from_be_bytes(word(2)), u32::from_ne_bytes(word(22)))
}

/// The thread that wants to connect.
struct Caller {
    handle: OwnedFd,
    /// Its directory in `/proc`.
    proc: String,
}

impl Caller {
    fn find(thread: u32) -> Result<Self, Errno> {
        let own = |thread: u32| Pid::from_raw(thread as i32).ok_or(Errno::SRCH);
        // A handle of the thread itself, or on kernels before 6.9 of its process.
        let of_thread = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);
        let handle = match pidfd_open(own(thread)?, of_thread) {
            Ok(handle) => handle,
            Err(_) => pidfd_open(own(process_of(thread).unwrap_or(thread))?, PidfdFlags::empty())?,
        };
        // `/proc` may show the machine's PID namespace, where the thread has another pid. It says which.
        let about = format!("/proc/self/fdinfo/{}", handle.as_raw_fd());
        let about = fs::read_to_string(about).map_err(|_| Errno::PERM)?;
        let number = about.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<u32>().ok());
        let number = number.filter(|number| *number > 0).ok_or(Errno::PERM)?;
        Ok(Self { handle, proc: format!("/proc/{number}") })
    }

    fn memory(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let memory = File::open(format!("{}/mem", self.proc)).map_err(|_| Errno::PERM)?;
        let mut bytes = vec![0; length];
        memory.read_exact_at(&mut bytes, address).map_err(|_| Errno::FAULT)?;
        Ok(bytes)
    }

    fn descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        pidfd_getfd(&self.handle, number, PidfdGetfdFlags::empty())
    }

    /// The file that a name means to the caller, by a descriptor that can neither be read nor written.
    fn open(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let dir = openat(CWD, format!("{}/cwd", self.proc), flags, Mode::empty()).map_err(|_| Errno::PERM)?;
        openat(dir, name, flags, Mode::empty())
    }
}

/// The process of a thread, where `/proc` is about the same processes.
fn process_of(thread: u32) -> Option<u32> {
    let about = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    about.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// Whether a socket of this network namespace is bound to a file.
fn is_bound_here(file: &OwnedFd) -> Result<bool, Errno> {
    let about = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    if FileType::from_raw_mode(about.stx_mode.into()) != FileType::Socket {
        return Err(Errno::CONNREFUSED);
    }
    let disk = disk_of(about.stx_mnt_id).ok_or(Errno::ACCESS)?;
    // The kernel reports the lower half of the number.
    Ok(bound_files()?.contains(&(about.stx_ino as u32, disk)))
}

/// The kernel's number for the disk of a mount. A file's own device number is another one on some disks.
fn disk_of(mount: u64) -> Option<u32> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let is_it = fields.next()?.parse::<u64>().is_ok_and(|number| number == mount);
        let (major, minor) = fields.nth(1)?.split_once(':')?;
        is_it.then_some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
    })
}

/// The header of a message of netlink: length, kind, flags, number, port.
const HEADER: usize = 16;
/// The fixed part of a report about a socket.
const REPORT: usize = 16;
/// `SOCK_DIAG_BY_FAMILY`, which is both the question and the kind of each report.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// `UDIAG_SHOW_VFS`: report to which file a socket is bound.
const SHOW_FILE: u32 = 2;
/// `UNIX_DIAG_VFS`, the attribute with that file.
const FILE: u16 = 1;

/// Number and disk of every file that a socket of this network namespace is bound to.
fn bound_files() -> Result<Vec<(u32, u32)>, Errno> {
    let asking = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    let mut question = Vec::with_capacity(HEADER + 24);
    question.extend((HEADER as u32 + 24).to_ne_bytes());
    question.extend([BY_FAMILY.to_ne_bytes(), DUMP.to_ne_bytes()].concat());
    question.extend([1_u32.to_ne_bytes(), 0_u32.to_ne_bytes()].concat());
    question.extend([libc::AF_UNIX as u8, 0, 0, 0]);
    // All states, any socket, its file, and no cookie.
    for word in [u32::MAX, 0, SHOW_FILE, u32::MAX, u32::MAX] {
        question.extend(word.to_ne_bytes());
    }
    send(&asking, &question, SendFlags::empty())?;
    let mut files = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (count, _) = recv(&asking, buffer.as_mut_slice(), RecvFlags::empty())?;
        let mut rest = &buffer[..count];
        if rest.is_empty() {
            return Err(Errno::IO);
        }
        while let Some((kind, body)) = next(&mut rest, 4, HEADER) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(files),
                // The kernel cannot list such sockets, so no socket is known to be the command's.
                libc::NLMSG_ERROR => return Err(Errno::ACCESS),
                _ => files.extend(file_in(body.get(REPORT..).unwrap_or_default())),
            }
        }
    }
}

/// The file among the attributes of a report.
fn file_in(mut attributes: &[u8]) -> Option<(u32, u32)> {
    while let Some((kind, body)) = next(&mut attributes, 2, 4) {
        if kind == FILE {
            let word = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
            return Some((word(0)?, word(4)?));
        }
    }
    None
}

/// Takes the next piece off a row of pieces: each begins with its length in `width` bytes, its kind in two, and ends at a
/// multiple of four.
fn next<'a>(rest: &mut &'a [u8], width: usize, header: usize) -> Option<(u16, &'a [u8])> {
    let length = match width {
        2 => u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?).into(),
        _ => u32::from_ne_bytes(rest.get(..4)?.try_into().ok()?) as usize,
    };
    let kind = u16::from_ne_bytes(rest.get(width..width + 2)?.try_into().ok()?);
    let body = rest.get(header..length)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    #[test]
    fn a_socket_is_known_by_its_file_and_not_by_its_name() {
        let dir = std::env::temp_dir().join(format!("helve-bound-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = |name: &str| dir.join(name);
        let _listening = UnixListener::bind(path("stream")).unwrap();
        let datagram = UnixDatagram::bind(path("gone")).unwrap();
        let bound = |name: &str| is_bound_here(&openat(CWD, path(name), OFlags::PATH, Mode::empty()).unwrap());
        assert_eq!(bound("stream"), Ok(true));
        fs::rename(path("stream"), path("renamed")).unwrap();
        assert_eq!(bound("renamed"), Ok(true));
        drop(datagram);
        assert_eq!(bound("gone"), Ok(false), "nobody has it any more");
        fs::write(path("file"), "").unwrap();
        assert_eq!(bound("file"), Err(Errno::CONNREFUSED));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them() {
        let mut v6 = vec![0; 26];
        v6[0..2].copy_from_slice(&443_u16.to_be_bytes());
        v6[21] = 1;
        v6[22..26].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(ipv6(&v6), SocketAddrV6::new(Ipv6Addr::LOCALHOST, 443, 0, 7));
        let v4 = [0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(ipv4(&v4), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80));
    }
}
