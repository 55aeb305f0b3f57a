//! The state of one call of a module: input, output, files and limits.

use std::{
    fmt,
    time::{Duration, Instant},
};

use helve_contract::{CancellationToken, Error, FileErrorKind};
use wasmi::{StoreLimits, StoreLimitsBuilder, errors::HostError};

use super::{
    bridge::CallAbandoned,
    files::{Descriptor, DescriptorTable},
    handles::HandleTable,
};

/// The most that a module may write to standard output.
pub(super) const MAX_STDOUT_BYTES: usize = 16 * 1024 * 1024;
/// How much of standard error is kept for an error message.
const STDERR_TAIL_BYTES: usize = 2048;
/// Entries of a table of functions; large programs have a few thousand.
const MAX_TABLE_ELEMENTS: usize = 100_000;
/// Modules of one component; each counts the one memory that they share, and there is no second one.
const MAX_INSTANCES: usize = 256;

/// What belongs to one call.
pub(super) struct GuestState {
    /// What the interpreter asks before memory grows.
    pub(super) memory_limits: StoreLimits,
    /// Its files and directories.
    pub(super) files: DescriptorTable,
    /// What it wrote to standard output.
    pub(super) output: Vec<u8>,
    /// The last of what it wrote to standard error.
    pub(super) stderr_tail: Vec<u8>,
    /// What a component holds by number.
    pub(super) handles: HandleTable,
    /// Whether a component is asked for room: it may not ask for anything itself then.
    pub(super) in_realloc: bool,
    /// Why a file could not be written that a component let go of, where nobody could tell it.
    pub(super) write_error: Option<WasiErrno>,
    input: Vec<u8>,
    read: usize,
    stop: CancellationToken,
    start: Instant,
    /// None for a time that never comes.
    until: Option<Instant>,
}

impl GuestState {
    /// A call with this input; `stop` is set when nobody waits for it any more.
    pub(super) fn new(
        input: Vec<u8>,
        files: DescriptorTable,
        memory: usize,
        stop: CancellationToken,
        deadline: Duration,
    ) -> Self {
        let cap = StoreLimitsBuilder::new()
            .memory_size(memory)
            .memories(MAX_INSTANCES)
            .tables(MAX_INSTANCES)
            .table_elements(MAX_TABLE_ELEMENTS)
            .instances(MAX_INSTANCES)
            .trap_on_grow_failure(true)
            .build();
        let start = Instant::now();
        Self {
            memory_limits: cap,
            files,
            output: Vec::new(),
            stderr_tail: Vec::new(),
            handles: HandleTable::default(),
            in_realloc: false,
            write_error: None,
            input,
            read: 0,
            stop,
            start,
            until: start.checked_add(deadline),
        }
    }

    /// Whether it may continue. Checked between fuel slices and at every host call.
    pub(super) fn check_running(&self) -> Result<(), HaltReason> {
        if self.stop.is_cancelled() {
            return Err(HaltReason::Abandoned);
        }
        if self.until.is_some_and(|until| Instant::now() > until) { Err(HaltReason::TimedOut) } else { Ok(()) }
    }

    /// Lets go of what a component held. A file that nothing else keeps open is closed.
    pub(super) fn drop_handle(&mut self, number: u32) -> Result<(), HaltReason> {
        let Some(fd) = self.handles.remove(number)? else { return Ok(()) };
        if fd <= 2 || self.files.mount(fd).is_ok() {
            return Ok(());
        }
        match self.files.close(fd) {
            Ok(()) => Ok(()),
            Err(GuestError::Halt(halt)) => Err(halt),
            Err(GuestError::Errno(errno)) => {
                self.write_error.get_or_insert(errno);
                Ok(())
            }
        }
    }

    /// How long it has been running.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Reads from a descriptor, and moves on in it.
    pub(super) fn read(&mut self, fd: u32, into: &mut [u8]) -> Result<usize, GuestError> {
        if !matches!(self.files.get(fd)?, Descriptor::Input) {
            return self.files.read(fd, into);
        }
        let rest = &self.input[self.read..];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        self.read += count;
        Ok(count)
    }

