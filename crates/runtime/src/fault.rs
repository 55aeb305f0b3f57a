//! The error of a command, with its exit code.

use std::{fmt, io, process::ExitCode};

/// Exit codes.
pub type CommandResult = Result<ExitCode, CliError>;

/// A tool failed, or another error occurred.
pub const EXIT_FAILURE: u8 = 1;
/// The command line is invalid.
pub const EXIT_USAGE: u8 = 2;

/// Why a command failed, and what to do next.
#[derive(Debug)]
pub struct CliError {
    text: String,
    code: u8,
}

impl CliError {
    /// The command line or a settings file is invalid.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: EXIT_USAGE }
    }

    /// The work failed.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: EXIT_FAILURE }
    }

    /// The exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<helve_contract::Error> for CliError {
    fn from(error: helve_contract::Error) -> Self {
        Self::failed(error.to_string())
    }
}
