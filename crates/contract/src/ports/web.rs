//! The `Web` port: pages and searches. Implementations check every address before they connect.

use std::time::Duration;

use async_trait::async_trait;

use super::set::Port;
use crate::{Call, Error, Media, Result};

/// Web pages and searches. Addresses of this machine and its network are refused unless the operator allows them.
#[async_trait]
pub trait Web: Send + Sync {
    /// Whether pages can be fetched.
    fn can_fetch(&self) -> bool {
        true
    }
    /// Whether the web can be searched.
    fn can_search(&self) -> bool {
        true
    }
    /// Fetches a page and converts it to text.
    async fn fetch(&self, call: &Call, wanted: &FetchRequest) -> Result<FetchResponse>;
    /// Searches the web. Filters that the provider lacks are applied to its results, with a note.
    async fn search(&self, call: &Call, query: &WebQuery) -> Result<WebResults>;
    /// Answers a question about a text with the small model. `None`: no small model is configured.
    async fn answer_question(&self, _call: &Call, _text: &str, _question: &str) -> Result<Option<String>> {
        Ok(None)
    }
}

/// A request for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The address.
    pub url: String,
    /// How redirects are handled.
    pub redirects: RedirectPolicy,
    /// The format of the text.
    pub format: PageFormat,
    /// Which part of the page to return.
    pub scope: PageScope,
    /// Whether a plain http address is tried over TLS first.
    pub scheme: SchemePolicy,
    /// Where the page comes from.
    pub source: PageSource,
    /// The total timeout.
    pub timeout: Duration,
}

impl FetchRequest {
    /// Requests the article at an address as Markdown, with a timeout of 30 seconds.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            redirects: RedirectPolicy::Follow,
            format: PageFormat::Markdown,
            scope: PageScope::Main,
            scheme: SchemePolicy::AsWritten,
            source: PageSource::Host,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Whether a plain http address is tried over TLS first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemePolicy {
    /// Uses the given scheme.
    AsWritten,
    /// Tries TLS first, and the given scheme only if the host does not support TLS.
    HttpsFirst,
}

/// Where a page comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageSource {
    /// From the host itself.
    Host,
    /// From the search provider if it has this page, otherwise from the host.
    Provider,
}

/// How redirects are handled. The address check applies to every hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RedirectPolicy {
    /// Follows up to ten redirects.
    Follow,
    /// Follows redirects on the same host; one to another host is returned.
    SameHost,
    /// Returns every redirect.
    Never,
}

/// The format of a page's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageFormat {
    /// Markdown.
    Markdown,
    /// Plain text with headings, lists, code, tables, `[Image: alt]` and links.
    Text,
    /// The decoded source.
    Source,
}

/// Which part of a page to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageScope {
    /// The article if there is one, otherwise the whole page.
    Main,
    /// The whole page.
    Whole,
}

/// The response for an address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FetchResponse {
    /// The final address, after redirects.
    pub url: String,
    /// The target of a redirect that was not followed.
    pub redirect_to: Option<String>,
    /// HTTP status.
    pub status: u16,
    /// The status text, such as `OK`.
    pub reason: String,
    /// MIME type, from the header or sniffed.
    pub mime: String,
    /// Bytes of the body after decompression.
    pub bytes: u64,
    /// The page's title.
    pub title: Option<String>,
    /// The page as text; empty for content without text.
    pub text: String,
    /// Whether the text is only the article and the page has more.
    pub is_article_only: bool,
    /// An image.
    pub media: Option<Media>,
    /// Whether it came from the cache.
    pub cached: bool,
    /// Further notes: a truncation, an unusual charset, omitted parts.
    pub notes: Vec<String>,
}

/// A web search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebQuery {
    /// The query.
    pub text: String,
    /// The maximum number of results.
    pub count: usize,
    /// Only these domains and their subdomains.
    pub include_domains: Vec<String>,
    /// None of these domains.
    pub exclude_domains: Vec<String>,
    /// A category of the provider, passed unchanged.
    pub category: Option<String>,
    /// The maximum age of results.
    pub freshness: Option<Freshness>,
}

/// How new a result must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Freshness {
    /// A day.
    Day,
    /// A week.
    Week,
    /// A month.
    Month,
    /// A year.
    Year,
}

/// The results of a web search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebResults {
    /// The search provider.
    pub provider: String,
    /// The address of the provider.
    pub base_url: String,
    /// The results, best first.
    pub results: Vec<WebResult>,
    /// Further notes, such as a filter that was applied afterwards.
    pub notes: Vec<String>,
}

/// One result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebResult {
    /// Title.
    pub title: String,
    /// Address.
    pub url: String,
    /// An excerpt of the text.
    pub snippet: String,
    /// The publication date as the provider wrote it.
    pub published: Option<String>,
}

/// No web.
pub struct NoWeb;

#[async_trait]
impl Web for NoWeb {
    fn can_fetch(&self) -> bool {
        false
    }
    fn can_search(&self) -> bool {
        false
    }
    async fn fetch(&self, _: &Call, _: &FetchRequest) -> Result<FetchResponse> {
        Err(Error::failed(Port::Web.why_missing()))
    }
    async fn search(&self, _: &Call, _: &WebQuery) -> Result<WebResults> {
        Err(Error::failed(Port::Search.why_missing()))
    }
}
