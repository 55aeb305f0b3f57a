//! Command lines: which programs they run, and whether they are read-only.
//!
//! The result decides about approvals only. The sandbox is always on.

mod judge;
mod lex;
mod names;
mod parse;
mod peel;
mod read_only;
mod shown;

pub(crate) use lex::plain_commands as plain_words;
pub use names::ProgramAllowlist;
pub(crate) use {
    judge::{is_read_only_command, is_read_only_line, line_only_reads},
    lex::quote,
    parse::{CommandRole, ParsedCommandLine, ShellWord, SimpleCommand, parse_argv, parse_line},
    peel::base_name,
    shown::{display_command, escape_invisible},
};

#[cfg(test)]
mod differential;
#[cfg(test)]
mod properties;
