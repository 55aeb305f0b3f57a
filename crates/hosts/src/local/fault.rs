//! What the operating system says, in the words of the contract.

use helve_contract::{Error, FileFault, SafePath};
use rustix::io::Errno;

/// Why an operation on a path failed, before it is known how the model knows the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The system's own number.
    Errno(Errno),
    /// A fault that the system has no number for.
    Fault(FileFault),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<FileFault> for Trouble {
    fn from(fault: FileFault) -> Self {
        Self::Fault(fault)
    }
}

impl Trouble {
    /// The error for the model, about this path.
    pub(super) fn about(self, path: &SafePath) -> Error {
        match self {
            Self::Errno(errno) => Error::file(path, fault(errno)),
            Self::Fault(fault) => Error::file(path, fault),
        }
    }
}

/// The contract's word for a number of the system.
pub(super) fn fault(errno: Errno) -> FileFault {
    match errno {
        Errno::NOENT => FileFault::Missing { near: Vec::new() },
        Errno::NOTDIR => FileFault::NotFolder,
        Errno::ISDIR => FileFault::IsFolder,
        Errno::ACCESS | Errno::PERM => FileFault::NoPermission,
        Errno::NOSPC | Errno::DQUOT => FileFault::DiskFull,
        Errno::EXIST => FileFault::Exists,
        Errno::LOOP => FileFault::LinkLoop,
        Errno::XDEV => FileFault::Outside,
        Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP => FileFault::NotRegular,
        Errno::ROFS => other("the disk is read-only; write elsewhere"),
        Errno::NAMETOOLONG => other("the name is too long for this disk (most take 255 bytes); use a shorter one"),
        Errno::FBIG => other("the file would be larger than this disk or this user's limit allows"),
        Errno::TXTBSY => other("the program is running now; stop it first"),
        Errno::MFILE | Errno::NFILE => other("too many files are open on this machine; try again later"),
        Errno::IO => other("the disk reports an input/output error; nothing was acknowledged"),
        Errno::STALE => other("the network disk lost this file; try again"),
        errno => other(std::io::Error::from(errno).to_string()),
    }
}

fn other(text: impl Into<String>) -> FileFault {
    FileFault::Other(text.into())
}
