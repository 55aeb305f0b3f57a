//! Web search in `claude`.

use helve_contract::{Error, Reply, Result};
use helve_tools::web as room;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Searches the web. Returns titles, URLs and snippets; read a page with WebFetch. Name the sources you use.
#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct WebSearchArgs {
    query: String,
    /// Only these domains
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_domains: Option<Vec<String>>,
    /// Never these domains
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_domains: Option<Vec<String>>,
}

impl TryFrom<WebSearchArgs> for room::WebSearchTool {
    type Error = Error;

    fn try_from(WebSearchArgs { query, allowed_domains, blocked_domains }: WebSearchArgs) -> Result<Self> {
        let (only, without) = (allowed_domains.unwrap_or_default(), blocked_domains.unwrap_or_default());
        if !only.is_empty() && !without.is_empty() {
            return Err(Error::invalid_argument(
                "allowed_domains",
                "cannot go together with blocked_domains in one search; send one of them",
            ));
        }
        Ok(Self { query, only, without, ..Self::default() })
    }
}

pub(super) fn render_search(out: room::WebSearchOutput) -> Reply {
    let content: Vec<_> =
        out.found.results.iter().map(|it| json!({"title": it.title, "url": it.url, "snippet": it.snippet})).collect();
    let data = json!({
        "query": out.query,
        "results": [{"tool_use_id": out.call, "content": content}],
        "durationSeconds": out.seconds,
        "searchCount": 1,
    });
    let text = format!("Web search results for query: \"{}\"\n\n{}", out.query, out.to_list());
    out.into_reply(Reply { data: Some(data), ..text.into() })
}
