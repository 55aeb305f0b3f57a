//! Maps errors of the in-memory file system to the errors of the contract.

use std::io::ErrorKind;

use helve_contract::FileErrorKind;

/// The contract's error kind.
pub(super) fn from_bashkit_error(error: &bashkit::Error) -> FileErrorKind {
    let bashkit::Error::Io(io) = error else { return FileErrorKind::Other(error.to_string()) };
    let text = io.to_string();
    match io.kind() {
        ErrorKind::NotFound => FileErrorKind::Missing { near: Vec::new() },
        ErrorKind::NotADirectory => FileErrorKind::NotFolder,
        ErrorKind::IsADirectory => FileErrorKind::IsFolder,
        ErrorKind::AlreadyExists => FileErrorKind::Exists,
        ErrorKind::PermissionDenied => FileErrorKind::NoPermission,
        _ if text.starts_with("filesystem full") => FileErrorKind::DiskFull,
        _ if text == "is a directory" => FileErrorKind::IsFolder,
        _ if text == "not a directory" => FileErrorKind::NotFolder,
        _ => FileErrorKind::Other(text),
    }
}
