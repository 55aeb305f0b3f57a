//! Brave Search.

use helve_contract::ports::Freshness;
use serde_json::Value;
use url::Url;

use super::{
    clean::text_of,
    exa::word,
    provider::{Asked, Raw},
    wire::{self, Misread},
};
use crate::client::Request;

pub(super) fn request(base: &Url, key: &str, asked: &Asked<'_>) -> Request {
    let words = asked.domains.in_words(&asked.query.text);
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

pub(super) fn read(answer: &Value) -> Result<Vec<Raw>, Misread> {
    // Without results there is no `web` at all.
    let none = Vec::new();
    let results = match (&answer["web"]["results"], &answer["type"]) {
        (Value::Array(results), _) => results,
        (_, Value::String(_)) => &none,
        _ => return Err(Misread("no list of results")),
    };
    Ok(results
        .iter()
        .map(|it| Raw {
            // Both come as HTML, with the words of the query in bold.
            title: text_of(&word(&it["title"])),
            url: word(&it["url"]),
            snippet: text_of(&word(&it["description"])),
            published: it["page_age"].as_str().or(it["age"].as_str()).map(str::to_owned),
        })
        .collect())
}
