//! What belongs to one call of a module: its input, what it wrote, its files, and its limits.

use std::{
    fmt,
    time::{Duration, Instant},
};

use helve_contract::{CancellationToken, Error, FileFault};
use wasmi::{StoreLimits, StoreLimitsBuilder, errors::HostError};

use super::{
    bridge::Gone,
    files::{Files, Open},
    handles::Handles,
};

/// The most that a module may write to standard output.
pub(super) const OUTPUT: usize = 16 * 1024 * 1024;
/// How much of standard error is kept for an error message.
const LAST_WORDS: usize = 2048;
/// Entries of a table of functions; large programs have a few thousand.
const TABLE: usize = 100_000;
/// Modules of one component; each counts the one memory that they share, and there is no second one.
const MODULES: usize = 256;

/// What belongs to one call.
pub(super) struct Guest {
    /// What the interpreter asks before memory grows.
    pub(super) cap: StoreLimits,
    /// Its files and folders.
    pub(super) files: Files,
    /// What it wrote to standard output.
    pub(super) output: Vec<u8>,
    /// The last of what it wrote to standard error.
    pub(super) words: Vec<u8>,
    /// What a component holds by number.
    pub(super) handles: Handles,
    /// Whether a component is asked for room: it may not ask for anything itself then.
    pub(super) is_finding_room: bool,
    /// Why a file could not be written that a component let go of, where nobody could tell it.
    pub(super) unsaved: Option<Errno>,
    input: Vec<u8>,
    read: usize,
    stop: CancellationToken,
    start: Instant,
    /// None for a time that never comes.
    until: Option<Instant>,
}

impl Guest {
    /// A call with this input; `stop` is set when nobody waits for it any more.
    pub(super) fn new(
        input: Vec<u8>,
        files: Files,
        memory: usize,
        stop: CancellationToken,
        deadline: Duration,
    ) -> Self {
        let cap = StoreLimitsBuilder::new()
            .memory_size(memory)
            .memories(MODULES)
            .tables(MODULES)
            .table_elements(TABLE)
            .instances(MODULES)
            .trap_on_grow_failure(true)
            .build();
        let start = Instant::now();
        Self {
            cap,
            files,
            output: Vec::new(),
            words: Vec::new(),
            handles: Handles::default(),
            is_finding_room: false,
            unsaved: None,
            input,
            read: 0,
            stop,
            start,
            until: start.checked_add(deadline),
        }
    }

    /// Whether it may go on. Asked between slices of work and whenever it wants something.
    pub(super) fn may_go_on(&self) -> Result<(), Halt> {
        if self.stop.is_cancelled() {
            return Err(Halt::Gone);
        }
        if self.until.is_some_and(|until| Instant::now() > until) { Err(Halt::Late) } else { Ok(()) }
    }

    /// Lets go of what a component held. A file that nothing else keeps open is closed.
    pub(super) fn let_go(&mut self, number: u32) -> Result<(), Halt> {
        let Some(fd) = self.handles.remove(number)? else { return Ok(()) };
        if fd <= 2 || self.files.mount(fd).is_ok() {
            return Ok(());
        }
        match self.files.close(fd) {
            Ok(()) => Ok(()),
            Err(Fault::Halt(halt)) => Err(halt),
            Err(Fault::Errno(errno)) => {
                self.unsaved.get_or_insert(errno);
                Ok(())
            }
        }
    }

    /// How long it has been running.
    pub(super) fn age(&self) -> Duration {
        self.start.elapsed()
    }

    /// Reads from a descriptor, and moves on in it.
    pub(super) fn read(&mut self, fd: u32, into: &mut [u8]) -> Result<usize, Fault> {
        if !matches!(self.files.get(fd)?, Open::Input) {
            return self.files.read(fd, into);
        }
        let rest = &self.input[self.read..];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        self.read += count;
        Ok(count)
    }

    /// Writes to a descriptor, and moves on in it.
    pub(super) fn write(&mut self, fd: u32, bytes: &[u8]) -> Result<usize, Fault> {
        match self.files.get(fd)? {
            Open::Output if self.output.len() + bytes.len() > OUTPUT => return Err(Halt::Flood.into()),
            Open::Output => self.output.extend_from_slice(bytes),
            Open::Errors => {
                self.words.extend_from_slice(&bytes[bytes.len().saturating_sub(LAST_WORDS)..]);
                let surplus = self.words.len().saturating_sub(LAST_WORDS);
                self.words.drain(..surplus);
            }
            _ => return self.files.write(fd, bytes),
        }
        Ok(bytes.len())
    }
}

/// Why a module is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// Nobody waits for the call any more.
    Gone,
    /// Its time is over.
    Late,
    /// It wrote too much.
    Flood,
    /// We failed, not it.
    Broken,
    /// A component breaks the rules between it and us.
    Misuse(&'static str),
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "cancelled",
            Self::Late => "out of time",
            Self::Flood => "too much output",
            Self::Broken => "a function of the system panicked",
            Self::Misuse(why) => why,
        })
    }
}

impl HostError for Halt {}

impl From<Halt> for wasmi::Error {
    fn from(halt: Halt) -> Self {
        Self::host(halt)
    }
}

/// An error number of WASI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Errno(pub(super) u16);

impl Errno {
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
impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        let fault = match error {
            Error::File { fault, .. } => fault,
            Error::Denied(_) => return Self::ACCES,
            _ => return Self::IO,
        };
        match fault {
            FileFault::Missing { .. } => Self::NOENT,
            FileFault::IsFolder => Self::ISDIR,
            FileFault::NotFolder => Self::NOTDIR,
            FileFault::NotRegular => Self::NOTSUP,
            FileFault::NoPermission => Self::ACCES,
            FileFault::DiskFull => Self::NOSPC,
            FileFault::Changed => Self::STALE,
            FileFault::Exists => Self::EXIST,
            FileFault::LinkLoop => Self::LOOP,
            FileFault::Outside => Self::NOTCAPABLE,
            FileFault::TooLarge { .. } => Self::FBIG,
            FileFault::Binary(_) | FileFault::Other(_) => Self::IO,
        }
    }
}

/// Why the module does not get what it asked for.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is told so, and goes on.
    Errno(Errno),
    /// It is ended.
    Halt(Halt),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Halt> for Fault {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Errno(error.into())
    }
}

impl From<Gone> for Fault {
    fn from(_: Gone) -> Self {
        Self::Halt(Halt::Gone)
    }
}
