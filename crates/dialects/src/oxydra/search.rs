//! Web search in `oxydra`.

use helve_contract::{Reply, ports::Freshness};
use helve_tools::web as room;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The maximum number of requested results.
const MAX_RESULTS: usize = 10;

/// Searches the web. Returns titles, URLs and snippets as JSON.
#[derive(Deserialize, JsonSchema)]
pub(super) struct WebSearchArgs {
    query: String,
    /// 1 to 10, default 5
    count: Option<usize>,
    /// Only results this new
    freshness: Option<Freshness>,
}

impl From<WebSearchArgs> for room::WebSearchTool {
    fn from(WebSearchArgs { query, count, freshness }: WebSearchArgs) -> Self {
        Self { query, count: count.unwrap_or(5).clamp(1, MAX_RESULTS), freshness, ..Self::default() }
    }
}

pub(super) fn render_search(out: room::WebSearchOutput) -> Reply {
    let results: Vec<_> = out
        .found
        .results
        .iter()
        .enumerate()
        .map(|(at, it)| {
            json!({
                "index": at + 1,
                "title": it.title,
                "url": it.url,
                "display_url": room::display_url(&it.url),
                "snippet": it.snippet,
            })
        })
        .collect();
    let mut data = json!({
        "query": out.query,
        "provider": out.found.provider,
        "base_url": out.found.base_url,
        "result_count": results.len(),
        "results": results,
    });
    if !out.found.notes.is_empty() {
        data["notes"] = json!(out.found.notes);
    }
    out.into_reply(data)
}
