//! Documents read through a real child process.
#![allow(clippy::unwrap_used, missing_docs)]

mod desk;
mod pdfs;
mod pictures;
