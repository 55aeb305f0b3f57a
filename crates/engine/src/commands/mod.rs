//! Command lines: what they run, as far as it can be seen, and whether they only look.
//!
//! This decides whether to ask. The sandbox is on either way.

mod judge;
mod lex;
mod names;
mod parse;
mod peel;
mod read_only;
mod shown;

pub(crate) use lex::commands as plain_words;
pub use names::NameList;
pub(crate) use {
    judge::{line_only_looks, line_only_reads, only_looks},
    lex::quote,
    parse::{Layer, Reading, Simple, Word, read, single},
    peel::base_name,
    shown::{show_command, visible},
};

#[cfg(test)]
mod differential;
#[cfg(test)]
mod properties;
