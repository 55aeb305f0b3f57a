//! The part of WASI preview 1 that tools need, over a [`GuestState`]. Everything else returns "not supported".
//!
//! Layouts and numbers are those of `wasi_snapshot_preview1`. Every pointer is checked against the module's memory.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use helve_contract::{Error, Result as Answer, ports::FileKind};
use wasmi::{Caller, Extern, ExternType, Linker, Module, Val, ValType, errors::LinkerError};

use super::{
    files::{Descriptor, FileAttributes, OpenFlags},
    guest::{GuestError, GuestState, HaltReason, WasiErrno},
};

/// The name under which modules ask for it.
const WASI_MODULE: &str = "wasi_snapshot_preview1";
/// What a module is told its name is.
const PROGRAM_NAME: &[u8] = b"tool\0";
/// How many buffers or events one call may name.
const MAX_BUFFERS: u32 = 1024;
/// All rights. Forbidden operations are refused when they are tried.
const ALL_RIGHTS: u64 = 0x3fff_ffff;
const MAY_READ: u64 = 1 << 1;
const MAY_WRITE: u64 = 1 << 6;

/// Everything that a module may import; or what it wants beside that.
pub(super) fn link(module: &Module) -> Answer<Linker<GuestState>> {
    let mut linker = Linker::new(module.engine());
    define(&mut linker).map_err(|error| Error::failed(error.to_string()))?;
    for import in module.imports() {
        let (ExternType::Func(kind), WASI_MODULE) = (import.ty(), import.module()) else {
            return Err(Error::failed(format!(
                "it needs `{}` of `{}`, which is not offered; a tool may only import functions of {WASI_MODULE}",
                import.name(),
                import.module()
            )));
        };
        let answers = kind.results() == [ValType::I32];
        // An error here means that it is there already.
        _ = linker.func_new(WASI_MODULE, import.name(), kind.clone(), move |_, _, results| {
            if let ([result], true) = (results, answers) {
                *result = Val::I32(WasiErrno::NOSYS.0.into());
            }
            Ok(())
        });
    }
    Ok(linker)
}

/// A module's memory.
pub(super) struct GuestMemory<'a>(pub(super) &'a mut [u8]);

impl GuestMemory<'_> {
    pub(super) fn get(&self, at: u32, len: u32) -> Result<&[u8], WasiErrno> {
        self.0.get(at as usize..at as usize + len as usize).ok_or(WasiErrno::FAULT)
    }

    fn get_mut(&mut self, at: u32, len: u32) -> Result<&mut [u8], WasiErrno> {
        self.0.get_mut(at as usize..at as usize + len as usize).ok_or(WasiErrno::FAULT)
    }

    pub(super) fn put(&mut self, at: u32, bytes: &[u8]) -> Result<(), WasiErrno> {
        self.get_mut(at, bytes.len() as u32)?.copy_from_slice(bytes);
        Ok(())
    }

    fn u32(&self, at: u32) -> Result<u32, WasiErrno> {
        let bytes = self.get(at, 4)?;
        bytes.try_into().map(u32::from_le_bytes).map_err(|_| WasiErrno::FAULT)
    }

    fn u64(&self, at: u32) -> Result<u64, WasiErrno> {
        let bytes = self.get(at, 8)?;
        bytes.try_into().map(u64::from_le_bytes).map_err(|_| WasiErrno::FAULT)
    }

    fn put_u32(&mut self, at: u32, value: u32) -> Result<(), WasiErrno> {
        self.put(at, &value.to_le_bytes())
    }

    fn put_u64(&mut self, at: u32, value: u64) -> Result<(), WasiErrno> {
        self.put(at, &value.to_le_bytes())
    }

    fn text(&self, at: u32, len: u32) -> Result<&str, WasiErrno> {
        std::str::from_utf8(self.get(at, len)?).map_err(|_| WasiErrno::ILSEQ)
    }

    /// The buffers of a read or write that is spread over several.
    fn buffers(&self, at: u32, count: u32) -> Result<Vec<(u32, u32)>, WasiErrno> {
        if count > MAX_BUFFERS {
            return Err(WasiErrno::INVAL);
        }
        let pairs = self.get(at, count * 8)?.chunks_exact(8);
        let word = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).map_err(|_| WasiErrno::FAULT);
        pairs.map(|pair| Ok((word(&pair[..4])?, word(&pair[4..])?))).collect()
    }
}

