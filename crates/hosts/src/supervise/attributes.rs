//! Attribute changes that the supervisor makes for a command: decodes the call, finds the file and checks that it is
//! beneath a writable directory.
//!
//! The arguments are copied once from the command's memory; the check and the change use that copy. The file is
//! resolved as the command would. Then its name is read back from the kernel and opened beneath the directory without
//! following links, and the change uses that descriptor. Other files are refused.

use std::{
    ffi::CString,
    fs::File,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW, Uid, XattrFlags,
        chmodat, chownat, fstat, ftruncate, open, openat, openat2, readlinkat, removexattr, setxattr, utimensat,
    },
    io::Errno,
};

use super::{seccomp::FCHMODAT2, sys::Notification};

/// The longest path of the kernel, with the zero at its end.
const MAX_PATH: usize = 4096;
/// The longest name of an extended attribute, with the zero at its end.
const MAX_NAME: usize = 256;
/// The longest value of an extended attribute.
const MAX_VALUE: u64 = 64 << 10;
/// Memory is read up to page boundaries: the next page may not exist.
const PAGE: u64 = 4096;
/// How often a file is looked for again when it was renamed meanwhile.
const MAX_TRIES: usize = 8;

/// The directories beneath which a command may change attributes, and single files.
pub(super) struct Roots(pub(super) Vec<OwnedFd>);

/// One call, with copies of everything its arguments point to.
pub(super) struct Request {
    thread: u32,
    target: Target,
    change: Change,
}

enum Target {
    Descriptor(i32),
    Path { dir: i32, path: Vec<u8>, flags: AtFlags },
}

enum Change {
    Mode(Mode),
    Owner(Option<Uid>, Option<Gid>),
    Times(Timestamps),
    SetAttribute { name: CString, value: Vec<u8>, flags: XattrFlags },
    RemoveAttribute(CString),
    Length(u64),
}

impl Request {
    /// Reads the arguments of a call.
    pub(super) fn read(call: &Notification) -> Result<Self, Errno> {
        // What cannot be read cannot be checked.
        let memory = Memory(File::open(format!("/proc/{}/mem", call.thread)).map_err(|_| Errno::PERM)?);
        let (target, change) = decode(call.number, call.arguments, &memory)?;
        Ok(Self { thread: call.thread, target, change })
    }

    /// Makes the change if the file is beneath a root and the caller still waits. While it waits, its pid in `/proc`
    /// is not reused.
    pub(super) fn perform(self, roots: &Roots, is_waiting: impl Fn() -> bool) -> Result<(), Errno> {
        for _ in 0..MAX_TRIES {
            let found = self.find()?;
            if !is_waiting() {
                return Err(Errno::INTR);
            }
            if let Some(file) = roots.confine(found)? {
                return self.change.make(&file);
            }
        }
        Err(Errno::PERM)
    }

    /// Resolves the file as the caller would, as an `O_PATH` descriptor.
    fn find(&self) -> Result<OwnedFd, Errno> {
        let (dir, path, flags) = match &self.target {
            Target::Descriptor(number) if *number < 0 => return Err(Errno::BADF),
            Target::Descriptor(number) => return self.descriptor(*number),
            Target::Path { dir, path, flags } => (*dir, path, *flags),
        };
        if path.is_empty() {
            return if flags.contains(AtFlags::EMPTY_PATH) { self.descriptor(dir) } else { Err(Errno::NOENT) };
        }
        // `/proc/self` is the supervisor here. The caller's descriptors are resolved in the caller.
        let (dir, path) = match self.through_descriptor(path) {
            Some((number, [])) if flags.contains(AtFlags::SYMLINK_NOFOLLOW) => {
                self.descriptor(number)?;
                return Err(Errno::PERM);
            }
            Some((number, [])) => return self.descriptor(number),
            Some((number, rest)) => (self.descriptor(number)?, rest),
            None if path.starts_with(b"/") => (self.descriptor(libc::AT_FDCWD)?, path.as_slice()),
            None => (self.descriptor(dir)?, path.as_slice()),
        };
        let last = if flags.contains(AtFlags::SYMLINK_NOFOLLOW) { OFlags::NOFOLLOW } else { OFlags::empty() };
        let flags = OFlags::PATH | OFlags::CLOEXEC | last;
        // The kernel returns the same error for magic links in `/proc` as for link loops.
        openat2(dir, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
            .map_err(|error| if error == Errno::LOOP { Errno::PERM } else { error })
    }

    /// What a descriptor of the caller leads to, or its working directory.
    fn descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        let name = match number {
            libc::AT_FDCWD => format!("/proc/{}/cwd", self.thread),
            number => format!("/proc/{}/fd/{number}", self.thread),
        };
        openat(CWD, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|error| match error {
            Errno::NOENT => Errno::BADF,
            _ => Errno::PERM,
        })
    }

