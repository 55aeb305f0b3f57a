//! The web: pages and searches.

mod fetch;
mod passages;
mod search;

pub use fetch::{Answer, Fetch, FetchOut};
pub use search::{Search, SearchOut, display};
