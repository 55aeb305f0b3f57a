//! Why a call did not do its work.

use std::{convert::Infallible, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::ports::{BlobId, SessionHolder};

/// Why a call did not do its work. Every variant but the last is written for the model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such tool here. The text names the nearest ones.
    #[error("{0}")]
    UnknownTool(String),
    /// The arguments do not fit: every problem at once.
    #[error("{}", ProblemList(.0))]
    InvalidArgs(Vec<ArgumentProblem>),
    /// A gate or policy said no; the text says what to do instead.
    #[error("{0}")]
    Denied(String),
    /// The call ran out of time.
    #[error("timed out after {}", SecondsDisplay(*.0))]
    Timeout(Duration),
    /// The caller gave up on it.
    #[error("cancelled")]
    Cancelled,
    /// Something about a file, kept apart so that a dialect can word it.
    #[error("{path}: {fault}")]
    File {
        /// The path as the model knows it.
        path: String,
        /// What is the matter.
        fault: FileErrorKind,
    },
    /// The lease that the write carried is stale: another owner has claimed the key since. Stop at once, write nothing
    /// more, and read the present state before a new claim.
    #[error("another process has taken over {0}, so nothing was written; load it again and retry")]
    LeaseLost(String),
    /// The artifact has another version than the write expected. Read it again before the next write.
    #[error("{0} was changed by another writer, so nothing was written; read it again and retry")]
    VersionConflict(String),
    /// Another owner plans or executes the run: which run, and who.
    #[error("{0}. Wait until it ends or stop it, then retry")]
    RunHeld(String),
    /// A blob is larger than can be stored.
    #[error("{bytes} bytes are too large to be stored: {limit} is the most. Use a smaller file")]
    BlobTooLarge {
        /// Its size, as far as it was read.
        bytes: u64,
        /// The most that is stored.
        limit: u64,
    },
    /// The stored content of a blob does not have its hash any more.
    #[error("the stored content {0} is damaged: it does not have its hash. Provide the file again")]
    BlobDamaged(BlobId),
    /// Another owner holds the session.
    #[error("{}", Held(.0))]
    SessionHeld(Box<SessionHolder>),
    /// The work itself failed, in words the model can act on.
    #[error("{0}")]
    Failed(String),
    /// Something broke that the model cannot mend; for the operator. The model is told only that.
    #[error("internal error: {0}")]
    Internal(#[from] anyhow::Error),
}

/// A result whose error goes back to the model.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The work failed, in words the model can act on.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// A gate or policy said no.
    pub fn denied(text: impl Into<String>) -> Self {
        Self::Denied(text.into())
    }

    /// One argument does not fit.
    pub fn invalid_argument(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self::InvalidArgs(vec![ArgumentProblem::Other { path: path.into(), text: text.into() }])
    }

    /// Something is the matter with a file.
    pub fn file(path: impl fmt::Display, fault: FileErrorKind) -> Self {
        Self::File { path: path.to_string(), fault }
    }
}

/// Who holds a session, and what to do about it.
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

/// What can be the matter with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileErrorKind {
    /// Nothing there; names nearby that look like it, if any.
    Missing {
        /// Existing paths that look like the one asked for.
        near: Vec<String>,
    },
    /// A folder where a file is wanted.
    IsFolder,
    /// A file where a folder is wanted.
    NotFolder,
    /// A FIFO, device or socket.
    NotRegular,
    /// The operating system refuses.
    NoPermission,
    /// The disk is full (or the quota is used up).
    DiskFull,
    /// It changed since it was read.
    Changed,
    /// It exists already.
    Exists,
    /// Too many symbolic links on the way.
    LinkLoop,
    /// Leads outside of the roots.
    Outside,
    /// Larger than can be handled here.
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The most that is handled.
        limit: u64,
    },
    /// Not text.
    Binary(String),
    /// Anything else, in the system's words.
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

/// One thing that is wrong with the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentProblem {
    /// A required parameter is not there.
    Missing {
        /// Path of the parameter (`questions[0].header`).
        path: String,
        /// What it should be ("a string").
        wanted: String,
    },
    /// A value of the wrong type or out of its range.
    Mismatch {
        /// Path of the parameter.
        path: String,
        /// What is wanted.
        wanted: String,
        /// What was sent, shortened.
        sent: String,
    },
    /// A parameter that the tool does not have.
    Unknown {
        /// Path of the parameter.
        path: String,
        /// The nearest one that exists.
        near: Option<String>,
    },
    /// Anything else, in words.
    Other {
        /// Path of the parameter; empty for the whole.
        path: String,
        /// What is the matter.
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
