//! Google's custom search, with an engine of the operator's.

use helve_contract::ports::Freshness;
use serde_json::Value;
use url::Url;

use super::{
    domains::DomainFilter,
    exa::text_or_empty,
    provider::{RawResult, SearchRequest},
    wire::{self, MalformedResponse},
};
use crate::client::HttpRequest;

pub(super) fn request(base: &Url, key: &str, engine: &str, asked: &SearchRequest<'_>) -> HttpRequest {
    // One domain has a parameter of its own; several are words of the query.
    let (site, left) = match (asked.domains.only.as_slice(), asked.domains.without.as_slice()) {
        ([only], without) => (Some((only.as_str(), "i")), DomainFilter { only: Vec::new(), without: without.to_vec() }),
        ([], [without]) => (Some((without.as_str(), "e")), DomainFilter::default()),
        _ => (None, asked.domains.clone()),
    };
    let words = left.to_query(&asked.query.text);
    let count = asked.count.to_string();
    let mut pairs = vec![("q", words.as_str()), ("key", key), ("cx", engine), ("num", &count)];
    if let Some((site, filter)) = site {
        pairs.extend([("siteSearch", site), ("siteSearchFilter", filter)]);
    }
    if let Some(freshness) = asked.query.freshness {
        pairs.push((
            "dateRestrict",
            match freshness {
                Freshness::Day => "d1",
                Freshness::Week => "w1",
                Freshness::Month => "m1",
                Freshness::Year => "y1",
            },
        ));
    }
    wire::get(base, "customsearch/v1", &pairs)
}

pub(super) fn read(answer: &Value) -> Result<Vec<RawResult>, MalformedResponse> {
    // Without results there are no `items` at all.
    let none = Vec::new();
    let items = match (&answer["items"], &answer["searchInformation"]) {
        (Value::Array(items), _) => items,
        (_, Value::Object(_)) => &none,
        _ => return Err(MalformedResponse("no list of results")),
    };
    Ok(items
        .iter()
        .map(|it| RawResult {
            title: text_or_empty(&it["title"]),
            url: text_or_empty(&it["link"]),
            snippet: text_or_empty(&it["snippet"]),
            published: it["pagemap"]["metatags"][0]["article:published_time"].as_str().map(str::to_owned),
        })
        .collect())
}
