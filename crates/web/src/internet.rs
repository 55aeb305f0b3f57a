//! The web as a session sees it: pages from the fetcher, searches from the provider, answers from a small model.

use std::sync::Arc;

use async_trait::async_trait;
use helve_contract::{
    Call, Error, Result,
    ports::{Fetch, Fetched, Supply, Web, WebQuery, WebResults},
};

use crate::{fetch::Fetcher, guard::Target, search::Search};

/// Answers a question about a text: a small model, most likely.
#[async_trait]
pub trait Answerer: Send + Sync {
    /// The answer; `None` where there is nobody to give one.
    async fn answer(&self, call: &Call, text: &str, question: &str) -> Result<Option<String>>;
}

/// The web: pages, searches, and answers where somebody gives them.
pub struct Internet {
    fetcher: Fetcher,
    search: Option<Search>,
    answerer: Option<Arc<dyn Answerer>>,
}

impl Internet {
    /// Pages only.
    pub fn new(fetcher: Fetcher) -> Self {
        Self { fetcher, search: None, answerer: None }
    }

    /// With a provider of searches.
    pub fn with_search(self, search: Search) -> Self {
        Self { search: Some(search), ..self }
    }

    /// With somebody who answers questions about pages.
    pub fn with_answerer(self, answerer: Arc<dyn Answerer>) -> Self {
        Self { answerer: Some(answerer), ..self }
    }

    /// The page as the provider has it. It goes there in our place, so the guard judges the address all the same.
    async fn provided(&self, call: &Call, wanted: &Fetch) -> Result<Option<Fetched>> {
        let Some(search) = &self.search else { return Ok(None) };
        self.fetcher.client().guard().admit_by_proxy(&Target::parse(&wanted.url)?).await?;
        let Some(found) = search.contents(call, &wanted.url).await? else { return Ok(None) };
        Ok(Some(Fetched {
            url: found.url,
            status: 200,
            reason: "OK".into(),
            mime: "text/markdown".into(),
            bytes: found.text.len() as u64,
            title: found.title,
            text: found.text,
            ..Fetched::default()
        }))
    }
}

#[async_trait]
impl Web for Internet {
    async fn fetch(&self, call: &Call, wanted: &Fetch) -> Result<Fetched> {
        if wanted.supply == Supply::Provider {
            match self.provided(call, wanted).await {
                Ok(Some(page)) => return Ok(page),
                Ok(None) => {}
                // A provider that fails is no reason to have no page; the guard's word is.
                Err(error @ (Error::Denied(_) | Error::Cancelled)) => return Err(error),
                Err(_) => {}
            }
        }
        self.fetcher.fetch(call, wanted).await
    }

    async fn search(&self, call: &Call, query: &WebQuery) -> Result<WebResults> {
        match &self.search {
            Some(search) => search.search(call, query).await,
            None => Err(Error::failed("no provider of searches is configured; ask the user to set search.provider")),
        }
    }

    async fn answer(&self, call: &Call, text: &str, question: &str) -> Result<Option<String>> {
        match &self.answerer {
            Some(answerer) => answerer.answer(call, text, question).await,
            None => Ok(None),
        }
    }
}
