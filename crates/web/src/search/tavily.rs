//! Tavily.

use serde_json::{Map, Value, json};
use url::Url;

use super::{
    exa::text_or_empty,
    provider::{RawResult, SearchRequest},
    searxng::time_range,
    wire::{self, MalformedResponse},
};
use crate::client::HttpRequest;

/// What it calls a topic.
pub(super) const TOPICS: [&str; 3] = ["general", "news", "finance"];

pub(super) fn request(base: &Url, key: &str, asked: &SearchRequest<'_>) -> HttpRequest {
    let mut body = Map::new();
    body.insert("query".into(), json!(asked.query.text));
    body.insert("max_results".into(), json!(asked.count));
    if !asked.domains.only.is_empty() {
        body.insert("include_domains".into(), json!(asked.domains.only));
    }
    if !asked.domains.without.is_empty() {
        body.insert("exclude_domains".into(), json!(asked.domains.without));
    }
    if let Some(freshness) = asked.query.freshness {
        body.insert("time_range".into(), json!(time_range(freshness)));
    }
    if let Some(topic) = asked.query.category.as_deref().filter(|it| TOPICS.contains(it)) {
        body.insert("topic".into(), json!(topic));
    }
    wire::post(base, "search", &Value::Object(body)).header("Authorization", format!("Bearer {key}"))
}

pub(super) fn read(answer: &Value) -> Result<Vec<RawResult>, MalformedResponse> {
    let results = answer["results"].as_array().ok_or(MalformedResponse("no list of results"))?;
    Ok(results
        .iter()
        .map(|it| RawResult {
            title: text_or_empty(&it["title"]),
            url: text_or_empty(&it["url"]),
            snippet: text_or_empty(&it["content"]),
            published: it["published_date"].as_str().map(str::to_owned),
        })
        .collect())
}
