//! Tavily.

use serde_json::{Map, Value, json};
use url::Url;

use super::{
    exa::word,
    provider::{Asked, Raw},
    searxng::range,
    wire::{self, Misread},
};
use crate::client::Request;

/// What it calls a topic.
pub(super) const TOPICS: [&str; 3] = ["general", "news", "finance"];

pub(super) fn request(base: &Url, key: &str, asked: &Asked<'_>) -> Request {
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
        body.insert("time_range".into(), json!(range(freshness)));
    }
    if let Some(topic) = asked.query.category.as_deref().filter(|it| TOPICS.contains(it)) {
        body.insert("topic".into(), json!(topic));
    }
    wire::post(base, "search", &Value::Object(body)).header("Authorization", format!("Bearer {key}"))
}

pub(super) fn read(answer: &Value) -> Result<Vec<Raw>, Misread> {
    let results = answer["results"].as_array().ok_or(Misread("no list of results"))?;
    Ok(results
        .iter()
        .map(|it| Raw {
            title: word(&it["title"]),
            url: word(&it["url"]),
            snippet: word(&it["content"]),
            published: it["published_date"].as_str().map(str::to_owned),
        })
        .collect())
}
