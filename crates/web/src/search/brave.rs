//! Brave Search.

use helve_contract::ports::Freshness;
use serde_json::Value;
use url::Url;

use super::{
    clean::strip_html,
    exa::text_or_empty,
    provider::{RawResult, SearchRequest},
    wire::{self, MalformedResponse},
};
use crate::client::HttpRequest;

pub(super) fn request(base: &Url, key: &str, asked: &SearchRequest<'_>) -> HttpRequest {
    let words = asked.domains.to_query(&asked.query.text);
    let count = asked.count.to_string();
    let mut pairs = vec![("q", words.as_str()), ("count", &count), ("result_filter", "web")];
    if let Some(freshness) = asked.query.freshness {
        pairs.push((
            "freshness",
            match freshness {
                Freshness::Day => "pd",
                Freshness::Week => "pw",
                Freshness::Month => "pm",
                Freshness::Year => "py",
            },
        ));
    }
    wire::get(base, "res/v1/web/search", &pairs).header("x-subscription-token", key)
}

pub(super) fn read(answer: &Value) -> Result<Vec<RawResult>, MalformedResponse> {
    // Without results there is no `web` at all.
    let none = Vec::new();
    let results = match (&answer["web"]["results"], &answer["type"]) {
        (Value::Array(results), _) => results,
        (_, Value::String(_)) => &none,
        _ => return Err(MalformedResponse("no list of results")),
    };
    Ok(results
        .iter()
        .map(|it| RawResult {
            // Both come as HTML, with the words of the query in bold.
            title: strip_html(&text_or_empty(&it["title"])),
            url: text_or_empty(&it["url"]),
            snippet: strip_html(&text_or_empty(&it["description"])),
            published: it["page_age"].as_str().or(it["age"].as_str()).map(str::to_owned),
        })
        .collect())
}
