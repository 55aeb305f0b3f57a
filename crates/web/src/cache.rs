//! Pages that were fetched a moment ago. Bounded in bytes; the oldest goes first.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use helve_contract::{
    jiff::{SignedDuration, Timestamp},
    ports::{Fetch, Fetched, PagePart, PageStyle, Redirects, Scheme, Supply},
};

/// How long a page is taken for fresh.
const FRESH: SignedDuration = SignedDuration::from_mins(15);
/// All pages together.
const ROOM: usize = 32 << 20;
/// One page.
const LARGEST: usize = 4 << 20;

/// What makes two wishes the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(String, Redirects, PageStyle, PagePart, Scheme, Supply);

impl Key {
    pub(crate) fn of(url: &str, wanted: &Fetch) -> Self {
        let Fetch { redirects, style, part, scheme, supply, .. } = *wanted;
        Self(url.to_owned(), redirects, style, part, scheme, supply)
    }
}

/// The pages.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    kept: HashMap<Key, (Timestamp, Fetched)>,
    bytes: usize,
}

impl Cache {
    /// A page that is still fresh.
    pub(crate) fn get(&self, key: &Key, now: Timestamp) -> Option<Fetched> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.clear_old(now);
        let (_, page) = pages.kept.get(key)?;
        Some(Fetched { cached: true, ..page.clone() })
    }

    /// Keeps a page.
    pub(crate) fn put(&self, key: Key, page: &Fetched, now: Timestamp) {
        let size = size(page);
        if size > LARGEST {
            return;
        }
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.clear_old(now);
        pages.drop_one(&key);
        while pages.bytes + size > ROOM {
            let oldest = pages.kept.iter().min_by_key(|(_, (since, _))| *since).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            pages.drop_one(&oldest);
        }
        pages.bytes += size;
        pages.kept.insert(key, (now, page.clone()));
    }
}

impl Pages {
    fn clear_old(&mut self, now: Timestamp) {
        let old: Vec<_> = self
            .kept
            .iter()
            .filter(|(_, (since, _))| now.duration_since(*since) >= FRESH)
            .map(|(key, _)| key.clone())
            .collect();
        for key in old {
            self.drop_one(&key);
        }
    }

    fn drop_one(&mut self, key: &Key) {
        if let Some((_, page)) = self.kept.remove(key) {
            self.bytes = self.bytes.saturating_sub(size(&page));
        }
    }
}

fn size(page: &Fetched) -> usize {
    page.text.len() + page.url.len() + page.media.as_ref().map_or(0, |it| it.bytes.len()) + 512
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(bytes: usize) -> Fetched {
        Fetched { text: "x".repeat(bytes), ..Fetched::default() }
    }

    fn key(url: &str) -> Key {
        Key::of(url, &Fetch::of(url))
    }

    #[test]
    fn a_page_is_fresh_for_a_quarter_of_an_hour() {
        let cache = Cache::default();
        let noon: Timestamp = "2026-01-02T12:00:00Z".parse().unwrap();
        cache.put(key("a"), &page(3), noon);
        let at = |minutes| cache.get(&key("a"), noon + SignedDuration::from_mins(minutes)).map(|it| it.cached);
        assert_eq!([at(0), at(14), at(15), at(0)], [Some(true), Some(true), None, None]);
        let other = Fetch { style: PageStyle::Text, ..Fetch::of("a") };
        cache.put(key("a"), &page(3), noon);
        assert_eq!(cache.get(&Key::of("a", &other), noon), None);
    }

    #[test]
    fn there_is_only_so_much_room() {
        let cache = Cache::default();
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
