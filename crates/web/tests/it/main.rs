//! Documents read through a real child process.
#![allow(clippy::unwrap_used, missing_docs)]

mod channels;
mod desk;
mod fetch;
mod guard;
mod https;
mod loopback;
mod netns;
mod pdfs;
mod pictures;
mod proxy;
mod search;
