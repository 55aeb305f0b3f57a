//! The web: pages and searches.

mod fetch;
mod passages;
mod search;

pub use fetch::{PageAnswer, WebFetchOutput, WebFetchTool};
pub use search::{WebSearchOutput, WebSearchTool, display_url};
