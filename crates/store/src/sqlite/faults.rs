//! Errors of the database file, with the next step.

use std::{
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use helve_contract::Error;
use rusqlite::ErrorCode;

/// How long a writer waits for another process, again and again.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long it waits in all before it says so.
const MAX_BUSY_TIME: Duration = Duration::from_secs(120);

/// Retries while the database is busy. SQLite waits by itself in most cases; this handles the others.
pub(super) fn retry_busy<T>(mut attempt: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && begun.elapsed() < MAX_BUSY_TIME => {
                thread::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// SQLite's own error, wherever in the chain it is.
fn sqlite_cause(error: &anyhow::Error) -> Option<&rusqlite::ffi::Error> {
    error.chain().find_map(|cause| cause.downcast_ref::<rusqlite::Error>()?.sqlite_error())
}

fn code(error: &anyhow::Error) -> Option<ErrorCode> {
    sqlite_cause(error).map(|error| error.code)
}

/// Whether an index of words is not what it should be.
pub(super) fn is_index_corruption(error: &anyhow::Error) -> bool {
    sqlite_cause(error).is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CORRUPT_VTAB)
}

/// Whether the file itself is not what it should be.
pub(super) fn is_corruption(error: &anyhow::Error) -> bool {
    matches!(code(error), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Whether a connection that met this is better opened anew.
pub(super) fn needs_reopen(error: &anyhow::Error) -> bool {
    let gone = [ErrorCode::SystemIoFailure, ErrorCode::ReadOnly, ErrorCode::CannotOpen, ErrorCode::ApiMisuse];
    is_corruption(error) || code(error).is_some_and(|code| gone.contains(&code))
}

/// The error for the caller: a message if the user can act, the operator's log otherwise.
pub(super) fn to_error(path: &Path, error: anyhow::Error) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(said) => return said,
        Err(error) => error,
    };
    let file = path.display();
    let full =
        || Error::failed(format!("the disk is full, so nothing was kept in {file}; free some space and try again"));
    let locked = || {
        Error::failed(format!(
            "{file} cannot be written; make the file and its folder writable for this user, or choose another state folder"
        ))
    };
    match code(&error) {
        Some(ErrorCode::DiskFull) => full(),
        Some(ErrorCode::SystemIoFailure) => Error::failed(format!(
            "the disk under {file} reported an error ({error:#}), so nothing was kept; check the disk and its space, then try again"
        )),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => locked(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::failed(format!(
            "another program has held {file} for {} s; try again when it is done",
            MAX_BUSY_TIME.as_secs()
        )),
        Some(ErrorCode::TooBig) => {
            Error::failed("this is too large to be kept; keep a part of it, or a file's path instead")
        }
        _ => match error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind) {
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => full(),
            Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => locked(),
            Some(io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists) => Error::failed(format!(
                "{file} cannot be made, because a file lies where its folder should be; move that away"
            )),
            _ => Error::Internal(error.context(format!("the store {file}"))),
        },
    }
}
