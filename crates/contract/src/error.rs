//! `Error` and its parts: why a call failed. Open it to add an error that the model sees.

use std::{convert::Infallible, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::ports::{BlobId, SessionHolder};

/// Why a call failed. All variants except the last are written for the model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tool does not exist. The text names the closest tools.
    #[error("{0}")]
    UnknownTool(String),
    /// The arguments are invalid. Contains every problem.
    #[error("{}", ProblemList(.0))]
    InvalidArgs(Vec<ArgumentProblem>),
    /// The gate or a policy refused the call. The text says what to do instead.
    #[error("{0}")]
    Denied(String),
    /// The call exceeded its timeout.
    #[error("timed out after {}", SecondsDisplay(*.0))]
    Timeout(Duration),
    /// The caller cancelled the call.
    #[error("cancelled")]
    Cancelled,
    /// A problem with a file. It is structured so that each dialect can render it.
    #[error("{path}: {fault}")]
    File {
        /// The path as the model knows it.
        path: String,
        /// What is wrong.
        fault: FileErrorKind,
    },
    /// The lease of the write is stale: another owner has claimed the key since. Stop, write nothing more, and read the
    /// current state before a new claim.
    #[error("another process has taken over {0}, so nothing was written; load it again and retry")]
    LeaseLost(String),
    /// The artifact has a different version than the write expected. Read it again before the next write.
    #[error("{0} was changed by another writer, so nothing was written; read it again and retry")]
    VersionConflict(String),
    /// Another owner plans or executes the run. The text names the run and the owner.
    #[error("{0}. Wait until it ends or stop it, then retry")]
    RunHeld(String),
    /// A blob exceeds the size limit.
    #[error("{bytes} bytes are too large to be stored: {limit} is the most. Use a smaller file")]
    BlobTooLarge {
        /// Its size, as far as it was read.
        bytes: u64,
        /// The size limit.
        limit: u64,
    },
    /// The stored content of a blob does not match its hash.
    #[error("the stored content {0} is damaged: it does not have its hash. Provide the file again")]
    BlobDamaged(BlobId),
    /// Another owner holds the session.
    #[error("{}", Held(.0))]
    SessionHeld(Box<SessionHolder>),
    /// The work failed. The text tells the model what it can do.
    #[error("{0}")]
    Failed(String),
    /// An internal error for the operator. The model learns only that one occurred.
    #[error("internal error: {0}")]
    Internal(#[from] anyhow::Error),
}

/// A result whose error is returned to the model.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The work failed. The text tells the model what it can do.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// The gate or a policy refused the call.
    pub fn denied(text: impl Into<String>) -> Self {
        Self::Denied(text.into())
    }

    /// One argument is invalid.
    pub fn invalid_argument(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self::InvalidArgs(vec![ArgumentProblem::Other { path: path.into(), text: text.into() }])
    }

    /// A problem with a file.
    pub fn file(path: impl fmt::Display, fault: FileErrorKind) -> Self {
        Self::File { path: path.to_string(), fault }
    }
}

/// Renders who holds a session and what to do about it.
struct Held<'a>(&'a SessionHolder);

impl fmt::Display for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SessionHolder { session, host, pid, since, .. } = self.0;
        let since = since.strftime("%Y-%m-%dT%H:%M:%SZ");
        write!(
            f,
            "session {session} is in use by process {pid} on {host} since {since}. Wait until its turn ends or stop \
             that process, then retry"
        )
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileErrorKind {
    /// The path does not exist.
    Missing {
        /// Existing paths that are similar to it.
        near: Vec<String>,
    },
    /// A directory where a file is expected.
    IsFolder,
    /// A file where a directory is expected.
    NotFolder,
    /// A FIFO, device or socket.
    NotRegular,
    /// The operating system refuses.
    NoPermission,
    /// The disk is full or the quota is exhausted.
    DiskFull,
    /// The file changed since it was read.
    Changed,
    /// The file already exists.
    Exists,
    /// Too many symbolic links in the path.
    LinkLoop,
    /// The path leads outside the roots.
    Outside,
    /// The file exceeds a size limit.
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The size limit.
        limit: u64,
    },
    /// Not text.
    Binary(String),
    /// Another error, as the operating system describes it.
    Other(String),
}

impl fmt::Display for FileErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { near } if near.is_empty() => f.write_str("no such file or folder"),
            Self::Missing { near } => write!(f, "no such file or folder. Did you mean {}?", near.join(", ")),
            Self::IsFolder => f.write_str("this is a folder, not a file; list it instead"),
            Self::NotFolder => f.write_str("this is a file, not a folder"),
            Self::NotRegular => f.write_str("not a regular file (a pipe, device or socket); it was not opened"),
            Self::NoPermission => {
                f.write_str("permission denied by the operating system; ask the user to change its permissions")
            }
            Self::DiskFull => f.write_str("the disk is full; nothing was changed"),
            Self::Changed => f.write_str("the file changed since it was read; read it again and repeat the change"),
            Self::Exists => f.write_str("exists already"),
            Self::LinkLoop => f.write_str("too many symbolic links on the way to it"),
            Self::Outside => f.write_str("leads outside the workspace, and was not opened"),
            Self::TooLarge { bytes, limit } => {
                write!(f, "{bytes} bytes is more than the {limit} that are handled here")
            }
            Self::Binary(what) => write!(f, "binary file ({what}), not text"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// One problem with the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentProblem {
    /// A required parameter is missing.
    Missing {
        /// Path of the parameter (`questions[0].header`).
        path: String,
        /// The expected type ("a string").
        wanted: String,
    },
    /// A value has the wrong type or is out of range.
    Mismatch {
        /// Path of the parameter.
        path: String,
        /// The expected value.
        wanted: String,
        /// The value that was sent, shortened.
        sent: String,
    },
    /// The tool has no such parameter.
    Unknown {
        /// Path of the parameter.
        path: String,
        /// The closest existing parameter.
        near: Option<String>,
    },
    /// Another problem, as text.
    Other {
        /// Path of the parameter; empty for the whole object.
        path: String,
        /// What is wrong.
        text: String,
    },
}

impl fmt::Display for ArgumentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path, wanted } if wanted.is_empty() => write!(f, "missing required parameter \"{path}\""),
            Self::Missing { path, wanted } => write!(f, "missing required parameter \"{path}\" ({wanted})"),
            Self::Mismatch { path, wanted, sent } => write!(f, "parameter \"{path}\" must be {wanted}, not {sent}"),
            Self::Unknown { path, near: None } => write!(f, "unknown parameter \"{path}\""),
            Self::Unknown { path, near: Some(near) } => {
                write!(f, "unknown parameter \"{path}\"; did you mean \"{near}\"?")
            }
            Self::Other { path, text } if path.is_empty() => f.write_str(text),
            Self::Other { path, text } => write!(f, "{path}: {text}"),
        }
    }
}

struct ProblemList<'a>(&'a [ArgumentProblem]);

impl fmt::Display for ProblemList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

struct SecondsDisplay(Duration);

impl fmt::Display for SecondsDisplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_millis() {
            0 => write!(f, "{} s", self.0.as_secs()),
            _ => write!(f, "{} ms", self.0.as_millis()),
        }
    }
}
