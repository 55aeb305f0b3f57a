//! Untrusted content from the web: the address guard, the guarded client, channels, search, and documents, which are
//! parsed in a restricted child process.

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
