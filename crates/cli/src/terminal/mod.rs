//! The terminal of `helve chat`: output, input and prompts.

mod input;
mod lines;
mod look;
mod markdown;
mod person;
mod screen;

pub(crate) use input::{LineEvent, LineInput};
pub(crate) use lines::{
    format_call, format_count, format_diffs, format_duration, format_result, format_todos, format_usage, one_line,
};
pub(crate) use look::TerminalCapabilities;
pub(crate) use markdown::MarkdownRenderer;
pub(crate) use person::TerminalUser;
pub(crate) use screen::Screen;
