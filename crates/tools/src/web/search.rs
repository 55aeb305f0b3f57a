//! `web_search`: asks the configured provider.

use helve_contract::{
    Call, Effects, Origin, Port, PortSet, Reply, Result, Tool,
    jiff::Unit,
    ports::{Freshness, WebQuery, WebResults},
    schemars,
    schemars::JsonSchema,
};
use serde::Deserialize;

/// Searches the web. Returns titles, addresses and a piece of each page; fetch an address to read all of it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebSearchTool {
    /// What to look for.
    pub query: String,
    /// Most results.
    #[serde(default = "default_count")]
    pub count: usize,
    /// Only these domains and what is beneath them.
    #[serde(default)]
    pub only: Vec<String>,
    /// Not these domains.
    #[serde(default)]
    pub without: Vec<String>,
    /// A category of the provider, such as news.
    pub category: Option<String>,
    /// How new.
    pub freshness: Option<Freshness>,
}

fn default_count() -> usize {
    10
}

impl Default for WebSearchTool {
    fn default() -> Self {
        Self {
            query: String::new(),
            count: default_count(),
            only: Vec::new(),
            without: Vec::new(),
            category: None,
            freshness: None,
        }
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct WebSearchOutput {
    /// What was looked for.
    pub query: String,
    /// The call that asked.
    pub call: String,
    /// How long it took.
    pub seconds: f64,
    /// What was found.
    pub found: WebResults,
}

impl Tool for WebSearchTool {
    const NAME: &'static str = "web_search";
    const EFFECTS: Effects = Effects::NETWORK;
    const NEEDS: PortSet = PortSet::of(&[Port::Search]);
    type Output = WebSearchOutput;

    async fn run(self, call: &Call) -> Result<WebSearchOutput> {
        let Self { query, count, only, without, category, freshness } = self;
        let begun = call.now();
        let asked =
            WebQuery { text: query, count, include_domains: only, exclude_domains: without, category, freshness };
        let found = call.web().search(call, &asked).await?;
        let seconds = (call.now() - begun).total(Unit::Second).unwrap_or_default();
        Ok(WebSearchOutput { query: asked.text, call: call.id.clone(), seconds, found })
    }
}

impl WebSearchOutput {
    /// The results as a list, each with its address and a piece of its text; what else is to be said comes last.
    #[must_use]
    pub fn to_list(&self) -> String {
        let mut text = String::new();
        for (at, it) in self.found.results.iter().enumerate() {
            text.push_str(&format!("{}. {}\n   {}\n", at + 1, it.title, it.url));
            if !it.snippet.is_empty() {
                text.push_str(&format!("   {}\n", it.snippet));
            }
        }
        if self.found.results.is_empty() {
            text.push_str("No results found. Try other or fewer words.\n");
        }
        for note in &self.found.notes {
            text.push_str(&format!("[{note}]\n"));
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// The same as a reply: words, and what is to be said about the search.
    #[must_use]
    pub fn into_reply(&self, reply: impl Into<Reply>) -> Reply {
        let mut reply = reply.into();
        reply.notes.extend(self.found.notes.iter().cloned());
        if !self.found.results.is_empty() {
            reply.origin = Some(Origin::unmarked(format!("a search by {}", self.found.provider)));
        }
        reply
    }
}

/// An address as it is shown beneath a title: `example.org/page`.
#[must_use]
pub fn display_url(url: &str) -> String {
    let plain = url.trim_start_matches("https://").trim_start_matches("http://");
    let plain = plain.split(['?', '#']).next().unwrap_or(plain).trim_end_matches('/');
    match plain.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &plain[..end]),
        None => plain.to_owned(),
    }
}

impl From<WebSearchOutput> for Reply {
    fn from(out: WebSearchOutput) -> Self {
        out.into_reply(out.to_list())
    }
}
