//! SearXNG: a metasearch server that the operator chose.

use helve_contract::ports::Freshness;
use serde_json::Value;
use url::Url;

use super::{
    exa::text_or_empty,
    provider::{RawResult, SearchRequest},
    wire::{self, MalformedResponse},
};
use crate::client::HttpRequest;

pub(super) fn request(base: &Url, asked: &SearchRequest<'_>) -> HttpRequest {
    let words = asked.domains.to_query(&asked.query.text);
    let mut pairs = vec![("q", words.as_str()), ("format", "json")];
    if let Some(freshness) = asked.query.freshness {
        pairs.push(("time_range", time_range(freshness)));
    }
    if let Some(category) = &asked.query.category {
        pairs.push(("categories", category));
    }
    wire::get(base, "search", &pairs)
}

/// The word for it that SearXNG and Tavily know.
pub(super) fn time_range(freshness: Freshness) -> &'static str {
    match freshness {
        Freshness::Day => "day",
        Freshness::Week => "week",
        Freshness::Month => "month",
        Freshness::Year => "year",
    }
}

pub(super) fn read(answer: &Value) -> Result<Vec<RawResult>, MalformedResponse> {
    let results = answer["results"].as_array().ok_or(MalformedResponse("no list of results"))?;
    Ok(results
        .iter()
        .map(|it| RawResult {
            title: text_or_empty(&it["title"]),
            url: text_or_empty(&it["url"]),
            snippet: text_or_empty(&it["content"]),
            published: it["publishedDate"].as_str().map(str::to_owned),
        })
        .collect())
}
