//! Searching the web in `preset`.

use helve_contract::Reply;
use helve_tools::web as room;
use schemars::JsonSchema;
use serde::Deserialize;

/// The most results that are asked for.
const MOST: usize = 20;

/// Searches the web. Returns titles, URLs and snippets.
#[derive(Deserialize, JsonSchema)]
pub(super) struct WebSearch {
    query: String,
    /// Default 10, at most 20
    max_results: Option<usize>,
}

impl From<WebSearch> for room::Search {
    fn from(WebSearch { query, max_results }: WebSearch) -> Self {
        Self { query, count: max_results.unwrap_or(10).min(MOST), ..Self::default() }
    }
}

pub(super) fn searched(out: room::SearchOut) -> Reply {
    out.into()
}
