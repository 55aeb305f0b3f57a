//! Why a command of the program did not work, and the exit code that says so.

use std::{fmt, io, process::ExitCode};

/// What a command ends with.
pub type CommandResult = Result<ExitCode, CliError>;

/// The exit code of a tool's error, or of anything else that went wrong.
pub const EXIT_FAILURE: u8 = 1;
/// The exit code of a command line that makes no sense.
pub const EXIT_USAGE: u8 = 2;

/// Why a command did not work, in words that say what to do next.
#[derive(Debug)]
pub struct CliError {
    text: String,
    code: u8,
}

impl CliError {
    /// The command line or a settings file makes no sense.
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
