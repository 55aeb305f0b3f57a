//! Which folder a shell ends in: told by the shell itself, over a pipe that its output does not pass through.
//!
//! Bash reads the file that `BASH_ENV` names before a script, so that the script stays as it is, and so do the lines and
//! numbers in its complaints. A script with an EXIT trap of its own says nothing.

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
/// Where it says the folder.
const REPORT_FD: i32 = 121;
/// What it reads first. A folder that was removed is known by the name it had.
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

/// The shell's ends and the stage's, where the plan wants to know.
pub(super) fn pipes(plan: &SandboxPlan) -> io::Result<(Option<CwdReporter>, Option<OwnedFd>)> {
    let own = plan.env.iter().any(|(name, _)| name == CwdReporter::ENV_VAR.0);
    if !plan.tell_dir || own {
        return Ok((None, None));
    }
    let mut setup = File::from(memfd_create("setup", MemfdFlags::CLOEXEC)?);
    setup.write_all(TRAP_SCRIPT.as_bytes())?;
    // Neither end may wait: a program can fill the pipe, or keep it open for ever.
    let (told, answer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((Some(CwdReporter { setup: setup.into(), answer }), Some(told)))
}

/// What the shell said, or nothing.
pub(super) fn read(told: OwnedFd) -> Vec<u8> {
    let mut text = Vec::new();
    // It ends with an error where somebody still holds the pipe; what came before is there.
    _ = File::from(told).take(MAX_PATH_BYTES).read_to_end(&mut text);
    if text.pop() == Some(b'\n') && text.starts_with(b"/") { text } else { Vec::new() }
}
