//! Searches: what is asked of a provider, and what its answer means.
//!
//! A provider is two functions: one makes the request, one reads the answer. All that is the same for all of them
//! (who may be asked, what a refusal means, which results are kept) is in [`SearchClient`].

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
