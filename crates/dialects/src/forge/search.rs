//! Web search in `forge`.

use helve_contract::Reply;
use helve_tools::web as room;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Searches the web. Returns titles, URLs and a piece of each page's text.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WebSearchArgs {
    query: String,
    /// Default 10
    num_results: Option<usize>,
    /// Only these domains
    include_domains: Option<Vec<String>>,
    /// Such as "company", "research paper", "news"
    category: Option<String>,
}

impl From<WebSearchArgs> for room::WebSearchTool {
    fn from(WebSearchArgs { query, num_results, include_domains, category }: WebSearchArgs) -> Self {
        Self {
            query,
            count: num_results.unwrap_or(10),
            only: include_domains.unwrap_or_default(),
            category,
            ..Self::default()
        }
    }
}

/// What a search answers.
#[derive(Serialize, JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct WebSearchResult {
    results: Vec<WebSearchHit>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "only its schema is used")]
struct WebSearchHit {
    title: String,
    url: String,
    published_date: Option<String>,
    text: Option<String>,
    summary: Option<String>,
}

pub(super) fn render_search(out: room::WebSearchOutput) -> Reply {
    let results: Vec<_> = out
        .found
        .results
        .iter()
        .map(|it| {
            let mut one = json!({"title": it.title, "url": it.url});
            if let Some(published) = &it.published {
                one["publishedDate"] = json!(published);
            }
            if !it.snippet.is_empty() {
                one["text"] = json!(it.snippet);
            }
            one
        })
        .collect();
    let mut data = json!({ "results": results });
    if !out.found.notes.is_empty() {
        data["notes"] = json!(out.found.notes);
    }
    out.into_reply(data)
}
