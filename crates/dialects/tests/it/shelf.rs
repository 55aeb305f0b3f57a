//! A small web for the pages: three results for every search, and a few addresses.

use helve_contract::{
    Call, Result, async_trait,
    ports::{FetchRequest, FetchResponse, NoWeb, PageFormat, RedirectPolicy, Web, WebQuery, WebResult, WebResults},
};

pub(crate) struct Shelf;

const RESULTS: [(&str, &str, &str, Option<&str>); 3] = [
    ("The Rust Book", "https://doc.rust-lang.org/book/", "An introduction to Rust.", None),
    ("Tokio", "https://tokio.rs/tokio/tutorial", "A runtime for asynchronous Rust.", Some("2026-01-01")),
    ("Rust on Wikipedia", "https://en.wikipedia.org/wiki/Rust_(programming_language)", "", None),
];

#[async_trait]
impl Web for Shelf {
    async fn fetch(&self, call: &Call, wanted: &FetchRequest) -> Result<FetchResponse> {
        let page = |status, reason: &str, text: &str| FetchResponse {
            url: wanted.url.clone(),
            status,
            reason: reason.into(),
            mime: "text/html".into(),
            bytes: text.len() as u64,
            text: text.into(),
            ..FetchResponse::default()
        };
        match wanted.url.as_str() {
            "https://shop.example/" => {
                let link = match wanted.format {
                    PageFormat::Text => "all lamps (https://shop.example/all)",
                    _ => "[all lamps](https://shop.example/all)",
                };
                let text = format!("# Lamps\n\nA lamp is 20 euros; see {link}.\n");
                Ok(FetchResponse {
                    title: Some("The lamp shop".into()),
                    is_article_only: true,
                    ..page(200, "OK", &text)
                })
            }
            "https://long.example/" => {
                let text =
                    format!("{}\nThe last line.\n", "A paragraph of the long page, which has many.\n".repeat(6000));
                Ok(page(200, "OK", &text))
            }
            "https://shop.example/old" if wanted.redirects != RedirectPolicy::Follow => Ok(FetchResponse {
                redirect_to: Some("https://new.example/".into()),
                ..page(301, "Moved Permanently", "")
            }),
            "https://shop.example/gone" => Ok(page(404, "Not Found", "There is no such page.")),
            "https://shop.example/catalogue.zip" => {
                let notes = vec!["application/zip is not text; only what is known about it is given".into()];
                Ok(FetchResponse { mime: "application/zip".into(), bytes: 9, notes, ..page(200, "OK", "") })
            }
            _ => NoWeb.fetch(call, wanted).await,
        }
    }

    async fn search(&self, _: &Call, query: &WebQuery) -> Result<WebResults> {
        let is_of = |url: &str, names: &[String]| names.iter().any(|name| url.contains(name.as_str()));
        let mut notes = Vec::new();
        let results: Vec<_> = RESULTS
            .iter()
            .filter(|(_, url, ..)| query.text != "nothing" && !is_of(url, &query.exclude_domains))
            .filter(|(_, url, ..)| query.include_domains.is_empty() || is_of(url, &query.include_domains))
            .take(query.count)
            .map(|(title, url, snippet, published)| WebResult {
                title: (*title).into(),
                url: (*url).into(),
                snippet: (*snippet).into(),
                published: published.map(Into::into),
            })
            .collect();
        if let Some(category) = &query.category {
            notes.push(format!("DuckDuckGo has no category `{category}`; it was left out"));
        }
        let base_url = "https://lite.duckduckgo.com".into();
        Ok(WebResults { provider: "duckduckgo".into(), base_url, results, notes })
    }
}
