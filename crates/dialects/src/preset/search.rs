//! Web search in `preset`.

use helve_contract::Reply;
use helve_tools::web as room;
use schemars::JsonSchema;
use serde::Deserialize;

/// The maximum number of requested results.
const MAX_RESULTS: usize = 20;

/// Searches the web. Returns titles, URLs and snippets.
#[derive(Deserialize, JsonSchema)]
pub(super) struct WebSearchArgs {
    query: String,
    /// Default 10, at most 20
    max_results: Option<usize>,
}

impl From<WebSearchArgs> for room::WebSearchTool {
    fn from(WebSearchArgs { query, max_results }: WebSearchArgs) -> Self {
        Self { query, count: max_results.unwrap_or(10).min(MAX_RESULTS), ..Self::default() }
    }
}

pub(super) fn render_search(out: room::WebSearchOutput) -> Reply {
    out.into()
}
