//! Reports the final working directory of a shell over a separate pipe.
//!
//! Bash reads the file in `BASH_ENV` before a script, so the script and its line numbers stay unchanged. A script
//! with its own EXIT trap reports nothing.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    pipe::{PipeFlags, pipe_with},
};

use super::{plan::SandboxPlan, sys};

/// Where the shell finds what it reads first.
const SETUP_FD: i32 = 120;
/// Where it says the directory.
const REPORT_FD: i32 = 121;
/// The trap script. A removed directory is reported by its former name.
const TRAP_SCRIPT: &str = "unset BASH_ENV; exec 120<&-\n\
    trap '{ builtin pwd -P || builtin printf \"%s\\n\" \"$PWD\"; } 2>/dev/null >&121' EXIT\n";
/// The longest name that is taken.
const MAX_PATH_BYTES: u64 = 8 << 10;

/// The shell's ends.
pub(super) struct CwdReporter {
    setup: OwnedFd,
    answer: OwnedFd,
}

impl CwdReporter {
    /// What must be in the shell's environment; it is gone before the script begins.
    pub(super) const ENV_VAR: (&str, &str) = ("BASH_ENV", "/proc/self/fd/120");

    /// Opens them for the program that comes next.
    pub(super) fn install(&self) -> io::Result<()> {
        sys::dup_to(&self.setup, SETUP_FD)?;
        sys::dup_to(&self.answer, REPORT_FD)
    }
}

/// The shell's ends and the init helper's, where the plan wants to know.
pub(super) fn pipes(plan: &SandboxPlan) -> io::Result<(Option<CwdReporter>, Option<OwnedFd>)> {
    let own = plan.env.iter().any(|(name, _)| name == CwdReporter::ENV_VAR.0);
    if !plan.tell_dir || own {
        return Ok((None, None));
    }
    let mut setup = File::from(memfd_create("setup", MemfdFlags::CLOEXEC)?);
    setup.write_all(TRAP_SCRIPT.as_bytes())?;
    // Neither end may block: a program can fill the pipe or keep it open.
    let (told, answer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((Some(CwdReporter { setup: setup.into(), answer }), Some(told)))
}

/// What the shell said, or nothing.
pub(super) fn read(told: OwnedFd) -> Vec<u8> {
    let mut text = Vec::new();
    // It fails if a process still holds the pipe; the bytes before that are valid.
    _ = File::from(told).take(MAX_PATH_BYTES).read_to_end(&mut text);
    if text.pop() == Some(b'\n') && text.starts_with(b"/") { text } else { Vec::new() }
}
