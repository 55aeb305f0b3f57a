//! System calls that fail on purpose, by `strace`.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// One fault: the N-th of these calls does not do what it should.
#[derive(Clone, Debug)]
pub struct SyscallFault {
    /// Which calls, as `strace` names them.
    pub calls: &'static str,
    /// What happens instead: `error=EIO`, `retval=1`, `delay_enter=2000000`.
    pub what: String,
    /// Which of them, from 1; every one from there on with `from`.
    pub at: u64,
    /// Only calls about these paths; all when empty.
    pub about: Vec<String>,
}

impl SyscallFault {
    /// The N-th of these calls fails with an error.
    pub fn error(calls: &'static str, error: &str, at: u64) -> Self {
        Self { calls, what: format!("error={error}"), at, about: Vec::new() }
    }

    /// The same, only where it is about these paths.
    #[must_use]
    pub fn on_paths(mut self, paths: impl IntoIterator<Item = String>) -> Self {
        self.about.extend(paths);
        self
    }

    /// The words to put before a command.
    pub fn args(&self) -> Vec<String> {
        self.args_with_log(Path::new("/dev/null"))
    }

    /// The same, with a file that tells whether it came to that.
    pub fn args_with_log(&self, log: &Path) -> Vec<String> {
        let log = log.display().to_string();
        let mut words: Vec<String> = ["strace", "-f", "-qq", "-o", &log].map(str::to_owned).into();
        for path in &self.about {
            words.extend(["-P".to_owned(), path.clone()]);
        }
        let Self { calls, what, at, .. } = self;
        words.extend(["-e".to_owned(), format!("trace={calls}")]);
        words.extend(["-e".to_owned(), format!("inject={calls}:{what}:when={at}")]);
        words
    }
}

/// Whether `strace` is here and may trace.
pub fn strace_available() -> bool {
    let tried = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    tried.is_ok_and(|it| it.success())
}
