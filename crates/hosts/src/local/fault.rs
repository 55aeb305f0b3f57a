//! Maps operating system errors to the errors of the contract.

use helve_contract::{Error, FileErrorKind, SafePath};
use rustix::io::Errno;

/// Why an operation on a path failed, before the path's display name is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FsError {
    Errno(Errno),
    /// An error without an errno.
    Fault(FileErrorKind),
}

impl From<Errno> for FsError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<FileErrorKind> for FsError {
    fn from(fault: FileErrorKind) -> Self {
        Self::Fault(fault)
    }
}

impl FsError {
    /// Converts it to the error for the model, with this path.
    pub(super) fn with_path(self, path: &SafePath) -> Error {
        match self {
            Self::Errno(errno) => Error::file(path, from_errno(errno)),
            Self::Fault(fault) => Error::file(path, fault),
        }
    }
}

/// Maps an errno to the contract's error kind.
pub(super) fn from_errno(errno: Errno) -> FileErrorKind {
    match errno {
        Errno::NOENT => FileErrorKind::Missing { near: Vec::new() },
        Errno::NOTDIR => FileErrorKind::NotFolder,
        Errno::ISDIR => FileErrorKind::IsFolder,
        Errno::ACCESS | Errno::PERM => FileErrorKind::NoPermission,
        Errno::NOSPC | Errno::DQUOT => FileErrorKind::DiskFull,
        Errno::EXIST => FileErrorKind::Exists,
        Errno::LOOP => FileErrorKind::LinkLoop,
        Errno::XDEV => FileErrorKind::Outside,
        Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP => FileErrorKind::NotRegular,
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

fn other(text: impl Into<String>) -> FileErrorKind {
    FileErrorKind::Other(text.into())
}