    /// Writes to a descriptor, and moves on in it.
    pub(super) fn write(&mut self, fd: u32, bytes: &[u8]) -> Result<usize, GuestError> {
        match self.files.get(fd)? {
            Descriptor::Output if self.output.len() + bytes.len() > MAX_STDOUT_BYTES => {
                return Err(HaltReason::OutputLimit.into());
            }
            Descriptor::Output => self.output.extend_from_slice(bytes),
            Descriptor::Errors => {
                self.stderr_tail.extend_from_slice(&bytes[bytes.len().saturating_sub(STDERR_TAIL_BYTES)..]);
                let surplus = self.stderr_tail.len().saturating_sub(STDERR_TAIL_BYTES);
                self.stderr_tail.drain(..surplus);
            }
            _ => return self.files.write(fd, bytes),
        }
        Ok(bytes.len())
    }
}

/// Why a module is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HaltReason {
    /// Nobody waits for the call any more.
    Abandoned,
    /// Its time is over.
    TimedOut,
    /// It wrote too much.
    OutputLimit,
    /// An internal error of Helve.
    Internal,
    /// A component breaks the rules between it and us.
    AbiViolation(&'static str),
}

impl fmt::Display for HaltReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abandoned => "cancelled",
            Self::TimedOut => "out of time",
            Self::OutputLimit => "too much output",
            Self::Internal => "a function of the system panicked",
            Self::AbiViolation(why) => why,
        })
    }
}

impl HostError for HaltReason {}

impl From<HaltReason> for wasmi::Error {
    fn from(halt: HaltReason) -> Self {
        Self::host(halt)
    }
}

/// An error number of WASI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WasiErrno(pub(super) u16);

impl WasiErrno {
    pub(super) const ACCES: Self = Self(2);
    pub(super) const BADF: Self = Self(8);
    pub(super) const BUSY: Self = Self(10);
    pub(super) const EXIST: Self = Self(20);
    pub(super) const FAULT: Self = Self(21);
    pub(super) const FBIG: Self = Self(22);
    pub(super) const ILSEQ: Self = Self(25);
    pub(super) const INVAL: Self = Self(28);
    pub(super) const IO: Self = Self(29);
    pub(super) const ISDIR: Self = Self(31);
    pub(super) const LOOP: Self = Self(32);
    pub(super) const MFILE: Self = Self(33);
    pub(super) const NAMETOOLONG: Self = Self(37);
    pub(super) const NOENT: Self = Self(44);
    pub(super) const NOSPC: Self = Self(51);
    pub(super) const NOSYS: Self = Self(52);
    pub(super) const NOTDIR: Self = Self(54);
    pub(super) const NOTEMPTY: Self = Self(55);
    pub(super) const NOTSUP: Self = Self(58);
    pub(super) const ROFS: Self = Self(69);
    pub(super) const SPIPE: Self = Self(70);
    pub(super) const STALE: Self = Self(72);
    pub(super) const NOTCAPABLE: Self = Self(76);
}

/// A host's words as a number.
impl From<Error> for WasiErrno {
    fn from(error: Error) -> Self {
        let fault = match error {
            Error::File { fault, .. } => fault,
            Error::Denied(_) => return Self::ACCES,
            _ => return Self::IO,
        };
        match fault {
            FileErrorKind::Missing { .. } => Self::NOENT,
            FileErrorKind::IsFolder => Self::ISDIR,
            FileErrorKind::NotFolder => Self::NOTDIR,
            FileErrorKind::NotRegular => Self::NOTSUP,
            FileErrorKind::NoPermission => Self::ACCES,
            FileErrorKind::DiskFull => Self::NOSPC,
            FileErrorKind::Changed => Self::STALE,
            FileErrorKind::Exists => Self::EXIST,
            FileErrorKind::LinkLoop => Self::LOOP,
            FileErrorKind::Outside => Self::NOTCAPABLE,
            FileErrorKind::TooLarge { .. } => Self::FBIG,
            FileErrorKind::Binary(_) | FileErrorKind::Other(_) => Self::IO,
        }
    }
}

/// Why the module does not get what it asked for.
#[derive(Debug)]
pub(super) enum GuestError {
    /// It is told so, and goes on.
    Errno(WasiErrno),
    /// It is ended.
    Halt(HaltReason),
}

impl From<WasiErrno> for GuestError {
    fn from(errno: WasiErrno) -> Self {
        Self::Errno(errno)
    }
}

impl From<HaltReason> for GuestError {
    fn from(halt: HaltReason) -> Self {
        Self::Halt(halt)
    }
}

impl From<Error> for GuestError {
    fn from(error: Error) -> Self {
        Self::Errno(error.into())
    }
}

impl From<CallAbandoned> for GuestError {
    fn from(_: CallAbandoned) -> Self {
        Self::Halt(HaltReason::Abandoned)
    }
}
