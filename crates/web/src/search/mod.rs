//! Searches: requests to providers and their answers.
//!
//! A provider consists of two functions: one builds the request, one parses the answer. [`SearchClient`] contains the
//! common part: access, errors and filtering.

mod brave;
mod clean;
mod domains;
mod duckduckgo;
mod exa;
mod fault;
mod google;
mod provider;
mod searxng;
mod tavily;
pub(crate) mod wire;

pub use clean::single_line;
pub use exa::PageContents;
pub use provider::{SearchClient, SearchConfig, SearchProvider};