    /// The number in a path such as `/proc/self/fd/3` or `/dev/fd/3`, and the rest of it.
    fn through_descriptor<'a>(&self, path: &'a [u8]) -> Option<(i32, &'a [u8])> {
        let own = self.thread.to_string();
        let mut rest = path;
        match (next_part(&mut rest)?, next_part(&mut rest)?) {
            _ if !path.starts_with(b"/") => return None,
            (b"dev", b"fd") => {}
            (b"proc", who) if who == b"self" || who == b"thread-self" || who == own.as_bytes() => {
                next_part(&mut rest).filter(|part| *part == b"fd")?;
            }
            _ => return None,
        }
        let number = std::str::from_utf8(next_part(&mut rest)?).ok()?.parse().ok().filter(|number| *number >= 0)?;
        let start = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
        Some((number, &rest[start..]))
    }
}

/// Takes the next part of a path off its beginning.
fn next_part<'a>(path: &mut &'a [u8]) -> Option<&'a [u8]> {
    let start = path.iter().position(|byte| *byte != b'/')?;
    let rest = &path[start..];
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (part, rest) = rest.split_at(end);
    *path = rest;
    Some(part)
}

impl Roots {
    /// Reopens the same file beneath a root; `None` if the file moved meanwhile.
    fn confine(&self, file: OwnedFd) -> Result<Option<OwnedFd>, Errno> {
        let name = name_of(&file)?;
        let about = fstat(&file)?;
        for root in &self.0 {
            let top = name_of(root)?;
            let Some(inside) = beneath(&name, &top) else { continue };
            if inside.is_empty() {
                let found = fstat(root)?;
                let is_same = (found.st_dev, found.st_ino) == (about.st_dev, about.st_ino);
                return Ok(is_same.then_some(file));
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
            let again = match openat2(root, inside, flags, Mode::empty(), resolve) {
                Ok(again) => again,
                // A deleted file has no other user, and changes to it do not persist.
                Err(_) if about.st_nlink == 0 && name.ends_with(b" (deleted)") => return Ok(Some(file)),
                Err(_) => return Ok(None),
            };
            let found = fstat(&again)?;
            let is_same = (found.st_dev, found.st_ino) == (about.st_dev, about.st_ino);
            return Ok(is_same.then_some(again));
        }
        Err(Errno::PERM)
    }
}

/// The rest of a path beneath a directory; nothing for the directory itself.
fn beneath<'a>(path: &'a [u8], folder: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(folder)?;
    match rest.split_first() {
        None => Some(rest),
        Some((b'/', rest)) => Some(rest),
        Some(_) if folder == b"/" => Some(rest),
        Some(_) => None,
    }
}

