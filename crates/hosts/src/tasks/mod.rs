//! Running commands, in the foreground and in the background: one keeper of tasks behind every dialect's tools.

mod drive;
mod output;
mod runner;
mod spill;
mod text;

pub use runner::TaskRunner;
