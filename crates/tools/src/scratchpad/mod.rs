//! The scratchpad of a session: what it works on right now, in a few lines.

mod clear;
mod read;
mod write;

pub use clear::{ScratchpadClearOutput, ScratchpadClearTool};
pub use read::{ScratchpadReadOutput, ScratchpadReadTool};
pub use write::{ScratchpadWriteOutput, ScratchpadWriteTool};

/// The slate that it stands on.
const STATE_KEY: &str = "scratchpad";