/// The `/proc` path of a descriptor. System calls follow it to exactly that file.
fn link(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// The path of a file according to the kernel.
fn name_of(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    readlinkat(CWD, link(file), Vec::new()).map(CString::into_bytes)
}

impl Change {
    fn make(&self, file: &OwnedFd) -> Result<(), Errno> {
        let link = link(file);
        match self {
            Self::Mode(mode) => chmodat(CWD, link, *mode, AtFlags::empty()),
            Self::Owner(user, group) => chownat(CWD, link, *user, *group, AtFlags::empty()),
            Self::Times(times) => utimensat(CWD, link, times, AtFlags::empty()),
            Self::SetAttribute { name, value, flags } => setxattr(link, name.as_c_str(), value, *flags),
            Self::RemoveAttribute(name) => removexattr(link, name.as_c_str()),
            Self::Length(length) => match FileType::from_raw_mode(fstat(file)?.st_mode) {
                FileType::RegularFile => {
                    ftruncate(open(link, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?, *length)
                }
                FileType::Directory => Err(Errno::ISDIR),
                _ => Err(Errno::INVAL),
            },
        }
    }
}

/// What a call is about.
fn decode(number: i64, arguments: [u64; 6], memory: &Memory) -> Result<(Target, Change), Errno> {
    let [first, second, third, fourth, fifth, _] = arguments;
    let follow = AtFlags::empty();
    let at = |dir: u64, address: u64, flags: AtFlags| {
        Ok(Target::Path { dir: dir as i32, path: memory.text(address, MAX_PATH, Errno::NAMETOOLONG)?, flags })
    };
    let here = |address: u64, flags: AtFlags| at(libc::AT_FDCWD as u64, address, flags);
    let link = AtFlags::SYMLINK_NOFOLLOW;
    Ok(match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod => (here(first, follow)?, mode(second)),
        libc::SYS_fchmod => (Target::Descriptor(first as i32), mode(second)),
        libc::SYS_fchmodat => (at(first, second, follow)?, mode(third)),
        FCHMODAT2 => (at(first, second, at_flags(fourth)?)?, mode(third)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown => (here(first, follow)?, owner(second, third)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown => (here(first, link)?, owner(second, third)),
        libc::SYS_fchown => (Target::Descriptor(first as i32), owner(second, third)),
        libc::SYS_fchownat => (at(first, second, at_flags(fifth)?)?, owner(third, fourth)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime => (here(first, follow)?, memory.times(second, Clock::Seconds)?),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes => (here(first, follow)?, memory.times(second, Clock::Microseconds)?),
        // Without a path both are about the descriptor.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat if second == 0 => {
            (Target::Descriptor(first as i32), memory.times(third, Clock::Microseconds)?)
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat => (at(first, second, follow)?, memory.times(third, Clock::Microseconds)?),
        libc::SYS_utimensat if second == 0 => {
            let number = Some(first as i32).filter(|it| *it != libc::AT_FDCWD).ok_or(Errno::FAULT)?;
            (Target::Descriptor(number), memory.times(third, Clock::Nanoseconds)?)
        }
        libc::SYS_utimensat => (at(first, second, at_flags(fourth)?)?, memory.times(third, Clock::Nanoseconds)?),
        libc::SYS_setxattr => (here(first, follow)?, memory.attribute(second, third, fourth, fifth)?),
        libc::SYS_lsetxattr => (here(first, link)?, memory.attribute(second, third, fourth, fifth)?),
        libc::SYS_fsetxattr => (Target::Descriptor(first as i32), memory.attribute(second, third, fourth, fifth)?),
        libc::SYS_removexattr => (here(first, follow)?, Change::RemoveAttribute(memory.name(second)?)),
        libc::SYS_lremovexattr => (here(first, link)?, Change::RemoveAttribute(memory.name(second)?)),
        libc::SYS_fremovexattr => (Target::Descriptor(first as i32), Change::RemoveAttribute(memory.name(second)?)),
        libc::SYS_truncate => {
            (here(first, follow)?, Change::Length(u64::try_from(second as i64).map_err(|_| Errno::INVAL)?))
        }
        _ => return Err(Errno::PERM),
    })
}

fn mode(bits: u64) -> Change {
    Change::Mode(Mode::from_raw_mode(bits as u32 & 0o7777))
}

/// `-1` leaves one of them as it is.
fn owner(user: u64, group: u64) -> Change {
    let set = |id: u64| Some(id as u32).filter(|id| *id != u32::MAX);
    Change::Owner(set(user).map(Uid::from_raw), set(group).map(Gid::from_raw))
}

fn at_flags(bits: u64) -> Result<AtFlags, Errno> {
    let known = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    AtFlags::from_bits(bits as u32).filter(|flags| known.contains(*flags)).ok_or(Errno::INVAL)
}

/// How a call counts the parts of a second.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    #[cfg(target_arch = "x86_64")]
    Seconds,
    #[cfg(target_arch = "x86_64")]
    Microseconds,
    Nanoseconds,
}

/// The memory of the caller.
struct Memory(File);

impl Memory {
    fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, address).map_err(|_| Errno::FAULT)?;
        Ok(bytes)
    }

    /// Text up to a zero byte.
    fn text(&self, mut address: u64, max: usize, too_long: Errno) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::new();
        while text.len() < max {
            let mut piece = vec![0; (PAGE - address % PAGE).min((max - text.len()) as u64) as usize];
            let count = self.0.read_at(&mut piece, address).map_err(|_| Errno::FAULT)?;
            let piece = piece.get(..count).filter(|piece| !piece.is_empty()).ok_or(Errno::FAULT)?;
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                text.extend(&piece[..end]);
                return Ok(text);
            }
            text.extend(piece);
            address = address.wrapping_add(count as u64);
        }
        Err(too_long)
    }

    /// The name of an extended attribute.
    fn name(&self, address: u64) -> Result<CString, Errno> {
        let name = self.text(address, MAX_NAME, Errno::RANGE)?;
        CString::new(name).ok().filter(|name| !name.is_empty()).ok_or(Errno::RANGE)
    }

    fn attribute(&self, name: u64, value: u64, size: u64, flags: u64) -> Result<Change, Errno> {
        let flags = XattrFlags::from_bits(flags as u32).ok_or(Errno::INVAL)?;
        let name = self.name(name)?;
        if size > MAX_VALUE {
            return Err(Errno::TOOBIG);
        }
        Ok(Change::SetAttribute { name, value: self.bytes(value, size as usize)?, flags })
    }

    /// Two times; without any, both are now.
    fn times(&self, address: u64, clock: Clock) -> Result<Change, Errno> {
        if address == 0 {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            return Ok(Change::Times(Timestamps { last_access: now, last_modification: now }));
        }
        #[cfg(target_arch = "x86_64")]
        let words = if clock == Clock::Seconds { 2 } else { 4 };
        #[cfg(not(target_arch = "x86_64"))]
        let words = 4;
        let bytes = self.bytes(address, words * 8)?;
        let numbers: Vec<i64> = bytes.as_chunks::<8>().0.iter().map(|word| i64::from_ne_bytes(*word)).collect();
        let time = |which: usize| match (clock, &numbers[..]) {
            (Clock::Nanoseconds, [a, b, c, d]) => {
                let (tv_sec, tv_nsec) = if which == 0 { (*a, *b) } else { (*c, *d) };
                Ok(Timespec { tv_sec, tv_nsec })
            }
            #[cfg(target_arch = "x86_64")]
            (Clock::Microseconds, [a, b, c, d]) => {
                let (tv_sec, micros) = if which == 0 { (*a, *b) } else { (*c, *d) };
                let is_valid = (0..1_000_000).contains(&micros);
                is_valid.then_some(Timespec { tv_sec, tv_nsec: micros * 1000 }).ok_or(Errno::INVAL)
            }
            #[cfg(target_arch = "x86_64")]
            (Clock::Seconds, [a, b]) => Ok(Timespec { tv_sec: if which == 0 { *a } else { *b }, tv_nsec: 0 }),
            _ => Err(Errno::FAULT),
        };
        Ok(Change::Times(Timestamps { last_access: time(0)?, last_modification: time(1)? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(thread: u32) -> Request {
        let target = Target::Descriptor(0);
        Request { thread, target, change: Change::Length(0) }
    }

    #[test]
    fn names_of_descriptors_are_those_of_the_caller() {
        let caller = request(41);
        let through = |path: &'static str| caller.through_descriptor(path.as_bytes());
        for path in ["/proc/self/fd/5", "/proc/thread-self/fd/5", "/proc/41/fd/5", "//proc//self/fd//5/", "/dev/fd/5"] {
            assert_eq!(through(path), Some((5, &b""[..])), "{path}");
        }
        assert_eq!(through("/proc/self/fd/5/a/../b"), Some((5, &b"a/../b"[..])));
        for path in
            ["/proc/42/fd/5", "/proc/self/fd", "/proc/self/fd/x", "/proc/self/fd/-1", "proc/self/fd/5", "/dev/x/5", "/"]
        {
            assert_eq!(through(path), None, "{path}");
        }
    }

    #[test]
    fn a_name_beneath_a_folder_is_more_than_a_common_beginning() {
        assert_eq!(beneath(b"/w/a/b", b"/w"), Some(&b"a/b"[..]));
        assert_eq!(beneath(b"/w", b"/w"), Some(&b""[..]));
        assert_eq!(beneath(b"/a", b"/"), Some(&b"a"[..]));
        assert_eq!(beneath(b"/work", b"/w"), None);
        assert_eq!(beneath(b"/", b"/w"), None);
    }

    #[test]
    fn only_files_beneath_a_root_are_confined_to_it() {
        let top = std::env::temp_dir().join(format!("helve-attributes-{}", std::process::id()));
        let top = top.as_path();
        std::fs::create_dir_all(top.join("w/a")).unwrap();
        for name in ["w/a/file", "single", "outside"] {
            std::fs::write(top.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(top.join("outside"), top.join("w/link")).unwrap();
        let bare = |name: &str, more: OFlags| {
            openat(CWD, top.join(name), OFlags::PATH | OFlags::CLOEXEC | more, Mode::empty()).unwrap()
        };
        let roots = Roots(["w", "single"].map(|name| bare(name, OFlags::empty())).into());
        let confined = |name: &str, more: OFlags| roots.confine(bare(name, more)).map(|it| it.is_some());
        for (name, more) in [
            ("w", OFlags::empty()),
            ("w/a/file", OFlags::empty()),
            ("single", OFlags::empty()),
            ("w/link", OFlags::NOFOLLOW),
        ] {
            assert_eq!(confined(name, more), Ok(true), "{name}");
        }
        for name in ["outside", "w/link", "w/..", "w/../outside"] {
            assert_eq!(confined(name, OFlags::empty()), Err(Errno::PERM), "{name}");
        }
        // A file that was moved away and replaced is not the one that the name leads to.
        let moved = bare("w/a/file", OFlags::empty());
        std::fs::rename(top.join("w/a/file"), top.join("elsewhere")).unwrap();
        assert_eq!(roots.confine(moved).map(|it| it.is_some()), Err(Errno::PERM));
        std::fs::remove_dir_all(top).unwrap();
    }
}