/// Does what a module asks for, unless it should not go on.
fn serve(
    caller: &mut Caller<'_, GuestState>,
    work: impl FnOnce(&mut GuestMemory<'_>, &mut GuestState) -> Result<(), GuestError>,
) -> Result<u32, wasmi::Error> {
    caller.data().check_running()?;
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        return Ok(WasiErrno::FAULT.0.into());
    };
    let (bytes, guest) = memory.data_and_store_mut(caller);
    // A panic cannot pass through the interpreter: it would end the whole process.
    let done = catch_unwind(AssertUnwindSafe(|| work(&mut GuestMemory(bytes), guest)));
    match done.unwrap_or(Err(GuestError::Halt(HaltReason::Internal))) {
        Ok(()) => Ok(0),
        Err(GuestError::Errno(errno)) => Ok(errno.0.into()),
        Err(GuestError::Halt(halt)) => Err(halt.into()),
    }
}

type GuestCaller<'a> = Caller<'a, GuestState>;

fn define(linker: &mut Linker<GuestState>) -> Result<(), LinkerError> {
    define_process(linker)?;
    define_descriptors(linker)?;
    define_paths(linker)
}

fn define_process(linker: &mut Linker<GuestState>) -> Result<(), LinkerError> {
    linker.func_wrap(WASI_MODULE, "args_sizes_get", |mut it: GuestCaller<'_>, count: u32, size: u32| {
        serve(&mut it, |ram, _| {
            ram.put_u32(count, 1)?;
            Ok(ram.put_u32(size, PROGRAM_NAME.len() as u32)?)
        })
    })?;
    linker.func_wrap(WASI_MODULE, "args_get", |mut it: GuestCaller<'_>, list: u32, text: u32| {
        serve(&mut it, |ram, _| {
            ram.put_u32(list, text)?;
            Ok(ram.put(text, PROGRAM_NAME)?)
        })
    })?;
    linker.func_wrap(WASI_MODULE, "environ_sizes_get", |mut it: GuestCaller<'_>, count: u32, size: u32| {
        serve(&mut it, |ram, _| {
            ram.put_u32(count, 0)?;
            Ok(ram.put_u32(size, 0)?)
        })
    })?;
    linker.func_wrap(WASI_MODULE, "environ_get", |mut it: GuestCaller<'_>, _: u32, _: u32| {
        serve(&mut it, |_, _| Ok(()))
    })?;
    linker.func_wrap(WASI_MODULE, "clock_res_get", |mut it: GuestCaller<'_>, clock: u32, out: u32| {
        serve(&mut it, |ram, guest| {
            now(guest, clock)?;
            Ok(ram.put_u64(out, 1)?)
        })
    })?;
    linker.func_wrap(WASI_MODULE, "clock_time_get", |mut it: GuestCaller<'_>, clock: u32, _: u64, out: u32| {
        serve(&mut it, |ram, guest| Ok(ram.put_u64(out, nanos(now(guest, clock)?))?))
    })?;
    linker.func_wrap(WASI_MODULE, "random_get", |mut it: GuestCaller<'_>, at: u32, len: u32| {
        serve(&mut it, |ram, _| getrandom::fill(ram.get_mut(at, len)?).map_err(|_| WasiErrno::IO.into()))
    })?;
    linker.func_wrap(WASI_MODULE, "sched_yield", |mut it: GuestCaller<'_>| serve(&mut it, |_, _| Ok(())))?;
    linker.func_wrap(WASI_MODULE, "proc_exit", |_: GuestCaller<'_>, code: i32| -> Result<(), wasmi::Error> {
        Err(wasmi::Error::i32_exit(code))
    })?;
    linker.func_wrap(
        WASI_MODULE,
        "poll_oneoff",
        |mut it: GuestCaller<'_>, asks: u32, events: u32, count: u32, out: u32| {
            serve(&mut it, |ram, guest| poll(ram, guest, (asks, events, count, out)))
        },
    )?;
    Ok(())
}

