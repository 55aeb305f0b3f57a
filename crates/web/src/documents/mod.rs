//! PDF files and pictures.
//!
//! The bytes may be anybody's, and a parser may loop, allocate without end or overflow its stack. So it runs in a
//! child process that has limits, no files, no network and nothing to steal; [`Reader`] talks to it.

mod child;
mod layout;
mod pdf;
mod picture;
mod reader;
mod walls;
mod wire;

pub use child::child_stage;
pub use reader::Reader;
