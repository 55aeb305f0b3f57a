//! Exa: searches and the texts of pages, both with one key.

use helve_contract::{
    Call, Result,
    jiff::{SignedDuration, Timestamp},
    ports::Freshness,
};
use serde_json::{Map, Value, json};
use url::Url;

use super::{
    SearchClient, SearchProvider, clean, fault,
    provider::{RawResult, SearchRequest},
    wire::{self, MAX_RESPONSE_BYTES, MalformedResponse},
};
use crate::client::{HttpRequest, HttpResponse};

/// How much of a page's text comes with each result.
const SNIPPET_CHARS: usize = 1_000;

pub(super) fn request(base: &Url, key: &str, asked: &SearchRequest<'_>) -> HttpRequest {
    let mut body = Map::new();
    body.insert("query".into(), json!(asked.query.text));
    body.insert("numResults".into(), json!(asked.count));
    if !asked.domains.only.is_empty() {
        body.insert("includeDomains".into(), json!(asked.domains.only));
    }
    if !asked.domains.without.is_empty() {
        body.insert("excludeDomains".into(), json!(asked.domains.without));
    }
    if let Some(category) = &asked.query.category {
        body.insert("category".into(), json!(category));
    }
    if let Some(since) = asked.query.freshness.and_then(|it| since(asked.now, it)) {
        body.insert("startPublishedDate".into(), json!(since));
    }
    body.insert("contents".into(), json!({"text": {"maxCharacters": SNIPPET_CHARS}}));
    wire::post(base, "search", &Value::Object(body)).header("x-api-key", key)
}

/// The moment after which a result must have been published.
fn since(now: Timestamp, freshness: Freshness) -> Option<String> {
    let days = match freshness {
        Freshness::Day => 1,
        Freshness::Week => 7,
        Freshness::Month => 31,
        Freshness::Year => 366,
    };
    Some(now.checked_sub(SignedDuration::from_hours(24 * days)).ok()?.to_string())
}

pub(super) fn read(answer: &Value) -> Result<Vec<RawResult>, MalformedResponse> {
    let results = answer["results"].as_array().ok_or(MalformedResponse("no list of results"))?;
    Ok(results
        .iter()
        .map(|it| RawResult {
            title: text_or_empty(&it["title"]),
            url: text_or_empty(&it["url"]),
            snippet: [&it["text"], &it["summary"], &it["highlights"][0]]
                .into_iter()
                .find_map(|it| it.as_str().filter(|it| !it.trim().is_empty()))
                .unwrap_or_default()
                .to_owned(),
            published: it["publishedDate"].as_str().map(str::to_owned),
        })
        .collect())
}

/// The text of a page, as Exa has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageContents {
    /// The page's title.
    pub title: Option<String>,
    /// Its address.
    pub url: String,
    /// Its text.
    pub text: String,
}

impl SearchClient {
    /// The text of a page from Exa's own store. `None`: the provider is another one, or it does not have the page.
    pub async fn contents(&self, call: &Call, url: &str) -> Result<Option<PageContents>> {
        if self.provider != SearchProvider::Exa {
            return Ok(None);
        }
        let body = json!({"urls": [url], "text": true});
        let request = wire::post(&self.base, "contents", &body).header("x-api-key", self.key.as_str());
        let answer = wire::send_bounded(&self.client, call, request, MAX_RESPONSE_BYTES).await?;
        fault::check_response(self, &answer)?;
        contents(&answer).map_err(|what| fault::malformed_error(self, &what))
    }
}

fn contents(answer: &HttpResponse) -> Result<Option<PageContents>, MalformedResponse> {
    let answer = wire::json(answer)?;
    let results = answer["results"].as_array().ok_or(MalformedResponse("no list of results"))?;
    Ok(results.first().filter(|it| it["text"].as_str().is_some_and(|it| !it.trim().is_empty())).map(|it| {
        PageContents {
            title: it["title"].as_str().map(|it| clean::single_line(it, 300)).filter(|it| !it.is_empty()),
            url: text_or_empty(&it["url"]),
            text: text_or_empty(&it["text"]),
        }
    }))
}

/// A text, or nothing.
pub(super) fn text_or_empty(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