fn define_descriptors(linker: &mut Linker<GuestState>) -> Result<(), LinkerError> {
    linker.func_wrap(WASI_MODULE, "fd_read", |mut it: GuestCaller<'_>, fd: u32, at: u32, count: u32, out: u32| {
        serve(&mut it, |ram, guest| {
            let buffers = ram.buffers(at, count)?;
            let sum = for_each_buffer(&buffers, |at, len, _| guest.read(fd, ram.get_mut(at, len)?))?;
            Ok(ram.put_u32(out, sum)?)
        })
    })?;
    linker.func_wrap(
        WASI_MODULE,
        "fd_pread",
        |mut it: GuestCaller<'_>, fd: u32, at: u32, count: u32, from: u64, out: u32| {
            serve(&mut it, |ram, guest| {
                let buffers = ram.buffers(at, count)?;
                let sum = for_each_buffer(&buffers, |at, len, sum| {
                    guest.files.read_at(fd, from.saturating_add(sum), ram.get_mut(at, len)?)
                })?;
                Ok(ram.put_u32(out, sum)?)
            })
        },
    )?;
    linker.func_wrap(WASI_MODULE, "fd_write", |mut it: GuestCaller<'_>, fd: u32, at: u32, count: u32, out: u32| {
        serve(&mut it, |ram, guest| {
            let buffers = ram.buffers(at, count)?;
            let sum = for_each_buffer(&buffers, |at, len, _| guest.write(fd, ram.get(at, len)?))?;
            Ok(ram.put_u32(out, sum)?)
        })
    })?;
    linker.func_wrap(
        WASI_MODULE,
        "fd_pwrite",
        |mut it: GuestCaller<'_>, fd: u32, at: u32, count: u32, from: u64, out: u32| {
            serve(&mut it, |ram, guest| {
                let buffers = ram.buffers(at, count)?;
                let sum = for_each_buffer(&buffers, |at, len, sum| {
                    guest.files.write_at(fd, from.saturating_add(sum), ram.get(at, len)?)
                })?;
                Ok(ram.put_u32(out, sum)?)
            })
        },
    )?;
    linker.func_wrap(WASI_MODULE, "fd_seek", |mut it: GuestCaller<'_>, fd: u32, by: i64, whence: u32, out: u32| {
        serve(&mut it, |ram, guest| Ok(ram.put_u64(out, guest.files.seek(fd, by, whence)?)?))
    })?;
    linker.func_wrap(WASI_MODULE, "fd_tell", |mut it: GuestCaller<'_>, fd: u32, out: u32| {
        serve(&mut it, |ram, guest| Ok(ram.put_u64(out, guest.files.seek(fd, 0, 1)?)?))
    })?;
    linker.func_wrap(WASI_MODULE, "fd_close", |mut it: GuestCaller<'_>, fd: u32| {
        serve(&mut it, |_, guest| guest.files.close(fd))
    })?;
    for name in ["fd_sync", "fd_datasync"] {
        linker.func_wrap(WASI_MODULE, name, |mut it: GuestCaller<'_>, fd: u32| {
            serve(&mut it, |_, guest| guest.files.sync(fd))
        })?;
    }
    linker.func_wrap(WASI_MODULE, "fd_advise", |mut it: GuestCaller<'_>, fd: u32, _: u64, _: u64, _: u32| {
        serve(&mut it, |_, guest| guest.files.get(fd).map(|_| ()))
    })?;
    linker.func_wrap(WASI_MODULE, "fd_fdstat_get", |mut it: GuestCaller<'_>, fd: u32, out: u32| {
        serve(&mut it, |ram, guest| {
            ram.put(out, &[0; 24])?;
            ram.put(out, &[kind(guest.files.attributes(fd)?.kind)])?;
            ram.put(out + 2, &u16::from(guest.files.appends(fd)).to_le_bytes())?;
            ram.put_u64(out + 8, ALL_RIGHTS)?;
            Ok(ram.put_u64(out + 16, ALL_RIGHTS)?)
        })
    })?;
    linker.func_wrap(WASI_MODULE, "fd_fdstat_set_flags", |mut it: GuestCaller<'_>, fd: u32, flags: u32| {
        serve(&mut it, |_, guest| match guest.files.get(fd)? {
            Descriptor::File(_) => guest.files.append(fd, flags & 1 != 0),
            _ => Ok(()),
        })
    })?;
    linker.func_wrap(WASI_MODULE, "fd_filestat_get", |mut it: GuestCaller<'_>, fd: u32, out: u32| {
        serve(&mut it, |ram, guest| write_filestat(ram, out, &guest.files.attributes(fd)?))
    })?;
    linker.func_wrap(WASI_MODULE, "fd_filestat_set_size", |mut it: GuestCaller<'_>, fd: u32, size: u64| {
        serve(&mut it, |_, guest| guest.files.resize(fd, size))
    })?;
    linker.func_wrap(WASI_MODULE, "fd_prestat_get", |mut it: GuestCaller<'_>, fd: u32, out: u32| {
        serve(&mut it, |ram, guest| {
            let len = guest.files.mount(fd)?.len() as u32;
            ram.put_u32(out, 0)?;
            Ok(ram.put_u32(out + 4, len)?)
        })
    })?;
    linker.func_wrap(WASI_MODULE, "fd_prestat_dir_name", |mut it: GuestCaller<'_>, fd: u32, at: u32, len: u32| {
        serve(&mut it, |ram, guest| {
            let name = guest.files.mount(fd)?.as_bytes();
            if name.len() > len as usize {
                return Err(WasiErrno::NAMETOOLONG.into());
            }
            Ok(ram.put(at, name)?)
        })
    })?;
    linker.func_wrap(
        WASI_MODULE,
        "fd_readdir",
        |mut it: GuestCaller<'_>, fd: u32, at: u32, len: u32, from: u64, out: u32| {
            serve(&mut it, |ram, guest| {
                let rows = listing(guest, fd, from, len as usize)?;
                ram.put(at, &rows)?;
                Ok(ram.put_u32(out, rows.len() as u32)?)
            })
        },
    )?;
    Ok(())
}

