//! The search that the operator chose, and how it is done.

use helve_contract::{
    Call, Error, Result,
    ports::{WebQuery, WebResult, WebResults},
};
use url::Url;

use super::{
    brave,
    clean::{self, SeenUrls},
    domains::DomainFilter,
    duckduckgo, exa, fault, google, searxng, tavily,
    wire::{self, MAX_RESPONSE_BYTES, MalformedResponse},
};
use crate::{
    client::{GuardedClient, HttpRequest, HttpResponse, UpstreamProxy},
    guard::AddressGuard,
};

/// Who searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchProvider {
    /// Exa. Needs a key.
    Exa,
    /// DuckDuckGo Lite. Needs none.
    DuckDuckGo,
    /// A SearXNG server of the operator's choice.
    SearXng,
    /// Brave Search. Needs a key.
    Brave,
    /// Google's custom search. Needs a key and the id of an engine.
    Google,
    /// Tavily. Needs a key.
    Tavily,
}

impl SearchProvider {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Exa, Self::DuckDuckGo, Self::SearXng, Self::Brave, Self::Google, Self::Tavily];

    /// Its name in the settings and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exa => "exa",
            Self::DuckDuckGo => "duckduckgo",
            Self::SearXng => "searxng",
            Self::Brave => "brave",
            Self::Google => "google",
            Self::Tavily => "tavily",
        }
    }

    /// Its name for people.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Exa => "Exa",
            Self::DuckDuckGo => "DuckDuckGo",
            Self::SearXng => "SearXNG",
            Self::Brave => "Brave Search",
            Self::Google => "Google",
            Self::Tavily => "Tavily",
        }
    }

    /// The variable that holds its key, unless the settings name another. `None`: it needs none.
    pub const fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Exa => Some("EXA_API_KEY"),
            Self::Brave => Some("BRAVE_API_KEY"),
            Self::Google => Some("GOOGLE_API_KEY"),
            Self::Tavily => Some("TAVILY_API_KEY"),
            Self::DuckDuckGo | Self::SearXng => None,
        }
    }

    /// Where it is, unless the settings say otherwise.
    const fn address(self) -> Option<&'static str> {
        match self {
            Self::Exa => Some("https://api.exa.ai"),
            Self::DuckDuckGo => Some("https://lite.duckduckgo.com"),
            Self::Brave => Some("https://api.search.brave.com"),
            Self::Google => Some("https://www.googleapis.com"),
            Self::Tavily => Some("https://api.tavily.com"),
            Self::SearXng => None,
        }
    }

    /// The most results of one request.
    const fn max_results(self) -> usize {
        match self {
            Self::Google => 10,
            Self::Brave | Self::Tavily => 20,
            Self::DuckDuckGo | Self::SearXng | Self::Exa => 100,
        }
    }
}

/// What the operator said about searches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchConfig {
    /// `auto` (Exa where its key is set, else DuckDuckGo) or a provider's name.
    pub provider: String,
    /// Where the provider is, instead of its usual address.
    pub base_url: Option<String>,
    /// The variable of the environment that holds the key, instead of the usual one.
    pub key_env: Option<String>,
    /// The id of Google's search engine (`cx`).
    pub engine: Option<String>,
}

/// A provider that is ready to be asked.
#[derive(Clone)]
pub struct SearchClient {
    pub(super) provider: SearchProvider,
    pub(super) base: Url,
    pub(super) key: String,
    engine: String,
    pub(super) client: GuardedClient,
}

/// What is asked of a provider: the words and limits that it knows itself.
pub(super) struct SearchRequest<'a> {
    pub(super) query: &'a WebQuery,
    pub(super) domains: &'a DomainFilter,
    /// How many results to ask for. More than are wanted where some will be left out.
    pub(super) count: usize,
    pub(super) now: helve_contract::jiff::Timestamp,
}

/// One result as the provider wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RawResult {
    pub(super) title: String,
    pub(super) url: String,
    pub(super) snippet: String,
    pub(super) published: Option<String>,
}

impl SearchClient {
    /// A provider by the settings. Keys come from the environment, through `variable`.
    pub fn new(settings: &SearchConfig, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let held = |name: &str| variable(name).map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
        let provider = match settings.provider.as_str() {
            "" | "auto" if held(settings.key_env.as_deref().unwrap_or("EXA_API_KEY")).is_some() => SearchProvider::Exa,
            "" | "auto" => SearchProvider::DuckDuckGo,
            name => SearchProvider::ALL.into_iter().find(|it| it.name() == name).ok_or_else(|| {
                let names: Vec<_> = SearchProvider::ALL.iter().map(|it| it.name()).collect();
                Error::failed(format!("no search provider `{name}`; there are auto, {}", names.join(", ")))
            })?,
        };
        let address = settings.base_url.as_deref().or(provider.address()).ok_or_else(|| {
            Error::failed("SearXNG has no address of its own; set search.base_url to that of a server")
        })?;
        let key = match settings.key_env.as_deref().or(provider.key_variable()) {
            Some(name) => held(name).ok_or(name),
            None => Ok(String::new()),
        };
        let key = match (key, provider.key_variable()) {
            (Ok(key), _) => key,
            (Err(_), None) => String::new(),
            (Err(name), Some(_)) => {
                return Err(Error::failed(format!(
                    "{} needs a key, and the variable {name} holds none; set it, or choose another search.provider",
                    provider.title()
                )));
            }
        };
        let engine = settings.engine.clone().or_else(|| held("GOOGLE_CSE_ID")).unwrap_or_default();
        if provider == SearchProvider::Google && engine.is_empty() {
            return Err(Error::failed("Google needs the id of a search engine; set search.engine or GOOGLE_CSE_ID"));
        }
        let base = wire::parse_base_url(address)?;
        // What the operator wrote may be private; the usual addresses of the services may not.
        let client = match &settings.base_url {
            Some(address) => wire::client_for(&[address])?,
            None => GuardedClient::new(AddressGuard::new().for_service()),
        };
        Ok(Self { provider, base, key, engine, client })
    }

