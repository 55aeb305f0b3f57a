//! What the files in memory say, in the words of the contract.

use std::io::ErrorKind;

use helve_contract::FileFault;

/// The contract's word for what went wrong.
pub(super) fn fault(error: &bashkit::Error) -> FileFault {
    let bashkit::Error::Io(io) = error else { return FileFault::Other(error.to_string()) };
    let text = io.to_string();
    match io.kind() {
        ErrorKind::NotFound => FileFault::Missing { near: Vec::new() },
        ErrorKind::NotADirectory => FileFault::NotFolder,
        ErrorKind::IsADirectory => FileFault::IsFolder,
        ErrorKind::AlreadyExists => FileFault::Exists,
        ErrorKind::PermissionDenied => FileFault::NoPermission,
        _ if text.starts_with("filesystem full") => FileFault::DiskFull,
        _ if text == "is a directory" => FileFault::IsFolder,
        _ if text == "not a directory" => FileFault::NotFolder,
        _ => FileFault::Other(text),
    }
}