fn define_paths(linker: &mut Linker<GuestState>) -> Result<(), LinkerError> {
    #[rustfmt::skip] // One parameter a word of the interface.
    linker.func_wrap(WASI_MODULE, "path_open", |mut it: GuestCaller<'_>, fd: u32, _: u32, at: u32, len: u32, how: u32, rights: u64, _: u64, flags: u32, out: u32| {
        serve(&mut it, |ram, guest| {
            let wish = OpenFlags {
                read: rights & MAY_READ != 0,
                write: rights & MAY_WRITE != 0,
                create: how & 1 != 0,
                folder: how & 2 != 0,
                exclusive: how & 4 != 0,
                truncate: how & 8 != 0,
                append: flags & 1 != 0,
            };
            let opened = guest.files.open(fd, ram.text(at, len)?, &wish)?;
            Ok(ram.put_u32(out, opened)?)
        })
    })?;
    linker.func_wrap(
        WASI_MODULE,
        "path_filestat_get",
        |mut it: GuestCaller<'_>, fd: u32, _: u32, at: u32, len: u32, out: u32| {
            serve(&mut it, |ram, guest| {
                let about = guest.files.stat(fd, ram.text(at, len)?)?;
                write_filestat(ram, out, &about)
            })
        },
    )?;
    linker.func_wrap(WASI_MODULE, "path_create_directory", |mut it: GuestCaller<'_>, fd: u32, at: u32, len: u32| {
        serve(&mut it, |ram, guest| guest.files.create_dir(fd, ram.text(at, len)?))
    })?;
    linker.func_wrap(WASI_MODULE, "path_remove_directory", |mut it: GuestCaller<'_>, fd: u32, at: u32, len: u32| {
        serve(&mut it, |ram, guest| guest.files.remove(fd, ram.text(at, len)?))
    })?;
    linker.func_wrap(WASI_MODULE, "path_unlink_file", |mut it: GuestCaller<'_>, fd: u32, at: u32, len: u32| {
        serve(&mut it, |ram, guest| guest.files.unlink(fd, ram.text(at, len)?))
    })?;
    #[rustfmt::skip] // One parameter a word of the interface.
    linker.func_wrap(WASI_MODULE, "path_rename", |mut it: GuestCaller<'_>, fd: u32, at: u32, len: u32, to: u32, to_at: u32, to_len: u32| {
        serve(&mut it, |ram, guest| guest.files.rename((fd, ram.text(at, len)?), (to, ram.text(to_at, to_len)?)))
    })?;
    Ok(())
}

