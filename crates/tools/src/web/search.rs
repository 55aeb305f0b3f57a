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
pub struct Search {
    /// What to look for.
    pub query: String,
    /// Most results.
    #[serde(default = "ten")]
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

fn ten() -> usize {
    10
}

impl Default for Search {
    fn default() -> Self {
        Self {
            query: String::new(),
            count: ten(),
            only: Vec::new(),
            without: Vec::new(),
            category: None,
            freshness: None,
        }
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchOut {
    /// What was looked for.
    pub query: String,
    /// The call that asked.
    pub call: String,
    /// How long it took.
    pub seconds: f64,
    /// What was found.
    pub found: WebResults,
}

impl Tool for Search {
    const NAME: &'static str = "web_search";
    const EFFECTS: Effects = Effects::NETWORK;
    const NEEDS: PortSet = PortSet::of(&[Port::Search]);
    type Output = SearchOut;

    async fn run(self, call: &Call) -> Result<SearchOut> {
        let Self { query, count, only, without, category, freshness } = self;
        let begun = call.now();
        let asked = WebQuery { text: query, count, only, without, category, freshness };
        let found = call.web().search(call, &asked).await?;
        let seconds = (call.now() - begun).total(Unit::Second).unwrap_or_default();
        Ok(SearchOut { query: asked.text, call: call.id.clone(), seconds, found })
    }
}

impl SearchOut {
    /// The results as a list, each with its address and a piece of its text; what else is to be said comes last.
    #[must_use]
    pub fn listed(&self) -> String {
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
    pub fn told(&self, reply: impl Into<Reply>) -> Reply {
        let mut reply = reply.into();
        reply.notes.extend(self.found.notes.iter().cloned());
        if !self.found.results.is_empty() {
            reply.origin = Some(Origin::of(format!("a search by {}", self.found.provider)));
        }
        reply
    }
}

/// An address as it is shown beneath a title: `example.org/page`.
#[must_use]
pub fn display(url: &str) -> String {
    let plain = url.trim_start_matches("https://").trim_start_matches("http://");
    let plain = plain.split(['?', '#']).next().unwrap_or(plain).trim_end_matches('/');
    match plain.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &plain[..end]),
        None => plain.to_owned(),
    }
}

impl From<SearchOut> for Reply {
    fn from(out: SearchOut) -> Self {
        out.told(out.listed())
    }
}