    /// Searches go by this proxy.
    #[must_use]
    pub fn with_proxy(self, proxy: UpstreamProxy) -> Self {
        Self { client: self.client.with_proxy(proxy), ..self }
    }

    /// Who searches.
    pub fn provider(&self) -> SearchProvider {
        self.provider
    }

    /// Where. The operator chose it: it may be a private address.
    pub fn base_url(&self) -> &Url {
        &self.base
    }

    /// Searches.
    pub async fn search(&self, call: &Call, query: &WebQuery) -> Result<WebResults> {
        let (asked, domains) = validate_query(query)?;
        // Some providers return results of other domains despite the filter.
        let spare = if domains.is_empty() { asked.count } else { asked.count.saturating_mul(2) };
        let count = spare.min(self.provider.max_results()).max(1);
        let asked_of = SearchRequest { query: &asked, domains: &domains, count, now: call.now() };
        let answer = wire::send_bounded(&self.client, call, self.request(&asked_of), MAX_RESPONSE_BYTES).await?;
        fault::check_response(self, &answer)?;
        let found = self.read(&answer).map_err(|what| fault::malformed_error(self, &what))?;
        Ok(self.results(&asked, &domains, found))
    }

    fn request(&self, asked: &SearchRequest<'_>) -> HttpRequest {
        match self.provider {
            SearchProvider::Exa => exa::request(&self.base, &self.key, asked),
            SearchProvider::DuckDuckGo => duckduckgo::request(&self.base, asked),
            SearchProvider::SearXng => searxng::request(&self.base, asked),
            SearchProvider::Brave => brave::request(&self.base, &self.key, asked),
            SearchProvider::Google => google::request(&self.base, &self.key, &self.engine, asked),
            SearchProvider::Tavily => tavily::request(&self.base, &self.key, asked),
        }
    }

    fn read(&self, answer: &HttpResponse) -> Result<Vec<RawResult>, MalformedResponse> {
        match self.provider {
            SearchProvider::Exa => exa::read(&wire::json(answer)?),
            SearchProvider::DuckDuckGo => duckduckgo::read(&answer.body),
            SearchProvider::SearXng => searxng::read(&wire::json(answer)?),
            SearchProvider::Brave => brave::read(&wire::json(answer)?),
            SearchProvider::Google => google::read(&wire::json(answer)?),
            SearchProvider::Tavily => tavily::read(&wire::json(answer)?),
        }
    }

    /// The results that are wanted, cleaned, and what is to be said about them.
    fn results(&self, query: &WebQuery, domains: &DomainFilter, found: Vec<RawResult>) -> WebResults {
        let (mut seen, mut strange, mut elsewhere) = (SeenUrls::default(), 0, 0);
        let mut results: Vec<WebResult> = Vec::new();
        for raw in found {
            let Some(url) = clean::result_url(&raw.url) else {
                strange += 1;
                continue;
            };
            if !domains.accepts(&url) {
                elsewhere += 1;
            } else if results.len() < query.count && seen.is_new(&url) {
                results.push(clean::result(raw, &url));
            }
        }
        let mut notes = Vec::new();
        if elsewhere > 0 {
            notes.push(format!("{} left out: not from the wanted domains", result_count(elsewhere)));
        }
        if strange > 0 {
            notes.push(format!("{} left out: not an http or https address", result_count(strange)));
        }
        if let Some(note) = self.unknown_category(query) {
            notes.push(note);
        }
        WebResults { provider: self.provider.name().to_owned(), base_url: display_base(&self.base), results, notes }
    }

    fn unknown_category(&self, query: &WebQuery) -> Option<String> {
        let category = query.category.as_deref()?;
        let known = match self.provider {
            SearchProvider::Exa | SearchProvider::SearXng => true,
            SearchProvider::Tavily => tavily::TOPICS.contains(&category),
            SearchProvider::DuckDuckGo | SearchProvider::Brave | SearchProvider::Google => false,
        };
        (!known).then(|| {
            let category = clean::single_line(category, 40);
            format!("{} has no category `{category}`; it was left out", self.provider.title())
        })
    }
}

/// The query as it is sent: words without control characters, a count that makes sense, domains understood.
fn validate_query(query: &WebQuery) -> Result<(WebQuery, DomainFilter)> {
    let text = clean::single_line(&query.text, MAX_QUERY_CHARS);
    if text.is_empty() {
        return Err(Error::failed("the query is empty; say what to search for"));
    }
    let domains = DomainFilter::new(&query.include_domains, &query.exclude_domains)?;
    let category = query.category.as_ref().map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
    Ok((WebQuery { text, count: query.count.clamp(1, 100), category, ..query.clone() }, domains))
}

/// The most characters of a query.
const MAX_QUERY_CHARS: usize = 400;

/// The base address as it is shown: without a final slash, and without what may be secret in it.
pub(super) fn display_base(base: &Url) -> String {
    let mut shown = base.clone();
    _ = shown.set_username("");
    _ = shown.set_password(None);
    shown.set_query(None);
    shown.set_fragment(None);
    shown.as_str().trim_end_matches('/').to_owned()
}

fn result_count(count: usize) -> String {
    if count == 1 { "1 result was".to_owned() } else { format!("{count} results were") }
}