/// Fills or empties buffers in turn, until one is not used up. The last argument is how far it came.
fn for_each_buffer(
    buffers: &[(u32, u32)],
    mut step: impl FnMut(u32, u32, u64) -> Result<usize, GuestError>,
) -> Result<u32, GuestError> {
    let mut sum = 0_u32;
    for &(at, len) in buffers {
        let count = step(at, len, sum.into())? as u32;
        sum = sum.checked_add(count).ok_or(WasiErrno::INVAL)?;
        if count < len {
            break;
        }
    }
    Ok(sum)
}

/// A clock: the world's, or the time since the call began.
fn now(guest: &GuestState, clock: u32) -> Result<Duration, WasiErrno> {
    match clock {
        0 => Ok(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
        1..=3 => Ok(guest.elapsed()),
        _ => Err(WasiErrno::INVAL),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn kind(kind: FileKind) -> u8 {
    match kind {
        FileKind::Folder => 3,
        FileKind::File => 4,
        FileKind::Link => 7,
        // The three standard streams; a pipe or device of a directory is told the same, and cannot be opened.
        FileKind::Other => 2,
    }
}

fn write_filestat(ram: &mut GuestMemory<'_>, out: u32, about: &FileAttributes) -> Result<(), GuestError> {
    let modified = about.modified.and_then(|it| it.duration_since(UNIX_EPOCH).ok()).map_or(0, nanos);
    let mut bytes = [0; 64];
    bytes[8..16].copy_from_slice(&about.number.to_le_bytes());
    bytes[16] = kind(about.kind);
    bytes[24] = 1;
    bytes[32..40].copy_from_slice(&about.size.to_le_bytes());
    for at in [40, 48, 56] {
        bytes[at..at + 8].copy_from_slice(&modified.to_le_bytes());
    }
    Ok(ram.put(out, &bytes)?)
}

/// Rows of a listing, as many as fit; the last may be cut off, which says that there are more.
fn listing(guest: &mut GuestState, fd: u32, from: u64, room: usize) -> Result<Vec<u8>, GuestError> {
    let mut bytes = Vec::new();
    // The rows come first: counting must not go on past the last one.
    for (row, at) in guest.files.list(fd, from)?.iter().zip(from..) {
        bytes.extend_from_slice(&at.saturating_add(1).to_le_bytes());
        bytes.extend_from_slice(&row.number.to_le_bytes());
        bytes.extend_from_slice(&(row.name.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[kind(row.kind), 0, 0, 0]);
        bytes.extend_from_slice(row.name.as_bytes());
        if bytes.len() >= room {
            bytes.truncate(room);
            break;
        }
    }
    Ok(bytes)
}

/// Waits for clocks. Descriptors are always ready: nothing here comes in slowly.
fn poll(
    ram: &mut GuestMemory<'_>,
    guest: &mut GuestState,
    (asks, events, count, out): (u32, u32, u32, u32),
) -> Result<(), GuestError> {
    if !(1..=MAX_BUFFERS).contains(&count) {
        return Err(WasiErrno::INVAL.into());
    }
    ram.get(asks, count * 48)?;
    ram.get(events, count * 32)?;
    let mut waits = Vec::new();
    for ask in (0..count).map(|it| asks + it * 48) {
        let tag = ram.get(ask + 8, 1)?[0];
        let wait = match tag {
            0 => {
                let time = Duration::from_nanos(ram.u64(ask + 24)?);
                let is_absolute = ram.get(ask + 40, 1)?[0] & 1 != 0;
                let clock = now(guest, ram.u32(ask + 16)?)?;
                if is_absolute { time.saturating_sub(clock) } else { time }
            }
            1 | 2 => Duration::ZERO,
            _ => return Err(WasiErrno::INVAL.into()),
        };
        waits.push((wait, tag, ram.u64(ask)?));
    }
    let first = waits.iter().map(|it| it.0).min().unwrap_or_default();
    if !first.is_zero() {
        guest.files.sleep(first)?;
    }
    let mut told = 0;
    for (_, tag, user) in waits.into_iter().filter(|it| it.0 <= first) {
        let event = events + told * 32;
        ram.put(event, &[0; 32])?;
        ram.put_u64(event, user)?;
        ram.put(event + 10, &[tag])?;
        told += 1;
    }
    Ok(ram.put_u32(out, told)?)
}
