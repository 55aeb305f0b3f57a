//! The scratchpad of a session: a few lines about its current work.

mod clear;
mod read;
mod write;

pub use clear::{ScratchpadClearOutput, ScratchpadClearTool};
pub use read::{ScratchpadReadOutput, ScratchpadReadTool};
pub use write::{ScratchpadWriteOutput, ScratchpadWriteTool};

/// The key of its session state.
const STATE_KEY: &str = "scratchpad";
