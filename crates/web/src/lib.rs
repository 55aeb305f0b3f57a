//! What comes from outside and nobody vouches for: documents are parsed here, in a limited child process.

mod documents;

pub use documents::{Reader, child_stage};
