//! Foreground and background commands: one task runner behind the tools of every dialect.

mod drive;
mod output;
mod runner;
mod spill;
mod text;

pub use runner::TaskRunner;
