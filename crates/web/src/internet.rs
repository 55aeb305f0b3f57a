//! The web as a session sees it: pages from the fetcher, searches from the provider.

use async_trait::async_trait;
use helve_contract::{
    Call, Error, Result,
    ports::{FetchRequest, FetchResponse, PageSource, Web, WebQuery, WebResults},
};

use crate::{fetch::PageFetcher, guard::Target, search::SearchClient};

/// The web: pages, and searches where there is a provider. Questions about pages are for whoever has a model.
pub struct WebAccess {
    fetcher: PageFetcher,
    search: Option<SearchClient>,
}

impl WebAccess {
    /// Pages only.
    pub fn new(fetcher: PageFetcher) -> Self {
        Self { fetcher, search: None }
    }

    /// With a provider of searches.
    pub fn with_search(self, search: SearchClient) -> Self {
        Self { search: Some(search), ..self }
    }

    /// The page as the provider has it. It goes there in our place, so the guard judges the address all the same.
    async fn fetch_from_provider(&self, call: &Call, wanted: &FetchRequest) -> Result<Option<FetchResponse>> {
        let Some(search) = &self.search else { return Ok(None) };
        self.fetcher.client().guard().check_for_proxy(&Target::parse(&wanted.url)?).await?;
        let Some(found) = search.contents(call, &wanted.url).await? else { return Ok(None) };
        Ok(Some(FetchResponse {
            url: found.url,
            status: 200,
            reason: "OK".into(),
            mime: "text/markdown".into(),
            bytes: found.text.len() as u64,
            title: found.title,
            text: found.text,
            ..FetchResponse::default()
        }))
    }
}

#[async_trait]
impl Web for WebAccess {
    async fn fetch(&self, call: &Call, wanted: &FetchRequest) -> Result<FetchResponse> {
        if wanted.source == PageSource::Provider {
            match self.fetch_from_provider(call, wanted).await {
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
}
