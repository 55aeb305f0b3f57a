//! SearXNG: a metasearch server that the operator chose.

use helve_contract::ports::Freshness;
use serde_json::Value;
use url::Url;

use super::{
    exa::word,
    provider::{Asked, Raw},
    wire::{self, Misread},
};
use crate::client::Request;

pub(super) fn request(base: &Url, asked: &Asked<'_>) -> Request {
    let words = asked.domains.in_words(&asked.query.text);
    let mut pairs = vec![("q", words.as_str()), ("format", "json")];
    if let Some(freshness) = asked.query.freshness {
        pairs.push(("time_range", range(freshness)));
    }
    if let Some(category) = &asked.query.category {
        pairs.push(("categories", category));
    }
    wire::get(base, "search", &pairs)
}

/// The word for it that SearXNG and Tavily know.
pub(super) fn range(freshness: Freshness) -> &'static str {
    match freshness {
        Freshness::Day => "day",
        Freshness::Week => "week",
        Freshness::Month => "month",
        Freshness::Year => "year",
    }
}

pub(super) fn read(answer: &Value) -> Result<Vec<Raw>, Misread> {
    let results = answer["results"].as_array().ok_or(Misread("no list of results"))?;
    Ok(results
        .iter()
        .map(|it| Raw {
            title: word(&it["title"]),
            url: word(&it["url"]),
            snippet: word(&it["content"]),
            published: it["publishedDate"].as_str().map(str::to_owned),
        })
        .collect())
}
