//! What a call would access, as the tool reads its arguments. Open it to see what the gate's rules are checked against.

use serde_json::Value;

/// What a call would use: the paths, the command and the address in its parsed arguments.
///
/// A tool reports it with [`Tool::access`](crate::Tool::access) from the fields that it runs with. So a rule and the
/// tool never interpret an argument differently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRequest {
    /// Files and directories that it reads, as the caller wrote them. `.` is the top of the workspace.
    pub reads: Vec<String>,
    /// Files and directories that it creates, changes or removes.
    pub writes: Vec<String>,
    /// The command that it runs.
    pub command: Option<RequestedCommand>,
    /// The address that it fetches.
    pub url: Option<String>,
}

/// A command that a call runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedCommand {
    /// The script or program.
    pub line: CommandLine,
    /// The working directory; `None` for the session's.
    pub dir: Option<String>,
    /// The names of the environment variables that the call sets.
    pub variables: Vec<String>,
}

/// What a command consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CommandLine {
    /// A script for a shell.
    Script(String),
    /// A program and its arguments.
    Words(Vec<String>),
    /// One of these scripts, chosen when the call runs, or text that a shell may interpret as a script. Deny and ask
    /// rules check it; allow rules never match it.
    OneOf(Vec<String>),
    /// Not known before the call runs.
    #[default]
    Unknown,
}

/// Reads an [`AccessRequest`] from arguments. `None` when the arguments do not parse; the tool then does not run.
pub type AccessFn = fn(&Value) -> Option<AccessRequest>;

impl AccessRequest {
    /// A call that reads these paths.
    pub fn reads<P: Into<String>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self { reads: paths.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// A call that writes these paths.
    pub fn writes<P: Into<String>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self { writes: paths.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// A call that runs a script.
    pub fn runs(script: impl Into<String>) -> Self {
        Self::command(CommandLine::Script(script.into()), None)
    }

    /// A call that runs a command in a directory.
    pub fn command(line: CommandLine, dir: Option<String>) -> Self {
        Self { command: Some(RequestedCommand { line, dir, variables: Vec::new() }), ..Self::default() }
    }
}
