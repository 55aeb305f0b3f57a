//! The web: pages and searches. Makers guard every address before they connect to it.

use std::time::Duration;

use async_trait::async_trait;

use super::set::Port;
use crate::{Call, Error, Media, Result};

/// Pages and searches. No address inside this machine or its network is reached unless the operator allowed it.
#[async_trait]
pub trait Web: Send + Sync {
    /// Whether pages can be fetched at all.
    fn can_fetch(&self) -> bool {
        true
    }
    /// Whether the web can be searched at all.
    fn can_search(&self) -> bool {
        true
    }
    /// Gets a page and turns it into text.
    async fn fetch(&self, call: &Call, wanted: &FetchRequest) -> Result<FetchResponse>;
    /// Searches. Filters that the provider lacks are applied to its results, with a note.
    async fn search(&self, call: &Call, query: &WebQuery) -> Result<WebResults>;
    /// Answers a question about a text with a small model. `None`: there is none.
    async fn answer_question(&self, _call: &Call, _text: &str, _question: &str) -> Result<Option<String>> {
        Ok(None)
    }
}

/// A page to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The address.
    pub url: String,
    /// How redirects are taken.
    pub redirects: RedirectPolicy,
    /// What the text is made like.
    pub format: PageFormat,
    /// How much of the page.
    pub scope: PageScope,
    /// Whether a plain http address is tried over TLS first.
    pub scheme: SchemePolicy,
    /// Who is asked for it.
    pub source: PageSource,
    /// How long in all.
    pub timeout: Duration,
}

impl FetchRequest {
    /// The article at an address as Markdown, within half a minute.
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
    /// As it was written.
    AsWritten,
    /// Over TLS; as it was written only where the host does not speak it.
    HttpsFirst,
}

/// Who is asked for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageSource {
    /// The host itself.
    Host,
    /// The search provider, where it keeps pages and has this one; the host otherwise.
    Provider,
}

/// How redirects are taken. Every hop is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RedirectPolicy {
    /// All of them, up to ten.
    Follow,
    /// Those that stay on the host; another host is an answer of its own.
    SameHost,
    /// None: a redirect is an answer of its own.
    Never,
}

/// What a page's text is made like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageFormat {
    /// Markdown.
    Markdown,
    /// Plain text with headings, lists, code, tables, `[Image: alt]` and links.
    Text,
    /// As it was sent, decoded.
    Source,
}

/// How much of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageScope {
    /// The article, where there is one; the whole page otherwise.
    Main,
    /// Everything on it.
    Whole,
}

/// What came back for an address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FetchResponse {
    /// The address that answered, after redirects.
    pub url: String,
    /// Where a redirect leads that was not followed.
    pub redirect_to: Option<String>,
    /// HTTP status.
    pub status: u16,
    /// Its words: `OK`.
    pub reason: String,
    /// MIME type, from the header or sniffed.
    pub mime: String,
    /// Bytes of the body after decompression.
    pub bytes: u64,
    /// The page's title.
    pub title: Option<String>,
    /// The page as text; empty for what has no text.
    pub text: String,
    /// Whether the text is only the article, and the page has more.
    pub is_article_only: bool,
    /// A picture.
    pub media: Option<Media>,
    /// From the cache.
    pub cached: bool,
    /// What else there is to say: a cut, an odd charset, how much was left out.
    pub notes: Vec<String>,
}

/// A search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebQuery {
    /// The words.
    pub text: String,
    /// How many results at most.
    pub count: usize,
    /// Only these domains and what is beneath them.
    pub include_domains: Vec<String>,
    /// Not these.
    pub exclude_domains: Vec<String>,
    /// A provider's category, as it is.
    pub category: Option<String>,
    /// How new.
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

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebResults {
    /// Who searched.
    pub provider: String,
    /// At which address.
    pub base_url: String,
    /// The results, best first.
    pub results: Vec<WebResult>,
    /// What else there is to say: a filter applied afterwards.
    pub notes: Vec<String>,
}

/// One result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebResult {
    /// Title.
    pub title: String,
    /// Address.
    pub url: String,
    /// A piece of the text.
    pub snippet: String,
    /// When it was published, as the provider wrote it.
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
