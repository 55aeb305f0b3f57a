//! What comes from outside and nobody vouches for: the guard before every request, the client that dials only what was
//! judged, and documents, which are parsed in a limited child process.

mod cache;
pub mod channels;
pub mod client;
mod documents;
mod fetch;
pub mod guard;
mod html;
mod internet;
pub mod proxy;
pub mod search;
#[cfg(any(test, fuzzing))]
pub mod trials;

pub use documents::{DocumentReader, run_parser_if_requested};
pub use fetch::PageFetcher;
pub use internet::WebAccess;
