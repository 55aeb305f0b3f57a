//! DuckDuckGo Lite: a page of plain tables, read without a key.

use helve_contract::ports::Freshness;
use url::Url;

use super::{
    clean::{decode_entities, strip_html},
    provider::{RawResult, SearchRequest},
    wire::{self, MalformedResponse},
};
use crate::client::HttpRequest;

pub(super) fn request(base: &Url, asked: &SearchRequest<'_>) -> HttpRequest {
    let words = asked.domains.to_query(&asked.query.text);
    let mut pairs = vec![("q", words.as_str())];
    if let Some(freshness) = asked.query.freshness {
        pairs.push((
            "df",
            match freshness {
                Freshness::Day => "d",
                Freshness::Week => "w",
                Freshness::Month => "m",
                Freshness::Year => "y",
            },
        ));
    }
    let mut request = wire::get(base, "lite/", &pairs);
    request.headers = vec![("Accept".to_owned(), "text/html".to_owned())];
    request
}

/// Whether the page asks for proof that a person is there.
pub(super) fn is_challenge(page: &str) -> bool {
    ["anomaly-modal", "anomaly.js", "challenge-form", "bots use DuckDuckGo too"].iter().any(|it| page.contains(it))
}

/// Reads the page from its beginning to its end, tag by tag; nothing is nested, so nothing can be too deep.
pub(super) fn read(page: &[u8]) -> Result<Vec<RawResult>, MalformedResponse> {
    let page = String::from_utf8_lossy(page);
    let mut found: Vec<RawResult> = Vec::new();
    let mut advert = false;
    let mut rest = page.as_ref();
    while let Some(tag) = next_tag(&mut rest) {
        match (tag.name, tag.value("class").as_deref()) {
            ("tr", class) => advert = class.is_some_and(|it| it.contains("sponsored")),
            ("a", Some("result-link")) if !advert => {
                let target = result_link(&decode_entities(&tag.value("href").unwrap_or_default()));
                // A link of theirs that leads to no page is an advertisement.
                let Some(url) = target else { continue };
                let title = text_until(&mut rest, "</a");
                found.push(RawResult { title: strip_html(title), url, ..RawResult::default() });
            }
            ("td", Some("result-snippet")) if !advert => {
                let snippet = text_until(&mut rest, "</td");
                if let Some(last) = found.last_mut().filter(|it| it.snippet.is_empty()) {
                    last.snippet = strip_html(snippet);
                }
            }
            ("span", Some("timestamp")) if !advert => {
                let time = strip_html(text_until(&mut rest, "</span"));
                if let Some(last) = found.last_mut().filter(|it| it.published.is_none()) {
                    last.published = Some(time.trim().to_owned());
                }
            }
            _ => {}
        }
    }
    let is_ours = page.contains("/lite/") || page.contains("DuckDuckGo") || page.contains("No results");
    if found.is_empty() && !is_ours {
        Err(MalformedResponse("a page without results that is not its own"))
    } else {
        Ok(found)
    }
}

/// Where a link of the page leads. Theirs go through `/l/?uddg=`; what else stays with them is an advertisement.
fn result_link(href: &str) -> Option<String> {
    let whole = if href.starts_with("//") { format!("https:{href}") } else { href.to_owned() };
    let Ok(url) = Url::parse(&whole).or_else(|_| Url::parse("https://duckduckgo.com/")?.join(&whole)) else {
        return None;
    };
    let theirs = url.host_str().is_some_and(|it| it == "duckduckgo.com" || it.ends_with(".duckduckgo.com"));
    match url.path() {
        "/l/" | "/l" if theirs => {
            url.query_pairs().find(|(name, _)| name == "uddg").map(|(_, target)| target.into_owned())
        }
        "/y.js" if theirs => None,
        _ => Some(whole),
    }
}

/// A start tag.
struct StartTag<'a> {
    name: &'a str,
    inside: &'a str,
}

impl StartTag<'_> {
    /// An attribute's value, with or without quotes.
    fn value(&self, name: &str) -> Option<String> {
        let mut rest = self.inside;
        loop {
            rest = rest.trim_start_matches(|it: char| it.is_whitespace() || it == '/');
            let end = rest.find(|it: char| it.is_whitespace() || it == '=').unwrap_or(rest.len());
            if end == 0 {
                return None;
            }
            let this = &rest[..end];
            rest = rest[end..].trim_start();
            let Some(after) = rest.strip_prefix('=').map(str::trim_start) else { continue };
            let (value, left) = match after.chars().next() {
                Some(quote @ ('"' | '\'')) => after[1..].split_once(quote)?,
                _ => after.split_once(char::is_whitespace).unwrap_or((after, "")),
            };
            if this.eq_ignore_ascii_case(name) {
                return Some(value.trim().to_owned());
            }
            rest = left;
        }
    }
}

/// The next start tag; `rest` goes on behind it.
fn next_tag<'a>(rest: &mut &'a str) -> Option<StartTag<'a>> {
    loop {
        let open = rest.find('<')?;
        let after = &rest[open + 1..];
        let length = after.find(|it: char| !it.is_ascii_alphanumeric()).unwrap_or(after.len());
        let end = tag_end(after)?;
        *rest = &after[end + 1..];
        if length > 0 {
            return Some(StartTag { name: &after[..length], inside: &after[length.min(end)..end] });
        }
    }
}

/// Where a tag ends: at a `>` that is in no quotes. A quote that is never closed counts for nothing.
fn tag_end(tag: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in tag.bytes().enumerate().take(8_192) {
        match (byte, quote) {
            (b'>', None) => return Some(at),
            (b'"' | b'\'', None) => quote = Some(byte),
            (byte, Some(open)) if byte == open => quote = None,
            _ => {}
        }
    }
    tag.find('>')
}

/// What stands before an end tag; `rest` goes on behind it.
fn text_until<'a>(rest: &mut &'a str, end: &str) -> &'a str {
    let at = rest.find(end).unwrap_or(rest.len());
    let text = &rest[..at];
    *rest = &rest[at..];
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_where_they_say() {
        let seen = [
            "//duckduckgo.com/l/?uddg=https%3A%2F%2Fwww.rust%2Dlang.org%2F&rut=abc",
            "https://duckduckgo.com/y.js?ad_domain=shop.example&ad_provider=bing",
            "https://plain.example/x",
            "/l/?uddg=https%3A%2F%2Fa.org%2F%3Fq%3D1%26r%3D2",
        ]
        .map(result_link);
        let want =
            [Some("https://www.rust-lang.org/"), None, Some("https://plain.example/x"), Some("https://a.org/?q=1&r=2")];
        assert_eq!(seen, want.map(|it| it.map(str::to_owned)));
    }

    #[test]
    fn broken_pages_end() {
        for page in ["<a class='result-link' href=\"", "<td class=result-snippet>", "<", "<a <a <a", "<tr class='"] {
            assert!(read(page.as_bytes()).map_or(true, |it| it.is_empty()), "{page}");
        }
        let deep = "<b>".repeat(100_000);
        assert_eq!(read(deep.as_bytes()), Err(MalformedResponse("a page without results that is not its own")));
    }
}
