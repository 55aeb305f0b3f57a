//! A cache of recently fetched pages, bounded in bytes; the oldest is evicted first.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use helve_contract::{
    jiff::{SignedDuration, Timestamp},
    ports::{FetchRequest, FetchResponse, PageFormat, PageScope, PageSource, RedirectPolicy, SchemePolicy},
};

/// How long a page is taken for fresh.
const TTL: SignedDuration = SignedDuration::from_mins(15);
/// All pages together.
const MAX_TOTAL_BYTES: usize = 32 << 20;
/// One page.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// The request fields that identify a page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey(String, RedirectPolicy, PageFormat, PageScope, SchemePolicy, PageSource);

impl CacheKey {
    pub(crate) fn new(url: &str, wanted: &FetchRequest) -> Self {
        let FetchRequest { redirects, format: style, scope: part, scheme, source: supply, .. } = *wanted;
        Self(url.to_owned(), redirects, style, part, scheme, supply)
    }
}

/// The pages.
#[derive(Default)]
pub(crate) struct PageCache(Mutex<CachedPages>);

#[derive(Default)]
struct CachedPages {
    kept: HashMap<CacheKey, (Timestamp, FetchResponse)>,
    bytes: usize,
}

impl PageCache {
    /// A page that is still fresh.
    pub(crate) fn get(&self, key: &CacheKey, now: Timestamp) -> Option<FetchResponse> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.evict_expired(now);
        let (_, page) = pages.kept.get(key)?;
        Some(FetchResponse { cached: true, ..page.clone() })
    }

    /// Keeps a page.
    pub(crate) fn put(&self, key: CacheKey, page: &FetchResponse, now: Timestamp) {
        let size = size(page);
        if size > MAX_PAGE_BYTES {
            return;
        }
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.evict_expired(now);
        pages.remove(&key);
        while pages.bytes + size > MAX_TOTAL_BYTES {
            let oldest = pages.kept.iter().min_by_key(|(_, (since, _))| *since).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            pages.remove(&oldest);
        }
        pages.bytes += size;
        pages.kept.insert(key, (now, page.clone()));
    }
}

impl CachedPages {
    fn evict_expired(&mut self, now: Timestamp) {
        let old: Vec<_> = self
            .kept
            .iter()
            .filter(|(_, (since, _))| now.duration_since(*since) >= TTL)
            .map(|(key, _)| key.clone())
            .collect();
        for key in old {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &CacheKey) {
        if let Some((_, page)) = self.kept.remove(key) {
            self.bytes = self.bytes.saturating_sub(size(&page));
        }
    }
}

fn size(page: &FetchResponse) -> usize {
    page.text.len() + page.url.len() + page.media.as_ref().map_or(0, |it| it.bytes.len()) + 512
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(bytes: usize) -> FetchResponse {
        FetchResponse { text: "x".repeat(bytes), ..FetchResponse::default() }
    }

    fn key(url: &str) -> CacheKey {
        CacheKey::new(url, &FetchRequest::new(url))
    }

    #[test]
    fn a_page_is_fresh_for_a_quarter_of_an_hour() {
        let cache = PageCache::default();
        let noon: Timestamp = "2026-01-02T12:00:00Z".parse().unwrap();
        cache.put(key("a"), &page(3), noon);
        let at = |minutes| cache.get(&key("a"), noon + SignedDuration::from_mins(minutes)).map(|it| it.cached);
        assert_eq!([at(0), at(14), at(15), at(0)], [Some(true), Some(true), None, None]);
        let other = FetchRequest { format: PageFormat::Text, ..FetchRequest::new("a") };
        cache.put(key("a"), &page(3), noon);
        assert_eq!(cache.get(&CacheKey::new("a", &other), noon), None);
    }

    #[test]
    fn there_is_only_so_much_room() {
        let cache = PageCache::default();
        let noon: Timestamp = "2026-01-02T12:00:00Z".parse().unwrap();
        for at in 0..20 {
            cache.put(key(&at.to_string()), &page(3 << 20), noon + SignedDuration::from_secs(at));
        }
        cache.put(key("huge"), &page(5 << 20), noon);
        let kept: Vec<_> = (0..20).filter(|at| cache.get(&key(&at.to_string()), noon).is_some()).collect();
        assert_eq!(kept, (10..20).collect::<Vec<_>>());
        assert_eq!(cache.get(&key("huge"), noon), None);
    }
}
