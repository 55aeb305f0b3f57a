//! The terminal of a conversation: what is shown, what is typed, what is asked.

mod input;
mod lines;
mod look;
mod markdown;
mod person;
mod screen;

pub(crate) use input::{Input, Typed};
pub(crate) use lines::{called, calling, changes, count, money, short, todos, took};
pub(crate) use look::Look;
pub(crate) use markdown::Markdown;
pub(crate) use person::Person;
pub(crate) use screen::Screen;
